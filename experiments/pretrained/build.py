"""Rebuild the bundled models: `python experiments/pretrained/build.py base`, then `… fast`.

Writes the pseudo-labels of its teachers (`teacher.py`), if it has any, trains `configs/NAME.toml`
(a stopped run resumes), packs the bundle into `src/capsar/models/`, and adds an opinion head and a
theme head. Once `out_of_domain.py`, `smoke_set.py` and the speed benchmark have been run,
`--only card` writes their results into the model card.

Needs MAMS, Bing Liu's reviews and, for `fast`, GloVe 6B of 100 dimensions below `CAPSAR_DATA`; for
`base`, all-MiniLM-L6-v2 below `CAPSAR_ENCODERS` (`fetch.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import train
from capsar.bundle import CARD, open_bundle
from capsar.config import list_sources, read_config, run_config
from capsar.training.opinions import add_opinion_head, read_opinions
from guard import close_test_sets
from pretrained.card import LICENSE, VECTORS_LICENSE, facts, render_card, set_card
from pretrained.packing import pack_bundle
from pretrained.sets import BUNDLED, MODELS
from pretrained.teacher import write_pseudo_labels
from pretrained.themes import add_theme_head
from run import CONFIGS, ROOT, WORK, prepare_process, record_commit

if TYPE_CHECKING:
    from capsar.training.loop import StepInfo

STEPS = ("labels", "train", "pack", "opinions", "themes")
CARD_STEP = "card"
OPINIONS = ROOT / "corpus" / "opinions"
OPINION_HEADS = {"base": {"units": 192, "seed": 0}, "fast": {"units": 96, "seed": 0}}
"""Settings of the opinion heads: a slower encoder leaves time for a larger head. Of two seeds for
`base`, this one has the better overlapping F1 on validation, at the same exact F1."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild a bundled model.")
    parser.add_argument("name", choices=BUNDLED)
    parser.add_argument("--vectors", help="the vector file, if it is not below CAPSAR_DATA")
    parser.add_argument(
        "--only", choices=(*STEPS, CARD_STEP), help="one step; default: all except the card"
    )
    options = parser.parse_args()
    name: str = options.name
    close_test_sets()
    prepare_process()
    steps = (options.only,) if options.only else STEPS
    folder = WORK / f"pretrained-{name}"
    config = read_config(CONFIGS / f"{name}.toml")
    if "labels" in steps and config.data.pseudo_labeled:
        print(write_pseudo_labels(list_sources(config.train.teacher)))
    if "train" in steps:
        content = config.as_dict()
        content["data"]["vectors"] = options.vectors or content["data"]["vectors"]
        record_commit(folder)
        train(run_config(content), folder, on_step=_print_epoch)
    if "pack" in steps:
        pack(name, folder)
    if "opinions" in steps:
        train_examples, validation = (
            read_opinions(OPINIONS / f"{part}.jsonl") for part in ("train", "validation")
        )
        settings, bundle = OPINION_HEADS[name], MODELS / name
        print(add_opinion_head(bundle, bundle, train_examples, validation, **settings))
    if "themes" in steps:
        print(add_theme_head(name, MODELS / name))
    if CARD_STEP in steps:
        set_card(name, _card(name, folder))


def pack(name: str, run: Path) -> None:
    """Pack the bundle of a run as the bundled model of that name."""
    trained = open_bundle(run / "bundle")
    # Pseudo-labels are of lines of Bing Liu's data only.
    own = {
        "dataset": "mams, bing-liu, capsar-corpus",
        "license": LICENSE,
        "vectors_license": VECTORS_LICENSE[name],
    }
    settings = {"trained_on": trained.config["trained_on"] | own, "bundled": facts(name)}
    pack_bundle(trained.folder, MODELS / name, card=_card(name, run), settings=settings)


def _card(name: str, run: Path) -> str:
    return render_card(name, (run / "bundle" / CARD).read_text(encoding="utf-8"))


def _print_epoch(info: StepInfo) -> None:
    if info.ends_epoch and info.validation:
        found = info.validation
        shown = f"macro-F1 {found.polarity.macro_f1:.4f}, span F1 {found.span_f1 or 0:.4f}"
        print(f"epoch {info.epoch + 1}: validation {shown}", flush=True)


if __name__ == "__main__":
    main()

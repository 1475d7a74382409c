"""Rebuild the models that ship: `python experiments/ship.py base`, then `… fast`.

Draws the lessons that both learn from (`lessons.py`), for `fast` lets the `base` that ships tell
what it finds in lines of pros and cons (`tell.py`), trains `experiments/configs/NAME.toml` (a
stopped run goes on) and packs the bundle into `src/capsar/models/` (`pack.py`). Once `unseen.py`,
`fifty.py` and `benchmarks/models.py` have judged and timed it, `--only card` writes that into its
card.

Below `CAPSAR_DATA` it needs MAMS, Bing Liu's reviews and, for `fast`, GloVe 6B of 100 dimensions
(`fetch_vectors.py`); below `CAPSAR_ENCODERS`, for `base`, all-MiniLM-L6-v2 (`fetch_encoders.py`).
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import torch

from capsar import train
from capsar.config import read_config, run_config
from lessons import write_lessons
from pack import pack, write_card
from perform import commit_of_code
from runs import CONFIGS, ROOT, WORK
from shipped import SHIPPED
from tell import write_told

if TYPE_CHECKING:
    from capsar.training.loop import StepInfo

STEPS = ("lessons", "train", "pack")
CARD_STEP = "card"
SIDED_LESSONS = 6000
TOLD_LINES = 24000


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild a model that ships.")
    parser.add_argument("name", choices=SHIPPED)
    parser.add_argument("--vectors", help="where the vector file is, if not below CAPSAR_DATA")
    parser.add_argument(
        "--only", choices=(*STEPS, CARD_STEP), help="one step; all but the last without"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.chdir(ROOT)  # paths in configurations are below the root
    steps = (options.only,) if options.only else STEPS
    folder = WORK / f"ship-{options.name}"
    if "lessons" in steps:
        print(write_lessons(CONFIGS / "base.toml", SIDED_LESSONS))
        if options.name == "fast":
            print({"told": write_told("base", TOLD_LINES)})
    if "train" in steps:
        content = read_config(CONFIGS / f"{options.name}.toml").as_dict()
        content["data"]["vectors"] = options.vectors or content["data"]["vectors"]
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "commit").is_file():
            (folder / "commit").write_text(commit_of_code() + "\n")
        train(run_config(content), folder, on_step=_say)
    if "pack" in steps:
        pack(options.name, folder)
    if CARD_STEP in steps:
        write_card(options.name, folder)


def _say(info: StepInfo) -> None:
    if info.ends_epoch and info.dev:
        told = f"macro-F1 {info.dev.polarity.macro_f1:.4f}, span F1 {info.dev.span_f1 or 0:.4f}"
        print(f"epoch {info.epoch + 1}: dev {told}", flush=True)


if __name__ == "__main__":
    main()

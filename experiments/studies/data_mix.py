"""What each training source of the bundled models adds: `python experiments/studies/data_mix.py`.

Trains MiniLM without a teacher on all sources, without each of them, and on a half and a quarter of
the corpus, and evaluates on the validation sources only: `results/data-mix.json`. *bing-liu*: the
published labels, for polarity only, of sentences that the corpus does not annotate. With names of
variants, only these are trained; results of others are kept.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import evaluate, load, train
from capsar.config import read_config, run_config
from capsar.data.catalog import find_file, training_examples
from capsar.evaluation.spans import evaluate_spans, term_sentences
from evaluate import rounded
from guard import close_test_sets
from run import (
    CONFIGS,
    RESULTS,
    WORK,
    describe_study,
    prepare_process,
    read_json,
    record_commit,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from capsar.inference.analyzer import Analyzer

RESULT = RESULTS / "data-mix.json"
CONFIG = CONFIGS / "base.toml"
CORPUS = "capsar-corpus"
VARIANTS = ("all", "corpus/2", "corpus/4", "w/o mams", "w/o bing-liu", "w/o corpus")
VALIDATION = {
    CORPUS: ("capsar-corpus", "validation"),
    "mams": ("mams", "dev"),
    "nikon": ("bing-liu", "train/Nikon_coolpix_4300"),
}
WITHOUT_SPANS = ("nikon",)
"""Not every aspect is marked, and verbs are."""
EPOCHS = 2
PRODUCTS = (
    "train/Apex_AD2600_Progressive_scan_DVD player",
    "train/Canon_G3",
    "train/Creative_Labs_Nomad_Jukebox_Zen_Xtra_40GB",
    "train/Nokia_6610",
    "train-2/Canon_PowerShot_SD500",
    "train-2/Canon_S100",
    "train-2/Diaper_Champ",
    "train-2/Linksys_Router",
    "train-2/MicroMP3",
    "train-2/Nokia_6600",
    "train-2/ipod",
)
"""Bing Liu's training products, whose published labels train polarity only."""


def main(*names: str) -> None:
    close_test_sets()
    prepare_process()
    for name in names or VARIANTS:
        folder = WORK / f"data-mix-{name.replace('/', '-').replace(' ', '')}"
        record_commit(folder)
        found = train(run_config(configure(name)), folder)
        results = read_json(RESULT).get("variants", {})
        results[name] = {
            "commit": (folder / "commit").read_text().strip(),
            "seconds": found.seconds,
            "validation": validate(load(folder / "bundle")),
        }
        about = describe_study("data-mix", "studies/data_mix.py", "torch", "onnxruntime")
        document = about | {"commit": "that of each variant", "epochs": EPOCHS}
        ordered = {name: results[name] for name in VARIANTS if name in results}
        write_json(RESULT, rounded(document | {"variants": ordered}))


def configure(variant: str) -> dict[str, Any]:
    """Return the configuration of a variant: that of `base`, with other data and no teacher."""
    content = read_config(CONFIG).as_dict()
    data = content["data"]
    content["train"] |= {"max_epochs": EPOCHS, "patience": EPOCHS}
    content["train"] |= {"teacher": [], "distill_tags": False}
    data |= {"train": ["mams", CORPUS], "pseudo_labeled": [], "weights": {}}
    data["partially_annotated"] = [f"bing-liu:{product}" for product in PRODUCTS]
    kind, _, part = variant.partition("/")
    if kind == "corpus":
        data["train"] = ["mams", str(write_part(int(part)))]
    elif part == "o bing-liu":
        data["partially_annotated"] = []
    elif part:
        data["train"].remove({"o mams": "mams", "o corpus": CORPUS}[part])
    return content


def write_part(divisor: int) -> Path:
    """Write every n-th sentence of the corpus' training part, by a hash, to a file."""
    path = WORK / "data-mix" / f"corpus-{divisor}.jsonl"
    lines = find_file(CORPUS, "train").read_text(encoding="utf-8").splitlines(keepends=True)
    chosen = [
        line for line in lines if int(sha256(line.encode()).hexdigest()[:8], 16) % divisor == 0
    ]
    write_text(path, "".join(chosen))
    return path


def validate(model: Analyzer) -> dict[str, Any]:
    """Evaluate a model on each validation source."""
    results = {}
    for name, (source, part) in VALIDATION.items():
        examples = training_examples(source, part)
        results[name] = evaluate(model, examples).as_dict()
        if name not in WITHOUT_SPANS:
            sentences = term_sentences(examples)
            found = model.analyze([sentence.text for sentence in sentences])
            results[name]["spans"] = evaluate_spans(sentences, found).as_dict()
    return results


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Is an aspect better answered from its sentence, or from the whole review? On dev parts alone.

`python experiments/review_units.py [RUNS]` judges the bundles of CAPSAR (all seeds, Restaurant and
Laptop; in `runs/`, or wherever RUNS says) on the dev part, read both ways. Hardly a record of these
sets holds more than one sentence (it counts them), so reviews are made: every record among 1, 4 or
9 others of the dev part. They are of many people and do not refer to each other, as sentences of a
real review may. It writes `results/review-units.json`. No test part is opened; the dev part is the
same for all seeds, and is the one that chose the epoch of each.
"""

from __future__ import annotations

import platform
import random
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capsar import AspectSpan, Example, load
from capsar.evaluation.evaluate import compute_predictions, judgeable
from capsar.sentences import split_sentences
from capsar.training.prepare import prepare_data
from perform import commit_of_code, machine_class
from runs import ROOT, WORK, planned, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

DATASETS = ("restaurant", "laptop")
OTHERS = (1, 4, 9)


def among_others(example: Example, others: Sequence[str], place: int) -> Example:
    """Put a record among others, `place` of them before it."""
    before = "".join(f"{text} " for text in others[:place])
    after = "".join(f" {text}" for text in others[place:])
    spans = tuple(AspectSpan(s.start + len(before), s.end + len(before)) for s in example.spans)
    return Example(before + example.text + after, spans, example.polarity)


def own_sentence(example: Example) -> Example:
    """Cut an example down to the sentences from its first mention to its last."""
    first, last = example.spans[0].start, example.spans[-1].end
    touched = [(s, e) for s, e in split_sentences(example.text) if e > first and s < last]
    start, end = min(touched[0][0], first), max(touched[-1][1], last)
    spans = tuple(AspectSpan(s.start - start, s.end - start) for s in example.spans)
    return Example(example.text[start:end], spans, example.polarity)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else WORK
    rights: dict[str, list[float]] = {}
    for run in planned(("capsar",)):
        if run.dataset not in DATASETS:
            continue
        config = run.config()
        dev = judgeable(prepare_data(config.data, config.model, seed=run.seed).dev)
        analyzer = load(folder / run.folder.name / "bundle")
        texts = sorted({example.text for example in dev})
        chance = random.Random(run.seed)
        several = sum(len(split_sentences(text)) > 1 for text in texts)
        rights.setdefault(f"{run.dataset}_several", []).append(several)
        rights.setdefault(f"{run.dataset}_examples", []).append(len(dev))
        parts = {}
        for number in OTHERS:
            parts[f"among_{number}"] = [
                among_others(e, chance.sample(texts, number), chance.randint(0, number))
                for e in dev
            ]
        for part, examples in parts.items():
            for how, read in (("review", examples), ("sentence", [*map(own_sentence, examples)])):
                truth, predicted = compute_predictions(analyzer, read)
                name = f"{run.dataset}_{part}_{how}"
                rights.setdefault(name, []).append(float((truth == predicted).mean()))
        print(run.name, flush=True)
    document = {
        "name": "review-units",
        "command": "python experiments/review_units.py",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", "onnxruntime")},
        "machine": machine_class(),
        "metrics": {name: round(float(np.mean(values)), 4) for name, values in rights.items()},
        "seeds": rights,
    }
    write_json(ROOT / "experiments" / "results" / "review-units.json", document)


if __name__ == "__main__":
    main()

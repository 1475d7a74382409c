"""Classify an aspect in its sentence or in the whole review? `… studies/review_units.py [RUNS]`.

Evaluates the bundles of CAPSAR (all seeds, Restaurant and Laptop; below `runs/` or RUNS) on the
validation set, read both ways. Hardly any record of these sets has more than one sentence, so
reviews are composed: each record among 1, 4 or 9 others. Unlike sentences of a real review, they
come from different people and do not refer to each other. Writes `results/review-units.json`. No
test set is opened; the validation set is the same for all seeds and selected the epoch of each.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import AspectSpan, Example, load
from capsar.evaluation.evaluate import compute_predictions, labeled
from capsar.sentences import split_sentences
from capsar.training.dataset import prepare_data
from run import RESULTS, WORK, describe_study, planned, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

DATASETS = ("restaurant", "laptop")
OTHERS = (1, 4, 9)


def among_others(example: Example, others: Sequence[str], position: int) -> Example:
    """Put a record among others, `position` of them before it."""
    before = "".join(f"{text} " for text in others[:position])
    after = "".join(f" {text}" for text in others[position:])
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
    values: dict[str, list[float]] = {}
    for run in planned(("capsar",)):
        if run.dataset not in DATASETS:
            continue
        config = run.config()
        data = prepare_data(config.data, config.model, seed=run.seed)
        validation = labeled(data.splits.validation)
        analyzer = load(folder / run.folder.name / "bundle")
        texts = sorted({example.text for example in validation})
        rng = random.Random(run.seed)
        several = sum(len(split_sentences(text)) > 1 for text in texts)
        values.setdefault(f"{run.dataset}_several", []).append(several)
        values.setdefault(f"{run.dataset}_examples", []).append(len(validation))
        for number in OTHERS:
            reviews = [
                among_others(e, rng.sample(texts, number), rng.randint(0, number))
                for e in validation
            ]
            units = {"review": reviews, "sentence": [*map(own_sentence, reviews)]}
            for unit, examples in units.items():
                gold, predicted = compute_predictions(analyzer, examples)
                name = f"{run.dataset}_among_{number}_{unit}"
                values.setdefault(name, []).append(float((gold == predicted).mean()))
        print(run.name, flush=True)
    metrics = {name: round(mean(some), 4) for name, some in values.items()}
    about = describe_study("review-units", "studies/review_units.py", "numpy", "onnxruntime")
    write_json(RESULTS / "review-units.json", about | {"metrics": metrics, "seeds": values})


if __name__ == "__main__":
    main()

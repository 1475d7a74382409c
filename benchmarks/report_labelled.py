"""Reported shares of real aspects beside what people labelled: a part of `benchmarks/report.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capsar import load
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import judgeable
from capsar.hub import find_bundle
from capsar.labels import CLASSES
from capsar.reporting.confusion import make_confusion
from capsar.reporting.shares import estimate_shares
from capsar.reporting.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODELS = ("base", "fast")
SETS = ("semeval14-restaurants", "semeval14-laptops", "semeval16-restaurants-english", "television")
"""Test parts, which neither the models nor the report's constants have seen."""
FEWEST = 10
"""Mentions that an aspect must have."""


def judge_labelled() -> dict[str, float]:
    """Return how often the labelled share is inside its interval, and how far estimates are off."""
    metrics: dict[str, float] = {}
    for model in MODELS:
        analyzer = load(model)
        counts = find_bundle(model).config["dev_confusion"]
        confusion = make_confusion(counts, "dev", elsewhere=True)
        inside, off, off_as_told = [], [], []
        for name in SETS:
            examples = judgeable(test_examples(name))
            told = analyzer.predict_lengths(examples).argmax(-1).tolist()
            labels = [CLASSES.index(e.polarity) for e in examples if e.polarity]
            names = [" ".join((e.aspect or "").lower().split()) for e in examples]
            true, tally = _by_aspect(names, labels, told)
            shares = estimate_shares(tally, confusion, of_aspects=True)
            inside.append((shares.low <= true) & (true <= shares.high))
            off.append(abs(shares.share - true))
            off_as_told.append(abs(tally.observed() - true))
        metrics |= {
            f"labelled_intervals_{model}": float(np.concatenate(inside).size),
            f"labelled_coverage_{model}": float(np.concatenate(inside).mean()),
            f"labelled_error_{model}": float(np.concatenate(off).mean()),
            f"labelled_error_as_told_{model}": float(np.concatenate(off_as_told).mean()),
        }
    return metrics


def _by_aspect(
    names: list[str], labels: list[int], told: list[int]
) -> tuple[NDArray[np.float64], Tally]:
    """Return the labelled shares (A, C) of the frequent aspects, and the tally of what was told."""
    frequent = [name for name in dict.fromkeys(names) if names.count(name) >= FEWEST]
    place = {name: number for number, name in enumerate(frequent)}
    counts = np.zeros((2, len(frequent), len(CLASSES)))
    for name, label, answer in zip(names, labels, told, strict=True):
        if name in place:
            counts[0, place[name], label] += 1
            counts[1, place[name], answer] += 1
    true, mentions = counts
    tally = Tally(
        mentions.sum(1), mentions, np.array([np.diag(row) for row in mentions]),
        np.zeros(len(frequent)),
    )  # fmt: skip
    return true / true.sum(1, keepdims=True), tally

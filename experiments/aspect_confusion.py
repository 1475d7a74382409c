"""How much confusion differs from aspect to aspect: `python experiments/aspect_confusion.py`.

The models that ship answer the published training parts of SemEval-14, which they never saw. Of
each aspect that is named often enough, what was told is counted by true class. If all aspects had
the rates of their class, these counts would be multinomial; they vary more, as if each aspect had
drawn rates of its own from a Dirichlet distribution around the common ones. Its concentration is
fitted by maximum likelihood, one for all classes. So is that of whole training parts around the
mean of them all and of the model's own dev part. `capsar.reporting.shares` uses both. No test part
is read.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capsar import load
from capsar.data.catalog import training_examples
from capsar.evaluation.evaluate import judgeable
from capsar.hub import find_bundle
from capsar.labels import CLASSES
from closed import close_test_parts
from perform import commit_of_code, machine_class
from runs import EXPERIMENTS, write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from capsar import Analyzer

RESULT = EXPERIMENTS / "results" / "aspect-confusion.json"
MODELS = ("base", "fast")
OF_ASPECTS = ("semeval14-restaurants", "semeval14-laptops")
CORPORA = (
    *OF_ASPECTS,
    "semeval15-restaurants",
    "semeval16-restaurants-english",
    "twitter",
)
FEWEST = 10
"""Mentions of an aspect in a class, below which it tells nothing of its rates."""


def count_by_aspect(analyzer: Analyzer, name: str) -> dict[str, NDArray[np.int64]]:
    """Return true by told class (C, C) of each aspect of a training part."""
    examples = judgeable(training_examples(name))
    told = analyzer.predict_lengths(examples).argmax(-1).tolist()
    counts: dict[str, NDArray[np.int64]] = {}
    for example, answer in zip(examples, told, strict=True):
        aspect = " ".join((example.aspect or "").lower().split())
        table = counts.setdefault(aspect, np.zeros((len(CLASSES), len(CLASSES)), dtype=np.int64))
        table[CLASSES.index(example.polarity), answer] += 1
    return counts


def fit_concentration(
    tables: list[NDArray[np.int64]], rates: NDArray[np.float64]
) -> tuple[float, Counter[str]]:
    """Return the concentration around some rates, and how many tables each class is in."""
    rows = [
        (rates[number], table[number])
        for table in tables
        for number in range(len(CLASSES))
        if table[number].sum() >= FEWEST
    ]
    grid = np.exp(np.linspace(math.log(2), math.log(1000), 200))
    likelihood = [sum(_log_likelihood(row, k * rate) for rate, row in rows) for k in grid]
    used = Counter(
        str(polarity)
        for table in tables
        for polarity, row in zip(CLASSES, table, strict=True)
        if row.sum() >= FEWEST
    )
    return float(grid[int(np.argmax(likelihood))]), used


def _log_likelihood(counts: NDArray[np.int64], alpha: NDArray[np.float64]) -> float:
    """Of counts under a Dirichlet-multinomial distribution, but for what no alpha changes."""
    whole = math.lgamma(alpha.sum()) - math.lgamma(alpha.sum() + counts.sum())
    return whole + sum(
        math.lgamma(a + n) - math.lgamma(a) for a, n in zip(alpha, counts.tolist(), strict=True)
    )


def rates_of(table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rates (C, C) of a table of counts."""
    rates: NDArray[np.float64] = (table + 0.5) / (table + 0.5).sum(1, keepdims=True)
    return rates


def main() -> None:
    close_test_parts()
    torch.set_num_threads(1)
    aspects, corpora = {}, {}
    for model in MODELS:
        analyzer = load(model)
        whole = [np.array(find_bundle(model).config["dev_confusion"])]
        for name in CORPORA:
            tables = list(count_by_aspect(analyzer, name).values())
            whole.append(np.sum(tables, axis=0))
            if name in OF_ASPECTS:
                fitted = fit_concentration(tables, rates_of(whole[-1]))
                aspects[f"{model}, {name}"] = describe(*fitted)
        fitted = fit_concentration(whole, np.mean([rates_of(table) for table in whole], axis=0))
        corpora[model] = describe(*fitted)
    about = {
        "command": "python experiments/aspect_confusion.py",
        "commit": commit_of_code(),
        "machine": machine_class(),
    }
    write_json(RESULT, about | {"fewest": FEWEST, "aspects": aspects, "corpora": corpora})


def describe(concentration: float, used: Counter[str]) -> dict[str, Any]:
    """Return a fit as JSON holds it."""
    return {"concentration": round(concentration, 1), "fitted_to": dict(used)}


if __name__ == "__main__":
    main()

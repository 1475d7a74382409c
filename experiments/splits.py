"""How much of a published test part stands in its training part? `python experiments/splits.py`.

Counts, of the three sets of the paper, the labelled test examples whose sentence is equal, or half
equal in word 5-grams, to one of the training part. The splits are used as they were published.
"""

from __future__ import annotations

import platform

from capsar.data.catalog import test_examples, training_examples
from capsar.data.overlap import Sharing
from capsar.data.splits import drop_shared
from capsar.evaluation.evaluate import judgeable
from perform import commit_of_code, machine_class
from reproduce import refresh
from runs import DATASETS, EXPERIMENTS, write_json

RESULT = EXPERIMENTS / "results" / "splits.json"


def count_shared(name: str) -> dict[str, int]:
    """Return the sentences that both parts hold, and the test examples that they make up."""
    test = judgeable(test_examples(name))
    cleared = drop_shared(test, {example.text for example in judgeable(training_examples(name))})
    return {
        "exact": cleared.dropped[Sharing.EXACT],
        "near": cleared.dropped[Sharing.NEAR],
        "examples": len(test) - len(cleared.kept),
        "test_examples": len(test),
    }


def main() -> None:
    document = {
        "name": "splits",
        "command": "python experiments/splits.py",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()},
        "machine": machine_class(),
        "shared": {dataset: count_shared(name) for dataset, name in DATASETS.items()},
    }
    write_json(RESULT, document)
    refresh()


if __name__ == "__main__":
    main()

"""Evaluate bundled models and baselines on the corpus' test set and the behavioral suite.

`python experiments/pretrained/corpus_baselines.py` writes `experiments/results/corpus.json`: the
bundled models, VADER on the sentence and on the aspect's clause, and the majority class, each with
the paired difference to VADER on the sentence. Each call opens the test set once. `python
corpus/quality.py` then shows the results in the corpus' card.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import numpy as np
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from capsar import load
from capsar.data.catalog import dataset, test_examples
from capsar.evaluation.behavior import SUITE_SHA256, evaluate_behavior
from capsar.evaluation.evaluate import evaluate, labeled
from capsar.evaluation.spans import evaluate_spans, term_sentences
from capsar.schema import CLASSES, Polarity
from evaluate import confidence, rounded
from pretrained.sets import BUNDLED
from run import RESULTS, describe_study, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example

RESULT = RESULTS / "corpus.json"
CORPUS = "capsar-corpus"
VADER = "VADER, sentence"
_CLAUSE = re.compile(
    r"[,;:.!?()]+\s|\s-+\s|\b(?:but|while|although|though|however|yet|whereas|except|and)\b",
    flags=re.IGNORECASE,
)
_NEUTRAL_BAND = 0.05
"""The threshold that VADER's authors recommend."""
_RESAMPLES = 2000


class Vader:
    """VADER: the polarity of the sentence, or of the aspect's clause, for every aspect."""

    def __init__(self, *, by_clause: bool) -> None:
        self._scorer = SentimentIntensityAnalyzer()
        self._by_clause = by_clause

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return one-hot scores (n, C)."""
        rows = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        for row, example in enumerate(examples):
            text = _clause(example) if self._by_clause else example.text
            compound = self._scorer.polarity_scores(text)["compound"]
            polarity = Polarity.NEUTRAL
            if abs(compound) >= _NEUTRAL_BAND:
                polarity = Polarity.POSITIVE if compound > 0 else Polarity.NEGATIVE
            rows[row, CLASSES.index(polarity)] = 1
        return rows

    def analyze(self, texts: Sequence[str]) -> list[list[Any]]:
        """Return no aspects: VADER does not look for any."""
        return [[] for _ in texts]


class Majority(Vader):
    """The most frequent polarity of the corpus' training set."""

    def __init__(self, polarity: Polarity) -> None:
        self._class = CLASSES.index(polarity)

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return one-hot scores (n, C)."""
        rows = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        rows[:, self._class] = 1
        return rows


def _clause(example: Example) -> str:
    """Return the part of the text between the punctuation or conjunctions around the aspect."""
    span, text = example.spans[0], example.text
    breaks = [match.span() for match in _CLAUSE.finditer(text)]
    start = max((end for _, end in breaks if end <= span.start), default=0)
    end = min((begin for begin, _ in breaks if begin >= span.end), default=len(text))
    return text[start:end]


def main() -> None:
    """Evaluate every model and write the result."""
    labels = dataset(CORPUS).file("train").labels
    majority = Polarity(max(labels, key=labels.__getitem__))
    models: dict[str, Any] = {
        **{name: lambda name=name: load(name) for name in BUNDLED},
        VADER: lambda: Vader(by_clause=False),
        "VADER, clause": lambda: Vader(by_clause=True),
        "majority class": lambda: Majority(majority),
    }
    examples = test_examples(CORPUS)
    vader = _is_right(Vader(by_clause=False), examples)
    about = describe_study(
        "corpus", "pretrained/corpus_baselines.py", "numpy", "onnxruntime", "vaderSentiment"
    )
    document = about | {
        "test_sha256": dataset(CORPUS).file("test").sha256,
        "suite_sha256": SUITE_SHA256,
        "models": {
            name: evaluate_model(build(), examples, vader) for name, build in models.items()
        },
    }
    write_json(RESULT, rounded(document))


def evaluate_model(
    model: Analyzer | Vader, examples: list[Example], vader: NDArray[np.bool_]
) -> dict[str, Any]:
    """Evaluate one model on the test set, whole and by source, and on the suite."""
    result: dict[str, Any] = {
        "test": evaluate(model, examples).as_dict(),
        "minus_vader": paired_difference(_is_right(model, examples), vader, examples),
        "by_source": {
            name: evaluate(model, own).as_dict()["metrics"]
            for name, own in _by_source(examples).items()
        },
        "behavior": evaluate_behavior(model).as_dict(),
    }
    if not isinstance(model, Vader):
        sentences = term_sentences(examples)
        found = model.analyze([sentence.text for sentence in sentences])
        result["spans"] = evaluate_spans(sentences, found).as_dict()
        result["confidence"] = confidence(model, examples)
    return result


def paired_difference(
    right: NDArray[np.bool_], other: NDArray[np.bool_], examples: list[Example]
) -> dict[str, float]:
    """Return the difference of two accuracies with a 95 % interval, resampling sentences."""
    texts = [example.text for example in labeled(examples)]
    _, index = np.unique(texts, return_inverse=True)
    sizes = np.bincount(index)
    gains = np.bincount(index, weights=right.astype(float) - other)
    draws = np.random.default_rng(0).integers(0, len(sizes), (_RESAMPLES, len(sizes)))
    means = gains[draws].sum(-1) / sizes[draws].sum(-1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {"accuracy": float(right.mean() - other.mean()), "low": float(low), "high": float(high)}


def _is_right(model: Analyzer | Vader, examples: list[Example]) -> NDArray[np.bool_]:
    chosen = labeled(examples)
    gold = np.array([CLASSES.index(e.polarity) for e in chosen if e.polarity])
    right: NDArray[np.bool_] = model.predict_lengths(chosen).argmax(-1) == gold
    return right


def _by_source(examples: list[Example]) -> dict[str, list[Example]]:
    """Split the test set into authored sentences and those of real reviews, by their ids."""
    real = [example for example in examples if example.id.startswith("test-reviews")]
    authored = [example for example in examples if not example.id.startswith("test-reviews")]
    return {"authored": authored, "real": real}


if __name__ == "__main__":
    main()

"""What the bundled models are compared with: VADER, the majority class, the previous release."""

from __future__ import annotations

import re
import subprocess
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from capsar.evaluation.evaluate import labeled
from capsar.schema import CLASSES, Polarity
from run import ROOT, WORK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.evaluation.evaluate import Predictor
    from capsar.schema import Example

PREVIOUS_RELEASE = "0.1.0"
PREVIOUS_COMMIT = "485d1b4"
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
            text = clause_of(example) if self._by_clause else example.text
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
    """One polarity for every aspect."""

    def __init__(self, polarity: Polarity) -> None:
        self._class = CLASSES.index(polarity)

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return one-hot scores (n, C)."""
        rows = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        rows[:, self._class] = 1
        return rows


class Remembered:
    """A model that predicts each example once."""

    def __init__(self, model: Predictor) -> None:
        self._model = model
        self._rows: dict[Example, NDArray[np.float32]] = {}

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the model's scores (n, C)."""
        missing = [e for e in dict.fromkeys(examples) if e not in self._rows]
        if missing:
            self._rows.update(zip(missing, self._model.predict_lengths(missing), strict=True))
        return np.stack([self._rows[example] for example in examples])


def clause_of(example: Example) -> str:
    """Return the part of the text between the punctuation or conjunctions around the aspect."""
    span, text = example.spans[0], example.text
    breaks = [match.span() for match in _CLAUSE.finditer(text)]
    start = max((end for _, end in breaks if end <= span.start), default=0)
    end = min((begin for begin, _ in breaks if begin >= span.end), default=len(text))
    return text[start:end]


def previous_bundle(name: str) -> Path:
    """Return the bundle of the previous release, taken from the history of this repository."""
    folder = WORK / f"models-{PREVIOUS_RELEASE}"
    source = f"src/capsar/models/{name}"
    if not (folder / source).is_dir():
        command = ["git", "-C", str(ROOT), "archive", PREVIOUS_COMMIT, source]
        content = subprocess.run(command, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
    return folder / source


def is_right(model: Predictor, examples: Sequence[Example]) -> NDArray[np.bool_]:
    """Return whether the polarity of each labeled example is predicted."""
    chosen = labeled(examples)
    gold = np.array([CLASSES.index(e.polarity) for e in chosen if e.polarity])
    right: NDArray[np.bool_] = model.predict_lengths(chosen).argmax(-1) == gold
    return right


def paired_difference(
    right: NDArray[np.bool_], other: NDArray[np.bool_], examples: Sequence[Example]
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

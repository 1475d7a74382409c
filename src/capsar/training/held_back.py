"""Sentences that nobody learns from: who answers them, and how well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from capsar.evaluation.evaluate import Predictor, compute_predictions
from capsar.evaluation.metrics import Figures, compute_figures
from capsar.training.tune import dev_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.evaluation.extraction import TermSentence


class Reader(Predictor, Protocol):
    """Whatever tells capsule lengths, tags of words, and which words a capsule is about."""

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the logits of each text's words (W, 3), by the extraction head."""
        ...  # pragma: no cover

    def open_capsules(
        self, examples: Sequence[Example]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return the capsule lengths of each text (C), and its words' *about* scores (C, W)."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class DevFigures:
    """How the network does on dev after an epoch."""

    polarity: Figures
    span_f1: float | None = None
    """Of the extraction head, if there is one."""

    @property
    def score(self) -> float:
        """What the epoch is chosen by: macro-F1, and where there is a head, the mean of both."""
        if self.span_f1 is None:
            return self.polarity.macro_f1
        return (self.polarity.macro_f1 + self.span_f1) / 2

    def __str__(self) -> str:
        spans = "" if self.span_f1 is None else f", F1 of found spans {self.span_f1:.4f}"
        polarity = self.polarity
        return f"dev accuracy {polarity.accuracy:.4f}, macro-F1 {polarity.macro_f1:.4f}{spans}"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Examples and sentences, and a network, or several, that did not learn from them."""

    reader: Reader
    examples: Sequence[Example]
    sentences: Sequence[TermSentence]
    """With all their terms, and those without any."""

    def judge(self, *, with_tags: bool) -> DevFigures:
        """Tell how well they are answered."""
        figures = compute_figures(*compute_predictions(self.reader, self.examples))
        if not with_tags:
            return DevFigures(figures)
        return DevFigures(figures, dev_spans(self.reader, self.sentences).f1(0.0))

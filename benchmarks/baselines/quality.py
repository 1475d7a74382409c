"""Quality on the test set, evaluated by the same code as ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import labeled
from capsar.evaluation.metrics import compute_metrics
from capsar.evaluation.spans import TermSentence, evaluate_spans, term_sentences
from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from pathlib import Path

    from baselines.protocol import Prediction, Span
    from baselines.systems import System

DATASET = "semeval14-restaurants"
EVALUATED = ("setfit",)
"""All others are evaluated by `experiments/`, those trained on this set over several seeds."""


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Distinct sentences with the spans and polarities of their labeled aspects."""

    sentences: list[TermSentence]
    spans: list[list[Span]]
    polarities: list[list[Polarity]]

    @property
    def texts(self) -> list[str]:
        """The texts of the sentences."""
        return [sentence.text for sentence in self.sentences]

    def first(self, number: int) -> EvaluationSet:
        """Return the first sentences."""
        return EvaluationSet(self.sentences[:number], self.spans[:number], self.polarities[:number])


@dataclass(frozen=True, slots=True)
class ExtractedAspect:
    """An extracted aspect."""

    start: int
    end: int
    polarity: Polarity


def read_test_set() -> EvaluationSet:
    """Read the test set."""
    examples = test_examples(DATASET)
    aspects: dict[str, list[tuple[Span, Polarity]]] = {example.text: [] for example in examples}
    for example in labeled(examples):
        (span,) = example.spans
        aspects[example.text].append(((span.start, span.end), Polarity(str(example.polarity))))
    return EvaluationSet(
        term_sentences(examples),
        [[span for span, _ in own] for own in aspects.values()],
        [[polarity for _, polarity in own] for own in aspects.values()],
    )


def evaluate_systems(systems: list[System], work: Path, test: EvaluationSet) -> dict[str, float]:
    """Evaluate the systems that are not evaluated elsewhere."""
    metrics: dict[str, float] = {}
    for system in systems:
        if system.name in EVALUATED:
            found = _predict(system, work / f"predictions-{system.name}.json", test)
            own = evaluate_predictions(test, found["classified"], found["extracted"])
            metrics |= {f"{system.name}_{name}": value for name, value in own.items()}
    return metrics


def _predict(system: System, file: Path, test: EvaluationSet) -> dict[str, Any]:
    """Return the predictions of a system, from a file if they are there."""
    stamp = [system.installed.facts["stamp"], len(test.texts)]
    if file.is_file():
        cached: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if cached["stamp"] == stamp:
            return cached
    with system.start() as baseline:
        predictions = {
            "stamp": stamp,
            "extracted": baseline.extract(test.texts),
            "classified": baseline.classify(test.texts, test.spans),
        }
    file.write_text(json.dumps(predictions), encoding="utf-8")
    return predictions


def evaluate_predictions(
    test: EvaluationSet, classified: list[list[str]], extracted: list[list[Prediction]]
) -> dict[str, float]:
    """Return the metrics with given and with extracted aspects."""
    pairs = [
        (CLASSES.index(gold), CLASSES.index(Polarity(predicted)))
        for own, found in zip(test.polarities, classified, strict=True)
        for gold, predicted in zip(own, found, strict=True)
    ]
    gold, predicted = np.array(pairs, dtype=np.int64).T
    metrics = compute_metrics(gold, predicted)
    aspects = [
        [ExtractedAspect(start, end, Polarity(name)) for start, end, name in own]
        for own in extracted
    ]
    extraction = evaluate_spans(test.sentences, aspects)
    return {
        "accuracy": metrics.accuracy,
        "macro_f1": metrics.macro_f1,
        "span_f1": extraction.spans.f1,
        "joint_f1": extraction.joint.f1,
    }

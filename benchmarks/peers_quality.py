"""How well each system answers on the test part, judged by the same code as ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import judgeable
from capsar.evaluation.extraction import TermSentence, judge_extraction, term_sentences
from capsar.evaluation.metrics import compute_figures
from capsar.labels import CLASSES, Polarity

if TYPE_CHECKING:
    from pathlib import Path

    from peers_answering import Found, Place
    from peers_systems import System

DATASET = "semeval14-restaurants"
JUDGED_HERE = ("setfit",)
"""Ours were judged by `experiments/`, those that we trained on this set over several seeds."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The test part as it is asked: distinct sentences, and the judged aspects of each."""

    sentences: list[TermSentence]
    places: list[list[Place]]
    truth: list[list[Polarity]]

    @property
    def texts(self) -> list[str]:
        """The sentences alone."""
        return [sentence.text for sentence in self.sentences]

    def first(self, number: int) -> Questions:
        """Return some of them, to try things out."""
        return Questions(self.sentences[:number], self.places[:number], self.truth[:number])


@dataclass(frozen=True, slots=True)
class Told:
    """An aspect that was found."""

    start: int
    end: int
    polarity: Polarity


def read_questions() -> Questions:
    """Read the test part."""
    examples = test_examples(DATASET)
    asked: dict[str, list[tuple[Place, Polarity]]] = {example.text: [] for example in examples}
    for example in judgeable(examples):
        (span,) = example.spans
        asked[example.text].append(((span.start, span.end), Polarity(str(example.polarity))))
    return Questions(
        term_sentences(examples),
        [[place for place, _ in own] for own in asked.values()],
        [[polarity for _, polarity in own] for own in asked.values()],
    )


def judge_all(systems: list[System], work: Path, questions: Questions) -> dict[str, float]:
    """Ask and judge every system that is not judged elsewhere; what was answered is kept."""
    metrics: dict[str, float] = {}
    for system in systems:
        if system.name in JUDGED_HERE:
            answers = _answers(system, work / f"answers-{system.name}.json", questions)
            own = judge(questions, answers["classified"], answers["found"])
            metrics |= {f"{system.name}_{name}": value for name, value in own.items()}
    return metrics


def _answers(system: System, file: Path, questions: Questions) -> dict[str, Any]:
    stamp = [system.installed.facts["stamp"], len(questions.texts)]
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return kept
    with system.start() as peer:
        answers = {
            "stamp": stamp,
            "found": peer.find(questions.texts),
            "classified": peer.classify(questions.texts, questions.places),
        }
    file.write_text(json.dumps(answers), encoding="utf-8")
    return answers


def judge(
    questions: Questions, classified: list[list[str]], found: list[list[Found]]
) -> dict[str, float]:
    """Return the figures: aspects given, and aspects found."""
    pairs = [
        (CLASSES.index(truth), CLASSES.index(Polarity(told)))
        for own, answers in zip(questions.truth, classified, strict=True)
        for truth, told in zip(own, answers, strict=True)
    ]
    truth, predicted = np.array(pairs, dtype=np.int64).T
    figures = compute_figures(truth, predicted)
    told = [[Told(start, end, Polarity(p)) for start, end, p in own] for own in found]
    extraction = judge_extraction(questions.sentences, told)
    return {
        "accuracy": figures.accuracy,
        "macro_f1": figures.macro_f1,
        "span_f1": extraction.spans.f1,
        "joint_f1": extraction.joint.f1,
    }

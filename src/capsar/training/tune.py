"""Choosing, on the dev part, how sure a capsule or the head must be before it names an aspect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.aspects import find_aspects, sentiment_of
from capsar.data.example import AspectSpan, Example
from capsar.evaluation.extraction import Extraction, judge_extraction
from capsar.tagging import find_spans, span_scores
from capsar.text import segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.evaluation.extraction import TermSentence
    from capsar.text import Span
    from capsar.training.held_back import Reader

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
BIASES = tuple(round(0.25 * step, 2) for step in range(-8, 17))


def choose_about_threshold(reader: Reader, dev: Sequence[Example]) -> tuple[float, float]:
    """Return the threshold with the best exact-span F1 on the dev sentences, and that F1."""
    gold: dict[str, set[tuple[int, int]]] = {}
    for example in dev:
        gold.setdefault(example.text, set()).update((s.start, s.end) for s in example.spans)
    by_text = {example.text: example for example in dev}
    counts = {threshold: Counter[str]() for threshold in THRESHOLDS}
    opened = reader.open_capsules([by_text[text] for text in gold])
    for text, (lengths, scores) in zip(gold, opened, strict=True):
        words = segment(text)
        for threshold, count in counts.items():
            found = find_aspects(text, words, lengths, scores, threshold=threshold)
            spans = {(aspect.start, aspect.end) for aspect in found}
            count["right"] += len(spans & gold[text])
            count["found"] += len(spans)
            count["gold"] += len(gold[text])
    scores_f1 = {
        threshold: 2 * count["right"] / max(1, count["found"] + count["gold"])
        for threshold, count in counts.items()
    }
    best = max(scores_f1, key=lambda threshold: (scores_f1[threshold], threshold))
    return best, float(np.round(scores_f1[best], 6))


@dataclass(frozen=True, slots=True)
class DevSpans:
    """What the extraction head says of the dev sentences, with and without terms."""

    sentences: Sequence[TermSentence]
    words: list[list[Span]]
    logits: list[NDArray[np.float32]]
    """Of each word (W, 3)."""

    def places(self, bias: float) -> list[list[Span]]:
        """Return the characters of the spans found in each sentence."""
        return [
            [(words[first][0], words[end - 1][1]) for first, end in find_spans(logits, bias)]
            for words, logits in zip(self.words, self.logits, strict=True)
        ]

    def f1(self, bias: float) -> float:
        """Return the F1 of exact spans over all sentences: a false one anywhere lowers it."""
        found = self.places(bias)
        right = sum(
            place in sentence.terms
            for sentence, places in zip(self.sentences, found, strict=True)
            for place in places
        )
        gold = sum(len(sentence.terms) for sentence in self.sentences)
        return 2 * right / max(1, gold + sum(map(len, found)))

    def choose_bias(self) -> float:
        """Return the bias of the best F1; of equal ones the largest, which finds the fewest."""
        return max(BIASES, key=lambda bias: (self.f1(bias), bias))


def dev_spans(reader: Reader, sentences: Sequence[TermSentence]) -> DevSpans:
    """Tag the dev sentences."""
    texts = [sentence.text for sentence in sentences]
    return DevSpans(sentences, [segment(text) for text in texts], reader.predict_tags(texts))


@dataclass(frozen=True, slots=True)
class JudgedSpans:
    """What the head finds in dev, at the bias that was chosen there."""

    bias: float
    extraction: Extraction
    texts: list[str]
    """The sentence of each span found."""
    scores: list[float]
    """How sure its tags are."""
    right: list[bool]
    """Whether it is a term, exactly."""


def judge_spans(reader: Reader, sentences: Sequence[TermSentence]) -> JudgedSpans:
    """Choose the bias on the dev sentences, and judge spans and polarities at it."""
    tagged = dev_spans(reader, sentences)
    bias = tagged.choose_bias()
    places = tagged.places(bias)
    flat = [(s, place) for s, some in zip(sentences, places, strict=True) for place in some]
    examples = [Example(sentence.text, (AspectSpan(*place),)) for sentence, place in flat]
    lengths = iter(reader.predict_lengths(examples) if examples else ())
    found = [
        [sentiment_of(s.text, AspectSpan(*place), next(lengths)) for place in some]
        for s, some in zip(sentences, places, strict=True)
    ]
    return JudgedSpans(
        bias,
        judge_extraction(sentences, found),
        [sentence.text for sentence, _ in flat],
        [
            float(score)
            for logits in tagged.logits
            for score in span_scores(logits, find_spans(logits, bias), bias)
        ],
        [place in sentence.terms for sentence, place in flat],
    )

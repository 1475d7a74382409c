"""Extraction metrics, computed by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar import AspectSpan, Example, Polarity
from capsar.errors import DataError
from capsar.evaluation.spans import TermSentence, evaluate_spans, term_sentences
from capsar.schema import CLASSES

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


@dataclass(frozen=True)
class Found:
    start: int
    end: int
    polarity: Polarity = POSITIVE


def example(text: str, *spans: tuple[int, int], polarity: Polarity | None = None) -> Example:
    return Example(text, tuple(AspectSpan(*span) for span in spans), polarity)


def test_terms_are_collected_by_sentence_including_conflict() -> None:
    text, other = "soup, soup and staff", "I came."
    sentences = term_sentences(
        [
            example(text, (0, 4), (6, 10), polarity=POSITIVE),  # every mention is a span
            example(other),
            example(text, (15, 20), polarity=Polarity.CONFLICT),
            example("staff", (0, 5), polarity=POSITIVE),
            example("staff", (0, 5), polarity=NEGATIVE),  # two annotations of one span differ
            example("staff", (0, 5), polarity=POSITIVE),  # a third does not resolve it
        ]
    )
    assert sentences == [
        TermSentence(text, {(0, 4): POSITIVE, (6, 10): POSITIVE, (15, 20): None}),
        TermSentence(other, {}),
        TermSentence("staff", {(0, 5): None}),
    ]


def test_metrics_match_hand_computed_values() -> None:
    sentences = [
        TermSentence("a", {(0, 4): POSITIVE, (6, 10): NEGATIVE, (12, 15): None}),
        TermSentence("b", {}),
        TermSentence("c", {}),
        TermSentence("d", {(0, 3): NEGATIVE}),
    ]
    found = [
        # right in both; right span only; part of a span; conflict: ignored in the joint metric
        [Found(0, 4), Found(6, 10), Found(12, 14), Found(12, 15)],
        [Found(1, 2), Found(3, 4), Found(5, 6)],
        [],
        [Found(0, 3, NEGATIVE), Found(0, 3, NEGATIVE)],  # predicted twice, right once
    ]
    metrics = evaluate_spans(sentences, found)
    assert (metrics.num_sentences, metrics.num_without) == (4, 2)
    assert (metrics.spans.gold, metrics.spans.found, metrics.spans.right) == (4, 9, 4)
    assert metrics.spans.precision == pytest.approx(4 / 9)
    assert metrics.spans.recall == 1
    assert metrics.spans.f1 == pytest.approx(8 / 13)
    assert (metrics.spans_with_terms.found, metrics.spans_with_terms.right) == (6, 4)
    assert (metrics.joint.gold, metrics.joint.found, metrics.joint.right) == (3, 8, 2)
    assert metrics.joint.f1 == pytest.approx(4 / 11)
    assert metrics.false_per_100 == 150


def test_no_predictions_and_no_terms() -> None:
    metrics = evaluate_spans([TermSentence("a", {(0, 1): POSITIVE})], [[]])
    assert (metrics.spans.f1, metrics.joint.f1, metrics.false_per_100) == (0, 0, None)
    empty = evaluate_spans([TermSentence("a", {})], [[]])
    assert (empty.spans.f1, empty.false_per_100) == (0, 0)
    with pytest.raises(DataError, match="no sentence"):
        evaluate_spans([], [])


offsets = st.tuples(st.integers(0, 5), st.integers(6, 9))
terms = st.dictionaries(offsets, st.sampled_from([*CLASSES, None]))
aspects = st.lists(st.builds(lambda p, q: Found(*p, q), offsets, st.sampled_from(CLASSES)))


@given(st.lists(st.tuples(terms, aspects), min_size=1))
def test_right_spans_never_exceed_gold_or_predicted_spans(
    rows: list[tuple[dict, list[Found]]],
) -> None:
    sentences = [TermSentence(str(i), gold) for i, (gold, _) in enumerate(rows)]
    metrics = evaluate_spans(sentences, [found for _, found in rows])
    for part in (metrics.spans, metrics.spans_with_terms, metrics.joint):
        assert part.right <= min(part.gold, part.found)
    assert metrics.joint.right <= metrics.spans.right
    perfect = [[Found(*span, p or POSITIVE) for span, p in gold.items()] for gold, _ in rows]
    best = evaluate_spans(sentences, perfect)
    assert best.spans.right == best.spans.gold == best.spans.found
    assert best.joint.right == best.joint.gold == best.joint.found
    assert not best.false_per_100

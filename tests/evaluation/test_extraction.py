"""Extraction figures, worked by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar import AspectSpan, Example, Polarity
from capsar.errors import DataError
from capsar.evaluation.extraction import TermSentence, judge_extraction, term_sentences
from capsar.labels import CLASSES

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


@dataclass(frozen=True)
class Found:
    start: int
    end: int
    polarity: Polarity = POSITIVE


def example(text: str, *places: tuple[int, int], polarity: Polarity | None = None) -> Example:
    return Example(text, tuple(AspectSpan(*place) for place in places), polarity)


def test_terms_are_gathered_by_sentence_with_those_of_no_class() -> None:
    text, other = "soup, soup and staff", "I came."
    sentences = term_sentences(
        [
            example(text, (0, 4), (6, 10), polarity=POSITIVE),  # every mention is a span
            example(other),
            example(text, (15, 20), polarity=Polarity.CONFLICT),
            example("staff", (0, 5), polarity=POSITIVE),
            example("staff", (0, 5), polarity=NEGATIVE),  # two judgements of one place differ
            example("staff", (0, 5), polarity=POSITIVE),  # and stay different
        ]
    )
    assert sentences == [
        TermSentence(text, {(0, 4): POSITIVE, (6, 10): POSITIVE, (15, 20): None}),
        TermSentence(other, {}),
        TermSentence("staff", {(0, 5): None}),
    ]


def test_figures_by_hand() -> None:
    sentences = [
        TermSentence("a", {(0, 4): POSITIVE, (6, 10): NEGATIVE, (12, 15): None}),
        TermSentence("b", {}),
        TermSentence("c", {}),
        TermSentence("d", {(0, 3): NEGATIVE}),
    ]
    found = [
        # right in both; right span only; half a span; conflict: a span, and no joint matter
        [Found(0, 4), Found(6, 10), Found(12, 14), Found(12, 15)],
        [Found(1, 2), Found(3, 4), Found(5, 6)],
        [],
        [Found(0, 3, NEGATIVE), Found(0, 3, NEGATIVE)],  # told twice, right once
    ]
    figures = judge_extraction(sentences, found)
    assert (figures.num_sentences, figures.num_without) == (4, 2)
    assert (figures.spans.gold, figures.spans.found, figures.spans.right) == (4, 9, 4)
    assert figures.spans.precision == pytest.approx(4 / 9)
    assert figures.spans.recall == 1
    assert figures.spans.f1 == pytest.approx(8 / 13)
    assert (figures.spans_with_terms.found, figures.spans_with_terms.right) == (6, 4)
    assert (figures.joint.gold, figures.joint.found, figures.joint.right) == (3, 8, 2)
    assert figures.joint.f1 == pytest.approx(4 / 11)
    assert figures.false_per_100 == 150


def test_nothing_found_and_nothing_to_find() -> None:
    figures = judge_extraction([TermSentence("a", {(0, 1): POSITIVE})], [[]])
    assert (figures.spans.f1, figures.joint.f1, figures.false_per_100) == (0, 0, None)
    silent = judge_extraction([TermSentence("a", {})], [[]])
    assert (silent.spans.f1, silent.false_per_100) == (0, 0)
    with pytest.raises(DataError, match="no sentence"):
        judge_extraction([], [])


places = st.tuples(st.integers(0, 5), st.integers(6, 9))
terms = st.dictionaries(places, st.sampled_from([*CLASSES, None]))
aspects = st.lists(st.builds(lambda p, q: Found(*p, q), places, st.sampled_from(CLASSES)))


@given(st.lists(st.tuples(terms, aspects), min_size=1))
def test_no_count_exceeds_what_there_is(rows: list[tuple[dict, list[Found]]]) -> None:
    sentences = [TermSentence(str(i), gold) for i, (gold, _) in enumerate(rows)]
    figures = judge_extraction(sentences, [found for _, found in rows])
    for part in (figures.spans, figures.spans_with_terms, figures.joint):
        assert part.right <= min(part.gold, part.found)
    assert figures.joint.right <= figures.spans.right
    perfect = [[Found(*place, p or POSITIVE) for place, p in gold.items()] for gold, _ in rows]
    best = judge_extraction(sentences, perfect)
    assert best.spans.right == best.spans.gold == best.spans.found
    assert best.joint.right == best.joint.gold == best.joint.found
    assert not best.false_per_100

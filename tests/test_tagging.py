"""Tags and spans: Viterbi decoding against all legal tag sequences of short sentences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capsar.inference.decoding import BEGIN, INSIDE, OUTSIDE, decode_spans, encode_tags, span_scores

logits = st.integers(0, 6).flatmap(
    lambda size: arrays(np.float32, (size, 3), elements=st.integers(-4, 4).map(float))
)


def legal(tags: tuple[int, ...]) -> bool:
    return all(
        tag != INSIDE or before != OUTSIDE
        for before, tag in zip((OUTSIDE, *tags), tags, strict=False)
    )


def spans(tags: tuple[int, ...]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for word, tag in enumerate(tags):
        if tag == BEGIN:
            found.append((word, word + 1))
        elif tag == INSIDE:
            found[-1] = (found[-1][0], word + 1)
    return found


@given(logits, st.sampled_from([-2.0, 0.0, 1.5]))
def test_the_best_legal_tags_are_found(scores: np.ndarray, bias: float) -> None:
    moved = scores + np.array([bias, 0, 0], np.float32)
    every = [tags for tags in product(range(3), repeat=len(scores)) if legal(tags)]
    sums = {tags: sum(moved[i, tag] for i, tag in enumerate(tags)) for tags in every}
    best = max(sums.values())
    found = decode_spans(scores, bias)
    assert found in [spans(tags) for tags, total in sums.items() if total == best]
    assert all(0 <= first < end <= len(scores) for first, end in found)


@given(logits)
def test_a_larger_bias_never_tags_more_words(scores: np.ndarray) -> None:
    sizes = [sum(e - f for f, e in decode_spans(scores, bias)) for bias in (-20.0, 0.0, 20.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == len(scores)
    assert sizes[-1] == 0


@given(logits, st.sampled_from([0.0, 1.0]), st.sampled_from([0.01, 0.5, 0.9]))
def test_a_sentence_without_a_likely_span_has_no_aspects(
    scores: np.ndarray, bias: float, threshold: float
) -> None:
    every = decode_spans(scores, bias)
    is_likely = span_scores(scores, every, bias).max(initial=0) >= threshold
    assert decode_spans(scores, bias, threshold) == (every if is_likely else [])


def test_gold_spans_are_encoded_as_tags() -> None:
    words = [(0, 3), (4, 11), (12, 16), (17, 20), (20, 21)]
    assert encode_tags(words, [(4, 16), (17, 20)]) == [0, 1, 2, 1, 0]
    assert encode_tags(words, [(13, 15)]) == [0, 0, 1, 0, 0]  # ends inside a word
    assert encode_tags(words, [(4, 16), (12, 20)]) == [0, 1, 1, 2, 0]  # two share a word
    assert encode_tags(words, [(3, 4)]) == [0] * 5  # only white space
    assert encode_tags([], []) == []


def test_span_scores_by_hand() -> None:
    shares = np.array([[0.2, 0.8, 0.0], [0.1, 0.1, 0.8], [0.7, 0.2, 0.1]])
    scores = np.log(shares + 1e-12).astype(np.float32)
    both, alone, last = span_scores(scores, [(0, 2), (0, 1), (2, 3)])
    assert both == pytest.approx(0.8 * 0.8 * 0.9, abs=1e-5)
    assert alone == pytest.approx(0.8 * 0.2, abs=1e-5)
    assert last == pytest.approx(0.2, abs=1e-5)
    assert (span_scores(scores, [(0, 2)], bias=1.0) < both).all()

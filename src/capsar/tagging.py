"""Tags of words (outside, begin, inside an aspect) <-> spans of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capsar.text import words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from capsar.text import Span

OUTSIDE, BEGIN, INSIDE = range(3)
NUM_TAGS = 3
UNTOLD = -1
"""Stands where nobody knows the tag."""


def tags_of(words: Sequence[Span], spans: Iterable[Span]) -> list[int]:
    """Return the tag of each word, given the characters of the aspects.

    A word that an aspect only touches belongs to it. Of aspects that share a word, the later one
    begins anew there.

    >>> tags_of([(0, 3), (4, 11), (12, 16), (17, 20)], [(4, 16)])
    [0, 1, 2, 0]
    """
    tags = [OUTSIDE] * len(words)
    for start, end in sorted(spans):
        touched = words_within(words, start, end)
        for word in touched:
            tags[word] = BEGIN if word == touched[0] else INSIDE
    return tags


def find_spans(logits: NDArray[np.float32], bias: float = 0.0) -> list[tuple[int, int]]:
    """Return the words of each aspect, first and one past the last, of the best legal tags.

    Legal is whatever does not begin inside an aspect. The best tags are those of the largest sum of
    logits (W, 3); of equal ones, the first in the order outside, begin, inside.

    Args:
        logits: Of each word.
        bias: Added to that of being outside: the larger, the fewer aspects.

    >>> find_spans(np.array([[0, 1, 9], [0, 5, 1], [0, 1, 2], [3, 0, 0]], np.float32))
    [(0, 1), (1, 3)]
    """
    scores = biased(logits, bias)
    tags = scores.argmax(-1)
    before = np.concatenate([[OUTSIDE], tags[:-1]]) if len(tags) else tags
    if ((tags == INSIDE) & (before == OUTSIDE)).any():
        tags = _best_legal(scores)
    found: list[tuple[int, int]] = []
    for word in np.flatnonzero(tags != OUTSIDE).tolist():
        if tags[word] == BEGIN:
            found.append((word, word + 1))
        else:
            found[-1] = (found[-1][0], word + 1)
    return found


def biased(logits: NDArray[np.float32], bias: float) -> NDArray[np.float32]:
    """Return logits (..., 3) in which being outside an aspect is the likelier by `bias`."""
    return logits + np.array([bias, 0, 0], dtype=logits.dtype)


def _best_legal(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The legal tags of the largest sum (Viterbi): inside only after begin or inside."""
    best = scores[0].astype(np.float64)
    best[INSIDE] = -np.inf
    origins = np.zeros(scores.shape, dtype=np.int64)
    for word in range(1, len(scores)):
        anywhere = int(best.argmax())
        within = BEGIN + int(best[BEGIN:].argmax())
        origins[word] = (anywhere, anywhere, within)
        best = best[origins[word]] + scores[word]
    tags = np.zeros(len(scores), dtype=np.int64)
    tags[-1] = best.argmax()
    for word in range(len(scores) - 1, 0, -1):
        tags[word - 1] = origins[word, tags[word]]
    return tags


def span_scores(
    logits: NDArray[np.float32], spans: Sequence[tuple[int, int]], bias: float = 0.0
) -> NDArray[np.float64]:
    """Return how sure the tags of each span are: the product of what its words' tags are held for.

    That is the likelihood that it begins, goes on and ends where it does, were words independent.
    They are not, so that it is no probability yet: a calibration makes it one.
    """
    scores = biased(logits, bias).astype(np.float64)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)  # (W, 3)
    found = np.ones(len(spans))
    for row, (first, end) in enumerate(spans):
        found[row] = shares[first, BEGIN] * shares[first + 1 : end, INSIDE].prod()
        if end < len(shares):
            found[row] *= 1 - shares[end, INSIDE]
    return found

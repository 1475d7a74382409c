"""Network outputs -> predictions: tags -> spans, capsules -> aspects, scores -> confidences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, repeat
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.calibration import Calibration, binary_scores
from capsar.schema import CLASSES, AspectSentiment, Opinion
from capsar.tokenizer import words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.tokenizer import Span

OUTSIDE, BEGIN, INSIDE = range(3)
NUM_TAGS = 3
IGNORE_INDEX = -1
"""The tag of unlabeled words, which the loss ignores."""

MAX_DISTANCE = 20
"""Words farther from an aspect count as this far."""

OPINION_WINDOW = 64
"""The number of words around an aspect among which its opinion phrases are found."""

SPANS_MODE, CAPSULES_MODE = MODES = ("spans", "capsules")
"""How aspects are extracted: by the span head, or, as in the paper, from the capsules."""

_CERTAIN = 50.0
"""Added to the logit of a tag that is certain."""
ACTIVE_LENGTH = 0.5
"""A sentiment capsule longer than this is active (the paper's example)."""


def encode_tags(words: Sequence[Span], spans: Iterable[Span]) -> list[int]:
    """Return the tag of each word, given the character offsets of the aspects.

    A word that overlaps an aspect belongs to it. If aspects share a word, the later one begins
    there.

    >>> encode_tags([(0, 3), (4, 11), (12, 16), (17, 20)], [(4, 16)])
    [0, 1, 2, 0]
    """
    tags = [OUTSIDE] * len(words)
    for start, end in sorted(spans):
        covered = words_within(words, start, end)
        for word in covered:
            tags[word] = BEGIN if word == covered[0] else INSIDE
    return tags


def decode_spans(
    logits: NDArray[np.float32], bias: float = 0.0, threshold: float = 0.0
) -> list[Span]:
    """Return the word spans of the best legal tag sequence.

    A sequence is legal if INSIDE never follows OUTSIDE. The best one has the largest sum of logits.

    Args:
        logits: Of each word (W, 3).
        bias: Added to the logit of OUTSIDE: a larger value gives fewer aspects.
        threshold: If no span of the sentence has this score, it has no aspects.

    >>> decode_spans(np.array([[0, 1, 9], [0, 5, 1], [0, 1, 2], [3, 0, 0]], np.float32))
    [(0, 1), (1, 3)]
    """
    scores = logits + np.array([bias, 0, 0], dtype=logits.dtype)
    tags: list[int] = scores.argmax(-1).tolist()
    if any(tag == INSIDE and before == OUTSIDE for before, tag in pairwise([OUTSIDE, *tags])):
        tags = _best_legal_tags(scores.tolist())
    spans: list[Span] = []
    for word, tag in enumerate(tags):
        if tag == BEGIN:
            spans.append((word, word + 1))
        elif tag == INSIDE:
            spans[-1] = (spans[-1][0], word + 1)
    if threshold and spans and span_scores(logits, spans, bias).max() < threshold:
        return []
    return spans


def _best_legal_tags(scores: list[list[float]]) -> list[int]:
    """Return the legal tags with the largest sum of scores (Viterbi)."""
    outside, begin, inside = scores[0]
    best = (outside, begin, -inf)
    origins = []
    for outside, begin, inside in scores[1:]:
        anywhere = best.index(max(best))
        within = BEGIN if best[BEGIN] >= best[INSIDE] else INSIDE
        origins.append((anywhere, anywhere, within))
        best = (best[anywhere] + outside, best[anywhere] + begin, best[within] + inside)
    tags = [best.index(max(best))]
    for origin in reversed(origins):
        tags.append(origin[tags[-1]])
    return tags[::-1]


def span_scores(
    logits: NDArray[np.float32], spans: Sequence[Span], bias: float = 0.0
) -> NDArray[np.float64]:
    """Return the score of each span: the product of the probabilities of its tags.

    Tags are not independent, so the score is not a probability before it is calibrated.
    """
    if not spans:
        return np.ones(0)
    scores = (logits + np.array([bias, 0, 0], dtype=logits.dtype)).astype(np.float64)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)  # (W, 3)
    found = np.ones(len(spans))
    for row, (first, end) in enumerate(spans):
        inside = probabilities[first + 1 : end, INSIDE].prod()
        found[row] = probabilities[first, BEGIN] * inside
        if end < len(probabilities):
            found[row] *= 1 - probabilities[end, INSIDE]
    return found


def aspect_distances(aspect: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the index of each word's signed distance to the nearest word of the aspect (A, W).

    The index of distance zero, within the aspect, is `MAX_DISTANCE`.

    >>> aspect_distances(np.array([[False, True, True, False]])).tolist()
    [[19, 20, 20, 21]]
    """
    positions = np.arange(aspect.shape[1])
    far = len(positions) + MAX_DISTANCE
    before = np.maximum.accumulate(np.where(aspect, positions, -far), axis=1)  # (A, W)
    after = np.minimum.accumulate(np.where(aspect, positions, 2 * far)[:, ::-1], axis=1)[:, ::-1]
    is_after = positions - before <= after - positions  # the word follows the nearest one
    signed = np.where(is_after, positions - before, positions - after)
    return np.clip(signed, -MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE


def opinion_window(num_words: int, first_word: int) -> range:
    """Return the words of a sentence that the opinion head reads: those around an aspect.

    >>> opinion_window(10, 3), opinion_window(200, 100)
    (range(0, 10), range(68, 132))
    """
    start = max(0, min(first_word - OPINION_WINDOW // 2, num_words - OPINION_WINDOW))
    return range(start, min(num_words, start + OPINION_WINDOW))


def decode_opinions(
    logits: NDArray[np.float32], allowed: NDArray[np.bool_], bias: float
) -> list[list[tuple[Span, float]]]:
    """Return the word spans of the opinion phrases of each aspect, with their scores.

    Args:
        logits: Of each word (A, W, 3).
        allowed: The words that may belong to a phrase (A, W): not those of the aspect.
        bias: Added to the logit of OUTSIDE.
    """
    scores = logits.astype(np.float64)
    scores[..., OUTSIDE] += np.where(allowed, bias, _CERTAIN)
    tags = scores.argmax(-1)  # (A, W)
    before = np.pad(tags, ((0, 0), (1, 0)))[:, :-1]
    illegal = ((tags == INSIDE) & (before == OUTSIDE)).any(1)
    for row in np.flatnonzero(illegal).tolist():
        tags[row] = _best_legal_tags(scores[row].tolist())
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)  # (A, W, 3)
    ended = 1 - np.pad(probabilities[..., INSIDE], ((0, 0), (0, 1)))  # (A, W + 1)
    rows, words = np.nonzero(tags != OUTSIDE)
    own_tags = tags[rows, words]
    own = (rows, words, own_tags, probabilities[rows, words, own_tags])
    phrases: list[list[tuple[int, int, float]]] = [[] for _ in logits]
    for row, word, tag, score in zip(*(values.tolist() for values in own), strict=True):
        if tag == BEGIN:
            phrases[row].append((word, word + 1, score))
        else:
            first, _, product = phrases[row][-1]
            phrases[row][-1] = (first, word + 1, product * score)
    return [
        [((first, end), score * float(ended[row, end])) for first, end, score in some]
        for row, some in enumerate(phrases)
    ]


@dataclass(frozen=True, slots=True)
class FoundAspects:
    """The aspects of a text, to be decoded."""

    text: str
    spans: Sequence[Span]
    """Character offsets of each aspect."""
    lengths: NDArray[np.float32]
    """Capsule lengths (A, C)."""
    scores: NDArray[np.float64] | None = None
    """Span scores (A), if the aspects were extracted."""
    opinions: Sequence[Sequence[tuple[Span, float]]] | None = None
    """The character offsets and scores of each aspect's opinion phrases."""
    windowed: bool = False
    """Whether the words are a window of a long sentence."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Capsule lengths and span scores -> `AspectSentiment`, with confidences where calibrated."""

    polarity: Calibration | None = None
    aspect: Calibration | None = None
    opinion: Calibration | None = None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Decoder:
        """Read the calibrations of a bundle's configuration.

        Raises:
            ArtifactError: If they are damaged.
        """
        content = config.get("calibration")
        found = content if isinstance(content, dict) else {}
        sizes = {"polarity": len(CLASSES), "aspect": 2, "opinion": 2}
        return cls(
            **{
                name: Calibration.from_dict(found[name], size)
                for name, size in sizes.items()
                if found.get(name) is not None
            }
        )

    def decode(
        self, found: Sequence[FoundAspects], *, min_confidence: float = 0.0
    ) -> Iterator[list[AspectSentiment]]:
        """Yield the predictions of each text; confidences of all of them are computed together.

        Args:
            found: The aspects of each text.
            min_confidence: Predictions with a lower confidence are marked as abstained.
        """
        none = np.zeros((0, len(CLASSES)), dtype=np.float32)
        lengths = np.concatenate([none, *(one.lengths for one in found)])
        classes = lengths.argmax(-1)
        confidences: Iterator[float | None] = repeat(None)
        if self.polarity is not None:
            probabilities = self.polarity.apply(lengths)
            confidences = iter(probabilities[np.arange(len(classes)), classes].tolist())
        scores = [score for one in found if one.scores is not None for score in one.scores]
        aspect_confidences = _confidences(self.aspect, scores)
        phrase_scores = [score for one in found for own in one.opinions or () for _, score in own]
        phrase_confidences = _confidences(self.opinion, phrase_scores)
        rows = zip(classes.tolist(), lengths.tolist(), strict=True)
        for one in found:
            aspects = []
            for row, (start, end) in enumerate(one.spans):
                index, own_lengths = next(rows)
                confidence = next(confidences)
                aspect_confidence = None if one.scores is None else next(aspect_confidences)
                known = [c for c in (confidence, aspect_confidence) if c is not None]
                phrases = None
                if one.opinions is not None:
                    some = [
                        Opinion(one.text[first:last], first, last, next(phrase_confidences))
                        for (first, last), _ in one.opinions[row]
                    ]
                    phrases = tuple(sorted(some, key=lambda opinion: opinion.start))
                aspects.append(
                    AspectSentiment(
                        text=one.text[start:end],
                        start=start,
                        end=end,
                        polarity=CLASSES[index],
                        scores=dict(zip(CLASSES, own_lengths, strict=True)),
                        confidence=confidence,
                        aspect_confidence=aspect_confidence,
                        abstained=bool(known) and min(known) < min_confidence,
                        windowed=one.windowed,
                        opinions=phrases,
                    )
                )
            yield aspects


def _confidences(
    calibration: Calibration | None, scores: Sequence[float]
) -> Iterator[float | None]:
    """Return the calibrated probabilities of span scores; None for each without calibration."""
    if calibration is None:
        return repeat(None)
    return iter(calibration.apply(binary_scores(np.array(scores)))[:, 1].tolist())


def decode_capsules(
    text: str,
    words: Sequence[Span],
    lengths: NDArray[np.float32],
    similarity: NDArray[np.float32],
    *,
    threshold: float,
) -> list[AspectSentiment]:
    """Return the aspects that the active capsules refer to.

    Each active capsule claims its most similar word and all words with a similarity of at least
    `threshold`. A word claimed by several capsules goes to the one with the largest product of
    length and similarity. Adjacent words of one capsule form one aspect. Punctuation is never part
    of an aspect.

    Args:
        text: The text.
        words: Its words.
        lengths: Of the sentiment capsules (C).
        similarity: Of each capsule and word (C, W or more).
        threshold: Minimum similarity.
    """
    is_word = np.array([any(map(str.isalnum, text[start:end])) for start, end in words], dtype=bool)
    if not is_word.any():
        return []
    active = np.isin(np.arange(len(CLASSES)), active_capsules(lengths)[0])  # (C)
    scores = np.where(is_word, similarity[:, : len(words)], -np.inf)  # (C, W)
    claims = (scores >= threshold) | (scores == scores.max(1, keepdims=True))
    claims &= is_word & active[:, None]
    weighted = np.where(claims, scores * lengths[:, None], -np.inf)  # (C, W)
    owners = np.where(claims.any(0), weighted.argmax(0), -1).tolist()  # (W)
    aspects: list[AspectSentiment] = []
    previous = -1
    for (start, end), capsule in zip(words, owners, strict=True):
        if capsule >= 0:
            first = aspects.pop().start if capsule == previous else start
            aspects.append(
                AspectSentiment(
                    text=text[first:end],
                    start=first,
                    end=end,
                    polarity=CLASSES[capsule],
                    scores=dict(zip(CLASSES, lengths.tolist(), strict=True)),
                )
            )
        previous = capsule
    return aspects


@dataclass(frozen=True, slots=True)
class CapsuleScores:
    """The sentiment capsules of a sentence."""

    lengths: NDArray[np.float32]
    """Of the capsules (C)."""
    scores: NDArray[np.float32]
    """Of each capsule and word (C, W)."""


def active_capsules(lengths: NDArray[np.float32]) -> tuple[list[int], bool]:
    """Return the active capsules, or else the longest one, and whether any is active."""
    active = np.flatnonzero(lengths > ACTIVE_LENGTH).tolist()
    return (active, True) if active else ([int(lengths.argmax())], False)

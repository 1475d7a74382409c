"""Texts and aspects -> requests in batches: validate, split reviews, locate mentions, pad."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import DataError
from capsar.schema import CLASSES, AspectSpan, find_mentions
from capsar.sentences import iterate_sentences, iterate_windows, split_sentences
from capsar.tokenizer import Span, tokenize_words, words_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.tokenizer import Encoding

MAX_BATCH_IDS = 8192
_MAX_BATCH_SENTENCES = 64
_PADDED_IDS, _PADDED_SHARE = 32, 0.05
"""The padding of a batch: at most so many ids, or this share of them."""

Aspect = str | AspectSpan
"""An aspect as its exact characters (every occurrence is a mention), or as one position."""


@dataclass(frozen=True, slots=True)
class Request:
    """The words to process of a text, and the mentions of each aspect (none: no aspect)."""

    text: str
    words: list[Span]
    aspects: list[tuple[AspectSpan, ...]]
    windowed: bool = False
    """Whether the words are a window of a long sentence."""

    @classmethod
    def whole_text(cls, text: str, spans: tuple[AspectSpan, ...] = ()) -> Request:
        """Return a request for all words of a text and one aspect, or none."""
        return cls(text, tokenize_words(text), [spans])

    def tokens(self) -> list[str]:
        """Return the words as strings."""
        return [self.text[start:end] for start, end in self.words]

    def mentions(self, aspect: int) -> list[range]:
        """Return the words of each mention of an aspect."""
        found = (words_within(self.words, span.start, span.end) for span in self.aspects[aspect])
        return [words for words in found if words]


def check_text(text: object) -> None:
    """Raise a `DataError` if `text` is not a string."""
    if not isinstance(text, str):
        raise DataError(
            f"A text must be a string, got {shortened(text)} ({type(text).__name__}). Use '' for "
            "missing texts; for a pandas column: .fillna('')"
        )


def check_many(given: object, what: str) -> None:
    """Raise a `DataError` if `given` is a string, a mapping, a table or not iterable."""
    expected = f"Expected a list of {what}, got"
    if isinstance(given, str | bytes):
        raise DataError(f"{expected} one string. Put it in a list.")
    if isinstance(given, Mapping):
        raise DataError(f"{expected} a mapping, whose keys are not {what}. Pass its values.")
    if hasattr(given, "columns"):  # of pandas, polars or Arrow
        kind = type(given).__name__
        raise DataError(f"{expected} a table ({kind}). Pass one column of it: frame['review'].")
    if not isinstance(given, Iterable):
        raise DataError(f"{expected} {shortened(given)} ({type(given).__name__}).")


def as_list(aspects: Aspect | Sequence[Aspect]) -> list[Aspect]:
    """Return one or several aspects as a list."""
    if isinstance(aspects, str | AspectSpan) or not isinstance(aspects, Iterable):
        return [aspects]
    return list(aspects)


def locate(text: str, aspect: Aspect) -> tuple[AspectSpan, ...]:
    """Return the mentions of an aspect in a text.

    Raises:
        DataError: If it is not an aspect or the text does not contain it.
    """
    if isinstance(aspect, str):
        return find_mentions(text, aspect)
    if not isinstance(aspect, AspectSpan):
        raise DataError(f"An aspect is a string or an AspectSpan, got {type(aspect).__name__}")
    if aspect.end > len(text):
        raise DataError(
            f"The aspect at {aspect.start}:{aspect.end} ends outside the text, which has "
            f"{len(text)} characters"
        )
    return (aspect,)


def iterate_requests(text: str) -> Iterator[Request]:
    """Yield a request without aspects per sentence, or per window of a long sentence."""
    for sentence in iterate_sentences(text):
        for words, windowed in iterate_windows(text, sentence):
            yield Request(text, words, [()], windowed)


@dataclass(frozen=True, slots=True)
class AspectRequests:
    """The requests for the given aspects of a review."""

    requests: list[Request]
    rows: list[list[tuple[int, int]]]
    """Of each aspect: the request and the row in it, once per sentence that mentions it."""
    first: list[AspectSpan]
    """The first mention of each aspect."""

    def mean_lengths(self, predicted: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the capsule lengths of each aspect (A, C): the mean over its sentences.

        Args:
            predicted: The lengths of each request's aspects.
        """
        means = [
            np.mean([predicted[request][row] for request, row in rows], axis=0)
            for rows in self.rows
        ]
        return np.array(means, dtype=np.float32).reshape(-1, len(CLASSES))

    def is_windowed(self, aspect: int) -> bool:
        """Return whether an aspect is in a window of a long sentence."""
        return any(self.requests[request].windowed for request, _ in self.rows[aspect])


def request_aspects(text: str, aspects: Iterable[Aspect]) -> AspectRequests:
    """Return one request per sentence that mentions an aspect, with all aspects that it mentions.

    Raises:
        DataError: If `text` is not a string or does not contain an aspect.
    """
    check_text(text)
    mentions = [locate(text, aspect) for aspect in aspects]
    windows = _Windows(text)
    requests: dict[Span, Request] = {}
    numbers: dict[Span, int] = {}
    rows: list[list[tuple[int, int]]] = []
    for spans in mentions:
        by_window: dict[Span, tuple[AspectSpan, ...]] = {}
        for span in spans:
            words, windowed = windows.around(span)
            key = (words[0][0], words[-1][1]) if words else (0, len(text))
            if key not in requests:
                requests[key] = Request(text, words, [], windowed)
                numbers[key] = len(numbers)
            by_window[key] = (*by_window.get(key, ()), span)
        rows.append([(numbers[key], len(requests[key].aspects)) for key in by_window])
        for key, some in by_window.items():
            requests[key].aspects.append(some)
    return AspectRequests(list(requests.values()), rows, [spans[0] for spans in mentions])


class _Windows:
    """The sentences of a text, and the windows of its long sentences, by position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sentences = split_sentences(text)
        self._cache: dict[Span, list[tuple[list[Span], bool]]] = {}

    def around(self, mention: AspectSpan) -> tuple[list[Span], bool]:
        """Return the words to process for a mention, and whether they are windowed.

        They are the words of all sentences or windows that the mention overlaps, or of the whole
        text if it overlaps none.
        """
        first = bisect_right(self._sentences, mention.start, key=lambda sentence: sentence[1])
        last = bisect_left(self._sentences, mention.end, key=lambda sentence: sentence[0])
        words: list[Span] = []
        windowed = False
        for sentence in self._sentences[first:last]:
            if sentence not in self._cache:
                self._cache[sentence] = list(iterate_windows(self._text, sentence))
            windows = self._cache[sentence]
            start = bisect_right(windows, mention.start, key=lambda window: window[0][-1][1])
            end = bisect_left(windows, mention.end, key=lambda window: window[0][0][0])
            for some, flag in windows[start:end]:
                words += some
                windowed = windowed or flag
        return (words, windowed) if words else (tokenize_words(self._text), False)


def batch_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Return the indices of sentences in batches of similar length.

    Padding costs as much as text, and a batch more than a few sentences wide hardly saves time, so
    a batch ends before its padding exceeds a few ids.
    """
    batches: list[list[int]] = []
    num_ids = 0
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        size = len(batches[-1]) if batches else _MAX_BATCH_SENTENCES
        padded = (size + 1) * lengths[row]  # earlier rows are shorter
        padding = padded - lengths[row] - num_ids
        is_full = size == _MAX_BATCH_SENTENCES or padded > MAX_BATCH_IDS
        if is_full or padding > max(_PADDED_IDS, _PADDED_SHARE * padded):
            batches.append([])
            num_ids = 0
        batches[-1].append(row)
        num_ids += lengths[row]
    return batches


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Encodings padded to one length; all arrays are (S, T)."""

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    """Whether an id is not padding."""
    words: NDArray[np.int64]
    """The word of each id; -1 for none."""
    segments: NDArray[np.int64]

    @classmethod
    def from_encodings(cls, encodings: Sequence[Encoding], window: int = 0) -> PaddedBatch:
        """Pad encodings to the longest one or, if that exceeds the window, to whole windows."""
        width = max(1, *(len(encoding.ids) for encoding in encodings))
        if window and width > window:
            width += -width % window
        shape = (len(encodings), width)
        batch = cls(
            ids=np.zeros(shape, dtype=np.int64),
            mask=np.zeros(shape, dtype=bool),
            words=np.full(shape, -1, dtype=np.int64),
            segments=np.zeros(shape, dtype=np.int64),
        )
        for row, encoding in enumerate(encodings):
            size = len(encoding.ids)
            batch.ids[row, :size] = encoding.ids
            batch.mask[row, :size] = True
            batch.words[row, :size] = encoding.words
            batch.segments[row, :size] = encoding.segments
        return batch

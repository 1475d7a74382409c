"""Review -> questions: each sentence, or those that mention an aspect; and their answers, joined.

An aspect of a review is answered from the sentences that mention it (decision 18).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.labels import CLASSES
from capsar.question import Question, check_text, locate
from capsar.sentences import iterate_sentences, read_sentence, split_sentences
from capsar.text import segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.data.example import AspectSpan
    from capsar.question import Aspect
    from capsar.text import Span


def iterate_questions(text: str) -> Iterator[Question]:
    """Ask about no aspect, sentence by sentence; of an overlong one, window by window.

    Raises:
        DataError: If it is no text.
    """
    check_text(text)
    for sentence in iterate_sentences(text):
        for words, windowed in read_sentence(text, sentence):
            yield Question(text, words, [()], windowed)


@dataclass(frozen=True, slots=True)
class AspectQuestions:
    """What is read of a review for the aspects asked about."""

    questions: list[Question]
    places: list[list[tuple[int, int]]]
    """Of each aspect: its question and its row there, once for every place it is answered from."""
    first: list[AspectSpan]
    """Of each aspect: its first mention."""

    def lengths(self, answers: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the capsule lengths of aspects (A, C): the mean over the places each is read in.

        Args:
            answers: Those of each question's aspects.
        """
        means = [
            np.mean([answers[question][row] for question, row in places], axis=0)
            for places in self.places
        ]
        return np.array(means, dtype=np.float32).reshape(-1, len(CLASSES))

    def is_windowed(self, aspect: int) -> bool:
        """Tell whether an aspect was answered from a window of an overlong sentence."""
        return any(self.questions[question].windowed for question, _ in self.places[aspect])


def ask_about(text: str, aspects: Iterable[Aspect]) -> AspectQuestions:
    """Ask about aspects, each in the sentences that mention it, and sentences once for all.

    Raises:
        DataError: If it is no text, or an aspect is not in it.
    """
    check_text(text)
    mentions = [locate(text, aspect) for aspect in aspects]
    units = _Units(text)
    questions: dict[Span, Question] = {}
    numbers: dict[Span, int] = {}
    places: list[list[tuple[int, int]]] = []
    for spans in mentions:
        own: dict[Span, tuple[AspectSpan, ...]] = {}
        for mention in spans:
            words, windowed = units.around(mention)
            unit = (words[0][0], words[-1][1]) if words else (0, len(text))
            if unit not in questions:
                questions[unit] = Question(text, words, [], windowed)
                numbers[unit] = len(numbers)
            own[unit] = (*own.get(unit, ()), mention)
        places.append([(numbers[unit], len(questions[unit].aspects)) for unit in own])
        for unit, some in own.items():
            questions[unit].aspects.append(some)
    return AspectQuestions(list(questions.values()), places, [spans[0] for spans in mentions])


class _Units:
    """What can be read at once of a text: its sentences, the overlong ones in windows."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sentences = split_sentences(text)
        self._read: dict[Span, list[tuple[list[Span], bool]]] = {}

    def around(self, mention: AspectSpan) -> tuple[list[Span], bool]:
        """Return the words read for a mention, and whether they are of an overlong sentence.

        They are those of the sentence or window that it is in; of a mention that several touch, of
        all of these as one; of one that none touches, of the text.
        """
        first = bisect_right(self._sentences, mention.start, key=lambda sentence: sentence[1])
        last = bisect_left(self._sentences, mention.end, key=lambda sentence: sentence[0])
        words: list[Span] = []
        windowed = False
        for sentence in self._sentences[first:last]:
            windows = self._windows(sentence)
            start = bisect_right(windows, mention.start, key=lambda window: window[0][-1][1])
            end = bisect_left(windows, mention.end, key=lambda window: window[0][0][0])
            for some, flag in windows[start:end]:
                words += some
                windowed = windowed or flag
        return (words, windowed) if words else (segment(self._text), False)

    def _windows(self, sentence: Span) -> list[tuple[list[Span], bool]]:
        if sentence not in self._read:
            self._read[sentence] = list(read_sentence(self._text, sentence))
        return self._read[sentence]

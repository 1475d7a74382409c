"""Questions -> answers, in batches of like length: the tokenizer and the graphs of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capsar.aspects import FoundSpans
from capsar.bundle import CONFIG, TOKENIZER
from capsar.errors import ArtifactError
from capsar.labels import CLASSES
from capsar.pieces import load_tokenizer, word_places
from capsar.question import Question, batches_by_length, route_slices
from capsar.runtime import Answers, Encoded, Rows, Runtime, join_answers
from capsar.tagging import find_spans, span_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from capsar.bundle import Bundle
    from capsar.sessions import Sessions
    from capsar.text import Layout

T = TypeVar("T")


class Answering:
    """What a bundle says of sentences that have been cut into words.

    Args:
        bundle: A verified bundle.
        sessions: Its graphs.
    """

    def __init__(self, bundle: Bundle, sessions: Sessions) -> None:
        self.tokenizer = load_tokenizer(bundle.path(TOKENIZER), bundle.config)
        self.runtime = Runtime(sessions)
        self.span_bias = number_of(bundle, "span_bias", 0.0)

    def answer(self, questions: list[Question], *, outputs: tuple[str, ...] = ()) -> list[Answers]:
        """Answer questions, each in its own place.

        Args:
            questions: The questions.
            outputs: Of `about` and `because`, what is wanted besides the lengths.
        """
        if not self.tokenizer.reads_aspect:
            return self._answer_laid_out(questions, self._lay_out(questions), outputs)
        # Each aspect needs a reading of its own.
        single = [Question(q.text, q.words, [spans]) for q in questions for spans in q.aspects]
        aspects = [question.first_mention() for question in single]
        layouts = self.tokenizer.lay_out([q.spelled() for q in single], aspects)
        answers = iter(self._answer_laid_out(single, layouts, outputs))
        return [join_answers([next(answers) for _ in question.aspects]) for question in questions]

    def find(self, questions: list[Question]) -> list[FoundSpans]:
        """Find the aspects of sentences with the extraction head."""
        return _in_batches(questions, self._lay_out(questions), self._find_batch)

    def read(self, questions: list[Question]) -> list[NDArray[np.float32]]:
        """Return the hidden states of each sentence's words, those of their first pieces (W, H)."""
        return _in_batches(questions, self._lay_out(questions), self._read_batch)

    def _lay_out(self, questions: list[Question]) -> list[Layout]:
        return self.tokenizer.lay_out([q.spelled() for q in questions], [()] * len(questions))

    def _answer_laid_out(
        self, questions: list[Question], layouts: list[Layout], outputs: tuple[str, ...]
    ) -> list[Answers]:
        return _in_batches(
            questions, layouts, lambda some, rows: self._answer_batch(some, rows, outputs)
        )

    def _answer_batch(
        self, questions: list[Question], layouts: list[Layout], outputs: tuple[str, ...]
    ) -> Iterator[Answers]:
        counts = [len(question.aspects) for question in questions]
        sentence = np.repeat(np.arange(len(questions)), counts)
        if not len(sentence):
            yield from (join_answers([]) for _ in questions)
            return
        first = [
            question.first_words(spans) for question in questions for spans in question.aspects
        ]
        mentions = np.full((len(first), max(1, *map(len, first))), -1, dtype=np.int64)
        for row, places in enumerate(first):
            mentions[row, : len(places)] = places
        routed = self._route(self._encode(layouts), sentence, mentions, outputs)
        start = 0
        for count in counts:
            part = slice(start, start + count)
            yield Answers(
                routed.lengths[part],
                None if routed.about is None else routed.about[part],
                None if routed.because is None else routed.because[part],
            )
            start += count

    def _find_batch(self, questions: list[Question], layouts: list[Layout]) -> Iterator[FoundSpans]:
        """Tag a batch, and route the states that the tags came from once for each span."""
        encoded = self._encode(layouts)
        number = len(questions)
        nowhere = np.full((number, 1), -1, np.int64)
        alone = self._route(encoded, np.arange(number), nowhere, ("about",))
        tags = self.runtime.tag(encoded, alone)  # (S, W, 3)
        own = [tags[row, : len(question.words)] for row, question in enumerate(questions)]
        places = [find_spans(logits, self.span_bias) for logits in own]
        sentence = np.repeat(np.arange(number), list(map(len, places)))
        first_words = np.array([[first] for some in places for first, _ in some], dtype=np.int64)
        lengths = np.zeros((0, len(CLASSES)), dtype=np.float32)
        if len(sentence):
            lengths = self._route(encoded, sentence, first_words).lengths
        start = 0
        for logits, some in zip(own, places, strict=True):
            rows = lengths[start : start + len(some)]
            yield FoundSpans(some, rows, span_scores(logits, some, self.span_bias))
            start += len(some)

    def _read_batch(
        self, questions: list[Question], layouts: list[Layout]
    ) -> Iterator[NDArray[np.float32]]:
        encoded = self._encode(layouts)
        states = encoded.states.numpy()  # (S, T, H)
        places = word_places(encoded.words, max(1, *(len(q.words) for q in questions)))  # (S, W)
        for row, question in enumerate(questions):
            yield states[row, places[row, : len(question.words)]]

    def _encode(self, layouts: list[Layout]) -> Encoded:
        window = self.tokenizer.window
        return self.runtime.encode(Rows.of(layouts, window), window)

    def _route(
        self,
        encoded: Encoded,
        sentence: NDArray[np.int64],
        mentions: NDArray[np.int64],
        outputs: tuple[str, ...] = (),
    ) -> Answers:
        """Route sentences for aspects, in bounded memory."""
        places = encoded.mask.shape[1] * mentions.shape[1]
        return join_answers(
            [
                self.runtime.route(encoded, sentence[rows], mentions[rows], outputs=outputs)
                for rows in route_slices(len(sentence), places)
            ]
        )


def number_of(bundle: Bundle, name: str, default: float) -> float:
    """Return a number of a bundle's configuration.

    Raises:
        ArtifactError: If it is none.
    """
    value = bundle.config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArtifactError(
            f"{name} in {CONFIG} of the model {str(bundle.folder)!r} is {value!r}, not a number. "
            "Export the model again."
        )
    return float(value)


def _in_batches(
    questions: list[Question],
    layouts: list[Layout],
    work: Callable[[list[Question], list[Layout]], Iterable[T]],
) -> list[T]:
    """Do some work in batches of like length; each result is in its question's place."""
    results: dict[int, T] = {}
    sizes = [len(layout.ids) for layout in layouts]
    order = sorted(range(len(questions)), key=sizes.__getitem__)
    for batch in batches_by_length(order, sizes):
        found = work([questions[i] for i in batch], [layouts[i] for i in batch])
        results.update(zip(batch, found, strict=True))
    return [results[i] for i in range(len(questions))]

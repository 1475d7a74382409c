"""`Analyzer`: texts -> `AspectSentiment`. The one inference path of everything users touch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capsar.answering import Answering, number_of
from capsar.aspects import CAPSULES_MODE, MODES, SPANS_MODE, Confidences, find_aspects
from capsar.errors import ConfigError, DataError, VersionMismatchError
from capsar.evaluation.detection import OpenedSentence
from capsar.hub import DEFAULT_MODEL, find_bundle
from capsar.labels import CLASSES, Polarity
from capsar.question import Question, as_list, check_many, check_text
from capsar.review import ask_about, iterate_questions
from capsar.sessions import CPU, Sessions
from capsar.text import SEGMENTATION, Span, segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.question import Aspect
    from capsar.review import AspectQuestions
    from capsar.runtime import Answers
    from capsar.schema import AspectSentiment

DEFAULT_ABOUT_THRESHOLD = 0.4
T = TypeVar("T")
_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the capsules hold of a text, word by word."""

    text: str
    words: tuple[Span, ...]
    """The words that were read, by their place in the text."""
    lengths: dict[Polarity, float]
    about: dict[Polarity, tuple[float, ...]]
    """How much each sentiment is about each word: a cosine."""
    because: dict[Polarity, tuple[float, ...]]
    """Each word's share in the sentiment; the shares sum to its length."""


def load(
    path: str | Path = DEFAULT_MODEL,
    *,
    threads: int = 1,
    providers: Sequence[str] = CPU,
    backend: str = "onnxruntime",
    revision: str | None = None,
    local_files_only: bool = False,
) -> Analyzer:
    """Load a trained model.

    Args:
        path: The name of a model that ships with the package, a bundle's folder, or, where there is
            none of that name, a hub id `owner/name`.
        threads: CPU threads of the engine.
        providers: Where it runs, as ONNX Runtime names them.
        backend: What runs the encoder: `openvino` (an extra) computes in bf16 where the CPU can,
            several times as fast for a transformer; its scores differ in the third decimal.
        revision: The branch, tag or commit of a hub model.
        local_files_only: Whether a hub model may come only from the hub's cache.

    Raises:
        ArtifactError: If the bundle is missing, damaged or of another version.
    """
    return Analyzer(
        path,
        threads=threads,
        providers=providers,
        backend=backend,
        revision=revision,
        local_files_only=local_files_only,
    )


@dataclass(slots=True)
class _Review:
    """The aspects found so far of a review that is being read."""

    aspects: list[AspectSentiment]
    is_read: bool = False


def _flagged(answer: AspectSentiment, *, windowed: bool) -> AspectSentiment:
    return replace(answer, windowed=True) if windowed else answer


def _by_class(scores: list[NDArray[np.float32]]) -> dict[Polarity, tuple[float, ...]]:
    """Scores of sentences (C, T each) as each class's scores of all their words."""
    joined = np.concatenate(scores, axis=1).tolist()  # (C, T)
    return {polarity: tuple(joined[i]) for i, polarity in enumerate(CLASSES)}


class Analyzer:
    """Tells what is felt, and about what. Threads may share one; it keeps nothing between calls."""

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int = 1,
        providers: Sequence[str] = CPU,
        backend: str = "onnxruntime",
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> None:
        bundle = find_bundle(path, revision=revision, local_files_only=local_files_only)
        classes = bundle.config.get("classes", list(CLASSES))
        if classes != list(CLASSES):
            raise VersionMismatchError(
                f"The model {str(path)!r} tells {classes!r}; this release reads models that tell "
                f"{list(map(str, CLASSES))}. Upgrade capsar."
            )
        segmentation = bundle.config.get("segmentation", SEGMENTATION)
        if segmentation != SEGMENTATION:
            raise VersionMismatchError(
                f"The model {str(path)!r} was trained on words cut by {segmentation!r}; here they "
                f"are cut by {SEGMENTATION!r}. Use the release that trained it, or train anew."
            )
        sessions = Sessions(bundle, threads=threads, providers=providers, backend=backend)
        self._answering = Answering(bundle, sessions)
        self._about_threshold = number_of(bundle, "about_threshold", DEFAULT_ABOUT_THRESHOLD)
        self._confidences = Confidences.of(bundle.config)

    def classify(
        self,
        texts: Iterable[str],
        aspects: Iterable[Aspect | Sequence[Aspect]],
        *,
        min_confidence: float = 0.0,
    ) -> list[list[AspectSentiment]]:
        """Return what is felt about given aspects: for each text a list, in their order.

        An aspect of a review is answered from the sentences that mention it: the scores are the
        mean over them, the place is the first.

        Args:
            texts: A list of texts, or a column of pandas.
            aspects: Those of each text.
            min_confidence: Below this confidence an answer is marked as `abstained`.

        Raises:
            ConfigError: If the model has no confidences to ask for.
            AspectNotFoundError: If an aspect given as text does not occur in its text.
            DataError: If a text is no string, a span ends outside its text, or texts and aspects
                differ in number.
        """
        check_many(texts, "texts")
        check_many(aspects, "aspects (those of each text)")
        texts, aspects = list(texts), list(aspects)
        if len(texts) != len(aspects):
            raise DataError(f"{len(texts)} texts need as many aspects, got {len(aspects)}")
        pairs = zip(texts, aspects, strict=True)
        return list(self.classify_stream(pairs, min_confidence=min_confidence))

    def classify_stream(
        self,
        pairs: Iterable[tuple[str, Aspect | Sequence[Aspect]]],
        *,
        min_confidence: float = 0.0,
    ) -> Iterator[list[AspectSentiment]]:
        """Do as `classify`, one answer after the other, in the memory of a thousand texts."""
        self._check_asked(min_confidence)
        check_many(pairs, "pairs of a text and its aspects")
        iterator = enumerate(pairs)
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            asked = _ask(chunk)
            answers = iter(self._answering.answer([q for one in asked for q in one.questions]))
            for (_, (text, _)), one in zip(chunk, asked, strict=True):
                lengths = one.lengths([next(answers).lengths for _ in one.questions])
                told = self._confidences.sentiments(text, one.first, lengths)
                yield [
                    _flagged(answer.asked(min_confidence), windowed=one.is_windowed(aspect))
                    for aspect, answer in enumerate(told)
                ]

    def analyze(
        self, texts: Iterable[str], *, mode: str | None = None, min_confidence: float = 0.0
    ) -> list[list[AspectSentiment]]:
        """Return the aspects of each text, nobody having named them.

        A text is a review of any length, read sentence by sentence; places are in the review.

        Args:
            texts: A list of texts, or a column of pandas.
            mode: How aspects are found: `spans`, by the extraction head, or `capsules`, by opening
                the capsules, as in the paper. By default the head, if the model has one.
            min_confidence: An aspect is marked as `abstained` if that it is one, or its polarity,
                is less sure than this. It stays in the list, so that it can be counted.

        Raises:
            ConfigError: If there is no such mode, the model has no head, or no confidences.
            DataError: If a text is no string.
        """
        return list(self.analyze_stream(texts, mode=mode, min_confidence=min_confidence))

    def analyze_stream(
        self, texts: Iterable[str], *, mode: str | None = None, min_confidence: float = 0.0
    ) -> Iterator[list[AspectSentiment]]:
        """Do as `analyze`, one answer after the other, in the memory of a thousand sentences."""
        by_spans = self._mode(mode) == SPANS_MODE
        find = self._by_spans if by_spans else self._by_capsules
        self._check_asked(min_confidence, by_capsules=not by_spans)
        check_many(texts, "texts")
        waiting: deque[_Review] = deque()

        def sentences() -> Iterator[tuple[_Review, Question | None]]:
            for number, text in enumerate(texts):
                try:
                    check_text(text)
                except DataError as error:
                    raise _named(error, number) from None
                review = _Review([])
                waiting.append(review)
                for question in iterate_questions(text):
                    yield review, question
                review.is_read = True
                yield review, None  # so that a run of empty texts is not read without end

        iterator = sentences()
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            asked = [(review, question) for review, question in chunk if question is not None]
            answers = find([question for _, question in asked])
            for (review, question), found in zip(asked, answers, strict=True):
                review.aspects += [
                    _flagged(answer.asked(min_confidence), windowed=question.windowed)
                    for answer in found
                ]
            while waiting and waiting[0].is_read:
                yield waiting.popleft().aspects

    def _check_asked(self, min_confidence: float, *, by_capsules: bool = False) -> None:
        if not 0 <= min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {min_confidence!r}")
        if min_confidence and by_capsules:
            raise ConfigError(
                "min_confidence needs confidences, and aspects that opened capsules name have "
                "none. Leave it out, or use the mode 'spans' of a model with an extraction head."
            )
        if min_confidence and self._confidences.polarity is None:
            raise ConfigError(
                "min_confidence needs confidences, and this model has none: it had fewer than ten "
                "dev sentences to fit them on, or an old release trained it. Leave it out, or "
                "train again with more labelled sentences or a larger data.dev_share."
            )

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways in which this model can find aspects, the one it uses by default first."""
        return MODES if self._answering.runtime.has_spans else (CAPSULES_MODE,)

    def _mode(self, mode: str | None) -> str:
        chosen = self.modes[0] if mode is None else mode
        if chosen not in MODES:
            raise ConfigError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if chosen not in self.modes:
            raise ConfigError(
                f"This model has no extraction head, so it has no mode {mode!r}. Train one with "
                "model.span_weight above 0, or let the capsules name aspects: 'capsules'."
            )
        return chosen

    def _by_capsules(self, questions: list[Question]) -> Iterator[list[AspectSentiment]]:
        """Find aspects by de-capsulising."""
        answers = self._answering.answer(questions, outputs=("about",))
        for question, rows in zip(questions, answers, strict=True):
            about = _scores(rows, "about", question)
            yield find_aspects(
                question.text,
                question.words,
                rows.lengths[0],
                about,
                threshold=self._about_threshold,
            )

    def _by_spans(self, questions: list[Question]) -> Iterator[list[AspectSentiment]]:
        """Find aspects by the extraction head."""
        for question, spans in zip(questions, self._answering.find(questions), strict=True):
            yield spans.aspects(question.text, question.words, self._confidences)

    def explain(self, text: str, aspect: Aspect | None = None) -> Explanation:
        """Open the capsules of a text, given an aspect or not.

        What is opened is what is read to answer: the sentences that mention the aspect, or all.
        Lengths are the mean over them, and so are the shares: they still sum to the lengths.
        """
        if aspect is None:
            questions = list(iterate_questions(text)) or [Question.make(text, [None])]
        else:
            questions = ask_about(text, [aspect]).questions
        answers = self._answering.answer(questions, outputs=("about", "because"))
        pairs = list(zip(questions, answers, strict=True))
        share = np.float32(len(questions))
        lengths = np.mean([rows.lengths[0] for rows in answers], axis=0)
        return Explanation(
            text=text,
            words=tuple(word for question in questions for word in question.words),
            lengths=dict(zip(CLASSES, lengths.tolist(), strict=True)),
            about=_by_class([_scores(rows, "about", question) for question, rows in pairs]),
            because=_by_class(
                [_scores(rows, "because", question) / share for question, rows in pairs]
            ),
        )

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C): the `Predictor` of evaluation."""
        return _lengths(rows for _, rows in self._answer_records(examples, _whole))

    def calibrate(self, lengths: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the probabilities of capsule lengths (n, C), if the model has a calibration."""
        calibration = self._confidences.polarity
        return None if calibration is None else calibration.apply(lengths)

    def open_examples(self, examples: Sequence[Example]) -> list[OpenedSentence]:
        """Return lengths and *because* of examples: the `Explainer` of evaluation."""
        answers = self._answer_records(examples, _whole, outputs=("because",))
        return [OpenedSentence(r.lengths[0], _scores(r, "because", q)) for q, r in answers]

    def predict_words(
        self, examples: Sequence[Example], kept: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Return the capsule lengths (n, C) of examples of which only some words are read."""

        def make(record: tuple[Example, Sequence[int]]) -> Question:
            example, some = record
            words = segment(example.text)
            return Question(example.text, [words[i] for i in some], [example.spans])

        records = list(zip(examples, kept, strict=True))
        return _lengths(rows for _, rows in self._answer_records(records, make))

    def open_sentences(self, texts: Sequence[str]) -> list[OpenedSentence]:
        """Return lengths and word scores without an aspect: the `Detector` of evaluation."""
        answers = self._answer_records(
            texts, lambda text: Question.make(text, [None]), outputs=("about",)
        )
        return [OpenedSentence(r.lengths[0], _scores(r, "about", q)) for q, r in answers]

    def read_states(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the hidden states of each text's words (W, H), for another model to imitate."""
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[start : start + _TEXTS_AT_ONCE]
            yield from self._answering.read([Question.make(text, []) for text in some])

    def _answer_records(
        self, records: Sequence[T], make: Callable[[T], Question], outputs: tuple[str, ...] = ()
    ) -> Iterator[tuple[Question, Answers]]:
        """Answer records of a dataset as they are, whole, in the memory of a thousand."""
        for start in range(0, len(records), _TEXTS_AT_ONCE):
            questions = [make(record) for record in records[start : start + _TEXTS_AT_ONCE]]
            answers = self._answering.answer(questions, outputs=outputs)
            yield from zip(questions, answers, strict=True)


def _ask(
    pairs: list[tuple[int, tuple[str, Aspect | Sequence[Aspect]]]],
) -> list[AspectQuestions]:
    """Ask about the aspects of numbered texts; of several, an error says which one it is about."""
    asked = []
    for number, (text, aspects) in pairs:
        try:
            asked.append(ask_about(text, as_list(aspects)))
        except DataError as error:
            if number == 0 and len(pairs) == 1:
                raise
            raise _named(error, number) from None
    return asked


def _named(error: DataError, number: int) -> DataError:
    return type(error)(f"Text {number} (counted from 0): {error}")


def _whole(example: Example) -> Question:
    return Question(example.text, segment(example.text), [example.spans])


def _lengths(answers: Iterable[Answers]) -> NDArray[np.float32]:
    """The capsule lengths of answers about one aspect each (n, C)."""
    rows = [answer.lengths[0] for answer in answers]
    return np.array(rows, dtype=np.float32).reshape(-1, len(CLASSES))


def _scores(rows: Answers, name: str, question: Question) -> NDArray[np.float32]:
    """The scores of a question's words (C, T), which were asked for."""
    scores: NDArray[np.float32] | None = getattr(rows, name)
    if scores is None:
        raise ConfigError("the capsule graph gave no word scores")
    return scores[0, :, : len(question.words)]

"""`Analyzer`: texts -> `AspectSentiment`. The one inference path of everything users touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.bundle import CONFIG, TOKENIZER
from capsar.data.example import AspectSpan, find_spans
from capsar.errors import ArtifactError, ConfigError, DataError, VersionMismatchError
from capsar.evaluation.detection import OpenedSentence, active_capsules
from capsar.hub import DEFAULT_MODEL, find_bundle
from capsar.labels import CLASSES, Polarity
from capsar.pieces import load_tokenizer
from capsar.runtime import CPU, Answers, Rows, Runtime, join_answers
from capsar.schema import AspectSentiment
from capsar.text import SEGMENTATION, Layout, Span, segment, words_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.data.example import Example

Aspect = str | AspectSpan
"""An aspect as its exact characters (every occurrence counts), or as one place in the text."""

DEFAULT_ABOUT_THRESHOLD = 0.4
_TEXTS_AT_ONCE = 1024
_SENTENCES_A_BATCH = 64
_WORDS_A_BATCH = 8192
_PLACES_AT_ONCE = 2**20
"""Words times mentions of all aspects that are routed together."""
_PLACES_OF_ONE = 2**25
"""The same of one aspect: more would not fit in memory."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the capsules hold of a text, word by word."""

    text: str
    words: tuple[Span, ...]
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
    revision: str | None = None,
    local_files_only: bool = False,
) -> Analyzer:
    """Load a trained model.

    Args:
        path: The name of a model that ships with the package, a bundle's folder, or, where there is
            none of that name, a hub id `owner/name`.
        threads: CPU threads of the engine.
        providers: Where it runs, as ONNX Runtime names them.
        revision: The branch, tag or commit of a hub model.
        local_files_only: Whether a hub model may come only from the hub's cache.

    Raises:
        ArtifactError: If the bundle is missing, damaged or of another version.
    """
    return Analyzer(
        path,
        threads=threads,
        providers=providers,
        revision=revision,
        local_files_only=local_files_only,
    )


class Analyzer:
    """Tells what is felt, and about what. Threads may share one; it keeps nothing between calls."""

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int = 1,
        providers: Sequence[str] = CPU,
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
        self._tokenizer = load_tokenizer(bundle.path(TOKENIZER), bundle.config)
        self._runtime = Runtime(bundle, threads=threads, providers=providers)
        threshold = bundle.config.get("about_threshold", DEFAULT_ABOUT_THRESHOLD)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ArtifactError(
                f"about_threshold in {CONFIG} of the model {str(path)!r} is {threshold!r}, not a "
                "number. Export the model again."
            )
        self._about_threshold = float(threshold)

    def classify(
        self, texts: Sequence[str], aspects: Sequence[Aspect | Sequence[Aspect]]
    ) -> list[list[AspectSentiment]]:
        """Return what is felt about given aspects: for each text a list, in their order.

        Raises:
            AspectNotFoundError: If an aspect given as text does not occur in its text.
            DataError: If a span ends outside its text, or texts and aspects differ in number.
        """
        if isinstance(texts, str):
            raise DataError("classify takes a list of texts, got one string")
        if len(texts) != len(aspects):
            raise DataError(f"{len(texts)} texts need as many aspects, got {len(aspects)}")
        return list(self.classify_stream(zip(texts, aspects, strict=True)))

    def classify_stream(
        self, pairs: Iterable[tuple[str, Aspect | Sequence[Aspect]]]
    ) -> Iterator[list[AspectSentiment]]:
        """Do as `classify`, one answer after the other, in the memory of a thousand texts."""
        iterator = iter(pairs)
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            questions = [_Question.make(text, _as_list(aspects)) for text, aspects in chunk]
            for question, rows in zip(questions, self._answer(questions), strict=True):
                yield [
                    _sentiment(question.text, spans[0], lengths)
                    for spans, lengths in zip(question.aspects, rows.lengths, strict=True)
                ]

    def analyze(self, texts: Sequence[str]) -> list[list[AspectSentiment]]:
        """Return the aspects that each text's sentiments are about, by de-capsulising."""
        if isinstance(texts, str):
            raise DataError("analyze takes a list of texts, got one string")
        return list(self.analyze_stream(texts))

    def analyze_stream(self, texts: Iterable[str]) -> Iterator[list[AspectSentiment]]:
        """Do as `analyze`, one answer after the other, in the memory of a thousand texts."""
        iterator = iter(texts)
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            questions = [_Question.make(text, [None]) for text in chunk]
            answers = self._answer(questions, outputs=("about",))
            for question, rows in zip(questions, answers, strict=True):
                if rows.about is None:
                    raise ConfigError("the capsule graph gave no word scores")
                yield find_aspects(
                    question.text,
                    question.words,
                    rows.lengths[0],
                    rows.about[0],
                    threshold=self._about_threshold,
                )

    def explain(self, text: str, aspect: Aspect | None = None) -> Explanation:
        """Open the capsules of a text, given an aspect or not."""
        question = _Question.make(text, [aspect])
        (rows,) = self._answer([question], outputs=("about", "because"))
        if rows.about is None or rows.because is None:
            raise ConfigError("the capsule graph gave no word scores")
        size = len(question.words)
        about, because = rows.about[0, :, :size].tolist(), rows.because[0, :, :size].tolist()
        return Explanation(
            text=text,
            words=tuple(question.words),
            lengths=dict(zip(CLASSES, rows.lengths[0].tolist(), strict=True)),
            about={polarity: tuple(about[i]) for i, polarity in enumerate(CLASSES)},
            because={polarity: tuple(because[i]) for i, polarity in enumerate(CLASSES)},
        )

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C): the `Predictor` of evaluation."""
        lengths = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        for start in range(0, len(examples), _TEXTS_AT_ONCE):
            some = examples[start : start + _TEXTS_AT_ONCE]
            questions = [_Question(e.text, segment(e.text), [e.spans]) for e in some]
            for row, answer in enumerate(self._answer(questions), start=start):
                lengths[row] = answer.lengths[0]
        return lengths

    def open_sentences(self, texts: Sequence[str]) -> list[OpenedSentence]:
        """Return lengths and word scores without an aspect: the `Detector` of evaluation."""
        opened: list[OpenedSentence] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = [_Question.make(t, [None]) for t in texts[start : start + _TEXTS_AT_ONCE]]
            for question, rows in zip(some, self._answer(some, outputs=("about",)), strict=True):
                if rows.about is None:
                    raise ConfigError("the capsule graph gave no word scores")
                scores = rows.about[0, :, : len(question.words)]
                opened.append(OpenedSentence(rows.lengths[0], scores))
        return opened

    def _answer(
        self, questions: list[_Question], *, outputs: tuple[str, ...] = ()
    ) -> list[Answers]:
        """Answer questions in batches of like length, each in its own place."""
        if self._tokenizer.reads_aspect:
            return self._answer_each_aspect(questions, outputs)
        layouts = self._tokenizer.lay_out([q.spelled() for q in questions], [()] * len(questions))
        return self._answer_laid_out(questions, layouts, outputs)

    def _answer_each_aspect(
        self, questions: list[_Question], outputs: tuple[str, ...]
    ) -> list[Answers]:
        """Answer with an encoder that reads the aspect: each needs a reading of its own."""
        single = [_Question(q.text, q.words, [spans]) for q in questions for spans in q.aspects]
        aspects = [question.first_mention() for question in single]
        layouts = self._tokenizer.lay_out([q.spelled() for q in single], aspects)
        answers = iter(self._answer_laid_out(single, layouts, outputs))
        return [_joined([next(answers) for _ in question.aspects]) for question in questions]

    def _answer_laid_out(
        self, questions: list[_Question], layouts: list[Layout], outputs: tuple[str, ...]
    ) -> list[Answers]:
        answers: list[Answers | None] = [None] * len(questions)
        sizes = [len(layout.ids) for layout in layouts]
        order = sorted(range(len(questions)), key=sizes.__getitem__)
        for batch in _batches(order, sizes):
            some = [questions[i] for i in batch]
            found = self._answer_batch(some, [layouts[i] for i in batch], outputs)
            for i, answer in zip(batch, found, strict=True):
                answers[i] = answer
        return [answer for answer in answers if answer is not None]

    def _answer_batch(
        self, questions: list[_Question], layouts: list[Layout], outputs: tuple[str, ...]
    ) -> Iterator[Answers]:
        counts = [len(question.aspects) for question in questions]
        sentence = np.repeat(np.arange(len(questions)), counts)
        if not len(sentence):
            yield from (_joined([]) for _ in questions)
            return
        first = [
            question.first_words(spans) for question in questions for spans in question.aspects
        ]
        mentions = np.full((len(first), max(1, *map(len, first))), -1, dtype=np.int64)
        for row, places in enumerate(first):
            mentions[row, : len(places)] = places
        window = self._tokenizer.window
        encoded = self._runtime.encode(Rows.of(layouts, window), window)
        places = encoded.mask.shape[1] * mentions.shape[1]
        routed = join_answers(
            [
                self._runtime.route(encoded, sentence[rows], mentions[rows], outputs=outputs)
                for rows in _slices(len(sentence), places)
            ]
        )
        start = 0
        for count in counts:
            part = slice(start, start + count)
            yield Answers(
                routed.lengths[part],
                None if routed.about is None else routed.about[part],
                None if routed.because is None else routed.because[part],
            )
            start += count


@dataclass(frozen=True, slots=True)
class _Question:
    """A text, its words, and the mentions of each aspect asked about (none: no aspect)."""

    text: str
    words: list[Span]
    aspects: list[tuple[AspectSpan, ...]]

    @classmethod
    def make(cls, text: str, aspects: Sequence[Aspect | None]) -> _Question:
        if not isinstance(text, str):
            raise DataError(f"A text must be a string, got {type(text).__name__}")
        return cls(text, segment(text), [_locate(text, aspect) for aspect in aspects])

    def spelled(self) -> list[str]:
        """Return the words as they are written."""
        return [self.text[start:end] for start, end in self.words]

    def first_mention(self) -> list[str]:
        """Return the words of the first mention of the first aspect; none if there is none."""
        for span in self.aspects[0]:
            touched = words_within(self.words, span.start, span.end)
            if touched:
                places = self.words[touched[0] : touched[-1] + 1]
                return [self.text[start:end] for start, end in places]
        return []

    def first_words(self, spans: tuple[AspectSpan, ...]) -> list[int]:
        touched = (words_within(self.words, span.start, span.end) for span in spans)
        return [words[0] for words in touched if words]


def find_aspects(
    text: str,
    words: Sequence[Span],
    lengths: NDArray[np.float32],
    about: NDArray[np.float32],
    *,
    threshold: float,
) -> list[AspectSentiment]:
    """Return what the active capsules are about: words that score at least `threshold`.

    Every active capsule (or, if none is, the longest) claims the words it is about, and in any case
    the one it is most about; a word that several claim goes to the one for which length times score
    is largest. Neighbouring words of one capsule are one aspect. Punctuation is never an aspect.

    Args:
        text: The text.
        words: Its words.
        lengths: Of the sentiment capsules (C).
        about: The score of each capsule and word (C, T or more).
        threshold: The least score of a word of an aspect.
    """
    named = np.array([any(map(str.isalnum, text[start:end])) for start, end in words], dtype=bool)
    if not named.any():
        return []
    active = np.isin(np.arange(len(CLASSES)), active_capsules(lengths)[0])  # (C)
    able = np.where(named, about[:, : len(words)], -np.inf)  # (C, T)
    wanted = (able >= threshold) | (able == able.max(1, keepdims=True))
    claims = wanted & named & active[:, None]
    scores = np.where(claims, able * lengths[:, None], -np.inf)  # (C, T)
    owner = np.where(claims.any(0), scores.argmax(0), -1)  # (T)
    aspects: list[AspectSentiment] = []
    previous = -1
    for (start, end), capsule in zip(words, owner, strict=True):
        if capsule >= 0 and capsule == previous:
            start = aspects.pop().start  # noqa: PLW2901  (the aspect goes on)
        if capsule >= 0:
            span = AspectSpan(start, end)
            aspects.append(_sentiment(text, span, lengths, CLASSES[int(capsule)]))
        previous = int(capsule)
    return aspects


def _joined(answers: list[Answers]) -> Answers:
    """Join the answers about several aspects of one text."""
    if not answers:
        return Answers(np.zeros((0, len(CLASSES)), dtype=np.float32))
    if len(answers) == 1:
        return answers[0]
    return Answers(np.concatenate([answer.lengths for answer in answers]))


def _sentiment(
    text: str, span: AspectSpan, lengths: NDArray[np.float32], polarity: Polarity | None = None
) -> AspectSentiment:
    return AspectSentiment(
        text=text[span.start : span.end],
        start=span.start,
        end=span.end,
        polarity=polarity or CLASSES[int(lengths.argmax())],
        scores=dict(zip(CLASSES, lengths.tolist(), strict=True)),
    )


def _as_list(aspects: Aspect | Sequence[Aspect]) -> list[Aspect]:
    if isinstance(aspects, str | AspectSpan):
        return [aspects]
    asked: Any = aspects  # whatever a caller may give
    given = list(asked) if isinstance(asked, Iterable) else [asked]
    for aspect in given:
        if not isinstance(aspect, str | AspectSpan):
            kind = type(aspect).__name__
            raise DataError(f"An aspect is a string or an AspectSpan, got {kind}")
    return given


def _locate(text: str, aspect: Aspect | None) -> tuple[AspectSpan, ...]:
    if aspect is None:
        return ()
    if isinstance(aspect, AspectSpan):
        if aspect.end > len(text):
            size = len(text)
            raise DataError(f"{aspect} ends outside the text, which has {size} characters")
        return (aspect,)
    if not isinstance(aspect, str):
        raise DataError(f"An aspect is a string or an AspectSpan, got {type(aspect).__name__}")
    return find_spans(text, aspect)


def _slices(number: int, places_of_one: int) -> Iterator[slice]:
    """Cut aspects into runs that are routed together, in bounded memory."""
    if places_of_one > _PLACES_OF_ONE:
        raise DataError(
            f"An aspect has too many mentions in a text as long as this one ({places_of_one} words "
            f"times mentions; at most {_PLACES_OF_ONE}). Give the places that matter as AspectSpan."
        )
    size = max(1, _PLACES_AT_ONCE // places_of_one)
    for start in range(0, number, size):
        yield slice(start, start + size)


def _batches(order: list[int], sizes: list[int]) -> Iterator[list[int]]:
    """Cut texts in order of length into batches, of few texts where they are long."""
    batch: list[int] = []
    for index in order:
        longest = max(1, sizes[index])  # those before are not longer
        if (batch and (len(batch) + 1) * longest > _WORDS_A_BATCH) or len(
            batch
        ) == _SENTENCES_A_BATCH:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch

"""`Analyzer`: texts -> `AspectSentiment`. The one inference path of everything users touch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capsar.aspects import CAPSULES_MODE, MODES, SPANS_MODE, Confidences, FoundSpans, find_aspects
from capsar.bundle import CONFIG, TOKENIZER
from capsar.errors import ArtifactError, ConfigError, DataError, VersionMismatchError
from capsar.evaluation.detection import OpenedSentence
from capsar.hub import DEFAULT_MODEL, find_bundle
from capsar.labels import CLASSES, Polarity
from capsar.pieces import load_tokenizer
from capsar.question import Question, as_list, batches_by_length, route_slices
from capsar.runtime import CPU, Answers, Encoded, Rows, Runtime, join_answers
from capsar.tagging import find_spans, span_scores
from capsar.text import SEGMENTATION, Layout, Span, segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.bundle import Bundle
    from capsar.data.example import Example
    from capsar.question import Aspect
    from capsar.schema import AspectSentiment

DEFAULT_ABOUT_THRESHOLD = 0.4
T = TypeVar("T")
_TEXTS_AT_ONCE = 1024


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
        self._about_threshold = _number(bundle, "about_threshold", DEFAULT_ABOUT_THRESHOLD)
        self._span_bias = _number(bundle, "span_bias", 0.0)
        self._confidences = Confidences.of(bundle.config)

    def classify(
        self,
        texts: Sequence[str],
        aspects: Sequence[Aspect | Sequence[Aspect]],
        *,
        min_confidence: float = 0.0,
    ) -> list[list[AspectSentiment]]:
        """Return what is felt about given aspects: for each text a list, in their order.

        Args:
            texts: The texts.
            aspects: Those of each text.
            min_confidence: Below this confidence an answer is marked as `abstained`.

        Raises:
            ConfigError: If the model has no confidences to ask for.
            AspectNotFoundError: If an aspect given as text does not occur in its text.
            DataError: If a span ends outside its text, or texts and aspects differ in number.
        """
        if isinstance(texts, str):
            raise DataError("classify takes a list of texts, got one string")
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
        self._check_asked(min_confidence, known=self._confidences.polarity is not None)
        iterator = iter(pairs)
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            questions = [Question.make(text, as_list(aspects)) for text, aspects in chunk]
            for question, rows in zip(questions, self._answer(questions), strict=True):
                spans = [mentions[0] for mentions in question.aspects]
                told = self._confidences.sentiments(question.text, spans, rows.lengths)
                yield [answer.asked(min_confidence) for answer in told]

    def analyze(
        self, texts: Sequence[str], *, mode: str | None = None, min_confidence: float = 0.0
    ) -> list[list[AspectSentiment]]:
        """Return the aspects of each text, nobody having named them.

        Args:
            texts: The texts.
            mode: How aspects are found: `spans`, by the extraction head, or `capsules`, by opening
                the capsules, as in the paper. By default the head, if the model has one.
            min_confidence: An aspect is marked as `abstained` if that it is one, or its polarity,
                is less sure than this. It stays in the list, so that it can be counted.

        Raises:
            ConfigError: If there is no such mode, the model has no head, or no confidences.
        """
        if isinstance(texts, str):
            raise DataError("analyze takes a list of texts, got one string")
        return list(self.analyze_stream(texts, mode=mode, min_confidence=min_confidence))

    def analyze_stream(
        self, texts: Iterable[str], *, mode: str | None = None, min_confidence: float = 0.0
    ) -> Iterator[list[AspectSentiment]]:
        """Do as `analyze`, one answer after the other, in the memory of a thousand texts."""
        by_spans = self._mode(mode) == SPANS_MODE
        find = self._by_spans if by_spans else self._by_capsules
        self._check_asked(min_confidence, known=by_spans and self._confidences.polarity is not None)
        iterator = iter(texts)
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            for told in find([Question.make(text, [None]) for text in chunk]):
                yield [answer.asked(min_confidence) for answer in told]

    @staticmethod
    def _check_asked(min_confidence: float, *, known: bool) -> None:
        if not 0 <= min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {min_confidence!r}")
        if min_confidence and not known:
            raise ConfigError(
                "min_confidence needs confidences. Aspects that opened capsules name have none; "
                "others have them if the model was trained, by this release, with a dev part."
            )

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways in which this model can find aspects, the one it uses by default first."""
        return MODES if self._runtime.has_spans else (CAPSULES_MODE,)

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

    def _by_spans(self, questions: list[Question]) -> Iterator[list[AspectSentiment]]:
        """Find aspects by the extraction head."""
        layouts = self._tokenizer.lay_out([q.spelled() for q in questions], [()] * len(questions))
        found = _in_batches(questions, layouts, self._find_batch)
        for question, spans in zip(questions, found, strict=True):
            yield spans.aspects(question.text, question.words, self._confidences)

    def _find_batch(self, questions: list[Question], layouts: list[Layout]) -> Iterator[FoundSpans]:
        """Tag a batch, and route the states that the tags came from once for each span."""
        window = self._tokenizer.window
        encoded = self._runtime.encode(Rows.of(layouts, window), window)
        number = len(questions)
        alone = self._route(
            encoded, np.arange(number), np.full((number, 1), -1, np.int64), ("about",)
        )
        tags = self._runtime.tag(encoded, alone)  # (S, W, 3)
        own = [tags[row, : len(question.words)] for row, question in enumerate(questions)]
        places = [find_spans(logits, self._span_bias) for logits in own]
        sentence = np.repeat(np.arange(number), list(map(len, places)))
        first_words = np.array([[first] for some in places for first, _ in some], dtype=np.int64)
        lengths = np.zeros((0, len(CLASSES)), dtype=np.float32)
        if len(sentence):
            lengths = self._route(encoded, sentence, first_words).lengths
        start = 0
        for logits, some in zip(own, places, strict=True):
            rows = lengths[start : start + len(some)]
            yield FoundSpans(some, rows, span_scores(logits, some, self._span_bias))
            start += len(some)

    def explain(self, text: str, aspect: Aspect | None = None) -> Explanation:
        """Open the capsules of a text, given an aspect or not."""
        question = Question.make(text, [aspect])
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
            questions = [Question(e.text, segment(e.text), [e.spans]) for e in some]
            for row, answer in enumerate(self._answer(questions), start=start):
                lengths[row] = answer.lengths[0]
        return lengths

    def calibrate(self, lengths: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the probabilities of capsule lengths (n, C), if the model has a calibration."""
        calibration = self._confidences.polarity
        return None if calibration is None else calibration.apply(lengths)

    def open_sentences(self, texts: Sequence[str]) -> list[OpenedSentence]:
        """Return lengths and word scores without an aspect: the `Detector` of evaluation."""
        opened: list[OpenedSentence] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = [Question.make(t, [None]) for t in texts[start : start + _TEXTS_AT_ONCE]]
            for question, rows in zip(some, self._answer(some, outputs=("about",)), strict=True):
                if rows.about is None:
                    raise ConfigError("the capsule graph gave no word scores")
                scores = rows.about[0, :, : len(question.words)]
                opened.append(OpenedSentence(rows.lengths[0], scores))
        return opened

    def _answer(self, questions: list[Question], *, outputs: tuple[str, ...] = ()) -> list[Answers]:
        """Answer questions in batches of like length, each in its own place."""
        if self._tokenizer.reads_aspect:
            return self._answer_each_aspect(questions, outputs)
        layouts = self._tokenizer.lay_out([q.spelled() for q in questions], [()] * len(questions))
        return self._answer_laid_out(questions, layouts, outputs)

    def _answer_each_aspect(
        self, questions: list[Question], outputs: tuple[str, ...]
    ) -> list[Answers]:
        """Answer with an encoder that reads the aspect: each needs a reading of its own."""
        single = [Question(q.text, q.words, [spans]) for q in questions for spans in q.aspects]
        aspects = [question.first_mention() for question in single]
        layouts = self._tokenizer.lay_out([q.spelled() for q in single], aspects)
        answers = iter(self._answer_laid_out(single, layouts, outputs))
        return [join_answers([next(answers) for _ in question.aspects]) for question in questions]

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
        window = self._tokenizer.window
        encoded = self._runtime.encode(Rows.of(layouts, window), window)
        routed = self._route(encoded, sentence, mentions, outputs)
        start = 0
        for count in counts:
            part = slice(start, start + count)
            yield Answers(
                routed.lengths[part],
                None if routed.about is None else routed.about[part],
                None if routed.because is None else routed.because[part],
            )
            start += count

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
                self._runtime.route(encoded, sentence[rows], mentions[rows], outputs=outputs)
                for rows in route_slices(len(sentence), places)
            ]
        )


def _number(bundle: Bundle, name: str, default: float) -> float:
    """Return a number of a bundle's configuration."""
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

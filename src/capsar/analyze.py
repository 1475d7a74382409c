"""`Analyzer`: texts -> `AspectSentiment`. The one inference path of everything users touch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from capsar.aspects import find_aspects, sentiment_of
from capsar.bundle import CONFIG, TOKENIZER
from capsar.errors import ArtifactError, ConfigError, DataError, VersionMismatchError
from capsar.evaluation.detection import OpenedSentence
from capsar.hub import DEFAULT_MODEL, find_bundle
from capsar.labels import CLASSES, Polarity
from capsar.pieces import load_tokenizer
from capsar.question import Question, as_list, batches_by_length, route_slices
from capsar.review import ask_about, iterate_questions
from capsar.runtime import CPU, Answers, Rows, Runtime, join_answers
from capsar.text import SEGMENTATION, Layout, Span, segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.question import Aspect
    from capsar.schema import AspectSentiment

DEFAULT_ABOUT_THRESHOLD = 0.4
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

        An aspect of a review is answered from the sentences that mention it: the scores are the
        mean over them, the place is the first.

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
            asked = [ask_about(text, as_list(aspects)) for text, aspects in chunk]
            answers = iter(self._answer([q for one in asked for q in one.questions]))
            for (text, _), one in zip(chunk, asked, strict=True):
                lengths = [next(answers).lengths for _ in one.questions]
                yield [
                    _flagged(
                        sentiment_of(text, span, one.lengths(lengths, aspect)),
                        windowed=one.is_windowed(aspect),
                    )
                    for aspect, span in enumerate(one.first)
                ]

    def analyze(self, texts: Sequence[str]) -> list[list[AspectSentiment]]:
        """Return the aspects that each text's sentiments are about, by de-capsulising.

        A text is a review of any length, read sentence by sentence; places are in the review.
        """
        if isinstance(texts, str):
            raise DataError("analyze takes a list of texts, got one string")
        return list(self.analyze_stream(texts))

    def analyze_stream(self, texts: Iterable[str]) -> Iterator[list[AspectSentiment]]:
        """Do as `analyze`, one answer after the other, in the memory of a thousand sentences."""
        waiting: deque[_Review] = deque()

        def sentences() -> Iterator[tuple[_Review, Question | None]]:
            for text in texts:
                review = _Review([])
                waiting.append(review)
                for question in iterate_questions(text):
                    yield review, question
                review.is_read = True
                yield review, None  # so that a run of empty texts is not read without end

        iterator = sentences()
        while chunk := list(islice(iterator, _TEXTS_AT_ONCE)):
            asked = [(review, question) for review, question in chunk if question is not None]
            answers = self._by_capsules([question for _, question in asked])
            for (review, question), found in zip(asked, answers, strict=True):
                review.aspects += [_flagged(a, windowed=question.windowed) for a in found]
            while waiting and waiting[0].is_read:
                yield waiting.popleft().aspects

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

    def explain(self, text: str, aspect: Aspect | None = None) -> Explanation:
        """Open the capsules of a text, given an aspect or not.

        What is opened is what is read to answer: the sentences that mention the aspect, or all.
        Lengths are the mean over them, and so are the shares: they still sum to the lengths.
        """
        if aspect is None:
            questions = list(iterate_questions(text)) or [Question.make(text, [None])]
        else:
            questions = ask_about(text, [aspect]).questions
        answers = self._answer(questions, outputs=("about", "because"))
        about: list[NDArray[np.float32]] = []
        because: list[NDArray[np.float32]] = []
        for question, rows in zip(questions, answers, strict=True):
            if rows.about is None or rows.because is None:
                raise ConfigError("the capsule graph gave no word scores")
            about.append(rows.about[0, :, : len(question.words)])
            because.append(rows.because[0, :, : len(question.words)] / np.float32(len(questions)))
        lengths = np.mean([rows.lengths[0] for rows in answers], axis=0)
        return Explanation(
            text=text,
            words=tuple(word for question in questions for word in question.words),
            lengths=dict(zip(CLASSES, lengths.tolist(), strict=True)),
            about=_by_class(about),
            because=_by_class(because),
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

    def open_examples(self, examples: Sequence[Example]) -> list[OpenedSentence]:
        """Return lengths and *because* of examples: the `Explainer` of evaluation."""
        opened: list[OpenedSentence] = []
        for start in range(0, len(examples), _TEXTS_AT_ONCE):
            some = examples[start : start + _TEXTS_AT_ONCE]
            questions = [Question(e.text, segment(e.text), [e.spans]) for e in some]
            answers = self._answer(questions, outputs=("because",))
            for question, rows in zip(questions, answers, strict=True):
                if rows.because is None:
                    raise ConfigError("the capsule graph gave no word scores")
                scores = rows.because[0, :, : len(question.words)]
                opened.append(OpenedSentence(rows.lengths[0], scores))
        return opened

    def predict_words(
        self, examples: Sequence[Example], kept: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Return the capsule lengths (n, C) of examples of which only some words are read."""
        lengths = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        for start in range(0, len(examples), _TEXTS_AT_ONCE):
            part = slice(start, start + _TEXTS_AT_ONCE)
            questions = []
            for example, some in zip(examples[part], kept[part], strict=True):
                words = segment(example.text)
                questions.append(Question(example.text, [words[i] for i in some], [example.spans]))
            for row, answer in enumerate(self._answer(questions), start=start):
                lengths[row] = answer.lengths[0]
        return lengths

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
        answers: list[Answers | None] = [None] * len(questions)
        sizes = [len(layout.ids) for layout in layouts]
        order = sorted(range(len(questions)), key=sizes.__getitem__)
        for batch in batches_by_length(order, sizes):
            some = [questions[i] for i in batch]
            found = self._answer_batch(some, [layouts[i] for i in batch], outputs)
            for i, answer in zip(batch, found, strict=True):
                answers[i] = answer
        return [answer for answer in answers if answer is not None]

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
        places = encoded.mask.shape[1] * mentions.shape[1]
        routed = join_answers(
            [
                self._runtime.route(encoded, sentence[rows], mentions[rows], outputs=outputs)
                for rows in route_slices(len(sentence), places)
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

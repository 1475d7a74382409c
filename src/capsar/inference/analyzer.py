"""`Analyzer`: texts -> `AspectSentiment`. Everything else in the library predicts through it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from capsar.bundle import DEFAULT_MODEL, find_bundle
from capsar.errors import ConfigError, DataError, VersionMismatchError
from capsar.inference.decoding import (
    CAPSULES_MODE,
    MODES,
    SPANS_MODE,
    CapsuleScores,
    Decoder,
    FoundAspects,
    decode_capsules,
)
from capsar.inference.engine import Engine, read_number
from capsar.inference.inputs import (
    Request,
    as_list,
    check_many,
    check_text,
    iterate_requests,
    request_aspects,
)
from capsar.inference.rendering import AnalyzedText
from capsar.inference.sessions import CPU
from capsar.schema import CLASSES
from capsar.themes.matcher import NO_THEME, StateFeatures, ThemeMatcher, fold
from capsar.themes.schema import as_themes
from capsar.tokenizer import SEGMENTATION, Span, tokenize_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.bundle import Bundle
    from capsar.inference.engine import ExtractedSpans, Predictions
    from capsar.inference.inputs import Aspect, AspectRequests
    from capsar.schema import AspectSentiment, Example, Polarity
    from capsar.themes.schema import Theme, Themes

_DEFAULT_ASPECT_THRESHOLD = 0.4
_CHUNK = 1024
"""Maximum number of texts or sentences in memory."""
_CHUNK_WORDS = 32 * _CHUNK
"""About how many words are in memory at most."""
_MAX_REMOVALS = 64
"""How many times an explanation removes words."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sentiment capsules of a text, word by word."""

    text: str
    words: tuple[Span, ...]
    """The words that were processed, as offsets into the text."""
    lengths: dict[Polarity, float]
    """The length of each capsule."""
    aspect_scores: dict[Polarity, tuple[float, ...]]
    """How strongly each capsule refers to each word, for ranking words: the dot product of the
    word's vector and the capsule's reconstruction, scaled to length one."""
    importance: dict[Polarity, tuple[float, ...]]
    """How much shorter each capsule is without the word: what the prediction depends on. Zero for
    the words of the aspect."""
    attributions: dict[Polarity, tuple[float, ...]]
    """The contribution of each word to each capsule's length by routing; contributions sum to the
    length. For studies of the network: what it depends on is `importance`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as a JSON object, with rounded scores."""
        content: dict[str, Any] = {"text": self.text, "words": [list(word) for word in self.words]}
        content["lengths"] = {str(name): round(score, 6) for name, score in self.lengths.items()}
        for name in ("aspect_scores", "importance", "attributions"):
            content[name] = {
                str(polarity): [round(score, 4) for score in scores]
                for polarity, scores in getattr(self, name).items()
            }
        return content


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
        path: The name of a bundled model, the folder of a bundle, or a hub id `owner/name`.
        threads: CPU threads of the inference engine.
        providers: Execution providers of ONNX Runtime.
        backend: The runtime of the encoder. `openvino` (an extra) computes in bf16 if the CPU
            supports it: several times as fast for a transformer; scores differ in the third
            decimal.
        revision: The branch, tag or commit of a hub model.
        local_files_only: Whether to load a hub model only from the local cache.

    Raises:
        ArtifactError: If the bundle is missing, damaged or of another version.
    """
    bundle = find_bundle(path, revision=revision, local_files_only=local_files_only)
    for key, expected in (("classes", list(map(str, CLASSES))), ("segmentation", SEGMENTATION)):
        found = bundle.config.get(key, expected)
        if found != expected:
            raise VersionMismatchError(
                f"The model {str(path)!r} has the {key} {found!r}; this release supports "
                f"{expected!r}. Use the release that trained it, or train it again."
            )
    return Analyzer(bundle, Engine(bundle, threads=threads, providers=providers, backend=backend))


@dataclass(slots=True)
class _Review:
    """The aspects of a review that is being processed."""

    aspects: list[AspectSentiment] = field(default_factory=list)
    is_complete: bool = False


class Analyzer:
    """Finds aspects and the sentiment toward them; made by `load`. Threads may share it."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self._engine = engine
        self.modes: tuple[str, ...] = MODES if engine.has_span_head else (CAPSULES_MODE,)
        """The extraction modes of this model, the default first."""
        self._decoder = Decoder.from_config(bundle.config)
        self._threshold = read_number(bundle, "aspect_threshold", _DEFAULT_ASPECT_THRESHOLD)
        self._match_themes = lru_cache(maxsize=8)(
            lambda themes: ThemeMatcher(themes, engine.theme_head)
        )

    def classify(
        self,
        texts: Iterable[str],
        aspects: Iterable[Aspect | Sequence[Aspect]],
        *,
        min_confidence: float = 0.0,
    ) -> list[list[AspectSentiment]]:
        """Return the sentiment toward given aspects: one list per text, in their order.

        Only the sentences of a review that mention an aspect are used: scores are the mean over
        them, offsets are those of the first mention.

        Args:
            texts: A list of texts, or a pandas column.
            aspects: The aspects of each text.
            min_confidence: Predictions with a lower confidence are marked as `abstained`.

        Raises:
            ConfigError: If `min_confidence` is given and the model is not calibrated.
            AspectNotFoundError: If an aspect given as text does not occur in its text.
            DataError: If a text is not a string, a span ends outside its text, or the numbers of
                texts and aspects differ.
        """
        check_many(texts, "texts")
        check_many(aspects, "aspects (those of each text)")
        texts, aspects = list(texts), list(aspects)
        if len(texts) != len(aspects):
            raise DataError(
                "Expected one aspect, or one list of aspects, per text; "
                f"got {len(texts)} texts and {len(aspects)} entries. "
                'For several aspects of a text, pass a list: [["a", "b"]]'
            )
        pairs = zip(texts, aspects, strict=True)
        return list(self.classify_stream(pairs, min_confidence=min_confidence))

    def classify_stream(
        self,
        pairs: Iterable[tuple[str, Aspect | Sequence[Aspect]]],
        *,
        min_confidence: float = 0.0,
    ) -> Iterator[list[AspectSentiment]]:
        """Yield the results of `classify` one by one, with at most 1024 texts in memory."""
        self._check_confidence(min_confidence)
        check_many(pairs, "pairs of a text and its aspects")
        iterator = enumerate(pairs)
        while chunk := list(islice(iterator, _CHUNK)):
            located = []
            for number, (text, aspects) in chunk:
                try:
                    located.append(request_aspects(text, as_list(aspects)))
                except DataError as error:
                    if number == 0 and len(chunk) == 1:
                        raise
                    raise _numbered(error, number) from None
            requests = [r for one in located for r in one.requests]
            predicted = iter(self._engine.predict(requests, with_opinions=True))
            found = []
            for (_, (text, _)), one in zip(chunk, located, strict=True):
                own = [next(predicted) for _ in one.requests]
                lengths = one.mean_lengths([part.lengths for part in own])
                spans = [(span.start, span.end) for span in one.first]
                opinions = self._join_opinions(one, own, lengths)
                found.append(FoundAspects(text, spans, lengths, opinions=opinions))
            decoded = self._decoder.decode(found, min_confidence=min_confidence)
            for one, classified in zip(located, decoded, strict=True):
                yield [
                    replace(aspect, windowed=True) if one.is_windowed(i) else aspect
                    for i, aspect in enumerate(classified)
                ]

    def analyze(
        self,
        texts: Iterable[str],
        *,
        mode: str | None = None,
        min_confidence: float = 0.0,
        themes: Themes | Sequence[Theme] | str | Path | None = None,
    ) -> list[list[AspectSentiment]]:
        """Extract aspects and their sentiment from each text.

        A text is a review of any length, processed sentence by sentence; offsets refer to the text.

        Args:
            texts: A list of texts, or a pandas column.
            mode: How aspects are extracted: `spans`, by the span head, or `capsules`, from the
                capsules, as in the paper. The default is `spans` if the model has a span head.
            min_confidence: Aspects are marked as `abstained` if one of their confidences is lower.
            themes: Themes, a list of them, a `themes.toml`, or the name of ready-made ones such as
                `restaurants`. Each aspect then has a `theme`, and sentences that evaluate a theme
                without naming anything have an `implicit` mention of it.

        Raises:
            ArtifactError: If the themes cannot be read.
            ConfigError: If the mode is unknown or not supported by the model, `min_confidence` is
                given without calibrated confidences, or the themes are malformed.
            DataError: If a text is not a string.
        """
        found = self.analyze_stream(texts, mode=mode, min_confidence=min_confidence, themes=themes)
        return list(found)

    def analyze_stream(
        self,
        texts: Iterable[str],
        *,
        mode: str | None = None,
        min_confidence: float = 0.0,
        themes: Themes | Sequence[Theme] | str | Path | None = None,
    ) -> Iterator[list[AspectSentiment]]:
        """Yield the results of `analyze` one by one, with at most 2048 sentences in memory."""
        mode = self._check_mode(mode)
        self._check_confidence(min_confidence, mode)
        matcher = None
        if themes is not None:
            if mode != SPANS_MODE:
                raise ConfigError(f"Themes need mode '{SPANS_MODE}', got {mode!r}")
            matcher = self._match_themes(as_themes(themes))
        check_many(texts, "texts")
        waiting: deque[_Review] = deque()

        def sentences() -> Iterator[tuple[_Review, Request | None]]:
            for number, text in enumerate(texts):
                try:
                    check_text(text)
                except DataError as error:
                    raise _numbered(error, number) from None
                review = _Review()
                waiting.append(review)
                for request in iterate_requests(text):
                    yield review, request
                review.is_complete = True
                yield review, None  # so that empty texts fill a chunk too

        for chunk in _chunks(sentences()):
            requests = [(review, request) for review, request in chunk if request is not None]
            extracted = self._extract([r for _, r in requests], mode, min_confidence, matcher)
            for (review, _), aspects in zip(requests, extracted, strict=True):
                review.aspects += aspects
            while waiting and waiting[0].is_complete:
                yield waiting.popleft().aspects

    def analyze_frame(
        self,
        frame: Any,  # noqa: ANN401  (of any library)
        text: str = "text",
        *,
        mode: str | None = None,
        min_confidence: float = 0.0,
        themes: Themes | Sequence[Theme] | str | Path | None = None,
        progress: bool | None = None,
    ) -> Any:  # noqa: ANN401
        """Analyze a column of a data frame of pandas, Polars or Arrow.

        Returns a frame of the same library with one row per mention: the columns of the frame,
        then `aspect`, `start`, `end`, `polarity`, `confidence`, `aspect_confidence`, `opinions`
        (joined by `; `), with a minimum confidence `abstained`, and with themes `theme`,
        `theme_confidence` and `implicit`. Reviews without a mention have no row; missing texts
        count as empty.

        Args:
            frame: The data frame.
            text: The column with the reviews.
            mode: As in `analyze`.
            min_confidence: As in `analyze`; uncertain mentions are kept, with `abstained` set.
            themes: As in `analyze`.
            progress: Whether to show a progress bar; by default on a terminal and in a notebook.

        Raises:
            DataError: If the column is missing, a value is not text, or the frame has a column with
                the name of a result.
        """
        from capsar.inference.frames import analyze_frame

        options = {"mode": mode, "min_confidence": min_confidence, "themes": themes}
        return analyze_frame(self, frame, text, progress=progress, **options)

    @overload
    def __call__(self, texts: str, **options: Any) -> AnalyzedText: ...  # noqa: ANN401

    @overload
    def __call__(self, texts: Iterable[str], **options: Any) -> list[AnalyzedText]: ...  # noqa: ANN401

    def __call__(
        self,
        texts: str | Iterable[str],
        **options: Any,
    ) -> AnalyzedText | list[AnalyzedText]:
        """Analyze one text or several: `analyze` with results that a notebook shows as marked text.

        Args:
            texts: A text, or a list of texts.
            options: Those of `analyze`.
        """
        if isinstance(texts, str):
            return AnalyzedText(texts, self.analyze([texts], **options)[0])
        check_many(texts, "texts")
        given = list(texts)
        found = self.analyze(given, **options)
        return [AnalyzedText(text, own) for text, own in zip(given, found, strict=True)]

    def _extract(
        self,
        requests: list[Request],
        mode: str,
        min_confidence: float,
        matcher: ThemeMatcher | None,
    ) -> Iterator[list[AspectSentiment]]:
        if mode == SPANS_MODE:
            with_features = matcher is not None and self._engine.theme_head is not None
            extracted = self._engine.extract(requests, with_features=with_features)
            themed = _match(matcher, requests, extracted) if matcher else None
            located = [
                _locate(request, found) for request, found in zip(requests, extracted, strict=True)
            ]
            decoded = self._decoder.decode(located, min_confidence=min_confidence)
            for row, aspects in enumerate(decoded):
                if not matcher or not themed:
                    yield aspects
                    continue
                facts = (requests[row], extracted[row], matcher.themes.names, themed[row])
                yield self._add_themes(aspects, *facts, min_confidence)
            return
        predicted = self._engine.predict(requests, ("similarity",))
        for request, rows in zip(requests, predicted, strict=True):
            aspects = decode_capsules(
                request.text,
                request.words,
                rows.lengths[0],
                rows.scores["similarity"][0],
                threshold=self._threshold,
            )
            yield [replace(a, windowed=True) for a in aspects] if request.windowed else aspects

    def _add_themes(
        self,
        aspects: list[AspectSentiment],
        request: Request,
        found: ExtractedSpans,
        names: Sequence[str],
        themed: tuple[list[tuple[int, float]], list[tuple[int, float]]],
        min_confidence: float,
    ) -> list[AspectSentiment]:
        """Return aspects with their themes, followed by the implicit mentions of the sentence.

        The sentiment of an implicit mention is that of the capsules without an aspect.
        """
        own, implicit = themed
        known = [
            replace(
                aspect,
                theme="" if theme == NO_THEME else names[theme],
                theme_confidence=probability,
            )
            for aspect, (theme, probability) in zip(aspects, own, strict=True)
        ]
        if not implicit or request.windowed:  # a window is not what a sentence says
            return known
        sentence = FoundAspects(
            request.text,
            [_offsets(request, (0, len(request.words)))],
            found.sentence_lengths[None],
            opinions=[[]] if self._engine.has_opinion_head else None,
        )
        [[whole]] = self._decoder.decode([sentence], min_confidence=min_confidence)
        return known + [
            replace(whole, theme=names[theme], theme_confidence=probability, implicit=True)
            for theme, probability in implicit
        ]

    def _join_opinions(
        self,
        one: AspectRequests,
        predicted: Sequence[Predictions],
        lengths: NDArray[np.float32],
    ) -> list[list[tuple[Span, float]]] | None:
        """Return the opinion phrases of each aspect, from all sentences with its polarity."""
        if not self._engine.has_opinion_head:
            return None
        joined = []
        for rows, own in zip(one.rows, lengths, strict=True):
            phrases: dict[Span, float] = {}
            for request, row in rows:
                part = predicted[request]
                if part.opinions and part.lengths[row].argmax() == own.argmax():
                    phrases |= {
                        _offsets(one.requests[request], span): score
                        for span, score in part.opinions[row]
                    }
            joined.append(list(phrases.items()))
        return joined

    def _check_mode(self, mode: str | None) -> str:
        chosen = self.modes[0] if mode is None else mode
        if chosen not in MODES:
            raise ConfigError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if chosen not in self.modes:
            raise ConfigError(
                f"This model has no span head, which mode {mode!r} needs. Train one with "
                "model.span_weight above 0, or use mode 'capsules'."
            )
        return chosen

    def _check_confidence(self, min_confidence: float, mode: str = SPANS_MODE) -> None:
        if not 0 <= min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {min_confidence!r}")
        if min_confidence and mode == CAPSULES_MODE:
            raise ConfigError(
                "min_confidence needs confidences, which mode 'capsules' does not have. Omit it, "
                "or use mode 'spans' of a model with a span head."
            )
        if min_confidence and self._decoder.polarity is None:
            raise ConfigError(
                "min_confidence needs confidences, and this model is not calibrated: it was "
                "trained with fewer than ten validation sentences. Omit it, or train again with "
                "more labeled sentences or a larger data.validation_ratio."
            )

    def explain(self, text: str, aspect: Aspect | None = None) -> Explanation:
        """Return word scores of a text, for an aspect or for none.

        The words are those of the sentences that mention the aspect, or of all sentences. Lengths,
        importance and attributions are means over these sentences. If there are more than 64 words,
        neighboring ones are removed together and share their importance.
        """
        check_text(text)
        if aspect is None:
            requests = list(iterate_requests(text)) or [Request.whole_text(text)]
        else:
            requests = request_aspects(text, [aspect]).requests
        predicted = self._engine.predict(requests, ("aspect_scores", "attributions"))
        lengths = np.mean([rows.lengths[0] for rows in predicted], axis=0)
        scores = [rows.scores["aspect_scores"][0] for rows in predicted]
        weight = np.float32(len(requests))
        attributions = [rows.scores["attributions"][0] / weight for rows in predicted]
        importance = self._importance(requests, [rows.lengths[0] for rows in predicted])
        return Explanation(
            text=text,
            words=tuple(word for request in requests for word in request.words),
            lengths=dict(zip(CLASSES, lengths.tolist(), strict=True)),
            aspect_scores=_by_class(scores),
            importance=_by_class([drops / weight for drops in importance]),
            attributions=_by_class(attributions),
        )

    def _importance(
        self, requests: Sequence[Request], lengths: Sequence[NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]:
        """Return how much shorter the capsules (C, W) of each request are without each word."""
        num_words = sum(len(request.words) for request in requests)
        size = max(1, -(-num_words // _MAX_REMOVALS))
        drops = [
            np.zeros((len(CLASSES), len(request.words)), dtype=np.float32) for request in requests
        ]
        removed: list[tuple[int, list[int]]] = []
        without: list[Request] = []
        for number, request in enumerate(requests):
            aspect = {word for words in request.mentions(0) for word in words}
            others = [word for word in range(len(request.words)) if word not in aspect]
            for start in range(0, len(others), size):
                group = others[start : start + size]
                kept = [span for word, span in enumerate(request.words) if word not in group]
                removed.append((number, group))
                without.append(replace(request, words=kept))
        for (number, group), rows in zip(removed, self._predict(without), strict=True):
            drop = (lengths[number] - rows.lengths[0]) / np.float32(len(group))
            drops[number][:, group] = drop[:, None]
        return drops

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C): the `Predictor` of evaluation.

        Examples of one text that follow each other are encoded once.
        """
        if self._engine.tokenizer.reads_aspect:
            return _lengths(self._predict(_requests(examples)))
        return _lengths(
            self._predict(
                Request(text, tokenize_words(text), [example.spans for example in some])
                for text, some in groupby(examples, key=lambda example: example.text)
            )
        )

    def calibrate(self, lengths: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the probabilities of capsule lengths (n, C), if the model is calibrated."""
        calibration = self._decoder.polarity
        return None if calibration is None else calibration.apply(lengths)

    def score_examples(self, examples: Sequence[Example]) -> list[CapsuleScores]:
        """Return capsule lengths and attributions of each example."""
        predicted = self._predict(_requests(examples), ("attributions",))
        return [
            CapsuleScores(rows.lengths[0], rows.scores["attributions"][0]) for rows in predicted
        ]

    def score_sentences(self, texts: Sequence[str]) -> list[CapsuleScores]:
        """Return capsule lengths and aspect scores of each text, without an aspect."""
        for text in texts:
            check_text(text)
        predicted = self._predict(map(Request.whole_text, texts), ("aspect_scores",))
        return [
            CapsuleScores(rows.lengths[0], rows.scores["aspect_scores"][0]) for rows in predicted
        ]

    def predict_words(
        self, examples: Sequence[Example], kept: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Return the capsule lengths (n, C) of examples of which only some words are kept."""
        requests = (
            Request(example.text, [words[i] for i in some], [example.spans])
            for example, some in zip(examples, kept, strict=True)
            for words in [tokenize_words(example.text)]
        )
        return _lengths(self._predict(requests))

    def predict_tags(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the tag logits of each text's words (W, 3), by the span head."""
        requests = map(Request.whole_text, texts)
        while chunk := list(islice(requests, _CHUNK)):
            yield from (found.logits for found in self._engine.extract(chunk))

    def _predict(
        self, requests: Iterable[Request], outputs: tuple[str, ...] = ()
    ) -> Iterator[Predictions]:
        """Yield the predictions of requests, with at most 1024 requests in memory."""
        iterator = iter(requests)
        while chunk := list(islice(iterator, _CHUNK)):
            yield from self._engine.predict(chunk, outputs)


def _chunks(
    sentences: Iterable[tuple[_Review, Request | None]],
) -> Iterator[list[tuple[_Review, Request | None]]]:
    """Yield lists of at most 1024 sentences and about 32,768 words, which take a minute or two."""
    chunk: list[tuple[_Review, Request | None]] = []
    num_words = 0
    for review, request in sentences:
        chunk.append((review, request))
        num_words += len(request.words) if request else 0
        if len(chunk) == _CHUNK or num_words >= _CHUNK_WORDS:
            yield chunk
            chunk, num_words = [], 0
    if chunk:
        yield chunk


def _match(
    matcher: ThemeMatcher, requests: Sequence[Request], extracted: Sequence[ExtractedSpans]
) -> list[tuple[list[tuple[int, float]], list[tuple[int, float]]]]:
    """Return the themes of each sentence's mentions, and its implicit themes."""
    if not requests:
        return []
    sentences = [list(map(fold, request.tokens())) for request in requests]
    mentions = [
        words[first:end]
        for words, found in zip(sentences, extracted, strict=True)
        for first, end in found.spans
    ]
    counts = [len(found.spans) for found in extracted]
    pooled = [found.features for found in extracted if found.features is not None]
    features = None
    if pooled:
        features = StateFeatures(
            np.concatenate([each.mentions for each in pooled]),
            np.concatenate([each.sentences for each in pooled]),
        )
    owners = np.repeat(np.arange(len(requests)), counts)
    own, implicit = matcher.match(sentences, mentions, owners, features)
    ends = np.cumsum(counts).tolist()
    return [
        (own[end - count : end], implicit[row])
        for row, (end, count) in enumerate(zip(ends, counts, strict=True))
    ]


def _locate(request: Request, found: ExtractedSpans) -> FoundAspects:
    """Return extracted spans as character offsets."""
    opinions = found.opinions
    return FoundAspects(
        request.text,
        [_offsets(request, span) for span in found.spans],
        found.lengths,
        found.scores,
        None
        if opinions is None
        else [[(_offsets(request, span), score) for span, score in own] for own in opinions],
        request.windowed,
    )


def _offsets(request: Request, words: Span) -> Span:
    """Return the character offsets of a span of words."""
    return request.words[words[0]][0], request.words[words[1] - 1][1]


def _numbered(error: DataError, number: int) -> DataError:
    return type(error)(f"Text {number} (counted from 0): {error}")


def _requests(examples: Iterable[Example]) -> Iterator[Request]:
    return (Request.whole_text(example.text, example.spans) for example in examples)


def _lengths(predictions: Iterable[Predictions]) -> NDArray[np.float32]:
    """Return the capsule lengths of all aspects of predictions (n, C)."""
    rows = [rows.lengths for rows in predictions]
    return np.concatenate([np.zeros((0, len(CLASSES)), np.float32), *rows])


def _by_class(scores: list[NDArray[np.float32]]) -> dict[Polarity, tuple[float, ...]]:
    """Return the word scores of sentences (C, W each) as one tuple per class."""
    joined = np.concatenate(scores, axis=1).tolist()  # (C, W)
    return {polarity: tuple(joined[i]) for i, polarity in enumerate(CLASSES)}

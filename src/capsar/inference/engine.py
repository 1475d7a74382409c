"""Requests -> network outputs: encode sentences once, then route, tag and pool their states."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import onnxruntime
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from capsar.bundle import CAPSULES, CONFIG, ENCODER, OPINIONS, SPANS, THEMES, TOKENIZER
from capsar.errors import ArtifactError, ConfigError, DataError
from capsar.inference.decoding import (
    aspect_distances,
    decode_opinions,
    decode_spans,
    opinion_window,
    span_scores,
)
from capsar.inference.inputs import MAX_BATCH_IDS, PaddedBatch, Request, batch_by_length
from capsar.inference.sessions import CPU, STATES, open_graphs
from capsar.schema import CLASSES, Polarity
from capsar.themes.matcher import HEAD, StateFeatures
from capsar.tokenizer import first_subwords, load_tokenizer, pool_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.bundle import Bundle
    from capsar.tokenizer import Encoding, Span

    FindSpans = Callable[[Request, NDArray[np.float32]], list[Span]]
    OpinionSpans = list[tuple[Span, float]]  # words and scores

T = TypeVar("T")

_POOLING = {"similarity": "max", "aspect_scores": "max", "attributions": "sum"}
"""The optional word scores, and how scores of subwords are pooled to words."""

_ROUTED_AT_ONCE = 2**20
"""Maximum number of ids times mentions over all aspects that are routed together."""
_ROUTED_PER_ASPECT = 2**25
"""The same for a single aspect; more would not fit in memory."""

_TAGGED_AT_ONCE = 256
"""Maximum number of aspects whose opinion phrases are tagged together."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Encoded sentences, ready to be routed for any number of aspects."""

    states: Any
    """ONNX Runtime value (S, T, H)."""
    word_vectors: Any
    """ONNX Runtime value (S, T, E)."""
    words: NDArray[np.int64]
    """The word of each position (S, T); -1 for none."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """The outputs of the capsules for each aspect."""

    lengths: NDArray[np.float32]
    """(A, C)."""
    scores: dict[str, NDArray[np.float32]]
    """The requested scores of each capsule and word (A, C, W), by name:

    `similarity`, the cosine similarity of the word's vector and the capsule's reconstruction;
    `aspect_scores`, their dot product with the reconstruction scaled to length one, by which words
    are ranked; `attributions`, the contribution of the word to the capsule's length.
    """
    opinions: list[OpinionSpans] | None = None
    """The opinion phrases of each aspect, if they were requested."""


@dataclass(frozen=True, slots=True)
class ExtractedSpans:
    """The spans that the span head found in a sentence."""

    spans: list[Span]
    """Word indices, half-open."""
    lengths: NDArray[np.float32]
    """Capsule lengths (A, C)."""
    scores: NDArray[np.float64]
    """Span scores (A)."""
    logits: NDArray[np.float32]
    """Tag logits of words (W, 3)."""
    sentence_lengths: NDArray[np.float32]
    """Capsule lengths without an aspect (C)."""
    opinions: list[OpinionSpans] | None = None
    """The opinion phrases of each aspect, if the bundle has an opinion head."""
    features: StateFeatures | None = None
    """The pooled states, if they were requested."""


class Engine:
    """The tokenizer and the graphs of a bundle. Threads may share it.

    Args:
        bundle: A verified bundle.
        threads: CPU threads per graph.
        providers: Execution providers of ONNX Runtime, in order of preference.
        backend: The runtime of the encoder; the other graphs use ONNX Runtime.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        providers: Sequence[str] = CPU,
        backend: str = "onnxruntime",
    ) -> None:
        graphs = open_graphs(bundle, threads=threads, providers=providers, backend=backend)
        self._encoder, self._capsules = graphs[ENCODER], graphs[CAPSULES]
        self._spans, self._opinions = graphs.get(SPANS), graphs.get(OPINIONS)
        self.has_span_head = self._spans is not None
        self.has_opinion_head = self._opinions is not None
        self.tokenizer = load_tokenizer(bundle.path(TOKENIZER), bundle.config)
        self._span_bias = read_number(bundle, "span_bias", 0.0)
        self._span_threshold = read_number(bundle, "span_threshold", 0.0)
        self._opinion_bias = read_number(bundle, "opinion_bias", 0.0)
        self.theme_head: dict[str, NDArray[np.float32]] | None = None
        """The weights of the theme head, if the bundle has one."""
        if THEMES in bundle.files:
            self.theme_head = _read_theme_head(bundle)

    def predict(
        self,
        requests: Sequence[Request],
        outputs: tuple[str, ...] = (),
        *,
        with_opinions: bool = False,
    ) -> list[Predictions]:
        """Return the predictions of each request.

        Args:
            requests: The requests.
            outputs: The names of the word scores to compute.
            with_opinions: Whether to find opinion phrases, if the bundle has an opinion head.
        """
        finds_opinions = with_opinions and self.has_opinion_head

        def run(some: list[Request], encodings: list[Encoding]) -> Iterator[Predictions]:
            """Predict one batch."""
            return self._predict_batch(some, encodings, outputs, finds_opinions)

        if not self.tokenizer.reads_aspect:
            return self._run_batches(requests, run)
        # The encoder depends on the aspect, so each aspect is a request of its own.
        single = [Request(r.text, r.words, [spans]) for r in requests for spans in r.aspects]
        found = iter(self._run_batches(single, run))
        predictions = []
        for request in requests:
            parts = [next(found) for _ in request.aspects]
            lengths = np.array([part.lengths[0] for part in parts], np.float32)
            scores = {name: np.stack([part.scores[name][0] for part in parts]) for name in outputs}
            opinions = [(part.opinions or [[]])[0] for part in parts] if finds_opinions else None
            predictions.append(Predictions(lengths.reshape(-1, len(CLASSES)), scores, opinions))
        return predictions

    def extract(
        self,
        requests: Sequence[Request],
        find: FindSpans | None = None,
        *,
        with_features: bool = False,
    ) -> list[ExtractedSpans]:
        """Extract the aspects of each request with the span head, and route each of them.

        Args:
            requests: The sentences.
            find: Returns the spans of a sentence, given its tag logits; by default the best tags.
            with_features: Whether to return pooled states.
        """

        def run(some: list[Request], encodings: list[Encoding]) -> Iterator[ExtractedSpans]:
            return self._extract_batch(some, encodings, find, with_features)

        return self._run_batches(requests, run)

    def read_states(self, requests: Sequence[Request]) -> list[NDArray[np.float32]]:
        """Return the hidden state of the first subword of each word (W, H), per request."""
        return self._run_batches(requests, self._read_batch)

    def pool_states(self, requests: Sequence[Request]) -> list[StateFeatures]:
        """Return the pooled states of each request; each of its aspects is a mention."""

        def run(some: list[Request], encodings: list[Encoding]) -> Iterator[StateFeatures]:
            encoded = self.encode(PaddedBatch.from_encodings(encodings, self.tokenizer.window))
            mentions = [
                [own[0] if (own := request.mentions(i)) else range(0)
                 for i in range(len(request.aspects))]
                for request in some
            ]  # fmt: skip
            return _pool_states(encoded, mentions)

        return self._run_batches(requests, run)

    def _run_batches(
        self,
        requests: Sequence[Request],
        run: Callable[[list[Request], list[Encoding]], Iterable[T]],
    ) -> list[T]:
        """Run requests in batches of similar length, and return the results in their order."""
        tokens = [request.tokens() for request in requests]
        aspects: list[list[str]] = [[]] * len(tokens)
        if self.tokenizer.reads_aspect:
            aspects = [
                [words[i] for i in mentions[0]] if (mentions := request.mentions(0)) else []
                for request, words in zip(requests, tokens, strict=True)
            ]
        encodings = self.tokenizer.encode(tokens, aspects)
        results: dict[int, T] = {}
        for rows in batch_by_length([len(encoding.ids) for encoding in encodings]):
            found = run([requests[i] for i in rows], [encodings[i] for i in rows])
            results.update(zip(rows, found, strict=True))
        return [results[row] for row in range(len(requests))]

    def _predict_batch(
        self,
        requests: list[Request],
        encodings: list[Encoding],
        outputs: tuple[str, ...],
        finds_opinions: bool,
    ) -> Iterator[Predictions]:
        counts = [len(request.aspects) for request in requests]
        if not any(counts):
            nothing = np.zeros((0, len(CLASSES)), dtype=np.float32)
            yield from (Predictions(nothing, {}, [] if finds_opinions else None) for _ in requests)
            return
        mentions = [
            request.mentions(aspect)
            for request in requests
            for aspect in range(len(request.aspects))
        ]
        first = [[words[0] for words in own] for own in mentions]
        first_words = np.full((len(first), max(1, *map(len, first))), -1, dtype=np.int64)
        for row, words in enumerate(first):
            first_words[row, : len(words)] = words
        encoded = self.encode(PaddedBatch.from_encodings(encodings, self.tokenizer.window))
        sentence = np.repeat(np.arange(len(requests)), counts)
        names = tuple(dict.fromkeys([*outputs, *(["attributions"] if finds_opinions else [])]))
        routed = self.route(encoded, sentence, first_words, names)
        opinions: list[OpinionSpans] = []
        if finds_opinions:
            opinions = self._find_opinions(encoded, requests, sentence, mentions, routed)
        end = 0
        for request, count in zip(requests, counts, strict=True):
            start, end = end, end + count
            num_words = len(request.words)
            scores = {name: routed.scores[name][start:end, :, :num_words] for name in outputs}
            own = opinions[start:end] if finds_opinions else None
            yield Predictions(routed.lengths[start:end], scores, own)

    def _extract_batch(
        self,
        requests: list[Request],
        encodings: list[Encoding],
        find: FindSpans | None,
        with_features: bool,
    ) -> Iterator[ExtractedSpans]:
        """Tag a batch, then route the same states once per span."""
        encoded = self.encode(PaddedBatch.from_encodings(encodings, self.tokenizer.window))
        num_sentences = len(requests)
        no_aspect = np.full((num_sentences, 1), -1, np.int64)
        routed = self.route(encoded, np.arange(num_sentences), no_aspect, ("similarity",))
        tags = self.tag(encoded, routed)  # (S, W, 3)
        logits = [tags[row, : len(request.words)] for row, request in enumerate(requests)]
        if find:
            spans = [find(request, own) for request, own in zip(requests, logits, strict=True)]
        else:
            spans = [decode_spans(own, self._span_bias) for own in logits]
        pairs = zip(logits, spans, strict=True)
        scores = [span_scores(own, some, self._span_bias) for own, some in pairs]
        if not find:
            for row, own_scores in enumerate(scores):
                if own_scores.max(initial=0) < self._span_threshold:
                    spans[row], scores[row] = [], own_scores[:0]
        whole = routed.lengths
        pooled: Iterator[StateFeatures | None] = repeat(None)
        if with_features:
            pooled = _pool_states(encoded, [[range(*span) for span in some] for some in spans])
        lengths = np.zeros((0, len(CLASSES)), dtype=np.float32)
        opinions: list[OpinionSpans] = []
        sentence = np.repeat(np.arange(num_sentences), list(map(len, spans)))
        if len(sentence):
            mentions = [[range(*span)] for some in spans for span in some]
            first_words = np.array([[own[0][0]] for own in mentions], dtype=np.int64)
            outputs = ("attributions",) if self.has_opinion_head else ()
            routed = self.route(encoded, sentence, first_words, outputs)
            lengths = routed.lengths
            opinions = self._find_opinions(encoded, requests, sentence, mentions, routed)
        end = 0
        for row, (own, some) in enumerate(zip(logits, spans, strict=True)):
            start, end = end, end + len(some)
            phrases = opinions[start:end] if self.has_opinion_head else None
            features = next(pooled)
            yield ExtractedSpans(
                some, lengths[start:end], scores[row], own, whole[row], phrases, features
            )

    def _read_batch(
        self, requests: list[Request], encodings: list[Encoding]
    ) -> Iterator[NDArray[np.float32]]:
        encoded = self.encode(PaddedBatch.from_encodings(encodings, self.tokenizer.window))
        states = encoded.states.numpy()  # (S, T, H)
        num_words = max(1, *(len(request.words) for request in requests))
        positions = first_subwords(encoded.words, num_words)  # (S, W)
        for row, request in enumerate(requests):
            yield states[row, positions[row, : len(request.words)]]

    def encode(self, batch: PaddedBatch) -> EncodedBatch:
        """Run the encoder, window by window if sentences are longer than its window."""
        arrays = {"ids": batch.ids, "mask": batch.mask, "segments": batch.segments}
        if self.tokenizer.window and batch.ids.shape[1] > self.tokenizer.window:
            states, word_vectors = self._encode_windows(arrays)
        else:
            states, word_vectors = self._encoder.run(STATES, arrays)
        return EncodedBatch(states, word_vectors, batch.words)

    def _encode_windows(self, arrays: dict[str, NDArray[Any]]) -> list[Any]:
        """Encode long sentences a few windows at a time, and join the outputs."""
        shape, window = arrays["ids"].shape, self.tokenizer.window
        windows = {name: array.reshape(-1, window) for name, array in arrays.items()}
        used = np.flatnonzero(windows["mask"].any(1))  # windows that are not only padding
        joined: list[NDArray[np.float32]] = []
        at_once = max(1, MAX_BATCH_IDS // window)
        for start in range(0, len(used), at_once):
            some = used[start : start + at_once]
            found = self._encoder.run(STATES, {name: w[some] for name, w in windows.items()})
            for number, value in enumerate(found):
                rows = value.numpy()  # (some, window, H or E)
                if len(joined) <= number:
                    joined.append(np.zeros((len(windows["ids"]), *rows.shape[1:]), np.float32))
                joined[number][some] = rows
        return [
            onnxruntime.OrtValue.ortvalue_from_numpy(array.reshape(*shape, -1)) for array in joined
        ]

    def route(
        self,
        encoded: EncodedBatch,
        sentence: NDArray[np.int64],
        first_words: NDArray[np.int64],
        outputs: tuple[str, ...] = (),
    ) -> Predictions:
        """Route encoded sentences for aspects, in bounded memory.

        Args:
            encoded: The sentences.
            sentence: The sentence of each aspect (A).
            first_words: The first word of each mention (A, M); -1 where there is none.
            outputs: The names of the word scores to compute.
        """
        size = encoded.words.shape[1] * first_words.shape[1]
        if size > _ROUTED_PER_ASPECT:
            raise DataError(
                f"An aspect has too many mentions for the length of the text ({size} words times "
                f"mentions; at most {_ROUTED_PER_ASPECT}). Pass the relevant ones as AspectSpan."
            )
        names = {name: "similarity" if name == "aspect_scores" else name for name in outputs}
        wanted = ["lengths", *dict.fromkeys(names.values())]
        feeds = {"states": encoded.states, "word_vectors": encoded.word_vectors}
        feeds |= {"mask": encoded.words >= 0, "words": encoded.words}
        feeds |= {f"want_{n}": np.array(n in wanted) for n in ("similarity", "attributions")}
        parts = []
        at_once = max(1, _ROUTED_AT_ONCE // size)
        for start in range(0, len(sentence), at_once):
            rows = slice(start, start + at_once)
            feeds |= {"sentence": sentence[rows], "first_words": first_words[rows]}
            parts.append([value.numpy() for value in self._capsules.run(wanted, feeds)])
        found = dict(zip(wanted, map(np.concatenate, zip(*parts, strict=True)), strict=True))
        scores = {}
        for name, output in names.items():
            values = found[output]  # (A, C, T)
            if name == "aspect_scores":
                norms = np.linalg.norm(encoded.word_vectors.numpy(), axis=-1)  # (S, T)
                values = values * norms[sentence][:, None]
            scores[name] = pool_words(values, encoded.words[sentence], how=_POOLING[name])
        return Predictions(found["lengths"], scores)

    def tag(self, encoded: EncodedBatch, routed: Predictions) -> NDArray[np.float32]:
        """Return the tag logits of each word (S, W, 3), undefined beyond a sentence's last word.

        Args:
            encoded: The sentences.
            routed: Each sentence routed without an aspect, with similarity.

        Raises:
            ConfigError: If the bundle has no span head.
        """
        if self._spans is None:
            raise ConfigError("This model has no span head")
        found = routed.scores["similarity"]  # (S, C, W)
        feeds = _word_feeds(encoded, max(1, found.shape[-1]))
        word_mask = feeds["word_mask"]  # (S, W)
        similarity = np.zeros((*found.shape[:2], word_mask.shape[1]), np.float32)
        similarity[:, :, : found.shape[-1]] = found
        feeds["similarity"] = np.where(word_mask[:, None], similarity, np.float32(0))
        feeds["lengths"] = routed.lengths
        tags: NDArray[np.float32] = self._spans.run(["tags"], feeds)[0].numpy()
        return tags

    def _find_opinions(
        self,
        encoded: EncodedBatch,
        requests: Sequence[Request],
        sentence: NDArray[np.int64],
        mentions: Sequence[Sequence[range]],
        routed: Predictions,
    ) -> list[OpinionSpans]:
        """Return the opinion phrases of each aspect; none of neutral ones, or without a head."""
        opinions: list[OpinionSpans] = [[] for _ in mentions]
        is_polar = routed.lengths.argmax(1) != CLASSES.index(Polarity.NEUTRAL)
        rows = [row for row in np.flatnonzero(is_polar).tolist() if mentions[row]]
        if not rows or not self.has_opinion_head:
            return opinions
        for begin in range(0, len(rows), _TAGGED_AT_ONCE):
            some = rows[begin : begin + _TAGGED_AT_ONCE]
            windows = [
                opinion_window(len(requests[number].words), mentions[row][0][0])
                for row, number in zip(some, sentence[some].tolist(), strict=True)
            ]
            own = [mentions[row] for row in some]
            attributions = routed.scores["attributions"][some]
            tagged = self._tag_opinions(encoded, sentence[some], own, windows, attributions)
            for row, window, found in zip(
                some, windows, decode_opinions(*tagged, self._opinion_bias), strict=True
            ):
                opinions[row] = [
                    ((first + window.start, end + window.start), score)
                    for (first, end), score in found
                ]
        return opinions

    def _tag_opinions(
        self,
        encoded: EncodedBatch,
        sentence: NDArray[np.int64],
        mentions: Sequence[Sequence[range]],
        windows: Sequence[range],
        attributions: NDArray[np.float32],
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the opinion logits of the words of each window (A, V, 3), and which may be tagged.

        Args:
            encoded: The sentences.
            sentence: The sentence of each aspect (A).
            mentions: The words of each mention of an aspect.
            windows: The words to tag.
            attributions: Of the words of these sentences (A, C, W).
        """
        if self._opinions is None:
            raise ConfigError("This model has no opinion head")
        num_words = int(encoded.words.max()) + 1  # of sentences without an aspect as well
        sizes = np.array([len(window) for window in windows])
        offsets = np.arange(sizes.max())
        mask = offsets < sizes[:, None]  # (A, V)
        positions = np.array([window.start for window in windows])[:, None] + offsets * mask
        counts = [sum(map(len, own)) for own in mentions]
        aspect_words = np.zeros((len(mentions), max(counts)), dtype=np.int64)
        weights = np.zeros(aspect_words.shape, dtype=np.float32)
        aspect = np.zeros(mask.shape, dtype=bool)
        for row, (own, window) in enumerate(zip(mentions, windows, strict=True)):
            aspect_words[row, : counts[row]] = [word for words in own for word in words]
            weights[row, : counts[row]] = 1 / counts[row]
            for words in own:
                first, end = words[0] - window.start, words[-1] + 1 - window.start
                aspect[row, max(0, first) : max(0, end)] = True
        start = sentence[:, None] * num_words
        feeds = _word_feeds(encoded, num_words) | {
            "positions": start + positions,
            "mask": mask,
            "aspect_words": start + aspect_words,
            "aspect_weights": weights,
            "distances": aspect_distances(aspect),
            "attributions": np.take_along_axis(attributions, positions[:, None], axis=2),
        }
        logits: NDArray[np.float32] = self._opinions.run(["tags"], feeds)[0].numpy()
        return logits, mask & ~aspect


def _word_feeds(encoded: EncodedBatch, num_words: int) -> dict[str, Any]:
    """Return the inputs that the heads share: states and the words in them."""
    word_mask = np.arange(num_words) <= encoded.words.max(1, keepdims=True)  # (S, W)
    first = first_subwords(encoded.words, num_words)
    return {"states": encoded.states, "first_subwords": first, "word_mask": word_mask}


def _read_theme_head(bundle: Bundle) -> dict[str, NDArray[np.float32]]:
    """Return the weights of the theme head.

    Raises:
        ArtifactError: If they are damaged.
    """
    try:
        head = load_arrays(bundle.path(THEMES).read_bytes())
    except SafetensorError as error:
        reason = f"{error}"
    else:
        if head.keys() == HEAD:
            return head
        reason = f"it has {sorted(head)}, expected {sorted(HEAD)}"
    raise ArtifactError(
        f"{THEMES} of the bundle {str(bundle.folder)!r} cannot be loaded: {reason}. Get the bundle "
        "again."
    )


def _pool_states(
    encoded: EncodedBatch, mentions: Sequence[Sequence[range]]
) -> Iterator[StateFeatures]:
    """Yield the pooled states of each sentence, given the words of its mentions."""
    states = encoded.states.numpy()  # (S, T, H)
    for row, own in enumerate(mentions):
        words = encoded.words[row]
        is_word = words >= 0
        hidden = states[row, is_word] if is_word.any() else states[row, :1] * np.float32(0)
        size = hidden.shape[1]
        # Sums are faster than means of such small arrays.
        sentence = np.empty((1, 2 * size), np.float32)
        sentence[0, :size] = np.add.reduce(hidden) / len(hidden)
        np.maximum.reduce(hidden, out=sentence[0, size:])
        pooled = np.empty((len(own), size), np.float32)
        sought = [edge for some in own for edge in (some.start, some.stop)]
        edges = words[is_word].searchsorted(sought).tolist()
        for number, (first, end) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            pooled[number] = sentence[0, :size]
            if end > first:
                pooled[number] = np.add.reduce(hidden[first:end]) / (end - first)
        yield StateFeatures(pooled, sentence)


def read_number(bundle: Bundle, name: str, default: float) -> float:
    """Return a number of a bundle's configuration.

    Raises:
        ArtifactError: If it is not a number.
    """
    value = bundle.config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArtifactError(
            f"{name} in {CONFIG} of the model {str(bundle.folder)!r} is {value!r}, not a number. "
            "Export the model again."
        )
    return float(value)

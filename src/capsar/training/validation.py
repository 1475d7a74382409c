"""Validation: predict with the network in training, compute metrics, and choose thresholds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from capsar.errors import ConfigError
from capsar.evaluation.evaluate import Predictor, compute_predictions
from capsar.evaluation.metrics import compute_metrics
from capsar.evaluation.spans import Extraction, evaluate_spans
from capsar.inference.decoding import (
    NUM_TAGS,
    Decoder,
    FoundAspects,
    decode_capsules,
    decode_spans,
    span_scores,
)
from capsar.model.network import Capsar
from capsar.schema import CLASSES, AspectSpan, Example
from capsar.tokenizer import pool_words, tokenize_words
from capsar.training.batches import collate, encode_examples
from capsar.training.loop import ValidationMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.evaluation.spans import TermSentence
    from capsar.model.network import Batch
    from capsar.tokenizer import Span, TextTokenizer
    from capsar.training.batches import EncodedExample
    from capsar.training.loop import Network

    Scores = tuple[NDArray[np.float32], NDArray[np.float32]]

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
BIASES = tuple(round(0.25 * step, 2) for step in range(-8, 17))
_NO_SCORES = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)


class CapsulePredictor(Predictor, Protocol):
    """Predicts capsule lengths, tags of words, and similarities of words to capsules."""

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the tag logits of each text's words (W, 3), by the extraction head."""
        ...  # pragma: no cover

    def score_capsules(self, examples: Sequence[Example]) -> list[Scores]:
        """Return the capsule lengths of each text (C), and its words' similarities (C, W)."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """Examples and sentences, and a predictor that was not trained on them."""

    predictor: CapsulePredictor
    examples: Sequence[Example]
    sentences: Sequence[TermSentence]
    """All sentences with all their terms, also those without any."""

    def evaluate(self, *, with_spans: bool) -> ValidationMetrics:
        """Return the metrics of polarity, and of the extraction head if `with_spans`."""
        metrics = compute_metrics(*compute_predictions(self.predictor, self.examples))
        if not with_spans:
            return ValidationMetrics(metrics)
        tagged = tag_sentences(self.predictor, self.sentences)
        span_f1, _ = tagged.evaluate(tagged.spans(bias=0.0))
        return ValidationMetrics(metrics, span_f1)


class NetworkPredictor:
    """Predictions of a network, in batches of similar length."""

    def __init__(self, model: Network, tokenizer: TextTokenizer, *, batch_size: int = 64) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._batch_size = batch_size

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C)."""
        encoded = encode_examples(examples, self._tokenizer)
        lengths = np.zeros((len(encoded), len(CLASSES)), dtype=np.float32)
        for rows, batch in self._batches(encoded):
            lengths[rows] = self._model(batch).lengths.float().cpu().numpy()
        return lengths

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the tag logits of each text's words (W, 3), by the extraction head.

        Raises:
            ConfigError: If the network has none.
        """
        if not isinstance(self._model, Capsar) or self._model.spans is None:
            raise ConfigError("The network has no extraction head; set model.span_weight")
        no_terms = dict.fromkeys(texts, ())
        encoded = encode_examples(list(map(Example, texts)), self._tokenizer, terms=no_terms)
        found = [np.zeros((len(e.tags or ()), NUM_TAGS), dtype=np.float32) for e in encoded]
        for rows, batch in self._batches(encoded):
            logits = self._model(batch).tags.cpu().numpy()
            for row, own in zip(rows, logits, strict=True):
                found[row][:] = own[: len(found[row])]
        return found

    def score_capsules(self, examples: Sequence[Example]) -> list[Scores]:
        """Return the capsule lengths of each text (C), and its words' similarities (C, W).

        Raises:
            ConfigError: If the network has no capsules.
        """
        if not isinstance(self._model, Capsar):
            raise ConfigError("The network has no capsules to reconstruct aspects from")
        found: list[Scores] = [_NO_SCORES] * len(examples)
        for rows, batch in self._batches(encode_examples(examples, self._tokenizer)):
            hidden = batch.without_aspect()
            output = self._model(hidden)
            of_subwords = self._model.similarity(hidden, output).cpu().numpy()
            of_words = pool_words(of_subwords, hidden.words.cpu().numpy(), how="max")
            for row, lengths, scores in zip(rows, output.lengths, of_words, strict=True):
                found[row] = lengths.cpu().numpy(), scores
        return found

    def _batches(self, encoded: Sequence[EncodedExample]) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches of similar length, with the network in evaluation mode."""
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index].ids))
        was_training = self._model.training
        device = next(self._model.parameters()).device
        self._model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                yield rows, collate([encoded[row] for row in rows]).to(device)
        self._model.train(was_training)


def choose_aspect_threshold(
    predictor: CapsulePredictor, examples: Sequence[Example]
) -> tuple[float, float]:
    """Return the similarity threshold with the best exact-span F1 of capsules, and that F1."""
    gold: dict[str, set[Span]] = {}
    for example in examples:
        gold.setdefault(example.text, set()).update((s.start, s.end) for s in example.spans)
    by_text = {example.text: example for example in examples}
    counts = {threshold: Counter[str]() for threshold in THRESHOLDS}
    scored = predictor.score_capsules([by_text[text] for text in gold])
    for text, (lengths, scores) in zip(gold, scored, strict=True):
        words = tokenize_words(text)
        for threshold, count in counts.items():
            found = decode_capsules(text, words, lengths, scores, threshold=threshold)
            spans = {(aspect.start, aspect.end) for aspect in found}
            count["correct"] += len(spans & gold[text])
            count["total"] += len(spans) + len(gold[text])
    f1 = {t: 2 * count["correct"] / max(1, count["total"]) for t, count in counts.items()}
    best = max(f1, key=lambda threshold: (f1[threshold], threshold))
    return best, float(np.round(f1[best], 6))


@dataclass(frozen=True, slots=True)
class TaggedSentences:
    """Tag logits of the validation sentences, by the extraction head."""

    sentences: Sequence[TermSentence]
    words: list[list[Span]]
    logits: list[NDArray[np.float32]]
    """Logits of each sentence's words (W, 3)."""

    def spans(self, bias: float, threshold: float = 0.0) -> list[list[Span]]:
        """Return the word spans found in each sentence."""
        return [decode_spans(logits, bias, threshold) for logits in self.logits]

    def characters(self, found: list[list[Span]]) -> list[list[Span]]:
        """Return the character spans of each sentence's word spans."""
        return [
            [(words[first][0], words[end - 1][1]) for first, end in spans]
            for words, spans in zip(self.words, found, strict=True)
        ]

    def evaluate(self, found: list[list[Span]]) -> tuple[float, float]:
        """Return the exact-span F1 of word spans, and the aspects per 100 sentences without any."""
        pairs = list(zip(self.sentences, self.characters(found), strict=True))
        correct = sum(span in sentence.terms for sentence, spans in pairs for span in spans)
        total = sum(len(sentence.terms) + len(spans) for sentence, spans in pairs)
        without = [len(spans) for sentence, spans in pairs if not sentence.terms]
        return 2 * correct / max(1, total), 100 * sum(without) / max(1, len(without))

    def choose(self, max_false_aspects: float = 0.0) -> tuple[float, float]:
        """Return the bias and the threshold with the best F1, of equal ones the largest.

        Args:
            max_false_aspects: At most so many aspects per 100 sentences without any; if nothing
                meets it, the fewest. 0 for no limit, and no threshold.
        """
        metrics: dict[tuple[float, float], tuple[float, float]] = {}
        for bias in BIASES:
            found = self.spans(bias)
            pairs = list(zip(self.logits, found, strict=True))
            best = [span_scores(logits, spans, bias).max(initial=0) for logits, spans in pairs]
            for threshold in (0.0, *THRESHOLDS) if max_false_aspects else (0.0,):
                some = [s if top >= threshold else [] for s, top in zip(found, best, strict=True)]
                metrics[bias, threshold] = self.evaluate(some)
        limit = max(max_false_aspects, min(false for _, false in metrics.values()))
        allowed = [k for k, (_, false) in metrics.items() if false <= limit]
        return max(allowed if max_false_aspects else metrics, key=lambda k: (metrics[k][0], *k))


def tag_sentences(
    predictor: CapsulePredictor, sentences: Sequence[TermSentence]
) -> TaggedSentences:
    """Tag sentences with the extraction head."""
    texts = [sentence.text for sentence in sentences]
    words = [tokenize_words(text) for text in texts]
    return TaggedSentences(sentences, words, predictor.predict_tags(texts))


@dataclass(frozen=True, slots=True)
class SpanValidation:
    """The spans that the extraction head finds in the validation set, as chosen."""

    bias: float
    threshold: float
    extraction: Extraction
    texts: list[str]
    """The sentence of each span."""
    scores: list[float]
    """The score of each span."""
    correct: list[bool]
    """Whether each span is exactly a term."""


def evaluate_span_head(
    predictor: CapsulePredictor, sentences: Sequence[TermSentence], max_false_aspects: float = 0.0
) -> SpanValidation:
    """Choose bias and threshold on the validation sentences, and evaluate spans and polarities."""
    tagged = tag_sentences(predictor, sentences)
    bias, threshold = tagged.choose(max_false_aspects)
    found_words = tagged.spans(bias, threshold)
    spans = tagged.characters(found_words)
    flat = [(s, span) for s, some in zip(sentences, spans, strict=True) for span in some]
    examples = [Example(sentence.text, (AspectSpan(*span),)) for sentence, span in flat]
    lengths = np.zeros((0, len(CLASSES)), dtype=np.float32)
    if examples:
        lengths = predictor.predict_lengths(examples)
    parts = np.split(lengths, np.cumsum([len(some) for some in spans])[:-1])
    found = Decoder().decode(
        [
            FoundAspects(sentence.text, some, own)
            for sentence, some, own in zip(sentences, spans, parts, strict=True)
        ]
    )
    scores = [
        float(score)
        for logits, some in zip(tagged.logits, found_words, strict=True)
        for score in span_scores(logits, some, bias)
    ]
    return SpanValidation(
        bias,
        threshold,
        evaluate_spans(sentences, list(found)),
        [sentence.text for sentence, _ in flat],
        scores,
        [span in sentence.terms for sentence, span in flat],
    )

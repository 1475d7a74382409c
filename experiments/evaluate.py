"""Evaluate one bundle once on its dataset's test set: every metric that a table or figure needs.

Nothing is chosen here. The one choice that a table makes, which word score is the main one, is made
on the validation metrics that are recorded beside the test metrics.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar import load
from capsar.bundle import open_bundle
from capsar.data.catalog import test_examples
from capsar.evaluation.confidence import evaluate_confidence
from capsar.evaluation.evaluate import evaluate, labeled
from capsar.evaluation.robustness import ARTS_OF, arts_examples, evaluate_mixed, evaluate_robustness
from capsar.evaluation.spans import evaluate_spans, term_sentences
from capsar.model.embeddings import vector_words
from capsar.schema import CLASSES
from capsar.tokenizer import SubwordTokenizer, spelling, tokenize_words, words_within
from capsar.training.dataset import prepare_data
from capsar.training.initialize import load_initial_model, load_network
from capsar.training.validation import NetworkPredictor
from metrics.detection import (
    Gold,
    describe_detection,
    evaluate_detection,
    gold_sentences,
    rank_by_centroid,
    scale_by_norm,
)
from paper import CASES
from run import DATASETS, find_run, find_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example
    from capsar.training.dataset import TrainingData
    from run import Run

_BINS = 10


def evaluate_bundle(run: Run, bundle: Path) -> dict[str, Any]:
    """Evaluate a run's bundle on the test set of its dataset."""
    dataset = DATASETS[run.dataset]
    config = run.config()
    # The baseline has no graphs: the network itself predicts.
    has_graphs = config.model.head == "capsules"
    predictor = load(bundle) if has_graphs else NetworkPredictor(*load_network(bundle))
    initial = load_initial_model(config)
    data = prepare_data(config.data, config.model, seed=run.seed, initial=initial)
    examples = test_examples(dataset)
    lengths = predictor.predict_lengths(labeled(examples))
    mixed = evaluate_mixed(predictor, examples)
    arts = evaluate_robustness(predictor, arts_examples(dataset)) if dataset in ARTS_OF else None
    # Twitter marks one target per sentence; without its loss, reconstruction is untrained.
    detects = dataset in ARTS_OF and config.model.reconstruction_weight > 0 and has_graphs
    recorded = open_bundle(bundle).config
    metrics: dict[str, Any] = rounded(
        {
            "train_examples": len(data.splits.train),
            "validation_examples": len(data.splits.validation),
            "validation_confusion": recorded.get("validation_confusion"),
            "coverage": _coverage(run, data, examples),
            "test": evaluate(predictor, examples).as_dict(),
            "calibration": _calibration(labeled(examples), lengths),
            "mixed_polarity": asdict(mixed) if mixed else None,
            "arts": arts.as_dict() if arts else None,
            "detection": _detection(load(bundle), data, examples) if detects else None,
            "spans": _spans(load(bundle), examples) if detects else None,
            "validation_spans": recorded.get("validation_spans"),
            "confidence": confidence(load(bundle), examples) if has_graphs else None,
            "calibration_kind": calibration_kind(bundle),
            "cases": _cases(run.dataset, labeled(examples), lengths),
        }
    )
    return metrics


def _spans(analyzer: Analyzer, test: list[Example]) -> dict[str, Any]:
    """Evaluate the spans that the model extracts, in each of its modes."""
    sentences = term_sentences(test)
    texts = [sentence.text for sentence in sentences]
    return {
        mode: evaluate_spans(sentences, analyzer.analyze(texts, mode=mode)).as_dict()
        for mode in analyzer.modes
    }


def confidence(analyzer: Analyzer, test: list[Example]) -> dict[str, Any]:
    """Evaluate confidences, calibrated and uncalibrated."""
    return {name: found.as_dict() for name, found in evaluate_confidence(analyzer, test).items()}


def calibration_kind(bundle: Path) -> str | None:
    """Return which kind of calibration a bundle has, if any."""
    fitted = open_bundle(bundle).config.get("calibration")
    return str(fitted["polarity"]["kind"]) if fitted else None


def _detection(analyzer: Analyzer, data: TrainingData, test: list[Example]) -> dict[str, Any]:
    splits = {"test": test} | (
        {"validation": data.splits.validation} if data.splits.validation else {}
    )
    vectors = _Vectors(data)
    return {
        split: _detection_on(analyzer, vectors, vectors.centroid(data.splits.train), examples)
        for split, examples in splits.items()
    }


def validation_detection(analyzer: Analyzer, data: TrainingData) -> dict[str, float]:
    """Return how well capsules rank the words of all terms, on the validation set."""
    vectors = _Vectors(data)
    found = _detection_on(
        analyzer, vectors, vectors.centroid(data.splits.train), data.splits.validation
    )
    ranking = found["capsules"]["dot"]["all"]
    return {f"validation_{name}": ranking[name] for name in ("p_at_1", "r_at_5", "map")}


def _detection_on(
    analyzer: Analyzer,
    vectors: _Vectors,
    centroid: NDArray[np.float32],
    examples: Sequence[Example],
) -> dict[str, Any]:
    sentences = gold_sentences(examples)
    scores = analyzer.score_sentences([sentence.text for sentence in sentences])
    words = [vectors.of(sentence.text) for sentence in sentences]
    control = rank_by_centroid(scores, words, centroid)
    rankings = {
        "capsules": {"cosine": scale_by_norm(scores, words, power=-1), "dot": scores},
        "centroid": {"cosine": control, "dot": scale_by_norm(control, words)},
    }
    metrics = {
        name: {
            score: {str(gold): asdict(evaluate_detection(sentences, found, gold)) for gold in Gold}
            for score, found in by_score.items()
        }
        for name, by_score in rankings.items()
    }
    return {"statistics": asdict(describe_detection(sentences, scores))} | metrics


class _Vectors:
    """The fixed word vectors of a run."""

    def __init__(self, data: TrainingData) -> None:
        self._tokenizer = data.vocabulary.tokenizer
        self._table: NDArray[np.float32] = data.vocabulary.vectors.numpy()

    def of(self, text: str) -> NDArray[np.float32]:
        """Return the vectors of a text's words (T, E), the mean of their subwords."""
        words = [text[start:end] for start, end in tokenize_words(text)]
        vectors = [self._table[ids].mean(0) for ids in self._tokenizer.subwords(words)]
        return np.stack(vectors) if vectors else self._table[:0]

    def centroid(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the mean over examples of the mean vector of their aspect's words (E)."""
        aspects = []
        for example in examples:
            spans = tokenize_words(example.text)
            words = sorted({w for s in example.spans for w in words_within(spans, s.start, s.end)})
            if words:
                aspects.append(self.of(example.text)[words].mean(0))
        mean: NDArray[np.float32] = np.mean(aspects, axis=0)
        return mean


def _coverage(run: Run, data: TrainingData, test: Sequence[Example]) -> dict[str, float]:
    """Return the share of word occurrences with a pre-trained vector (or only known subwords)."""
    known: set[str] = set()
    if isinstance(data.vocabulary.tokenizer, SubwordTokenizer):
        known = _known_words(data.vocabulary.tokenizer, (*data.splits.train, *labeled(test)))
    elif run.vector_ratio:
        vectors = find_run(run.initial) if run.initial else run
        (name,) = (value for _, name, value in vectors.settings if name == "vectors")
        path = find_vectors(name, run.vector_ratio)
        limit = vectors.config().data.max_vector_words
        known = {spelling(word) for word in vector_words(path, limit)}
    shares = {}
    for part, examples in (("train", data.splits.train), ("test", labeled(test))):
        texts = dict.fromkeys(example.text for example in examples)
        words = [spelling(text[start:end]) for text in texts for start, end in tokenize_words(text)]
        shares[part] = sum(word in known for word in words) / len(words)
    return shares


def _known_words(tokenizer: SubwordTokenizer, examples: Sequence[Example]) -> set[str]:
    """Return the words whose subwords are all known."""
    texts = {example.text for example in examples}
    words = sorted({text[start:end] for text in texts for start, end in tokenize_words(text)})
    subwords = zip(words, tokenizer.subwords(words), strict=True)
    return {spelling(word) for word, ids in subwords if tokenizer.unknown not in ids}


def _calibration(
    examples: Sequence[Example], lengths: NDArray[np.float32]
) -> dict[str, list[dict[str, float]]]:
    """Return, in ten bins of capsule length, how often predictions are right.

    `longest` and `true` count the examples that are predicted right by the length of the longest
    and of the true capsule. `every` counts, over all capsules of all examples, those whose class is
    the true one: if lengths were probabilities, each bin's share would be its mean length.
    """
    truth = np.array([CLASSES.index(e.polarity) for e in examples if e.polarity])  # (n)
    right = lengths.argmax(-1) == truth
    is_true = np.eye(len(CLASSES), dtype=bool)[truth]  # (n, C)
    return {
        "longest": _bins(lengths.max(-1), right),
        "true": _bins(lengths[np.arange(len(truth)), truth], right),
        "every": _bins(lengths.ravel(), is_true.ravel()),
    }


def _bins(lengths: NDArray[np.float32], right: NDArray[np.bool_]) -> list[dict[str, float]]:
    bins = np.minimum((lengths * _BINS).astype(int), _BINS - 1)
    rows = []
    for index in range(_BINS):
        chosen = bins == index
        count = int(chosen.sum())
        row: dict[str, float] = {"from": index / _BINS, "count": count}
        if count:
            row["mean_length"] = float(lengths[chosen].mean())
            row["right"] = int(right[chosen].sum())
        rows.append(row)
    return rows


def _cases(
    dataset: str, examples: Sequence[Example], lengths: NDArray[np.float32]
) -> list[dict[str, Any]]:
    found = []
    for case in CASES:
        if case.dataset != dataset:
            continue
        (row,) = (
            row
            for row, example in enumerate(examples)
            if (example.group, example.aspect) == (case.sentence, case.aspect)
        )
        found.append(
            {
                "case": case.name,
                "sentence": case.sentence,
                "aspect": case.aspect,
                "polarity": str(examples[row].polarity),
                "predicted": str(CLASSES[int(lengths[row].argmax())]),
                "lengths": lengths[row].tolist(),
            }
        )
    return found


def rounded(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Round every number to six decimal places."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value

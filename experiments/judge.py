"""One bundle, judged once on its dataset's test part: everything that a table or figure needs.

Nothing here chooses anything. The one choice that a table makes, which word score it headlines, is
made on the dev figures that are recorded beside the test figures.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar import load
from capsar.bundle import open_bundle
from capsar.data.catalog import find_file, test_examples
from capsar.evaluation.calibration import judge_confidence
from capsar.evaluation.detection import (
    Gold,
    describe_detection,
    gold_sentences,
    judge_detection,
    rank_by_centroid,
    scale_by_norm,
)
from capsar.evaluation.evaluate import evaluate, judgeable
from capsar.evaluation.extraction import judge_extraction, term_sentences
from capsar.evaluation.robustness import ARTS_OF, arts_examples, judge_mixed, judge_robustness
from capsar.labels import CLASSES
from capsar.model.vectors import vector_words
from capsar.pieces import PieceTokenizer
from capsar.text import segment, spelling, words_within
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.run import load_network
from cases import CASES
from runs import DATASETS, thin_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.analyze import Analyzer
    from capsar.data.example import Example
    from capsar.training.prepare import Prepared
    from runs import Run

_BINS = 10


def judge_bundle(run: Run, bundle: Path) -> dict[str, Any]:
    """Judge a run's bundle on the test part of its dataset."""
    dataset = DATASETS[run.dataset]
    config = run.config()
    # The baseline has no graphs: the network itself is judged.
    has_graphs = config.model.head == "capsules"
    predictor = load(bundle) if has_graphs else NetworkPredictor(*load_network(bundle))
    prepared = prepare_data(config.data, config.model, seed=run.seed)
    examples = test_examples(dataset)
    lengths = predictor.predict_lengths(judgeable(examples))
    mixed = judge_mixed(predictor, examples)
    arts = judge_robustness(predictor, arts_examples(dataset)) if dataset in ARTS_OF else None
    # Twitter has no terms to find but its one target; an untrained layer reconstructs nothing.
    detects = dataset in ARTS_OF and config.model.reconstruction_weight > 0 and has_graphs
    judged: dict[str, Any] = rounded(
        {
            "train_examples": len(prepared.train),
            "dev_examples": len(prepared.dev),
            "coverage": _coverage(run, prepared, examples),
            "test": evaluate(predictor, examples).as_dict(),
            "calibration": _calibration(judgeable(examples), lengths),
            "mixed_polarity": asdict(mixed) if mixed else None,
            "arts": arts.as_dict() if arts else None,
            "detection": _detection(load(bundle), prepared, examples) if detects else None,
            "found": _found(load(bundle), examples) if detects else None,
            "dev_found": open_bundle(bundle).config.get("dev_spans"),
            "confidence": confidence(load(bundle), examples) if has_graphs else None,
            "calibration_kind": calibration_kind(bundle),
            "cases": _cases(run.dataset, judgeable(examples), lengths),
        }
    )
    return judged


def _found(analyzer: Analyzer, test: list[Example]) -> dict[str, Any]:
    """The spans that the model finds by itself, in every way that it can."""
    sentences = term_sentences(test)
    texts = [sentence.text for sentence in sentences]
    return {
        mode: judge_extraction(sentences, analyzer.analyze(texts, mode=mode)).as_dict()
        for mode in analyzer.modes
    }


def confidence(analyzer: Analyzer, test: list[Example]) -> dict[str, Any]:
    """Judge confidences, calibrated and not."""
    return {name: found.as_dict() for name, found in judge_confidence(analyzer, test).items()}


def calibration_kind(bundle: Path) -> str | None:
    """Return which kind of calibration a bundle has, if any."""
    fitted = open_bundle(bundle).config.get("calibration")
    return str(fitted["polarity"]["kind"]) if fitted else None


def _detection(analyzer: Analyzer, prepared: Prepared, test: list[Example]) -> dict[str, Any]:
    vectors = _Vectors(prepared)
    centroid = vectors.centroid(prepared.train)
    parts = {"test": test} | ({"dev": prepared.dev} if prepared.dev else {})
    return {
        part: _detection_part(analyzer, vectors, centroid, examples)
        for part, examples in parts.items()
    }


def detection_on_dev(analyzer: Analyzer, prepared: Prepared) -> dict[str, float]:
    """Return how well opened capsules rank the words of all terms, on the dev part."""
    vectors = _Vectors(prepared)
    centroid = vectors.centroid(prepared.train)
    found = _detection_part(analyzer, vectors, centroid, prepared.dev)["capsules"]["dot"]["all"]
    return {f"dev_{name}": found[name] for name in ("p_at_1", "r_at_5", "map")}


def _detection_part(
    analyzer: Analyzer,
    vectors: _Vectors,
    centroid: NDArray[np.float32],
    examples: Sequence[Example],
) -> dict[str, Any]:
    sentences = gold_sentences(examples)
    opened = analyzer.open_sentences([sentence.text for sentence in sentences])
    words = [vectors.of(sentence.text) for sentence in sentences]
    control = rank_by_centroid(opened, words, centroid)
    rankings = {
        "capsules": {"cosine": opened, "dot": scale_by_norm(opened, words)},
        "centroid": {"cosine": control, "dot": scale_by_norm(control, words)},
    }
    figures = {
        name: {
            score: {str(gold): asdict(judge_detection(sentences, found, gold)) for gold in Gold}
            for score, found in scores.items()
        }
        for name, scores in rankings.items()
    }
    return {"statistics": asdict(describe_detection(sentences, opened))} | figures


class _Vectors:
    """The fixed word vectors of a run."""

    def __init__(self, prepared: Prepared) -> None:
        self._tokenizer = prepared.tokenizer
        self._table: NDArray[np.float32] = prepared.vectors.numpy()

    def of(self, text: str) -> NDArray[np.float32]:
        """Return the vectors of a text's words (T, E): of several pieces, the mean."""
        words = [text[start:end] for start, end in segment(text)]
        vectors = [self._table[ids].mean(0) for ids in self._tokenizer.pieces(words)]
        return np.stack(vectors) if vectors else self._table[:0]

    def centroid(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the mean over examples of the mean vector of their aspect's words (E)."""
        aspects = []
        for example in examples:
            spans = segment(example.text)
            words = sorted({w for s in example.spans for w in words_within(spans, s.start, s.end)})
            if words:
                aspects.append(self.of(example.text)[words].mean(0))
        mean: NDArray[np.float32] = np.mean(aspects, axis=0)
        return mean


def _coverage(run: Run, prepared: Prepared, test: Sequence[Example]) -> dict[str, float]:
    """The share of words, as they occur, that have a pre-trained vector (or only known pieces)."""
    known: set[str] = set()
    if isinstance(prepared.tokenizer, PieceTokenizer):
        known = _known_words(prepared.tokenizer, (*prepared.train, *judgeable(test)))
    elif run.vector_share:
        (name,) = (value for _, name, value in run.settings if name == "vectors")
        thin = run.vector_share < 1
        path = thin_vectors(name, run.vector_share) if thin else find_file(name, "vectors")
        limit = run.config().data.max_vector_words
        known = {spelling(word) for word in vector_words(path, limit)}
    shares = {}
    for part, examples in (("train", prepared.train), ("test", judgeable(test))):
        texts = dict.fromkeys(example.text for example in examples)
        words = [spelling(text[start:end]) for text in texts for start, end in segment(text)]
        shares[part] = sum(word in known for word in words) / len(words)
    return shares


def _known_words(tokenizer: PieceTokenizer, examples: Sequence[Example]) -> set[str]:
    """The words whose pieces are all known."""
    texts = {example.text for example in examples}
    words = sorted({text[start:end] for text in texts for start, end in segment(text)})
    pieces = zip(words, tokenizer.pieces(words), strict=True)
    return {spelling(word) for word, ids in pieces if tokenizer.unknown not in ids}


def _calibration(
    examples: Sequence[Example], lengths: NDArray[np.float32]
) -> dict[str, list[dict[str, float]]]:
    """Length against being right, in ten bins: of the longest, the true, and of every capsule.

    `longest` and `true` count examples that are told right; `every` counts, over all capsules of
    all examples, those whose class is the true one: were a length a probability, each bin's share
    would be its mean length.
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
    places = np.minimum((lengths * _BINS).astype(int), _BINS - 1)
    rows = []
    for place in range(_BINS):
        chosen = places == place
        count = int(chosen.sum())
        row: dict[str, float] = {"from": place / _BINS, "count": count}
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


def rounded(value: Any) -> Any:  # noqa: ANN401  (whatever JSON holds)
    """Round every number to six digits: more is noise, and takes room."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value

"""Polarity metrics: computed by hand, against scikit-learn, and edge cases."""

from __future__ import annotations

import tracemalloc
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_recall_fscore_support,
)

from capsar.errors import DataError
from capsar.evaluation.evaluate import evaluate
from capsar.evaluation.metrics import bootstrap_intervals, compute_metrics
from capsar.schema import CLASSES, AspectSpan, Example, Polarity

CLASS_LISTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


def test_metrics_match_hand_computed_values() -> None:
    """Six examples, four right; F1: negative 2/3, neutral 0, positive 6/7."""
    truth = np.array([0, 0, 2, 2, 2, 1])
    predicted = np.array([0, 2, 2, 2, 2, 0])
    metrics = compute_metrics(truth, predicted)
    assert metrics.accuracy == pytest.approx(4 / 6)
    assert metrics.classes[Polarity.NEGATIVE].f1 == pytest.approx(1 / 2)
    assert metrics.classes[Polarity.NEUTRAL].f1 == 0
    assert metrics.classes[Polarity.POSITIVE].f1 == pytest.approx(6 / 7)
    assert metrics.classes[Polarity.POSITIVE].support == 3
    assert metrics.macro_f1 == pytest.approx((1 / 2 + 0 + 6 / 7) / 3)
    assert metrics.confusion == ((1, 0, 1), (1, 0, 0), (0, 0, 3))


@given(CLASS_LISTS)
def test_metrics_match_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    metrics = compute_metrics(truth, predicted)
    expected = f1_score(truth, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
    assert metrics.macro_f1 == pytest.approx(expected)
    assert metrics.accuracy == pytest.approx(accuracy_score(truth, predicted))
    expected_rows = precision_recall_fscore_support(
        truth, predicted, labels=[0, 1, 2], zero_division=0
    )
    rows = [astuple(metrics.classes[polarity]) for polarity in CLASSES]
    np.testing.assert_allclose(rows, np.transpose(expected_rows))
    same = confusion_matrix(truth, predicted, labels=[0, 1, 2])
    assert metrics.confusion == tuple(map(tuple, same.tolist()))


def test_intervals_contain_the_metric_and_shrink_with_more_examples() -> None:
    generator = np.random.default_rng(0)
    widths = []
    for size in (50, 800):
        truth = generator.integers(0, 3, size)
        predicted = np.where(generator.random(size) < 0.8, truth, 2)
        metrics = compute_metrics(truth, predicted)
        intervals = bootstrap_intervals(truth, predicted)
        for name in ("accuracy", "macro_f1"):
            low, high = getattr(intervals, name)
            assert low <= getattr(metrics, name) <= high
        widths.append(intervals.accuracy[1] - intervals.accuracy[0])
    # The interval is about 3.92 standard errors, sqrt(p (1 - p) / n).
    p = metrics.accuracy
    assert widths[1] == pytest.approx(3.92 * np.sqrt(p * (1 - p) / 800), rel=0.15)
    assert widths[1] < widths[0] / 2


def test_intervals_match_resampling_of_examples() -> None:
    """The standard bootstrap: draw n examples with replacement, 2000 times."""
    generator = np.random.default_rng(1)
    truth = generator.choice(3, 300, p=(0.3, 0.1, 0.6))
    predicted = np.where(generator.random(300) < 0.7, truth, 2)
    found = [
        compute_metrics(truth[rows], predicted[rows])
        for rows in generator.integers(0, 300, (2000, 300))
    ]
    intervals = bootstrap_intervals(truth, predicted)
    for name in ("accuracy", "macro_f1"):
        expected = np.percentile([getattr(metrics, name) for metrics in found], (2.5, 97.5))
        assert getattr(intervals, name) == pytest.approx(tuple(expected), abs=0.008)


def test_interval_memory_does_not_grow_with_the_number_of_examples() -> None:
    truth = np.tile(np.arange(3), 333_334)
    tracemalloc.start()
    intervals = bootstrap_intervals(truth, np.zeros_like(truth))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert intervals.accuracy == pytest.approx((1 / 3, 1 / 3), abs=2e-3)
    assert peak < 10 * truth.nbytes


def test_one_example_and_no_examples() -> None:
    only = bootstrap_intervals(np.array([1]), np.array([1]))
    assert only.accuracy == (1.0, 1.0)
    with pytest.raises(DataError, match="no example"):
        compute_metrics(np.array([], dtype=np.int64), np.array([], dtype=np.int64))


class AlwaysPositive:
    """A predictor that always predicts positive."""

    def predict_lengths(self, examples: list[Example]) -> np.ndarray:
        return np.tile(np.array([0.1, 0.2, 0.9], dtype=np.float32), (len(examples), 1))


def test_evaluate_excludes_examples_without_a_span_or_class() -> None:
    span = (AspectSpan(0, 1),)
    examples = [
        Example("a", span, Polarity.POSITIVE),
        Example("a", span, Polarity.NEGATIVE),
        Example("a", span, Polarity.CONFLICT),
        Example("a", (), Polarity.POSITIVE),
        Example("a"),
    ]
    evaluation = evaluate(AlwaysPositive(), examples)
    assert evaluation.excluded == 3
    assert evaluation.metrics.num_examples == 2
    assert evaluation.metrics.accuracy == 0.5
    assert set(evaluation.as_dict()) == {"metrics", "intervals", "excluded"}
    assert len(CLASSES) == len(evaluation.metrics.confusion)

"""Figures: by hand, against the field's reference implementation, and at the edges."""

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

from capsar.data.example import AspectSpan, Example
from capsar.errors import DataError
from capsar.evaluation.evaluate import evaluate
from capsar.evaluation.metrics import bootstrap_intervals, compute_figures
from capsar.labels import CLASSES, Polarity

CLASS_LISTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


def test_figures_by_hand() -> None:
    """Six examples, four right; F1: negative 2/3, neutral 0, positive 6/7."""
    truth = np.array([0, 0, 2, 2, 2, 1])
    predicted = np.array([0, 2, 2, 2, 2, 0])
    figures = compute_figures(truth, predicted)
    assert figures.accuracy == pytest.approx(4 / 6)
    assert figures.classes[Polarity.NEGATIVE].f1 == pytest.approx(1 / 2)
    assert figures.classes[Polarity.NEUTRAL].f1 == 0
    assert figures.classes[Polarity.POSITIVE].f1 == pytest.approx(6 / 7)
    assert figures.classes[Polarity.POSITIVE].support == 3
    assert figures.macro_f1 == pytest.approx((1 / 2 + 0 + 6 / 7) / 3)
    assert figures.confusion == ((1, 0, 1), (1, 0, 0), (0, 0, 3))


@given(CLASS_LISTS)
def test_figures_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    figures = compute_figures(truth, predicted)
    expected = f1_score(truth, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
    assert figures.macro_f1 == pytest.approx(expected)
    assert figures.accuracy == pytest.approx(accuracy_score(truth, predicted))
    ways = precision_recall_fscore_support(truth, predicted, labels=[0, 1, 2], zero_division=0)
    told = [astuple(figures.classes[polarity]) for polarity in CLASSES]
    np.testing.assert_allclose(told, np.transpose(ways))
    same = confusion_matrix(truth, predicted, labels=[0, 1, 2])
    assert figures.confusion == tuple(map(tuple, same.tolist()))


def test_intervals_hold_the_figure_and_shrink_with_more_examples() -> None:
    generator = np.random.default_rng(0)
    widths = []
    for size in (50, 800):
        truth = generator.integers(0, 3, size)
        predicted = np.where(generator.random(size) < 0.8, truth, 2)
        figures = compute_figures(truth, predicted)
        intervals = bootstrap_intervals(truth, predicted)
        for name in ("accuracy", "macro_f1"):
            low, high = getattr(intervals, name)
            assert low <= getattr(figures, name) <= high
        widths.append(intervals.accuracy[1] - intervals.accuracy[0])
    # A standard error of sqrt(p (1 - p) / n) makes an interval of about 3.9 of them.
    p = figures.accuracy
    assert widths[1] == pytest.approx(3.92 * np.sqrt(p * (1 - p) / 800), rel=0.15)
    assert widths[1] < widths[0] / 2


def test_intervals_are_those_of_resampled_examples() -> None:
    """By the book: draw as many examples as there are, again and again."""
    generator = np.random.default_rng(1)
    truth = generator.choice(3, 300, p=(0.3, 0.1, 0.6))
    predicted = np.where(generator.random(300) < 0.7, truth, 2)
    found = [
        compute_figures(truth[rows], predicted[rows])
        for rows in generator.integers(0, 300, (2000, 300))
    ]
    intervals = bootstrap_intervals(truth, predicted)
    for name in ("accuracy", "macro_f1"):
        expected = np.percentile([getattr(figures, name) for figures in found], (2.5, 97.5))
        assert getattr(intervals, name) == pytest.approx(tuple(expected), abs=0.008)


def test_intervals_of_a_million_examples_take_no_memory_of_their_own() -> None:
    truth = np.tile(np.arange(3), 333_334)
    tracemalloc.start()
    intervals = bootstrap_intervals(truth, np.zeros_like(truth))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert intervals.accuracy == pytest.approx((1 / 3, 1 / 3), abs=2e-3)
    assert peak < 10 * truth.nbytes


def test_one_example_and_none() -> None:
    only = bootstrap_intervals(np.array([1]), np.array([1]))
    assert only.accuracy == (1.0, 1.0)
    with pytest.raises(DataError, match="no example"):
        compute_figures(np.array([], dtype=np.int64), np.array([], dtype=np.int64))


class Stubborn:
    """A predictor that always says positive."""

    def predict_lengths(self, examples: list[Example]) -> np.ndarray:
        return np.tile(np.array([0.1, 0.2, 0.9], dtype=np.float32), (len(examples), 1))


def test_evaluate_leaves_out_what_task_a_is_not_about() -> None:
    span = (AspectSpan(0, 1),)
    examples = [
        Example("a", span, Polarity.POSITIVE),
        Example("a", span, Polarity.NEGATIVE),
        Example("a", span, Polarity.CONFLICT),
        Example("a", (), Polarity.POSITIVE),
        Example("a"),
    ]
    evaluation = evaluate(Stubborn(), examples)
    assert evaluation.left_out == 3
    assert evaluation.figures.num_examples == 2
    assert evaluation.figures.accuracy == 0.5
    assert set(evaluation.as_dict()) == {"figures", "intervals", "left_out"}
    assert len(CLASSES) == len(evaluation.figures.confusion)

"""Calibration metrics: computed by hand; the bound against a perfectly calibrated model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capsar.errors import DataError
from capsar.evaluation.confidence import (
    calibration_error,
    equal_mass,
    error_bound,
    evaluate_calibration,
    risk_at,
)


def test_metrics_match_hand_computed_values() -> None:
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])
    truth, predicted = np.array([0, 1, 0, 2]), np.array([0, 1, 2, 0])
    metrics = evaluate_calibration(probabilities, truth, predicted)
    assert metrics.num_examples == 4
    assert metrics.accuracy == 0.5
    assert metrics.confidence == pytest.approx((0.7 + 0.8 + 0.4 + 0.5) / 4)
    # Fewer examples than bins: each is its own bin.
    assert metrics.ece == pytest.approx((0.3 + 0.2 + 0.4 + 0.5) / 4)
    brier = (0.09 + 0.04 + 0.01) + (0.01 + 0.04 + 0.01) + (0.49 + 0.09 + 0.16)
    brier += 0.25 + 0.04 + 0.49
    assert metrics.brier == pytest.approx(brier / 4)
    assert metrics.log_loss == pytest.approx(-np.log([0.7, 0.8, 0.3, 0.3]).mean())
    assert metrics.accuracy_at_80 == pytest.approx(2 / 3)  # three of four predictions are kept
    assert metrics.risk_coverage["0.5"] == 0
    assert metrics.risk_coverage["1"] == 0.5
    assert [b.confidence for b in metrics.bins] == [0.4, 0.5, 0.7, 0.8]
    with pytest.raises(DataError):
        evaluate_calibration(np.zeros((0, 3)), np.array([], int), np.array([], int))


def test_confidence_is_the_probability_of_the_predicted_class() -> None:
    metrics = evaluate_calibration(np.array([[0.2, 0.8]]), np.array([0]), np.array([0]))
    assert (metrics.confidence, metrics.accuracy, metrics.ece) == (0.2, 1, 0.8)


def test_bins_have_equal_size() -> None:
    confidence = np.linspace(0, 1, 100) ** 3
    sizes = [len(some) for some in equal_mass(confidence)]
    assert (len(sizes), sum(sizes), max(sizes) - min(sizes)) == (15, 100, 1)


def test_the_bound_is_the_95th_percentile_of_a_calibrated_model() -> None:
    generator = np.random.default_rng(7)
    confidence = generator.uniform(0.4, 1, 1120)
    bound = error_bound(confidence)
    assert bound == error_bound(confidence)  # seeded
    assert 0.03 < bound < 0.06  # about .04 at the size of the Restaurant test set
    assert error_bound(confidence[:300]) > bound
    below = [
        calibration_error(confidence, generator.random(1120) < confidence) <= bound
        for _ in range(400)
    ]
    assert 0.9 < np.mean(below) < 0.99
    overconfident = generator.random(1120) < confidence - 0.1
    assert calibration_error(confidence, overconfident) > bound


confidences = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))


@given(confidences, st.integers(0, 2**31))
def test_errors_and_risks_are_between_0_and_1(confidence: np.ndarray, seed: int) -> None:
    right = np.random.default_rng(seed).random(len(confidence)) < 0.5
    assert 0 <= calibration_error(confidence, right) <= 1
    assert risk_at(confidence, right, 1.0) == pytest.approx(1 - right.mean())
    for share in (0.1, 0.8):
        assert 0 <= risk_at(confidence, right, share) <= 1

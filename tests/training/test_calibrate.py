"""Calibration: fitting, storing, applying, and refusing invalid ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from synthetic_reviews import write_reviews

from capsar.bundle import CONFIG, FILES, write_bundle
from capsar.calibration import (
    KINDS,
    Calibration,
    binary_scores,
    fit_calibration,
    fit_kind,
    log_loss,
)
from capsar.config import run_config
from capsar.errors import ArtifactError, ConfigError
from capsar.evaluation.confidence import calibration_error, error_bound
from capsar.inference.analyzer import load
from capsar.training.trainer import train


def synthetic(number: int, seed: int = 0, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores whose log-odds divided by `sharpness` are the logits of the true classes."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1, (number, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = np.array([generator.choice(3, p=row) for row in probabilities])
    return 1 / (1 + np.exp(-sharpness * logits)), truth


def test_scores_that_are_not_finite_are_refused() -> None:
    scores, truth = synthetic(120)
    scores[7] = np.nan
    with pytest.raises(ConfigError, match=r"Lower train\.learning_rate"):
        fit_calibration(scores, truth, [str(number) for number in range(120)])


def test_the_temperature_of_synthetic_scores_is_recovered() -> None:
    scores, truth = synthetic(4000, sharpness=2.0)
    fitted = fit_kind("temperature", scores, truth)
    assert fitted.weights[0] == pytest.approx(0.5, abs=0.05)


def test_overconfident_scores_are_calibrated() -> None:
    scores, truth = synthetic(2000)
    other, other_truth = synthetic(2000, seed=1)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(2000)])
    assert fitted is not None
    assert set(fitted.log_losses) == set(KINDS)
    assert fitted.log_losses[fitted.calibration.kind] == min(fitted.log_losses.values())
    probabilities = fitted.calibration.apply(other)
    plain = other / other.sum(1, keepdims=True)
    assert log_loss(probabilities, other_truth) < log_loss(plain, other_truth)
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == other_truth
    assert calibration_error(confidence, correct) <= 1.3 * error_bound(confidence)


def test_vector_scaling_is_chosen_if_one_class_is_favored() -> None:
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 1, (3000, 3))
    offsets = np.array([2.0, 0.0, -2.0])
    scores = 1 / (1 + np.exp(-(logits + offsets)))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = np.array([generator.choice(3, p=row) for row in probabilities])
    fitted = fit_calibration(scores, truth, [str(i) for i in range(3000)])
    assert fitted is not None
    assert fitted.calibration.kind == "vector"


def test_folds_do_not_split_sentences() -> None:
    scores, truth = synthetic(60)
    apart = fit_calibration(scores, truth, [str(i) for i in range(60)])
    # Each example is repeated three times in one group, so its copies are held out together.
    thrice = fit_calibration(
        np.repeat(scores, 3, axis=0),
        np.repeat(truth, 3),
        [str(i) for i in range(60) for _ in "abc"],
    )
    assert apart is not None
    assert thrice is not None
    for kind in KINDS:
        assert thrice.log_losses[kind] == pytest.approx(apart.log_losses[kind], abs=2e-3)
    assert fit_calibration(scores, truth, ["one"] * 60) is None  # too few groups


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibration_is_the_same_after_a_round_trip(kind: str) -> None:
    scores, truth = synthetic(200)
    fitted = fit_kind(kind, scores, truth)
    again = Calibration.from_dict(json.loads(json.dumps(fitted.as_dict())), 3)
    assert again == fitted
    np.testing.assert_array_equal(again.apply(scores), fitted.apply(scores))


@given(arrays(np.float32, (4, 3), elements=st.floats(0, 1, width=32)), st.sampled_from(KINDS))
def test_probabilities_are_valid_and_computed_per_row(scores: np.ndarray, kind: str) -> None:
    fitted = fit_kind(kind, *synthetic(80))
    probabilities = fitted.apply(scores)
    assert np.isfinite(probabilities).all()
    assert (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(fitted.apply(scores[1:2])[0], probabilities[1])


def test_binary_calibration_is_monotone() -> None:
    scores = binary_scores(np.linspace(0.05, 0.95, 40))
    truth = (np.arange(40) % 4 > 0).astype(int)
    for kind in KINDS:
        probabilities = fit_kind(kind, scores, truth).apply(scores)
        assert (np.diff(probabilities[:, 1]) >= -1e-9).all()


# Few examples.


def correct_predictions(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return long capsules that are always correct, as on a typical small validation split."""
    truth = np.arange(number) % 3
    return np.where(np.eye(3)[truth] > 0, 0.96, 0.06), truth


@pytest.mark.parametrize("number", [10, 16, 40, 99])
def test_confidence_is_capped_with_few_examples(number: int) -> None:
    scores, truth = correct_predictions(number)
    groups = [str(i) for i in range(number)]
    plain, capped = (fit_calibration(scores, truth, groups, few=few) for few in (False, True))
    assert plain is not None
    assert capped is not None
    extreme = np.array([[0.9999, 0.0001, 0.0001]])
    assert plain.calibration.apply(extreme).max() > 0.999
    found = capped.calibration.apply(extreme)
    assert 0.8 < found.max() <= (number + 1) / (number + 2)
    np.testing.assert_allclose(found.sum(1), 1)
    assert set(capped.log_losses) == {"temperature"}
    again = Calibration.from_dict(json.loads(json.dumps(capped.calibration.as_dict())), 3)
    np.testing.assert_array_equal(again.apply(scores), capped.calibration.apply(scores))


def test_confidence_increases_with_the_score_with_few_examples() -> None:
    scores, truth = synthetic(40, sharpness=2.0)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(40)], few=True)
    assert fitted is not None
    odds = np.linspace(0.34, 0.99, 30)
    found = fitted.calibration.apply(np.stack([odds, np.full(30, 0.3), np.full(30, 0.3)], axis=1))
    assert (np.diff(found[:, 0]) > 0).all()
    assert 0.3 < fitted.calibration.weights[0] < 0.7  # the true value is .5


@pytest.mark.parametrize(
    ("number", "sharpness", "kind", "weights", "losses"),
    [
        (100, 3.0, "temperature", [0.311541], [0.903966, 0.924367]),
        (400, 2.0, "vector", [0.481636, 0.331987, 0.531572], [0.921141, 0.91353]),
    ],
)
def test_fits_of_many_examples_are_reproduced(
    number: int, sharpness: float, kind: str, weights: list[float], losses: list[float]
) -> None:
    """Reference values of an earlier implementation."""
    scores, truth = synthetic(number, seed=5, sharpness=sharpness)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(number)])
    assert fitted is not None
    assert fit_kind(kind, scores, truth).weights == pytest.approx(weights, abs=1e-4)
    assert [fitted.log_losses[name] for name in KINDS] == pytest.approx(losses, abs=1e-4)
    assert "max_confidence" not in fitted.calibration.as_dict()


@pytest.mark.parametrize(("share", "few"), [(0.4, False), (0.3, True), (0.05, None)])
def test_a_run_reports_the_cap_of_its_confidences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, share: float, few: bool | None
) -> None:
    data = write_reviews(tmp_path / "reviews.csv", 60 if few is None else 270)
    sizes = {"units": 4, "primary_dim": 4, "intermediate_capsules": 2, "intermediate_dim": 4}
    content = {
        "data": {"train": str(data), "word_dim": 6, "validation_ratio": share},
        "model": sizes | {"class_dim": 6, "span_weight": 1.0},
        "train": {"max_epochs": 1},
    }
    bundle = train(run_config(content), tmp_path / "run").bundle
    config = json.loads((bundle / CONFIG).read_text())
    rows = config["trained_on"]["validation_examples"]
    assert (rows < 100) == (few is not False)
    assert ("confidence is capped at 0." in caplog.text) == (few is True)
    assert ("will have no confidence:" in caplog.text) == (few is None)
    card = (bundle / "README.md").read_text()
    assert ("confidence is capped at" in card) == (few is True)
    if few is None:
        assert "calibration" not in config
        with pytest.raises(ConfigError, match=r"fewer than ten validation sentences.*Omit it, or"):
            load(bundle).classify(["Cold soup."], ["soup"], min_confidence=0.5)
        return
    polarity = config["calibration"]["polarity"]
    kinds = set(config["calibration"]["polarity_log_losses"])
    assert kinds == ({"temperature"} if few else set(KINDS))
    assert polarity.get("max_confidence", 1) == (round((rows + 1) / (rows + 2), 6) if few else 1)


# In a bundle.


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    data = write_reviews(folder / "reviews.csv", 300)
    sizes = {"units": 16, "primary_dim": 10, "intermediate_capsules": 6, "intermediate_dim": 12}
    content = {
        "data": {"train": str(data), "word_dim": 20},
        "model": sizes | {"class_dim": 20, "span_weight": 1.0},
        "train": {"max_epochs": 4, "learning_rate": 0.01},
    }
    return train(run_config(content), folder / "run").bundle


TEXT = "The soup was great on day 3, but I found the pool rather awful."


def test_predictions_have_both_confidences(bundle: Path) -> None:
    analyzer = load(bundle)
    (found,) = analyzer.analyze([TEXT])
    assert found
    for aspect in found:
        assert aspect.confidence is not None
        assert aspect.aspect_confidence is not None
        assert 0 < aspect.confidence < 1
        assert 0 < aspect.aspect_confidence < 1
        assert not aspect.abstained
    (given,) = analyzer.classify([TEXT], [["soup"]])[0]
    assert given.confidence is not None
    assert given.aspect_confidence is None  # the aspect was given
    lengths = np.array([list(given.scores.values())], dtype=np.float32)
    probabilities = analyzer.calibrate(lengths)
    assert probabilities is not None
    assert given.confidence == pytest.approx(probabilities[0, lengths[0].argmax()], abs=1e-5)
    assert given.as_dict()["confidence"] == round(given.confidence, 6)
    (found,) = analyzer.analyze([TEXT], mode="capsules")
    assert all((a.confidence, a.aspect_confidence) == (None, None) for a in found)


def test_abstained_predictions_are_marked_and_kept(bundle: Path) -> None:
    analyzer = load(bundle)
    (plain,), (strict,) = analyzer.analyze([TEXT]), analyzer.analyze([TEXT], min_confidence=1.0)
    assert [a.text for a in strict] == [a.text for a in plain]
    assert all(a.abstained for a in strict)
    confidences = [min(a.confidence or 0, a.aspect_confidence or 0) for a in plain]
    (some,) = analyzer.analyze([TEXT], min_confidence=max(confidences))
    assert [a.abstained for a in some] == [value < max(confidences) for value in confidences]
    (given,) = analyzer.classify([TEXT], [["soup", "pool"]], min_confidence=1.0)
    assert [a.abstained for a in given] == [True, True]
    assert given[0].as_dict()["abstained"] is True
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            analyzer.analyze([TEXT], min_confidence=wrong)
    with pytest.raises(ConfigError, match="needs confidences"):
        analyzer.analyze([TEXT], mode="capsules", min_confidence=0.5)


def changed(bundle: Path, folder: Path, calibration: object) -> Path:
    """Return a copy of a bundle with another calibration, or none."""
    config = json.loads((bundle / CONFIG).read_text())
    del config["calibration"]
    if calibration is not None:
        config["calibration"] = calibration
    files = {n: (bundle / n).read_bytes() for n in FILES[2:] if (bundle / n).is_file()}
    shutil.rmtree(folder, ignore_errors=True)
    write_bundle(folder, config, files)
    return folder


def test_an_uncalibrated_bundle_has_no_confidences(bundle: Path, tmp_path: Path) -> None:
    analyzer = load(changed(bundle, tmp_path / "old", None))
    (found,) = analyzer.analyze([TEXT])
    assert [a.as_dict()["confidence"] for a in found] == [None] * len(found)
    with pytest.raises(ConfigError, match="needs confidences"):
        analyzer.classify([TEXT], [["soup"]], min_confidence=0.5)


@pytest.mark.parametrize(
    "polarity",
    [
        {}, [], "vector", {"kind": "vector"},
        {"kind": "vector", "weights": [1, 1], "offsets": [0, 0]},
        {"kind": "vector", "weights": [1, 1, 1], "offsets": []},
        {"kind": "temperature", "weights": ["a"], "offsets": []},
        {"kind": "temperature", "weights": [float("inf")], "offsets": []},
        {"kind": "temperature", "weights": [1, 1, 1], "offsets": []},
        {"kind": "isotonic", "weights": [1], "offsets": []},
        {"kind": "temperature", "weights": [1], "offsets": [], "max_confidence": 0.3},
        {"kind": "temperature", "weights": [1], "offsets": [], "max_confidence": None},
    ],
)  # fmt: skip
def test_a_damaged_calibration_is_refused(bundle: Path, tmp_path: Path, polarity: object) -> None:
    broken = changed(bundle, tmp_path / "broken", {"polarity": polarity})
    with pytest.raises(ArtifactError, match="calibration"):
        load(broken)


def test_the_card_shows_reliability_and_risk(bundle: Path) -> None:
    card = (bundle / "README.md").read_text()
    metrics = json.loads((bundle / CONFIG).read_text())["calibration"]["polarity_validation"]
    assert f"calibration error (15 bins of equal mass) | {metrics['ece']:.4f}" in card
    diagram = card.partition("confidence  accuracy  examples\n")[2].partition("```")[0]
    assert len(diagram.splitlines()) == len(metrics["bins"]) == 15
    assert sum(int(line.split()[2]) for line in diagram.splitlines()) == metrics["num_examples"]
    assert "| predictions kept | 10% |" in card
    assert "| error rate |" in card

"""Calibrations: fitted on dev, stored, read back, applied; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_reviews import write_reviews
from sklearn.isotonic import IsotonicRegression

from capsar.analyze import load
from capsar.bundle import CONFIG, FILES, write_bundle
from capsar.calibration import KINDS, Calibration, log_odds, two_sided
from capsar.config import run_config
from capsar.errors import ArtifactError, ConfigError
from capsar.evaluation.calibration import calibration_error, error_bound
from capsar.training.calibrate import fit_calibration, fit_kind, log_loss
from capsar.training.run import train


def made_up(number: int, seed: int = 0, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose log-odds, times `1 / sharpness`, are the logits of the true classes."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1, (number, 3))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = np.array([generator.choice(3, p=row) for row in shares])
    return 1 / (1 + np.exp(-sharpness * logits)), truth


@given(st.lists(st.tuples(st.integers(1, 19), st.integers(0, 2)), min_size=1, max_size=40))
def test_isotonic_steps_are_those_of_scikit_learn(examples: list[tuple[int, int]]) -> None:
    """Scores of twentieths, so that many are alike."""
    score, truth = np.array(examples).T
    scores = np.stack([score, 20 - score, score[::-1]], 1) / 20
    made = fit_kind("isotonic", scores, truth)
    for index, (x, y) in enumerate(made.steps):
        fitted = IsotonicRegression().fit(log_odds(scores)[:, index], truth == index)
        np.testing.assert_allclose(x, fitted.X_thresholds_, atol=1e-6)
        np.testing.assert_allclose(y, fitted.y_thresholds_, atol=1e-6)


def test_scores_that_are_no_numbers_are_refused() -> None:
    scores, truth = made_up(120)
    scores[7] = np.nan
    with pytest.raises(ConfigError, match=r"lower train\.learning_rate"):
        fit_calibration(scores, truth, [str(number) for number in range(120)])


def test_a_temperature_is_found_again() -> None:
    scores, truth = made_up(4000, sharpness=2.0)
    made = fit_kind("temperature", scores, truth)
    assert made.weights[0] == pytest.approx(0.5, abs=0.05)


def test_overconfident_scores_become_what_they_say() -> None:
    scores, truth = made_up(2000)
    other, other_truth = made_up(2000, seed=1)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(2000)])
    assert fitted is not None
    assert fitted.calibration.kind in ("temperature", "vector")  # what they were made by
    assert set(fitted.log_losses) == set(KINDS)
    assert fitted.log_losses[fitted.calibration.kind] == min(fitted.log_losses.values())
    probabilities = fitted.calibration.apply(other)
    plain = other / other.sum(1, keepdims=True)
    assert log_loss(probabilities, other_truth) < log_loss(plain, other_truth)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == other_truth
    assert calibration_error(confidence, right) <= 1.3 * error_bound(confidence)


def test_where_one_class_is_favoured_a_vector_is_chosen() -> None:
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 1, (3000, 3))
    told = 1 / (
        1 + np.exp(-(logits + np.array([2.0, 0.0, -2.0])))
    )  # log-odds that are off by class
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = np.array([generator.choice(3, p=row) for row in shares])
    fitted = fit_calibration(told, truth, [str(i) for i in range(3000)])
    assert fitted is not None
    assert fitted.calibration.kind == "vector"


def test_a_bend_worked_by_hand() -> None:
    """Log-odds of 9 to 1 are 2.1972, their cube over 10 is 1.0607: .5 and .2 of them are 1.3107."""
    made = Calibration("bent", (0.5,), bends=(0.2,))
    assert made.apply(np.array([[0.9, 0.5]]))[0, 0] == pytest.approx(0.7876, abs=1e-4)


def test_where_scores_crowd_at_the_ends_a_bend_is_chosen() -> None:
    """As capsule lengths do: a margin loss stops pushing before they mean what they could."""
    generator = np.random.default_rng(5)
    logits = generator.normal(0, 2.5, (3000, 3))
    told = 1 / (1 + np.exp(-2 * np.cbrt(logits)))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = np.array([generator.choice(3, p=row) for row in shares])
    fitted = fit_calibration(told, truth, [str(i) for i in range(3000)])
    assert fitted is not None
    assert fitted.calibration.kind == "bent"
    assert fitted.log_losses["bent"] < fitted.log_losses["vector"] - 0.005
    confidence = fitted.probabilities.max(1)
    right = fitted.probabilities.argmax(1) == truth
    assert calibration_error(confidence, right) <= error_bound(confidence)


def test_a_sentence_is_never_on_both_sides_of_a_fold() -> None:
    scores, truth = made_up(60)
    apart = fit_calibration(scores, truth, [str(i) for i in range(60)])
    # Each example three times over, under one name: what is held out was not fitted on either.
    thrice = fit_calibration(
        np.repeat(scores, 3, axis=0),
        np.repeat(truth, 3),
        [str(i) for i in range(60) for _ in "abc"],
    )
    assert apart is not None
    assert thrice is not None
    for kind in ("temperature", "isotonic"):
        assert thrice.log_losses[kind] == pytest.approx(apart.log_losses[kind], abs=2e-3)
    assert fit_calibration(scores, truth, ["one"] * 60) is None  # nothing to compare on


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibration_is_the_same_after_a_round_trip(kind: str) -> None:
    scores, truth = made_up(200)
    made = fit_kind(kind, scores, truth)
    again = Calibration.from_dict(json.loads(json.dumps(made.as_dict())), 3)
    assert again == made
    np.testing.assert_array_equal(again.apply(scores), made.apply(scores))


@given(arrays(np.float32, (4, 3), elements=st.floats(0, 1, width=32)), st.sampled_from(KINDS))
def test_probabilities_are_such_and_depend_on_their_own_row_alone(
    scores: np.ndarray, kind: str
) -> None:
    made = fit_kind(kind, *made_up(80))
    shares = made.apply(scores)
    assert np.isfinite(shares).all()
    assert (shares > 0).all()
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_array_equal(made.apply(scores[1:2])[0], shares[1])


def test_sides_of_a_yes_are_treated_alike() -> None:
    scores = two_sided(np.linspace(0.05, 0.95, 40))
    truth = (np.arange(40) % 4 > 0).astype(int)
    for kind in KINDS:
        shares = fit_kind(kind, scores, truth).apply(scores)
        assert (np.diff(shares[:, 1]) >= -1e-9).all()  # surer never means less likely


# Of few examples.


def right_answers(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Long capsules that are right each time: what a small dev part often looks like."""
    truth = np.arange(number) % 3
    return np.where(np.eye(3)[truth] > 0, 0.96, 0.06), truth


@pytest.mark.parametrize("number", [10, 16, 40, 99])
def test_few_right_answers_promise_no_more_than_they_show(number: int) -> None:
    scores, truth = right_answers(number)
    groups = [str(i) for i in range(number)]
    bold, careful = (fit_calibration(scores, truth, groups, few=few) for few in (False, True))
    assert bold is not None
    assert careful is not None
    surest = np.array([[0.9999, 0.0001, 0.0001]])
    assert bold.calibration.apply(surest).max() > 0.999
    told = careful.calibration.apply(surest)
    assert 0.8 < told.max() <= (number + 1) / (number + 2)
    np.testing.assert_allclose(told.sum(1), 1)
    assert set(careful.log_losses) == {"temperature"}
    again = Calibration.from_dict(json.loads(json.dumps(careful.calibration.as_dict())), 3)
    np.testing.assert_array_equal(again.apply(scores), careful.calibration.apply(scores))


def test_few_answers_still_tell_sure_from_unsure() -> None:
    scores, truth = made_up(40, sharpness=2.0)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(40)], few=True)
    assert fitted is not None
    odds = np.linspace(0.34, 0.99, 30)
    told = fitted.calibration.apply(np.stack([odds, np.full(30, 0.3), np.full(30, 0.3)], axis=1))
    assert (np.diff(told[:, 0]) > 0).all()
    assert 0.3 < fitted.calibration.weights[0] < 0.7  # they were made with .5


@pytest.mark.parametrize(
    ("number", "sharpness", "kind", "weights", "losses"),
    [
        (100, 3.0, "temperature", [0.311541], [0.903966, 0.924367, 1.201654]),
        (400, 2.0, "vector", [0.481636, 0.331987, 0.531572], [0.921141, 0.91353, 0.994245]),
    ],
)
def test_many_are_fitted_as_ever(
    number: int, sharpness: float, kind: str, weights: list[float], losses: list[float]
) -> None:
    """Figures from before few examples were treated otherwise."""
    scores, truth = made_up(number, seed=5, sharpness=sharpness)
    fitted = fit_calibration(scores, truth, [str(i) for i in range(number)])
    assert fitted is not None
    assert fit_kind(kind, scores, truth).weights == pytest.approx(weights, abs=1e-4)
    straight = [fitted.log_losses[name] for name in ("temperature", "vector", "isotonic")]
    assert straight == pytest.approx(losses, abs=1e-4)
    assert "most" not in fitted.calibration.as_dict()


@pytest.mark.parametrize(("share", "few"), [(0.4, False), (0.3, True), (0.05, None)])
def test_a_run_says_how_far_its_confidences_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, share: float, few: bool | None
) -> None:
    data = write_reviews(tmp_path / "reviews.csv", 60 if few is None else 270)
    sizes = {"units": 4, "primary_dim": 4, "intermediate_capsules": 2, "intermediate_dim": 4}
    content = {
        "data": {"train": str(data), "word_dim": 6, "dev_share": share},
        "model": sizes | {"class_dim": 6, "span_weight": 1.0},
        "train": {"max_epochs": 1},
    }
    bundle = train(run_config(content), tmp_path / "run").bundle
    config = json.loads((bundle / CONFIG).read_text())
    rows = config["trained_on"]["dev_examples"]
    assert (rows < 100) == (few is not False)
    assert ("more surely than 0." in caplog.text) == (few is True)
    assert ("will have no confidences" in caplog.text) == (few is None)
    card = (bundle / "README.md").read_text()
    assert ("can show no more" in card) == (few is True)
    if few is None:
        assert "calibration" not in config
        with pytest.raises(ConfigError, match=r"fewer than ten dev sentences.*Leave it out, or"):
            load(bundle).classify(["Cold soup."], ["soup"], min_confidence=0.5)
        return
    polarity = config["calibration"]["polarity"]
    kinds = set(config["calibration"]["polarity_log_losses"])
    assert kinds == ({"temperature"} if few else set(KINDS))
    assert polarity.get("most", 1) == (round((rows + 1) / (rows + 2), 6) if few else 1)


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


def test_answers_have_both_confidences(bundle: Path) -> None:
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
    assert given.aspect_confidence is None  # nobody had to find it
    lengths = np.array([list(given.scores.values())], dtype=np.float32)
    probabilities = analyzer.calibrate(lengths)
    assert probabilities is not None
    assert given.confidence == pytest.approx(probabilities[0, lengths[0].argmax()], abs=1e-5)
    assert given.as_dict()["confidence"] == round(given.confidence, 6)
    (opened,) = analyzer.analyze([TEXT], mode="capsules")
    assert all((a.confidence, a.aspect_confidence) == (None, None) for a in opened)


def test_an_abstained_answer_is_marked_and_stays_countable(bundle: Path) -> None:
    analyzer = load(bundle)
    (plain,), (strict,) = analyzer.analyze([TEXT]), analyzer.analyze([TEXT], min_confidence=1.0)
    assert [a.text for a in strict] == [a.text for a in plain]
    assert all(a.abstained for a in strict)
    sure = [min(a.confidence or 0, a.aspect_confidence or 0) for a in plain]
    (some,) = analyzer.analyze([TEXT], min_confidence=max(sure))
    assert [a.abstained for a in some] == [value < max(sure) for value in sure]
    (asked,) = analyzer.classify([TEXT], [["soup", "pool"]], min_confidence=1.0)
    assert [a.abstained for a in asked] == [True, True]
    assert asked[0].as_dict()["abstained"] is True
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            analyzer.analyze([TEXT], min_confidence=wrong)
    with pytest.raises(ConfigError, match="needs confidences"):
        analyzer.analyze([TEXT], mode="capsules", min_confidence=0.5)


def changed(bundle: Path, folder: Path, calibration: object) -> Path:
    """A copy of a bundle with another calibration, or none."""
    config = json.loads((bundle / CONFIG).read_text())
    del config["calibration"]
    if calibration is not None:
        config["calibration"] = calibration
    files = {n: (bundle / n).read_bytes() for n in FILES[2:] if (bundle / n).is_file()}
    shutil.rmtree(folder, ignore_errors=True)
    write_bundle(folder, config, files)
    return folder


def test_a_bundle_of_an_earlier_release_answers_without_confidences(
    bundle: Path, tmp_path: Path
) -> None:
    analyzer = load(changed(bundle, tmp_path / "old", None))
    (found,) = analyzer.analyze([TEXT])
    assert [a.as_dict()["confidence"] for a in found] == [None] * len(found)
    with pytest.raises(ConfigError, match="needs confidences"):
        analyzer.classify([TEXT], [["soup"]], min_confidence=0.5)


@pytest.mark.parametrize(
    "polarity",
    [
        {}, [], "vector", {"kind": "vector"},
        {"kind": "vector", "weights": [1, 1], "offsets": [0, 0], "steps": []},
        {"kind": "temperature", "weights": ["a"], "offsets": [], "steps": []},
        {"kind": "temperature", "weights": [float("inf")], "offsets": [], "steps": []},
        {"kind": "isotonic", "weights": [], "offsets": [], "steps": [[[1, 0], [0, 1]]] * 3},
        {"kind": "bent", "weights": [1], "offsets": [], "steps": []},
        {"kind": "bent", "weights": [1], "offsets": [], "steps": [], "bends": [1, 1]},
        {"kind": "temperature", "weights": [1], "offsets": [], "steps": [], "bends": [1]},
        {"kind": "guess", "weights": [1], "offsets": [], "steps": []},
        {"kind": "temperature", "weights": [1], "offsets": [], "steps": [], "most": 0.3},
        {"kind": "temperature", "weights": [1], "offsets": [], "steps": [], "most": None},
    ],
)  # fmt: skip
def test_a_damaged_calibration_is_refused(bundle: Path, tmp_path: Path, polarity: object) -> None:
    broken = changed(bundle, tmp_path / "broken", {"polarity": polarity})
    with pytest.raises(ArtifactError, match="calibration"):
        load(broken)


def test_the_card_shows_reliability_and_risk(bundle: Path) -> None:
    card = (bundle / "README.md").read_text()
    dev = json.loads((bundle / CONFIG).read_text())["calibration"]["polarity_dev"]
    assert f"| calibration error (15 bins of equal mass) | {dev['ece']:.4f} |" in card
    diagram = card.partition("confidence  right  answers\n")[2].partition("```")[0]
    assert len(diagram.splitlines()) == len(dev["bins"]) == 15
    assert sum(int(line.split()[2]) for line in diagram.splitlines()) == dev["num_examples"]
    assert "| answers given | 10% |" in card

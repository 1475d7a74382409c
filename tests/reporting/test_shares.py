"""Shares, intervals and tests against values worked by hand and against the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.errors import DataError
from capsar.reporting.confusion import Confusion, make_confusion, read_confusion
from capsar.reporting.contrasts import FEWEST_REVIEWS, compare, false_discovery_rates
from capsar.reporting.shares import (
    ALIKE_ASPECTS,
    ALIKE_CORPORA,
    estimate_shares,
    nearest_shares,
)
from capsar.reporting.tally import Tally

RATES = np.array([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.05, 0.05, 0.9]])
MANY = Confusion(tuple(tuple(int(n) for n in row) for row in RATES * 1_000_000), "made up")


def tally_of(*groups: list[list[int]]) -> Tally:
    """Tallies of groups of reviews, each review told by its mentions of the three classes."""
    arrays = [np.array(group, dtype=np.float64).reshape(-1, 3) for group in groups]
    return Tally(
        np.array([float((a.sum(1) > 0).sum()) for a in arrays]),
        np.array([a.sum(0) for a in arrays]),
        np.array([a.T @ a for a in arrays]),
        np.zeros(len(arrays)),
    )


def test_covariance_is_that_of_a_ratio_over_reviews() -> None:
    """Two reviews, (2, 0, 0) and (0, 0, 1): p = 2/3 and 1/3, residuals 2/3 and -2/3."""
    tally = tally_of([[2, 0, 0], [0, 0, 1]])
    expected = (2 / 3) ** 2 * 2 * 2 / 9  # two squares, G / (G - 1) = 2, over 3 mentions squared
    assert tally.covariance()[0, 0, 0] == pytest.approx(expected)
    assert tally.covariance()[0, 0, 2] == pytest.approx(-expected)
    assert tally.covariance()[0, 1, 1] == 0


def test_without_clusters_the_covariance_is_the_multinomial_one() -> None:
    reviews = [[1, 0, 0]] * 30 + [[0, 1, 0]] * 20 + [[0, 0, 1]] * 50
    shares = np.array([0.3, 0.2, 0.5])
    expected = (np.diag(shares) - np.outer(shares, shares)) / 99
    assert tally_of(reviews).covariance()[0] == pytest.approx(expected)


def test_tallies_of_parts_add_up() -> None:
    first, second = [[1, 0, 2], [0, 1, 0]], [[3, 0, 0]]
    both, parts = tally_of(first + second), tally_of(first, second)
    for name in ("reviews", "mentions", "products"):
        assert getattr(parts.sum(0), name) == pytest.approx(getattr(both, name)[0])


def test_a_known_confusion_is_undone() -> None:
    true = np.array([0.3, 0.1, 0.6])
    told = np.round(100_000 * RATES.T @ true)
    reviews = np.repeat(np.eye(3), told.astype(int), axis=0)
    shares = estimate_shares(tally_of(reviews.tolist()), MANY)
    assert shares.share[0] == pytest.approx(true, abs=1e-3)
    assert shares.net[0] == pytest.approx(0.3, abs=1e-3)
    assert (shares.low[0] < true).all()
    assert (true < shares.high[0]).all()
    assert (shares.high[0] - shares.low[0]).max() < 0.02
    uncorrected = estimate_shares(tally_of(reviews.tolist()), None)
    assert uncorrected.share[0] == pytest.approx(RATES.T @ true, abs=1e-4)


def test_a_confusion_known_from_few_examples_widens_intervals() -> None:
    tally = tally_of([[1, 0, 0]] * 300 + [[0, 1, 0]] * 150 + [[0, 0, 1]] * 550)
    few = Confusion(tuple(tuple(int(n) for n in row) for row in RATES * 60), "few")
    wide, narrow = (estimate_shares(tally, one) for one in (few, MANY))
    assert ((wide.high - wide.low) > 1.5 * (narrow.high - narrow.low))[0, 2]


def test_a_confusion_that_does_not_fit_corrects_nothing() -> None:
    """By `RATES` at least 5 of 100 are told neutral, and 1 was: the rest would be 0, and sure."""
    fits, misfit = [[1, 0, 0]] * 400 + [[0, 1, 0]] * 120 + [[0, 0, 1]] * 480, [[0, 0, 1]] * 990
    misfit += [[0, 1, 0]] * 10
    shares = estimate_shares(tally_of(fits, misfit), MANY)
    assert shares.corrected.tolist() == [True, False]
    assert shares.share[1] == pytest.approx([0, 0.01, 0.99])
    assert shares.net[1] == pytest.approx(0.99)
    assert (shares.high[1] - shares.low[1] > 0).all()
    assert shares.high[1, 2] == 1  # as correcting would have it
    assert shares.low[1, 2] < 0.99 < shares.net_high[1]


@given(
    st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(20, 5000),
)
def test_no_interval_is_a_point_or_leaves_out_its_share(
    groups: list[list[int]], examples: int
) -> None:
    told = [np.repeat(np.eye(3), group, axis=0).tolist() for group in groups]
    counts = np.round(RATES * examples).astype(int)
    confusion = Confusion(tuple(tuple(int(n) for n in row) for row in counts), "made up")
    shares = estimate_shares(tally_of(*told), confusion)
    some = np.array(groups).sum(1) > 0
    assert (shares.high - shares.low)[some].min(initial=1) > 0
    assert not shares.corrected[~some].any()
    sums = np.array(groups)[some & ~shares.corrected]
    as_told = sums / sums.sum(1, keepdims=True)
    assert shares.share[some & ~shares.corrected] == pytest.approx(as_told)


def test_rates_of_an_aspect_or_of_other_reviews_are_less_sure() -> None:
    tally = tally_of([[1, 0, 0]] * 3000 + [[0, 1, 0]] * 1500 + [[0, 0, 1]] * 5500)
    elsewhere = replace(MANY, elsewhere=True)
    known, aspect, other, both = (
        estimate_shares(tally, confusion, of_aspects=of_aspects)
        for of_aspects in (False, True)
        for confusion in (MANY, elsewhere)
    )
    widths = [(one.high - one.low).max() for one in (known, aspect, other, both)]
    assert widths[0] < 0.05
    assert min(widths[1:]) > 0.1
    for one in (aspect, other, both):
        assert (one.low < known.share).all()
        assert (known.share < one.high).all()


def test_how_alike_rates_are_is_what_was_measured(root: Path) -> None:
    text = (root / "experiments/results/aspect-confusion.json").read_text(encoding="utf-8")
    measured = json.loads(text)
    for constant, kind in ((ALIKE_ASPECTS, "aspects"), (ALIKE_CORPORA, "corpora")):
        found = [fit["concentration"] for fit in measured[kind].values()]
        assert min(found) <= constant <= max(found)


def test_mentions_of_one_review_count_as_less_than_as_many_reviews() -> None:
    alone = tally_of([[1, 0, 0]] * 100 + [[0, 0, 1]] * 100)
    clustered = tally_of([[4, 0, 0]] * 25 + [[0, 0, 4]] * 25)
    one, other = (estimate_shares(tally, None) for tally in (alone, clustered))
    assert one.share == pytest.approx(other.share)
    ratio = (other.high - other.low)[0, 0] / (one.high - one.low)[0, 0]
    assert ratio == pytest.approx(2, rel=0.1)  # a quarter of the units, half as narrow


def test_nothing_has_no_share() -> None:
    shares = estimate_shares(tally_of([[0, 0, 0]], [[1, 0, 0]]), None)
    assert np.isnan(shares.share[0]).all()
    assert shares.share[1].tolist() == [1, 0, 0]
    assert 0.02 < shares.low[1, 0] < 0.6  # one mention proves little


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_nearest_shares_are_shares_and_nearest(values: list[float]) -> None:
    point = np.array(values)
    found = nearest_shares(point)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    corners = np.vstack([np.eye(3), np.full(3, 1 / 3)])
    assert ((found - point) ** 2).sum() <= ((corners - point) ** 2).sum(1).min() + 1e-9


def _review(chance: np.random.Generator, shares: list[float]) -> list[int]:
    """One to three mentions, often alike, told through the confusion."""
    first = chance.choice(3, p=shares)
    told = np.zeros(3, dtype=int)
    for _ in range(chance.integers(1, 4)):
        true = first if chance.random() < 0.5 else chance.choice(3, p=shares)
        told[chance.choice(3, p=RATES[true])] += 1
    return [int(number) for number in told]


def test_intervals_hold_the_truth() -> None:
    """The benchmark does this on whole corpora, and with thousands of intervals."""
    chance = np.random.default_rng(5)
    inside = []
    for _ in range(40):
        counts = [chance.multinomial(400, row) for row in RATES]
        confusion = make_confusion(counts, "measured")
        truths = [chance.dirichlet([1.5, 0.7, 3]) for _ in range(5)]
        tally = tally_of(*([_review(chance, list(t)) for _ in range(60)] for t in truths))
        shares = estimate_shares(tally, confusion)
        inside.append((shares.low <= truths) & (truths <= shares.high))
    assert np.mean(inside) >= 0.93


def test_equal_groups_seldom_differ_and_unequal_ones_do() -> None:
    chance = np.random.default_rng(6)
    same, other = [0.3, 0.2, 0.5], [0.6, 0.2, 0.2]

    def groups(shares: list[float]) -> Tally:
        return tally_of(*([_review(chance, shares) for _ in range(50)] for _ in range(60)))

    alike = compare(groups(same), groups(same))
    assert 0.2 <= np.mean(alike < 0.5) <= 0.75
    assert np.mean(alike < 0.05) <= 0.15
    assert np.median(compare(groups(same), groups(other))) < 0.01


def test_small_groups_are_not_compared() -> None:
    one = tally_of([[1, 0, 0]] * (FEWEST_REVIEWS - 1), [[1, 0, 0]] * FEWEST_REVIEWS)
    other = tally_of([[0, 0, 1]] * 100, [[0, 0, 1]] * 100)
    assert np.isnan(compare(one, other)[0])
    assert compare(one, other)[1] < 1e-6


def test_false_discovery_rates_by_hand() -> None:
    """Of four tests: .005 * 4/1, .02 * 4/2, .03 * 4/3, .5 * 4/4, each no more than the next."""
    rates = false_discovery_rates(np.array([[0.5, 0.005], [0.03, 0.02]]))
    assert rates == pytest.approx(np.array([[0.5, 0.02], [0.04, 0.04]]))


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([[1, 2], [3, 4]], "3 rows of 3 counts"),
        ("no matrix", "3 rows of 3 counts"),
        ([[50, 0, 0], [0, 9, 0], [0, 0, 50]], "9 examples are neutral"),
        ([[10, 40, 0], [0, 50, 0], [0, 0, 50]], "more often told as another"),
        ([[50, 0, -1], [0, 50, 0], [0, 0, 50]], "3 rows of 3 counts"),
    ],
)
def test_what_is_no_confusion_is_refused(counts: object, told: str) -> None:
    with pytest.raises(DataError, match=told):
        make_confusion(counts, "it")


def test_confusions_are_read_as_evaluate_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    for text in (
        '{"figures": {"confusion": [[9,1,0],[1,8,1],[0,1,9]]}}',
        "[[9,1,0],[1,8,1],[0,1,9]]",
    ):
        path.write_text(text)
        assert read_confusion(path).counts == ((9, 1, 0), (1, 8, 1), (0, 1, 9))
    path.write_text("{}")
    with pytest.raises(DataError, match=r"dev\.json: expected 3 rows"):
        read_confusion(path)
    with pytest.raises(DataError, match="no confusion matrix can be read"):
        read_confusion(tmp_path / "none.json")

"""Shares, intervals and tests against values computed by hand and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.reporting.statistics import (
    MIN_REVIEWS,
    AspectCounts,
    adjust_p_values,
    compare_shares,
    estimate_shares,
)


def counts_of(*groups: list[list[int]]) -> AspectCounts:
    """Count groups of reviews, each review given by its mentions of the three classes."""
    arrays = [np.array(group, dtype=np.float64).reshape(-1, 3) for group in groups]
    return AspectCounts(
        np.array([float((a.sum(1) > 0).sum()) for a in arrays]),
        np.array([a.sum(0) for a in arrays]),
        np.array([a.T @ a for a in arrays]),
        np.zeros(len(arrays)),
    )


def test_covariance_of_a_ratio_over_reviews() -> None:
    """Two reviews, (2, 0, 0) and (0, 0, 1): p = 2/3 and 1/3, residuals 2/3 and -2/3."""
    counts = counts_of([[2, 0, 0], [0, 0, 1]])
    expected = (2 / 3) ** 2 * 2 * 2 / 9  # two squares, G / (G - 1) = 2, over 3 mentions squared
    assert counts.covariance()[0, 0, 0] == pytest.approx(expected)
    assert counts.covariance()[0, 0, 2] == pytest.approx(-expected)
    assert counts.covariance()[0, 1, 1] == 0


def test_without_clusters_the_covariance_is_multinomial() -> None:
    reviews = [[1, 0, 0]] * 30 + [[0, 1, 0]] * 20 + [[0, 0, 1]] * 50
    shares = np.array([0.3, 0.2, 0.5])
    expected = (np.diag(shares) - np.outer(shares, shares)) / 99
    assert counts_of(reviews).covariance()[0] == pytest.approx(expected)


def test_counts_of_parts_add_up() -> None:
    first, second = [[1, 0, 2], [0, 1, 0]], [[3, 0, 0]]
    both, parts = counts_of(first + second), counts_of(first, second)
    for name in ("reviews", "mentions", "products"):
        assert getattr(parts.sum(0), name) == pytest.approx(getattr(both, name)[0])


def test_shares_are_those_of_the_counts() -> None:
    shares = estimate_shares(counts_of([[1, 0, 0]] * 30 + [[0, 1, 0]] * 10 + [[0, 0, 1]] * 60))
    assert shares.share[0] == pytest.approx([0.3, 0.1, 0.6, 0.3])  # last, positive - negative
    # Wilson's intervals, which differ little at this size.
    assert shares.low[0, :3] == pytest.approx([0.219, 0.055, 0.502], abs=0.015)
    assert shares.high[0, :3] == pytest.approx([0.396, 0.174, 0.691], abs=0.015)


@given(st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3), min_size=1, max_size=4))
def test_intervals_have_a_width_and_contain_their_share(groups: list[list[int]]) -> None:
    reviews = [np.repeat(np.eye(3), group, axis=0).tolist() for group in groups]
    shares = estimate_shares(counts_of(*reviews))
    present = np.array(groups).sum(1) > 0
    assert (shares.high - shares.low)[present].min(initial=1) > 0
    assert (shares.low <= shares.share)[present].all()
    assert (shares.share <= shares.high)[present].all()


def test_clustered_mentions_widen_intervals() -> None:
    independent = counts_of([[1, 0, 0]] * 100 + [[0, 0, 1]] * 100)
    clustered = counts_of([[4, 0, 0]] * 25 + [[0, 0, 4]] * 25)
    one, other = map(estimate_shares, (independent, clustered))
    assert one.share == pytest.approx(other.share)
    ratio = (other.high - other.low)[0, 0] / (one.high - one.low)[0, 0]
    assert ratio == pytest.approx(2, rel=0.1)  # a quarter of the units doubles the width


def test_groups_without_mentions_have_no_share() -> None:
    shares = estimate_shares(counts_of([[0, 0, 0]], [[1, 0, 0]]))
    assert np.isnan(shares.share[0]).all()
    assert shares.share[1, :3].tolist() == [1, 0, 0]
    assert 0.02 < shares.low[1, 0] < 0.6  # one mention gives a wide interval
    assert shares.high[1, 0] == 1


def _review(random: np.random.Generator, shares: list[float]) -> list[int]:
    """Return the counts of one to three mentions, which often have the same polarity."""
    first = random.choice(3, p=shares)
    counts = np.zeros(3, dtype=int)
    for _ in range(random.integers(1, 4)):
        counts[first if random.random() < 0.5 else random.choice(3, p=shares)] += 1
    return [int(number) for number in counts]


def test_intervals_cover_the_true_shares() -> None:
    """The benchmark does the same on whole corpora, with thousands of intervals."""
    random = np.random.default_rng(5)
    inside = []
    for _ in range(40):
        truths = np.array([random.dirichlet([1.5, 0.7, 3]) for _ in range(5)])
        counts = counts_of(*([_review(random, list(t)) for _ in range(60)] for t in truths))
        shares = estimate_shares(counts)
        inside.append((shares.low[:, :3] <= truths) & (truths <= shares.high[:, :3]))
    assert np.mean(inside) >= 0.93


def test_equal_groups_rarely_differ_and_unequal_ones_do() -> None:
    random = np.random.default_rng(6)
    same, other = [0.3, 0.2, 0.5], [0.6, 0.2, 0.2]

    def groups(shares: list[float]) -> AspectCounts:
        return counts_of(*([_review(random, shares) for _ in range(50)] for _ in range(60)))

    equal = compare_shares(groups(same), groups(same))
    assert 0.2 <= np.mean(equal < 0.5) <= 0.75
    assert np.mean(equal < 0.05) <= 0.15
    assert np.median(compare_shares(groups(same), groups(other))) < 0.01


def test_small_groups_are_not_compared() -> None:
    one = counts_of([[1, 0, 0]] * (MIN_REVIEWS - 1), [[1, 0, 0]] * MIN_REVIEWS)
    other = counts_of([[0, 0, 1]] * 100, [[0, 0, 1]] * 100)
    assert np.isnan(compare_shares(one, other)[0])
    assert compare_shares(one, other)[1] < 1e-6


def test_q_values_by_hand() -> None:
    """For four tests: .005 * 4/1, .02 * 4/2, .03 * 4/3, .5 * 4/4, each at most the next."""
    q_values = adjust_p_values(np.array([[0.5, 0.005], [0.03, 0.02]]))
    assert q_values == pytest.approx(np.array([[0.5, 0.02], [0.04, 0.04]]))

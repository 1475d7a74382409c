"""How far criticism and praise of a topic move the rating, by linear regression.

The rating of a review is regressed on two indicators per topic: whether the review has a negative
mention of it, and whether it has a positive one. Reviews with equal indicators share a row of sums,
so the corpus is read once. Standard errors are robust to unequal variances (HC3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.reporting.query import REVIEW
from capsar.reporting.statistics import MIN_REVIEWS
from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

    from capsar.reporting.query import ScoredFolder

MAX_DRIVERS = 15
SIGNS = (Polarity.NEGATIVE, Polarity.POSITIVE)
"""The polarities that can move a rating, in the order of a topic's two indicators."""
_NORMAL_QUANTILE = 1.959964
"""Of 95 % intervals."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference in rating between reviews with and without such a mention."""

    effect: float
    low: float
    high: float
    reviews: int

    def as_dict(self) -> dict[str, Any]:
        """Return the effect in its JSON form."""
        values = (self.effect, self.low, self.high)
        return {"effect": [round(value, 4) for value in values], "reviews": self.reviews}


@dataclass(frozen=True, slots=True)
class Drivers:
    """Effects on the rating."""

    mean: float
    """The mean rating."""
    reviews: int
    """Reviews with a rating."""
    effects: dict[tuple[int, str], Effect]
    """By topic and polarity, of those that enough reviews mention."""


class DriverCounter:
    """Adds up ratings by the topics that reviews criticize and praise.

    Args:
        database: The database.
        topics: The numbers of the topics.
        rating_sql: The SQL of a review's rating, or null.
    """

    def __init__(
        self, database: DuckDBPyConnection, topics: Sequence[int], rating_sql: str
    ) -> None:
        self._database = database
        self._topics = list(topics)
        self._rating_sql = rating_sql
        database.execute("CREATE OR REPLACE TEMP TABLE driver (topic BIGINT, number BIGINT)")
        if self._topics:
            rows = list(zip(self._topics, range(len(self._topics)), strict=True))
            database.executemany("INSERT INTO driver VALUES (?, ?)", rows)
        database.execute(
            """CREATE OR REPLACE TEMP TABLE rated (indicators SMALLINT[], reviews BIGINT,
               total DOUBLE, squares DOUBLE)"""
        )

    def add(self, scored: ScoredFolder, batch: list[int]) -> None:
        """Add the reviews of some files, whose mentions are in the table `topic_mention`."""
        negative, positive = (CLASSES.index(sign) for sign in SIGNS)
        self._database.execute(
            f"""INSERT INTO rated
                SELECT coalesce(indicators, []), count(*), sum(rating), sum(rating * rating)
                FROM (SELECT {REVIEW} AS review, {self._rating_sql} AS rating
                      FROM {scored.rows_sql})
                LEFT JOIN (SELECT review, list_sort(list(DISTINCT CAST(
                                  2 * number + (polarity = {positive})::INT AS SMALLINT)))
                                  AS indicators
                           FROM topic_mention JOIN driver USING (topic)
                           WHERE polarity IN ({negative}, {positive}) GROUP BY review)
                USING (review) WHERE isfinite(rating) GROUP BY 1""",  # noqa: S608
            {"files": [scored.files[number] for number in batch]},
        )
        self._database.execute(
            """CREATE OR REPLACE TEMP TABLE rated AS
               SELECT indicators, CAST(sum(reviews) AS BIGINT) AS reviews, sum(total) AS total,
                      sum(squares) AS squares FROM rated GROUP BY indicators"""
        )

    def drivers(self) -> Drivers:
        """Return the effects of all topics with enough reviews."""
        rows = self._database.execute("FROM rated ORDER BY indicators").fetchall()
        indicators = np.zeros((len(rows), 1 + len(SIGNS) * len(self._topics)))
        indicators[:, 0] = 1
        for number, (ones, *_) in enumerate(rows):
            indicators[number, [1 + one for one in ones]] = 1
        sums = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 3)
        reviews, total = sums[:, 0], float(sums[:, 1].sum())
        counts = reviews @ indicators
        effects = {}
        if (chosen := _choose(indicators, reviews)).size > 1:
            values, low, high = _regress(indicators[:, chosen], sums)
            for place, column in enumerate(chosen.tolist()):
                if column:
                    topic, sign = divmod(column - 1, len(SIGNS))
                    effects[self._topics[topic], str(SIGNS[sign])] = Effect(
                        float(values[place]), float(low[place]), float(high[place]),
                        int(counts[column]),
                    )  # fmt: skip
        number = int(reviews.sum())
        return Drivers(total / max(1, number), number, effects)


def _choose(indicators: NDArray[np.float64], reviews: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the columns with enough reviews on both sides that do not depend on earlier ones."""
    counts = reviews @ indicators
    fewest = np.minimum(counts, reviews.sum() - counts)
    products = (indicators * reviews[:, None]).T @ indicators
    chosen = [0]
    for column in np.argsort(-fewest[1:], kind="stable") + 1:
        wider = [*chosen, int(column)]
        is_independent = np.linalg.matrix_rank(products[np.ix_(wider, wider)]) == len(wider)
        if fewest[column] >= MIN_REVIEWS and is_independent:
            chosen = wider
    return np.array(sorted(chosen))


def _regress(
    indicators: NDArray[np.float64], sums: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the coefficients (K) of a least-squares fit, and the ends of their intervals.

    Args:
        indicators: (R, K)
        sums: (R, 3) For each row of indicators the number, sum and sum of squares of ratings.
    """
    reviews, total, squares = sums.T
    inverse = np.linalg.inv((indicators * reviews[:, None]).T @ indicators)
    values = inverse @ (indicators.T @ total)
    fitted = indicators @ values
    residuals = np.maximum(squares - 2 * fitted * total + fitted**2 * reviews, 0)
    leverage = np.minimum(((indicators @ inverse) * indicators).sum(1), 0.999)
    weights = residuals / (1 - leverage) ** 2
    covariance = inverse @ ((indicators * weights[:, None]).T @ indicators) @ inverse
    counts = reviews @ indicators
    fewest = np.minimum(counts, np.where(counts == reviews.sum(), counts, reviews.sum() - counts))
    # The quantile of Student's distribution, by its first correction to the normal one.
    quantile = _NORMAL_QUANTILE + (_NORMAL_QUANTILE**3 + _NORMAL_QUANTILE) / (4 * (fewest - 1))
    margin = quantile * np.sqrt(np.diag(covariance))
    return values, values - margin, values + margin

"""How far criticism and praise of a topic move the rating, by linear regression.

The rating of a review is regressed on two indicators per topic: whether the review has a negative
mention of it, and whether it has a positive one. Reviews with equal indicators share a row of sums,
so the corpus is read once. Standard errors are robust to unequal variances (HC3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.reporting.statistics import MIN_REVIEWS
from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

    from capsar.reporting.query import ScoredFolder

MAX_DRIVERS = 15
SIGNS = (Polarity.NEGATIVE, Polarity.POSITIVE)
"""The polarities that can move a rating, in the order of a topic's two indicators."""
_NORMAL_QUANTILE = 1.959964
"""Of 95 % intervals."""
_ROWS_AT_ONCE = 20_000


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
        origin: A number near the ratings, which is subtracted to keep sums exact.
    """

    def __init__(
        self, database: DuckDBPyConnection, topics: Sequence[int], rating_sql: str, origin: float
    ) -> None:
        self._database = database
        self._topics = list(topics)
        self._rating_sql = rating_sql
        self._origin = origin
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
                FROM (SELECT review, rating - {self._origin!r} AS rating
                      FROM {scored.select(rating=self._rating_sql)})
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
        size = 1 + len(SIGNS) * len(self._topics)
        products, totals, total = np.zeros((size, size)), np.zeros(size), 0.0
        for indicators, sums in self._read(size):
            products += (indicators * sums[:, :1]).T @ indicators
            totals += indicators.T @ sums[:, 1]
            total += float(sums[:, 1].sum())
        number = int(products[0, 0])
        chosen = _choose(products)
        inverse = np.linalg.pinv(products[np.ix_(chosen, chosen)]).astype(np.float64)
        values = inverse @ totals[chosen]
        squares = np.zeros(inverse.shape)
        for indicators, sums in self._read(size):
            squares = squares + _squared_residuals(indicators[:, chosen], sums, values, inverse)
        variances = np.diag(inverse @ squares @ inverse)
        counts = np.diag(products)[chosen]
        margins = _quantiles(counts, number) * np.sqrt(np.maximum(variances, 0))
        effects = {}
        for place, column in enumerate(chosen.tolist()):
            value, margin = float(values[place]), float(margins[place])
            if column and np.isfinite([value, margin]).all():
                topic, sign = divmod(column - 1, len(SIGNS))
                effects[self._topics[topic], str(SIGNS[sign])] = Effect(
                    value, value - margin, value + margin, int(counts[place])
                )
        return Drivers(self._origin + total / max(1, number), number, effects)

    def _read(self, size: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield indicators (R, K), first a constant; number, sum and squares of ratings (R, 3)."""
        result = self._database.execute("FROM rated ORDER BY indicators")
        while rows := result.fetchmany(_ROWS_AT_ONCE):
            indicators = np.zeros((len(rows), size))
            indicators[:, 0] = 1
            for number, (ones, *_) in enumerate(rows):
                indicators[number, [1 + one for one in ones]] = 1
            yield indicators, np.array([row[1:] for row in rows], dtype=np.float64)


def _choose(products: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the columns with enough reviews on both sides that do not depend on others.

    Args:
        products: (K, K) The number of reviews that have both of two indicators.
    """
    counts = np.diag(products)
    fewest = np.minimum(counts, counts[0] - counts)
    chosen = [0]
    for column in np.argsort(-fewest[1:], kind="stable") + 1:
        wider = [*chosen, int(column)]
        is_independent = np.linalg.matrix_rank(products[np.ix_(wider, wider)]) == len(wider)
        if fewest[column] >= MIN_REVIEWS and is_independent:
            chosen = wider
    return np.array(sorted(chosen))


def _squared_residuals(
    indicators: NDArray[np.float64],
    sums: NDArray[np.float64],
    values: NDArray[np.float64],
    inverse: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the sum (K, K) of the products of indicators, weighted by squared residuals (HC3)."""
    reviews, total, squares = sums.T
    fitted = indicators @ values
    residuals = np.maximum(squares - 2 * fitted * total + fitted**2 * reviews, 0)
    leverage = np.minimum(((indicators @ inverse) * indicators).sum(1), 0.999)
    weighted: NDArray[np.float64] = indicators * (residuals / (1 - leverage) ** 2)[:, None]
    return weighted.T @ indicators


def _quantiles(counts: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Return Student's quantiles, by their first correction to the normal one."""
    rest = number - counts
    freedom = np.maximum(np.where(rest > 0, np.minimum(counts, rest), counts) - 1, 1)
    quantiles: NDArray[np.float64] = _NORMAL_QUANTILE + (_NORMAL_QUANTILE**3 + _NORMAL_QUANTILE) / (
        4 * freedom
    )
    return quantiles

"""Score a Parquet folder with Spark: `score_batch` in `mapInArrow`.

    pip install 'capsar[bulk]' pyspark
    spark-submit examples/spark_score.py reviews/ scored/ review id

Spark retries tasks and commits its output itself; what capsar gives is the function.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from capsar.bulk.job import ScoreOptions
from capsar.bulk.scorer import score_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = (
    "aspects array<struct<surface: string, start: int, end: int, polarity: string, "
    "scores: struct<negative: float, neutral: float, positive: float>>>, error string"
)


def main(source: str, target: str, text_column: str, *keep: str) -> None:
    """Read, score and write."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("capsar").getOrCreate()
    reviews = spark.read.parquet(source)
    options = ScoreOptions(text_column=text_column, keep=keep)

    def score_all(batches: Iterable[Any]) -> Iterator[Any]:
        return (score_batch(batch, options) for batch in batches)

    kept = "".join(f"`{name}` {reviews.schema[name].dataType.simpleString()}, " for name in keep)
    reviews.mapInArrow(score_all, f"{kept}{SCHEMA}").write.mode("overwrite").parquet(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

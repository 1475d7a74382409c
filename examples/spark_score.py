"""Score a Parquet folder with Spark, by calling `score_batch` in `mapInArrow`.

    pip install 'capsar[bulk]' pyspark
    spark-submit examples/spark_score.py reviews/ scored/ review id fast

Spark retries failed tasks and writes the output.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from capsar import ScoreOptions, score_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = (
    "aspects array<struct<text: string, start: int, end: int, polarity: string, "
    "scores: struct<negative: float, neutral: float, positive: float>, "
    "confidence: float, aspect_confidence: float>>, error string"
)


def main(source: str, target: str, text_column: str, kept: str, model: str = "base") -> None:
    """Read, score and write. `kept` is a comma-separated list of columns to keep."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("capsar").getOrCreate()
    reviews = spark.read.parquet(source)
    keep = tuple(kept.split(","))
    options = ScoreOptions(model=model, text_column=text_column, keep=keep)

    def score_all(batches: Iterable[Any]) -> Iterator[Any]:
        return (score_batch(batch, options) for batch in batches)

    types = {name: reviews.schema[name].dataType.simpleString() for name in keep}
    columns = "".join(f"`{name}` {kind}, " for name, kind in types.items())
    reviews.mapInArrow(score_all, f"{columns}{SCHEMA}").write.mode("overwrite").parquet(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Score with DuckDB: `python duckdb_score.py 'reviews/*.parquet' scored.parquet review id`.

pip install 'capsar[bulk]' duckdb
"""

from __future__ import annotations

import sys
from typing import Any

import duckdb
import pyarrow as pa

import capsar

ASPECTS = (
    'STRUCT(text VARCHAR, start INTEGER, "end" INTEGER, polarity VARCHAR, '
    "scores STRUCT(negative FLOAT, neutral FLOAT, positive FLOAT), "
    "confidence FLOAT, aspect_confidence FLOAT)[]"
)


def main(source: str, target: str, text_column: str, kept: str, model: str = "base") -> None:
    """Register a function of a text column, and use it in a query."""
    options = capsar.ScoreOptions(model=model)

    def aspects(texts: Any) -> Any:  # noqa: ANN401  (Arrow has no types)
        scored = capsar.score_batch(pa.table({"text": texts}), options)
        return scored.column("aspects").combine_chunks()

    connection: Any = duckdb.connect()
    connection.create_function("aspects", aspects, ["VARCHAR"], ASPECTS, type="arrow")
    query = f"SELECT {kept}, aspects({text_column}) AS aspects FROM read_parquet('{source}')"  # noqa: S608
    connection.sql(query).write_parquet(target)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Score a column with Daft: `python daft_score.py 'reviews/*.parquet' scored review id`.

pip install 'capsar[bulk]' daft
"""

from __future__ import annotations

import sys
from typing import Any

import daft
import pyarrow as pa

import capsar
from capsar.bulk.scoring import ASPECTS


def main(source: str, target: str, text_column: str, kept: str, model: str = "base") -> None:
    """Apply a function to a text column; each worker loads the model once."""
    options = capsar.ScoreOptions(model=model)

    def score(texts: daft.Series) -> Any:  # noqa: ANN401  (Arrow has no types)
        scored = capsar.score_batch(pa.table({"text": texts.to_arrow()}), options)
        return scored.column("aspects").combine_chunks()

    aspects = daft.func.batch(return_dtype=daft.DataType.from_arrow_type(ASPECTS))(score)
    reviews = daft.read_parquet(source)
    reviews.select(kept, aspects(daft.col(text_column)).alias("aspects")).write_parquet(target)


if __name__ == "__main__":
    main(*sys.argv[1:])

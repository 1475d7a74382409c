"""The corpus of the bulk benchmarks, and a check of a job's output."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

import capsar
from capsar.bulk.scoring import ASPECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS_PER_FILE = 50_000
MODEL = "fast"
TOLERANCE = 1e-4
EXACT = ("text", "start", "end", "polarity")


def sentences() -> list[str]:
    """Return unlabeled sentences of ordinary length."""
    folder = Path(os.environ["CAPSAR_DATA"]) / "data" / "unlabelled"
    yelp = [
        line.split("\t")[1]
        for path in sorted((folder / "mgan_yelp").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    products = [
        line.strip()
        for path in sorted((folder / "fdu-mtl").glob("*.unlabel"))
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    return sorted({text for text in yelp + products if 10 <= len(text) <= 200})


def reviews(number: int) -> Iterator[str]:
    """Yield reviews of one to three sentences, always the same."""
    known, chance = sentences(), random.Random(7)
    for _ in range(number):
        yield " ".join(chance.choice(known) for _ in range(chance.randint(1, 3)))


def write_corpus(folder: Path, number: int, *, row_group: int = 5_000) -> Path:
    """Write reviews with ids as Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = reviews(number)
    for first in range(0, number, ROWS_PER_FILE):
        size = min(ROWS_PER_FILE, number - first)
        table = pa.table(
            {"id": range(first, first + size), "review": [next(texts) for _ in range(size)]}
        )
        pq.write_table(table, folder / f"reviews-{first:010d}.parquet", row_group_size=row_group)
    return folder


def texts_of(folder: Path, number: int) -> list[str]:
    """Return the first reviews of a corpus."""
    table = pds.dataset(folder).head(number, columns=["review"])
    texts: list[str] = table.column("review").to_pylist()
    return texts


def predict_serially(texts: list[str]) -> Any:  # noqa: ANN401  (Arrow has no types)
    """Return the predictions of a single Analyzer."""
    predictions = capsar.load(MODEL).analyze(texts)
    return pa.array([[one.as_dict() for one in found] for found in predictions], ASPECTS)


def check(output: str, rows: int, expected: Any, filesystem: Any = None) -> dict[str, float]:  # noqa: ANN401
    """Compare an output with the ids of the input and with serial predictions of the first rows."""
    dataset = pds.dataset(output, format="parquet", filesystem=filesystem)
    table = dataset.to_table(columns=["id", "aspects", "error"]).sort_by("id")
    ids = table.column("id").to_pylist()
    found = table.column("aspects").slice(0, len(expected)).to_pylist()
    different = sum(
        not _is_equal(one, other)
        for one, other in zip(found, expected.to_pylist(), strict=len(ids) == rows)
    )
    return {
        "rows": len(ids),
        "missing": rows - len(set(ids)),
        "duplicated": len(ids) - len(set(ids)),
        "errors": len(ids) - table.column("error").null_count,
        "different": different,
    }


def _is_equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Return whether spans and polarities are equal, and scores and confidences nearly so."""
    return len(found) == len(expected) and all(
        all(one[name] == other[name] for name in EXACT)
        and all(
            abs(number - other_number) < TOLERANCE
            for number, other_number in zip(_numbers(one), _numbers(other), strict=True)
        )
        for one, other in zip(found, expected, strict=True)
    )


def _numbers(aspect: dict[str, Any]) -> list[float]:
    return [*aspect["scores"].values(), aspect["confidence"], aspect["aspect_confidence"]]

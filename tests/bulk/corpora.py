"""Synthetic corpora in every format, and the expected results of a serial run."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import capsar
from capsar.bulk.job import ScoreOptions

THINGS = ["soup", "staff", "battery", "screen", "wine list", "price", "café", "waiter's tip"]
OPINIONS = ["was cold", "were lovely", "is far too small", "could be better", "is just right"]
ENDS = [".", "!", ' ("really")', ", I say;\nbuy it", " …", ""]
EXACT_FIELDS = ("text", "start", "end", "polarity")
OPTIONS = ScoreOptions(model="fast", text_column="review", keep=("id",), shard_mb=0.02)


def reviews(number: int, seed: int = 0) -> list[str]:
    """Return reviews of one to three sentences that contain commas, quotes and newlines."""
    rng = random.Random(seed)

    def sentence() -> str:
        return f"The {rng.choice(THINGS)} {rng.choice(OPINIONS)}{rng.choice(ENDS)}"

    return [" ".join(sentence() for _ in range(rng.randint(1, 3))) for _ in range(number)]


def write(path: Path, texts: list[Any], first_id: int = 0) -> Path:
    """Write texts with ids in the format of the file extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = range(first_id, first_id + len(texts))
    opened = gzip.open if path.suffix == ".gz" else open
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"id": ids, "review": texts}), path, row_group_size=200)
    elif name.endswith(".xlsx"):
        book = openpyxl.Workbook()
        for row in [("id", "review"), *zip(ids, texts, strict=True)]:
            book.active.append(row)
        book.save(path)
    elif name.endswith(".csv"):
        with opened(path, "wt", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["id", "review"])
            rows.writerows(zip(ids, texts, strict=True))
    else:
        with opened(path, "wt", encoding="utf-8", newline="") as stream:
            for number, text in zip(ids, texts, strict=True):
                stream.write(json.dumps({"id": number, "review": text}) + "\n")
    return path


def read_output(folder: str | Path) -> list[dict[str, Any]]:
    """Return all rows of an output with ids as integers, sorted by id."""
    rows = pds.dataset(str(folder), format="parquet").to_table().to_pylist()
    for row in rows:
        row["id"] = None if row["id"] is None else int(row["id"])
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))


def serial_results(texts: list[str]) -> list[list[dict[str, Any]]]:
    """Return the results of one `Analyzer` for all texts."""
    return [[one.as_dict() for one in found] for found in capsar.load("fast").analyze(texts)]


def assert_exactly_once(rows: list[dict[str, Any]], texts: list[str]) -> None:
    """Assert that every row occurs once, with the result of a serial run."""
    assert [row["id"] for row in rows] == list(range(len(texts)))
    for row, expected in zip(rows, serial_results(texts), strict=True):
        assert row["error"] is None
        assert_equal_results(row["aspects"], expected)


def assert_equal_results(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Assert equal spans and polarities, and scores and confidences within 1e-4."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [one[name] for name in EXACT_FIELDS] == [other[name] for name in EXACT_FIELDS]
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-4)
        for name in ("confidence", "aspect_confidence"):
            assert one[name] == pytest.approx(other[name], abs=1e-4)

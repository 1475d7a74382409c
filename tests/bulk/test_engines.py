"""The examples for other engines, each with the real engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from corpora import assert_equal_results, reviews, serial_results, write

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PACKAGES = {"duckdb": "duckdb", "daft": "daft", "spark": "pyspark", "ray_data": ""}


@pytest.mark.integration
@pytest.mark.parametrize("engine", PACKAGES)
def test_example_scores_every_row_as_a_serial_run_does(engine: str, tmp_path: Path) -> None:
    texts = reviews(400)
    write(tmp_path / "in" / "a.parquet", texts)
    extra = tmp_path / "packages"
    if PACKAGES[engine]:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(extra)]
        subprocess.run([*pip, PACKAGES[engine]], check=True)
    source = tmp_path / "in" / ("*.parquet" if engine in ("duckdb", "daft") else "")
    target = tmp_path / ("out.parquet" if engine == "duckdb" else "out")
    example = EXAMPLES / f"{engine}_score.py"
    command = [sys.executable, example, source, target, "review", "id", "fast"]
    # After this environment: capsar and pyarrow are those that are tested.
    path = os.pathsep.join([*filter(None, sys.path), str(extra)])
    subprocess.run(
        list(map(str, command)), check=True, env=os.environ | {"PYTHONPATH": path}, timeout=300
    )
    rows = sorted(pq.read_table(target).to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(400))
    for row, expected in zip(rows, serial_results(texts), strict=True):
        assert_equal_results(row["aspects"], expected)

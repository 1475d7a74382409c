"""Large files are read in constant memory, in a fresh process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sizes import sized

import text as benchmark
from measure import RESULTS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xml", "csv"])
def test_memory_does_not_grow_with_the_file(kind: str, tmp_path: Path) -> None:
    size = sized(benchmark.FILE_BYTES[kind])
    metrics = benchmark.measure_reading(kind, size, tmp_path)
    assert metrics[f"{kind}_file_mb"] >= size / 1e6
    assert metrics[f"{kind}_memory_ratio"] < 1.1
    assert metrics[f"{kind}_peak_mb"] < 150


def test_the_committed_benchmark_has_the_full_size() -> None:
    metrics = json.loads((RESULTS / "reading.json").read_text())["metrics"]
    for kind, size in benchmark.FILE_BYTES.items():
        assert metrics[f"{kind}_file_mb"] >= size / 1e6
        assert metrics[f"{kind}_memory_ratio"] < 1.1
        assert metrics[f"{kind}_peak_mb"] < 150

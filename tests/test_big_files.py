"""Files larger than memory should ever see: read at their real size, in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

import reading as benchmark


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xml", "csv"])
def test_memory_does_not_grow_with_the_file(kind: str, tmp_path: Path) -> None:
    metrics = benchmark.measure(kind, benchmark.SIZES[kind], tmp_path)
    assert metrics[f"{kind}_file_mb"] >= {"xml": 200, "csv": 2000}[kind]
    assert metrics[f"{kind}_memory_ratio"] < 1.1
    assert metrics[f"{kind}_peak_mb"] < 150

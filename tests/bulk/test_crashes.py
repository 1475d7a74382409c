"""Crashes of workers, drivers, nodes and storage: every row is scored exactly once.

`benchmarks/bulk/faults.py` injects these and other faults at random moments.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import crashes
import pyarrow as pa
import pytest
from corpora import OPTIONS, assert_exactly_once, read_output, reviews, serial_results, write

from capsar.bulk.run import EngineOptions, score
from capsar.bulk.scoring import ASPECTS

ROWS = 3000
EXPECTED = {"rows": ROWS, "missing": 0, "duplicated": 0, "errors": 0, "different": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for first in range(0, ROWS, 500):
        write(folder / f"{first}.parquet", reviews(ROWS)[first : first + 500], first)
    return folder


@pytest.fixture(scope="module")
def expected() -> Any:
    return pa.array(serial_results(reviews(ROWS)), ASPECTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["worker", "driver"])
def test_crash_on_local_engine(kind: str, corpus: Path, expected: Any, tmp_path: Path) -> None:
    crash = getattr(crashes, f"crash_{kind}")
    found = crash(corpus, tmp_path / "out", "local", 2, ROWS, expected)
    assert found == (EXPECTED | {"not_skipped": 0} if kind == "driver" else EXPECTED)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["worker", "node"])
def test_crash_on_ray(kind: str, corpus: Path, expected: Any, tmp_path: Path) -> None:
    crash = getattr(crashes, f"crash_{kind}")
    assert crash(corpus, tmp_path / "out", "ray", 2, ROWS, expected) == EXPECTED


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_row_that_crashes_its_process_on_ray_affects_no_other_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    texts = reviews(300)
    write(tmp_path / "in" / "a.parquet", [*texts[:100], "poison that kills", *texts[101:]])
    faults = str(Path(__file__).parent / "fault_injection")
    existing = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([faults, *existing]))
    engine = EngineOptions("ray", workers=2)
    summary = score(str(tmp_path / "in"), str(tmp_path / "out"), OPTIONS, engine=engine)
    assert summary.errors == {"the process crashed": 1}
    rows = read_output(tmp_path / "out")
    assert rows[100]["error"] == "the process crashed: exit code -9"
    assert [row["id"] for row in rows if row["aspects"] is None] == [100]


@pytest.mark.integration
def test_remote_storage_is_killed_and_restarted(tmp_path: Path) -> None:
    import threading

    import pyarrow.dataset as pds

    from bulk.seaweed import seaweed

    texts = reviews(1000)
    content = write(tmp_path / "a.parquet", texts).read_bytes()
    with seaweed(tmp_path / "store") as weed:
        with weed.filesystem.open_output_stream("reviews/in/a.parquet") as stream:
            stream.write(content)
        source, target = (f"s3://reviews/{name}{weed.settings}" for name in ("in", "out"))
        outages = []

        def interrupt(_: object) -> None:
            if not outages:
                outages.append(weed.kill())
                threading.Timer(2, weed.start).start()

        two = EngineOptions(workers=2)
        options = replace(OPTIONS, shard_mb=0.005)
        summary = score(source, target, options, engine=two, on_progress=interrupt)
        assert (summary.rows, len(outages)) == (1000, 1)
        assert summary.shards > 3
        table = pds.dataset("reviews/out", format="parquet", filesystem=weed.filesystem).to_table()
        assert_exactly_once(sorted(table.to_pylist(), key=lambda row: row["id"]), texts)
        again = score(source, target, options, engine=two)
        assert again.shards_skipped == again.shards

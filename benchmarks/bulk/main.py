"""Bulk scoring: speed, memory, an object store, planning, Spark.

Each part adds its metrics to `results/bulk.json`:

    python benchmarks/bulk/main.py million [ROWS]         end to end; memory relative to 50,000 rows
    python benchmarks/bulk/main.py ratios [ROWS] [TURNS]  2 workers relative to 2 bare processes
    python benchmarks/bulk/main.py csv [ROWS]             real reviews in a CSV; killed at half time
    python benchmarks/bulk/main.py store [ROWS]           SeaweedFS, killed during the run
    python benchmarks/bulk/main.py planning [SHARDS]
    python benchmarks/bulk/main.py spark [ROWS]
    python benchmarks/bulk/main.py billion                extrapolation from `million`
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import capsar
from bulk.corpus import MODEL, check, predict_serially, texts_of, write_corpus
from bulk.seaweed import seaweed
from capsar.bulk.job import ScoreOptions
from capsar.bulk.run import EngineOptions, score
from capsar.data.catalog import data_folder
from measure import RESULTS, ROOT, peak_memory_mb, run_fresh, write_result

if TYPE_CHECKING:
    from capsar.bulk.run import JobProgress

SAMPLE = 20_000
MIN_CHARS = 150
OPTIONS = ScoreOptions(model=MODEL, text_column="review", keep=("id",), shard_mb=0.5)
PACKAGES = ("pyarrow", "onnxruntime", "ray")


class Watch:
    """The progress over time while all workers are busy, and the largest memory of a worker."""

    def __init__(self, *, memory: bool = False) -> None:
        self.times: list[tuple[float, int]] = []
        self.peak_mb = 0.0
        self._memory = memory

    def __call__(self, progress: JobProgress) -> None:
        """Record the progress of a job of two workers."""
        if progress.shards - progress.shards_done >= 2:
            self.times.append((time.perf_counter(), progress.rows))
        if self._memory:
            self.peak_mb = max(self.peak_mb, *map(peak_memory_mb, _worker_ids()), 0.0)

    def rows_per_second(self, skipped: int = 4) -> float:
        """Return the rate after start-up, without the first records."""
        (start, before), (end, after) = self.times[skipped], self.times[-1]
        return (after - before) / (end - start)


def _worker_ids() -> list[int]:
    import psutil

    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            if "capsar.bulk.worker" in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


def million(folder: Path, rows: int = 1_000_000) -> dict[str, float]:
    """Score a corpus end to end, and a small one to compare memory."""
    few, two = Watch(memory=True), EngineOptions(workers=2)
    source = write_corpus(folder / "few", 50_000)
    score(str(source), str(folder / "few-out"), OPTIONS, engine=two, on_progress=few)
    many = Watch(memory=True)
    source = write_corpus(folder / "many", rows)
    start = time.perf_counter()
    output = str(folder / "many-out")
    score(str(source), output, OPTIONS, engine=two, on_progress=many)
    seconds = time.perf_counter() - start
    sample = texts_of(source, min(rows, SAMPLE))
    found = check(output, rows, predict_serially(sample))
    size = sum(path.stat().st_size for path in Path(output).glob("*.parquet"))
    return {
        **{f"million_{name}": value for name, value in found.items()},
        "million_seconds": seconds,
        "million_rows_per_s_per_core": many.rows_per_second() / 2,
        "million_chars_per_row": statistics.mean(map(len, sample)),
        "million_output_bytes_per_row": size / rows,
        "million_output_files": len(list(Path(output).glob("*.parquet"))),
        "worker_peak_mb_50k": few.peak_mb,
        "worker_peak_mb": many.peak_mb,
        "worker_memory_ratio": many.peak_mb / few.peak_mb,
    }


def bare(source: str, index: int) -> None:
    """Run the Analyzer on every second file; print rows and seconds after start-up."""
    analyzer = capsar.load(MODEL)
    analyzer.analyze(["The soup was cold."])
    start, rows = time.perf_counter(), 0
    for path in sorted(Path(source).glob("*.parquet"))[index::2]:
        for batch in pq.ParquetFile(path).iter_batches(4096, columns=["review"]):
            rows += sum(1 for _ in analyzer.analyze_stream(batch.column(0).to_pylist()))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - start}))


def bare_rate(source: Path) -> float:
    """Return the rows per second of two bare processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "bare", str(source), str(index)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    found = [json.loads(process.communicate()[0]) for process in processes]
    return float(sum(one["rows"] / one["seconds"] for one in found))


def ratios(folder: Path, rows: int = 200_000, turns: int = 3) -> dict[str, float]:
    """Measure the rates of both engines relative to bare processes, in turn."""
    source = folder / "in"
    for index in range(4):  # both bare processes have the same number of files
        write_corpus(source / str(index), rows // 4)
        (source / str(index) / f"reviews-{0:010d}.parquet").rename(source / f"{index}.parquet")
    rates: dict[str, list[float]] = {"bare": [], "local": [], "ray": []}
    for turn in range(turns):
        rates["bare"].append(bare_rate(source))
        for engine in ("local", "ray"):
            watch = Watch()
            target = str(folder / f"{engine}-{turn}")
            score(
                str(source),
                target,
                OPTIONS,
                engine=EngineOptions(engine, 2),
                on_progress=watch,
            )
            rates[engine].append(watch.rows_per_second())
        print(rates, file=sys.stderr)
    pairs = {name: zip(rates[name], rates["bare"], strict=True) for name in ("local", "ray")}
    return {
        "bare_rows_per_s": statistics.median(rates["bare"]),
        **{f"{k}_over_bare": statistics.median(a / b for a, b in v) for k, v in pairs.items()},
    }


def csv(folder: Path, rows: int = 3_000) -> dict[str, float]:
    """Score product reviews in one CSV file with `base`, by one worker and two; then kill two."""
    source, texts = folder / "reviews.csv", unlabeled_reviews(rows)
    table = pa.table({"id": range(rows), "review": texts})
    pcsv.write_csv(table, source)
    seconds = {}
    for workers in (1, 2):
        start = time.perf_counter()
        subprocess.run(score_command(source, folder / f"out-{workers}", workers), check=True)
        seconds[workers] = time.perf_counter() - start
    output = folder / "killed"
    with subprocess.Popen(score_command(source, output, 2), start_new_session=True) as process:
        time.sleep(seconds[2] / 2)
        os.killpg(process.pid, signal.SIGKILL)
    kept = sum(pq.ParquetFile(path).metadata.num_rows for path in output.glob("*.parquet"))
    start = time.perf_counter()
    subprocess.run(score_command(source, output, 2), check=True)
    again = time.perf_counter() - start
    found = [int(number) for number in pq.read_table(output, columns=["id"])["id"].to_pylist()]
    return {
        "csv_rows": rows,
        "csv_mb": source.stat().st_size / 1e6,
        "csv_two_workers_speed": seconds[1] / seconds[2],
        "csv_kept_at_half": kept / rows,
        "csv_redone_at_most": max(0.0, 0.5 - kept / rows),  # at half time, half were scored
        "csv_seconds_after_kill_over_whole": again / seconds[2],
        "csv_missing_after_kill": len(set(range(rows)) - set(found)),
        "csv_doubled_after_kill": len(found) - len(set(found)),
    }


def score_command(source: Path, output: Path, workers: int) -> list[str]:
    """Return the command that scores a file with `base`."""
    options = ["--text-column", "review", "--keep", "id", "--workers", str(workers)]
    return [sys.executable, "-m", "capsar", "score", str(source), str(output), *options]


def unlabeled_reviews(number: int) -> list[str]:
    """Return product reviews that may be read for measuring only."""
    texts: list[str] = []
    files = sorted((data_folder() / "data" / "unlabelled" / "fdu-mtl").iterdir())
    for path in files:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        texts += [line for line in lines if len(line) > MIN_CHARS][: -(-number // len(files))]
    return texts[:number]


def store(folder: Path, rows: int = 20_000) -> dict[str, float]:
    """Score from and to an object store that is killed and restarted during the run."""
    local = write_corpus(folder / "in", rows, row_group=500)
    outages = 0
    with seaweed(folder / "store") as weed:
        for path in local.glob("*.parquet"):
            with weed.filesystem.open_output_stream(f"reviews/in/{path.name}") as stream:
                stream.write(path.read_bytes())

        def interrupt(progress: JobProgress) -> None:
            nonlocal outages
            if not outages and progress.shards_done >= progress.shards // 3:
                weed.kill()
                outages += 1
                threading.Timer(5, weed.start).start()

        options = ScoreOptions(model=MODEL, text_column="review", keep=("id",), shard_mb=0.05)
        summary = score(
            f"s3://reviews/in{weed.settings}",
            f"s3://reviews/out{weed.settings}",
            options,
            engine=EngineOptions(workers=2),
            on_progress=interrupt,
        )
        expected = predict_serially(texts_of(local, rows))
        found = check("reviews/out", rows, expected, weed.filesystem)
    return {
        **{f"store_{name}": value for name, value in found.items()},
        "store_outages": outages,
        "store_shards": summary.shards,
    }


def planning(folder: Path, shards: int = 200_000) -> dict[str, float]:
    """Plan shards, half of them row groups and half files, in a fresh process."""
    groups = 1000
    table = pa.table({"review": ["a review"] * groups, "id": range(groups)})
    first = folder / "in" / "groups-0.parquet"
    first.parent.mkdir(parents=True)
    pq.write_table(table, first, row_group_size=1)
    for index in range(1, shards // 2 // groups):
        (first.parent / f"groups-{index}.parquet").hardlink_to(first)
    for index in range(shards // 2 // 10_000):
        (folder / "in" / str(index)).mkdir()
        for part in range(10_000):
            small = folder / "in" / str(index) / f"{part}.jsonl"
            small.write_bytes(b'{"id": 1, "review": "a"}\n')
    return run_fresh(__file__, "plan", folder / "in", folder / "out")


def plan_once(source: str, output: str) -> None:
    """Plan a job and write the plan; print shards, time and memory."""
    from capsar.bulk.job import Job
    from capsar.bulk.manifest import open_manifest
    from capsar.bulk.planning import make_shards

    # With a shard size below that of a row group, each row group becomes a shard.
    job = Job.make(ScoreOptions(model=MODEL, text_column="review", shard_mb=0.000_03), output)
    start = time.perf_counter()
    manifest = open_manifest(job, [source])
    shards = [shard for file in manifest.planned for shard in make_shards(manifest.job, file)]
    metrics = {"planning_s": time.perf_counter() - start, "planning_peak_mb": peak_memory_mb()}
    start = time.perf_counter()
    again = open_manifest(job, [source])
    if [s for f in again.planned for s in make_shards(again.job, f)] != shards:
        raise SystemExit("The plan that was read differs from the one that was written")
    metrics["planning_again_s"] = time.perf_counter() - start
    print(json.dumps(metrics | {"planning_shards": len(shards)}))


def spark(folder: Path, rows: int = 100_000) -> dict[str, float]:
    """Run the Spark example."""
    source = write_corpus(folder / "in", rows)
    example = ROOT / "examples" / "spark_score.py"
    start = time.perf_counter()
    arguments = [sys.executable, example, source, folder / "out", "review", "id", MODEL]
    subprocess.run([str(argument) for argument in arguments], check=True)
    seconds = time.perf_counter() - start
    found = check(str(folder / "out"), rows, predict_serially(texts_of(source, 5_000)))
    return {f"spark_{name}": value for name, value in found.items()} | {"spark_seconds": seconds}


def billion(_: Path) -> dict[str, float]:
    """Extrapolate `million` to 10^9 reviews, and compare with the cost of an LLM.

    Prices are assumptions and are recorded with the results.
    """
    reviews, core_hour, files_mb = 1e9, 0.05, 8  # dollars; the default of --shard-mb
    paid_in, paid_out = 0.15, 0.60  # dollars for a million tokens of a small LLM
    known = json.loads((RESULTS / "bulk.json").read_bytes())["metrics"]
    slower = json.loads((RESULTS / "models.json").read_bytes())["metrics"]["fast_over_base"]
    hours = reviews / known["million_rows_per_s_per_core"] / 3600
    chars = known["million_chars_per_row"]
    tokens_in, tokens_out = 150 + chars / 4, 60  # instructions and review; response
    return {
        "billion_core_hours_fast": hours,
        "billion_core_hours_base": hours * slower,
        "billion_dollars_per_core_hour": core_hour,
        "billion_dollars_fast": hours * core_hour,
        "billion_dollars_base": hours * slower * core_hour,
        "billion_input_gb": reviews * chars / 1e9,
        "billion_output_gb": reviews * known["million_output_bytes_per_row"] / 1e9,
        "billion_files": reviews * chars / files_mb / 1e6,
        "billion_llm_tokens_in": tokens_in,
        "billion_llm_tokens_out": tokens_out,
        "billion_llm_dollars_per_million_in": paid_in,
        "billion_llm_dollars_per_million_out": paid_out,
        "billion_llm_dollars": reviews * (tokens_in * paid_in + tokens_out * paid_out) / 1e6,
    }


def main(part: str, *arguments: str) -> None:
    parts: dict[str, Any] = {
        f.__name__: f for f in (million, ratios, csv, store, planning, spark, billion)
    }
    values = [int(text) if text.isdecimal() else text for text in arguments]
    packages = (*PACKAGES, "pyspark") if part == "spark" else PACKAGES
    with tempfile.TemporaryDirectory() as folder:
        metrics = parts[part](Path(folder), *values)
    name = "-".join([part, *(text for text in arguments if not text.isdecimal())])
    write_result("bulk", metrics, packages, part=name)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["bare", source, index]:
            bare(source, int(index))
        case ["plan", source, output]:
            plan_once(source, output)
        case [part, *arguments]:
            main(part, *arguments)
        case _:
            print(__doc__)

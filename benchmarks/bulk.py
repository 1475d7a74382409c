"""Bulk scoring: speed against bare processes, memory, deaths, planning, a store, Spark.

Each part runs alone and adds its figures to `results/bulk.json`:

    python benchmarks/bulk.py million [ROWS]           end to end; memory against 50,000 rows
    python benchmarks/bulk.py ratios [ROWS] [TURNS]    2 workers against 2 bare processes
    python benchmarks/bulk.py deaths KIND ENGINE [MOMENTS] [ROWS]    worker, driver or node
    python benchmarks/bulk.py store [ROWS]             in SeaweedFS, killed in mid-run
    python benchmarks/bulk.py planning [FRAGMENTS]
    python benchmarks/bulk.py spark [ROWS]
    python benchmarks/bulk.py billion                  arithmetic on the figures of `million`
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import bulk_deaths
import capsar
from bulk_corpus import MODEL, check, serial_answers, texts_of, write_corpus
from capsar.bulk.job import ScoreOptions
from capsar.bulk.run import Engine, score
from measure import peak_memory_mb, run_fresh, write_result
from seaweed import seaweed

if TYPE_CHECKING:
    from capsar.bulk.summary import Progress

SAMPLE = 20_000
OPTIONS = ScoreOptions(model=MODEL, text_column="review", keep=("id",), fragment_mb=0.5)
PACKAGES = ("pyarrow", "onnxruntime", "ray")


class Watch:
    """When how many rows were done, and the largest memory of any worker of ours."""

    def __init__(self) -> None:
        self.times: list[tuple[float, int]] = []
        self.peak_mb = 0.0

    def __call__(self, progress: Progress) -> None:
        """Note how far a job is."""
        self.times.append((time.perf_counter(), progress.rows))
        self.peak_mb = max(self.peak_mb, *map(_peak_mb, _worker_ids()), 0.0)

    def rows_per_second(self, skipped: int = 4) -> float:
        """The rate after start-up: from the report number `skipped` to the last."""
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


def _peak_mb(process: int) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0  # it has ended
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def million(folder: Path, rows: int = 1_000_000) -> dict[str, float]:
    """Score a corpus end to end, and a small one for its memory."""
    few, two = Watch(), Engine(workers=(2, 2))
    source = write_corpus(folder / "few", 50_000)
    score(str(source), str(folder / "few-out"), OPTIONS, engine=two, on_progress=few)
    many = Watch()
    source = write_corpus(folder / "many", rows)
    start = time.perf_counter()
    output = str(folder / "many-out")
    score(str(source), output, OPTIONS, engine=two, on_progress=many)
    seconds = time.perf_counter() - start
    sample = texts_of(source, min(rows, SAMPLE))
    found = check(output, rows, serial_answers(sample))
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
    """Run the Analyzer on every other file, and print rows and seconds after start-up."""
    analyzer = capsar.load(MODEL)
    analyzer.analyze(["The soup was cold."])
    start, rows = time.perf_counter(), 0
    for path in sorted(Path(source).glob("*.parquet"))[index::2]:
        for batch in pq.ParquetFile(path).iter_batches(4096, columns=["review"]):
            rows += sum(1 for _ in analyzer.analyze_stream(batch.column(0).to_pylist()))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - start}))


def bare_rate(source: Path) -> float:
    """Rows a second of two bare processes."""
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
    """Rates of both engines over that of bare processes, in turn."""
    source = folder / "in"
    for index in range(4):  # the files of both bare processes are equally many
        write_corpus(source / str(index), rows // 4)
        (source / str(index) / f"reviews-{0:010d}.parquet").rename(source / f"{index}.parquet")
    rates: dict[str, list[float]] = {"bare": [], "local": [], "ray": []}
    for turn in range(turns):
        rates["bare"].append(bare_rate(source))
        for engine in ("local", "ray"):
            watch = Watch()
            target = str(folder / f"{engine}-{turn}")
            score(str(source), target, OPTIONS, engine=Engine(engine, (2, 2)), on_progress=watch)
            rates[engine].append(watch.rows_per_second())
        print(rates, file=sys.stderr)
    pairs = {name: zip(rates[name], rates["bare"], strict=True) for name in ("local", "ray")}
    return {
        "bare_rows_per_s": statistics.median(rates["bare"]),
        **{f"{k}_over_bare": statistics.median(a / b for a, b in v) for k, v in pairs.items()},
    }


def deaths(
    folder: Path, kind: str, engine: str, moments: int = 10, rows: int = 20_000
) -> dict[str, float]:
    """Kill at random moments, and add up what is missing, doubled or unequal."""
    source = write_corpus(folder / "in", rows, row_group=500)
    expected = serial_answers(texts_of(source, rows))
    die = getattr(bulk_deaths, f"{kind}_death")
    found: list[dict[str, float]] = []
    for moment in range(moments):
        at = random.randrange(rows // 600)
        found.append(die(source, folder / f"out-{moment}", engine, at, rows, expected))
        print(kind, engine, moment, at, found[-1], file=sys.stderr)
    name = f"{kind}_{engine}"
    sums = ("missing", "doubled", "unequal", "errors", "not_skipped", "killed")
    return {
        **{f"{name}_{key}": float(sum(one[key] for one in found)) for key in sums},
        f"{name}_moments": moments,
        f"{name}_rows": rows,
        f"{name}_rework_share": statistics.mean(one["rework_share"] for one in found),
    }


def store(folder: Path, rows: int = 20_000) -> dict[str, float]:
    """Score from and to a real object store that is killed, and started again, in mid-run."""
    local = write_corpus(folder / "in", rows, row_group=500)
    outages = 0
    with seaweed(folder / "store") as weed:
        for path in local.glob("*.parquet"):
            with weed.filesystem.open_output_stream(f"reviews/in/{path.name}") as stream:
                stream.write(path.read_bytes())

        def interrupt(progress: Progress) -> None:
            nonlocal outages
            if progress.fragments_done == progress.fragments // 3:
                weed.kill()
                outages += 1
                threading.Timer(5, weed.start).start()

        options = ScoreOptions(model=MODEL, text_column="review", keep=("id",), fragment_mb=0.05)
        summary = score(
            f"s3://reviews/in{weed.settings}",
            f"s3://reviews/out{weed.settings}",
            options,
            engine=Engine(workers=(2, 2)),
            on_progress=interrupt,
        )
        expected = serial_answers(texts_of(local, rows))
        found = check("reviews/out", rows, expected, weed.filesystem)
    return {
        **{f"store_{name}": value for name, value in found.items()},
        "store_outages": outages,
        "store_fragments": summary.fragments,
    }


def planning(folder: Path, fragments: int = 200_000) -> dict[str, float]:
    """Plan so many fragments, half of them row groups and half files, in a fresh process."""
    groups = 1000
    table = pa.table({"review": ["a review"] * groups, "id": range(groups)})
    first = folder / "in" / "groups-0.parquet"
    first.parent.mkdir(parents=True)
    pq.write_table(table, first, row_group_size=1)
    for index in range(1, fragments // 2 // groups):
        (first.parent / f"groups-{index}.parquet").hardlink_to(first)
    for index in range(fragments // 2 // 10_000):
        (folder / "in" / str(index)).mkdir()
        for part in range(10_000):
            small = folder / "in" / str(index) / f"{part}.jsonl"
            small.write_bytes(b'{"id": 1, "review": "a"}\n')
    return run_fresh(__file__, "plan", folder / "in", folder / "out")


def plan_once(source: str, output: str) -> None:
    """Plan a job and write the plan; print how many fragments, how long and how much memory."""
    from capsar.bulk.job import Job
    from capsar.bulk.ledger import open_ledger

    # Each row group is a fragment of its own if a fragment is smaller than any of them.
    job = Job.make(ScoreOptions(model=MODEL, text_column="review", fragment_mb=0.000_03), output)
    start = time.perf_counter()
    ledger = open_ledger(job, [source])
    metrics = {"planning_s": time.perf_counter() - start, "planning_peak_mb": peak_memory_mb()}
    start = time.perf_counter()
    again = open_ledger(job, [source])
    if again != ledger:
        raise SystemExit("a plan that was read is not the one that was made")
    metrics["planning_again_s"] = time.perf_counter() - start
    print(json.dumps(metrics | {"planning_fragments": len(ledger.fragments)}))


def spark(folder: Path, rows: int = 100_000) -> dict[str, float]:
    """Run the Spark example for real."""
    source = write_corpus(folder / "in", rows)
    example = Path(__file__).parent.parent / "examples" / "spark_score.py"
    start = time.perf_counter()
    arguments = [sys.executable, example, source, folder / "out", "review", "id", MODEL]
    subprocess.run([str(argument) for argument in arguments], check=True)
    seconds = time.perf_counter() - start
    found = check(str(folder / "out"), rows, serial_answers(texts_of(source, 5_000)))
    return {f"spark_{name}": value for name, value in found.items()} | {"spark_seconds": seconds}


def billion(_: Path) -> dict[str, float]:
    """Say what 10^9 reviews like those of `million` need, and what an LLM would be paid for them.

    Prices are assumptions, written beside what they lead to.
    """
    reviews, core_hour, files_mb = 1e9, 0.05, 8  # dollars; the default of --fragment-mb
    paid_in, paid_out = 0.15, 0.60  # dollars for a million tokens of a small LLM
    results = Path(__file__).parent / "results"
    known = json.loads((results / "bulk.json").read_bytes())["metrics"]
    slower = json.loads((results / "models.json").read_bytes())["metrics"]["fast_over_base"]
    hours = reviews / known["million_rows_per_s_per_core"] / 3600
    chars = known["million_chars_per_row"]
    tokens_in, tokens_out = 150 + chars / 4, 60  # instructions and the review; the answer
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
        f.__name__: f for f in (million, ratios, deaths, store, planning, spark, billion)
    }
    values = [int(text) if text.isdecimal() else text for text in arguments]
    packages = (*PACKAGES, "pyspark") if part == "spark" else PACKAGES
    with tempfile.TemporaryDirectory() as folder:
        metrics = parts[part](Path(folder), *values)
    name = "-".join([part, *(text for text in arguments if not text.isdecimal())])
    write_result("bulk", {key: float(value) for key, value in metrics.items()}, packages, part=name)


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

"""Bulk scoring under random faults: does `_SUCCESS` ever stand beside a wrong output?

    python benchmarks/bulk/faults.py [TRIALS] [SEED] [FAULT]

Each trial writes an input in random formats, starts `capsar score` on the local engine or on Ray,
and injects one fault at a random moment. If the job ends without `_SUCCESS`, the fault is undone
and the same command is run again. `results/faults.json` counts trials by fault and by their end:
`success` (at once), `resumed` (after further runs), `refused` (exit code 2 with a message, because
results of two versions or two jobs would be mixed), `failed`, and `wrong` (`_SUCCESS` beside a
missing, doubled or wrong row). Trials are appended to `runs/faults.jsonl` and not repeated. With
the name of a fault, all trials inject it, and the files are named `faults-FAULT`.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import capsar
from bulk.corpus import EXACT, reviews
from bulk.seaweed import seaweed
from measure import ROOT, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Fault = Callable[["Trial"], list[int]]

LOGS = ROOT / "runs"
ROWS, MANY_ROWS = 5_000, 20_000
FORMATS = (".parquet", ".csv", ".jsonl", ".csv.gz")
MAX_RUNS = 4
SUCCESS, RESUMED, REFUSED, FAILED, WRONG = "success", "resumed", "refused", "failed", "wrong"
REFUSED_CODE = 2


@dataclass
class Trial:
    """The input and the command of one trial."""

    folder: Path
    engine: str
    texts: list[str]
    chance: random.Random
    model: str = "fast"
    target: str = ""
    address: str = ""

    @property
    def output(self) -> str:
        """The output folder."""
        return self.target or str(self.folder / "out")

    def command(self, model: str = "") -> list[str]:
        """Return the command of the job. A worker that hangs is replaced after 20 seconds."""
        words = ["-m", "capsar", "score", str(self.folder / "in"), self.output]
        words += ["--model", model or self.model, "--text-column", "review", "--keep", "id"]
        words += ["--engine", self.engine, "--workers", "2", "--worker-timeout", "20"]
        words += ["--address", self.address] if self.address else []
        return [sys.executable, *words]

    def start(self, model: str = "") -> subprocess.Popen[bytes]:
        """Start the job."""
        log = (self.folder / "log").open("ab")
        return subprocess.Popen(
            self.command(model),
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )

    def wait_for(self, name: str, job: subprocess.Popen[bytes]) -> None:
        """Wait until the job has made a file or a folder in its output."""
        while job.poll() is None and not (Path(self.output) / name).exists():
            time.sleep(0.01)

    def wait_randomly(self, job: subprocess.Popen[bytes]) -> None:
        """Wait for a random moment of the job."""
        end = time.monotonic() + self.chance.uniform(0, 4 + len(self.texts) / 1500)
        while time.monotonic() < end and job.poll() is None:
            time.sleep(0.02)

    def write(self, first: int, texts: list[str], ending: str) -> Path:
        """Write one input file."""
        path = self.folder / "in" / f"part-{first:06}{ending}"
        path.parent.mkdir(exist_ok=True)
        ids = range(first, first + len(texts))
        if ending == ".parquet":
            size = self.chance.choice((300, 5000))
            pq.write_table(pa.table({"id": ids, "review": texts}), path, row_group_size=size)
            return path
        opened = gzip.open if ending.endswith("gz") else open
        with opened(path, "wt", encoding="utf-8", newline="") as stream:
            if ending == ".jsonl":
                for number, text in zip(ids, texts, strict=True):
                    stream.write(json.dumps({"id": number, "review": text}) + "\n")
            else:
                rows = csv.writer(stream)
                rows.writerow(["id", "review"])
                rows.writerows(zip(ids, texts, strict=True))
        return path

    def write_input(self) -> None:
        """Write all input files."""
        parts = self.chance.choice((1, 2, 5))
        size = -(-len(self.texts) // parts)
        for first in range(0, len(self.texts), size):
            self.write(first, self.texts[first : first + size], self.chance.choice(FORMATS))

    def files(self) -> list[Path]:
        """Return the input files."""
        return sorted((self.folder / "in").iterdir())

    def workers(self, job: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Return the workers of a job."""
        found = []
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(job.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any(name in " ".join(process.cmdline()) for name in _WORKER_NAMES):
                        found.append(process)
        return found


_WORKER_NAMES = ("capsar.bulk.worker", "ShardActor")


def kill_worker(trial: Trial) -> list[int]:
    """Kill one to three workers."""
    job = trial.start()
    for _ in range(trial.chance.randint(1, 3)):
        trial.wait_randomly(job)
        for process in trial.workers(job)[:1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
    return [job.wait()]


def stop_worker(trial: Trial) -> list[int]:
    """Stop a worker without killing it."""
    job = trial.start()
    trial.wait_randomly(job)
    for process in trial.workers(job)[:1]:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    return [job.wait()]


def kill_driver(trial: Trial) -> list[int]:
    """Kill the driver, or the whole machine."""
    job = trial.start()
    trial.wait_randomly(job)
    if trial.chance.random() < 0.5:
        job.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        for process in trial.workers(job):
            with contextlib.suppress(psutil.Error):
                process.kill()
    return [job.wait()]


def kill_node(trial: Trial) -> list[int]:
    """Kill one of the two nodes of a Ray cluster, with the worker on it."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        trial.address = cluster.address
        job = trial.start()
        trial.wait_for("_job/scratch", job)  # workers have begun
        trial.wait_randomly(job)
        cluster.remove_node(second, allow_graceful=False)
        return [job.wait()]
    finally:
        trial.address = ""
        cluster.shutdown()


def terminate(trial: Trial) -> list[int]:
    """Ask the driver to stop."""
    job = trial.start()
    trial.wait_randomly(job)
    job.send_signal(trial.chance.choice((signal.SIGTERM, signal.SIGINT)))
    return [job.wait()]


def equal_jobs(trial: Trial) -> list[int]:
    """Start the same job twice."""
    jobs = [trial.start()]
    time.sleep(trial.chance.uniform(0, 6))
    jobs.append(trial.start())
    return [job.wait() for job in jobs]


def different_jobs(trial: Trial) -> list[int]:
    """Start two jobs with different models at one output."""
    jobs = [trial.start()]
    time.sleep(trial.chance.choice((0, trial.chance.uniform(0, 6))))
    jobs.append(trial.start("base"))
    codes = [job.wait() for job in jobs]
    if codes[0] == REFUSED_CODE:  # the other job was first: it is the one to check
        trial.model = "base"
    return codes


def rewrite_input(trial: Trial) -> list[int]:
    """Rewrite a file in place, with other texts."""
    return _change_input(trial, lambda path: _rewrite(trial, path))


def _rewrite(trial: Trial, path: Path) -> None:
    content = path.read_bytes()
    with path.open("r+b") as stream:
        stream.seek(int(len(content) * trial.chance.uniform(0, 0.9)))
        stream.write(content[len(content) // 2 :])


def truncate_input(trial: Trial) -> list[int]:
    """Cut a file off."""
    return _change_input(trial, lambda path: os.truncate(path, path.stat().st_size // 2))


def remove_input(trial: Trial) -> list[int]:
    """Remove a file."""
    return _change_input(trial, lambda path: path.unlink())


def _change_input(trial: Trial, change: Callable[[Path], None]) -> list[int]:
    job = trial.start()
    # A file that changes before the job is planned is simply another input.
    trial.wait_for("_job/job.json", job)
    trial.wait_randomly(job)
    path = trial.chance.choice(trial.files())
    content = path.read_bytes()
    change(path)
    code = job.wait()
    if not has_succeeded(trial):
        path.write_bytes(content)  # the next run finds another version of the file
    return [code]


@contextlib.contextmanager
def small_disk(folder: Path, chance: random.Random) -> Iterator[Path]:
    """Mount a disk that is too small for an output, and enlarge it at the end."""
    disk = folder / "disk"
    disk.mkdir()
    size = f"size={chance.randint(60, 900)}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)


def full_disk(trial: Trial) -> list[int]:
    """Write to a disk that is too small."""
    with small_disk(trial.folder, trial.chance) as disk:
        trial.target = str(disk / "out")
        return [trial.start().wait()]


def kill_store(trial: Trial) -> list[int]:
    """Kill the store during the job, and restart it."""
    with seaweed(trial.folder / "store") as weed:
        trial.target = f"s3://reviews/out{weed.settings}"
        job = trial.start()
        trial.wait_randomly(job)
        weed.kill()
        time.sleep(trial.chance.uniform(1, 5))
        weed.start()
        codes = [job.wait()]
        while not weed_succeeded(weed) and len(codes) < MAX_RUNS:
            codes.append(trial.start().wait())
        local = trial.folder / "copied"
        local.mkdir()
        for entry in weed.filesystem.get_file_info(_selector()):
            if entry.is_file:
                with weed.filesystem.open_input_stream(entry.path) as stream:
                    (local / entry.base_name).write_bytes(stream.read())
    trial.target = str(local)
    return codes


def _selector() -> Any:  # noqa: ANN401
    from pyarrow import fs

    return fs.FileSelector("reviews/out", recursive=False)


def weed_succeeded(weed: Any) -> bool:  # noqa: ANN401
    """Return whether the job in the store has succeeded."""
    return bool(weed.filesystem.get_file_info("reviews/out/_SUCCESS").is_file)


def bad_rows(trial: Trial) -> list[int]:
    """Add unclosed quotes and bytes that are not UTF-8; only these rows may be lost."""
    number = len(trial.texts)
    path = trial.folder / "in" / "bad.csv"
    good = [f"{number + index},{'good soup '}" for index in range(200)]
    good[50] = f'{number + 50},"never closed'
    lines = "\n".join(["id,review", *good]).encode() + b"\n" + b"%d,caf\xe9\n" % (number + 200)
    path.write_bytes(lines)
    trial.texts += [""] * 201  # the rows of this file have no expected aspects
    job = trial.start()
    return [job.wait()]


def mixed_schemas(trial: Trial) -> list[int]:
    """Add a Parquet file whose ids are strings."""
    number = len(trial.texts)
    table = pa.table({"id": [str(number + i) for i in range(50)], "review": trial.texts[:50]})
    pq.write_table(table, trial.folder / "in" / "strings.parquet")
    trial.texts += trial.texts[:50]
    return [trial.start().wait()]


FAULTS = (
    kill_worker, stop_worker, kill_driver, kill_node, terminate, equal_jobs, different_jobs,
    rewrite_input, truncate_input, remove_input, full_disk, kill_store, bad_rows, mixed_schemas,
)  # fmt: skip


def has_succeeded(trial: Trial) -> bool:
    """Return whether the local output has a success marker."""
    return "://" not in trial.output and (Path(trial.output) / "_SUCCESS").exists()


def is_right(trial: Trial, expected: dict[str, dict[str, Any]]) -> bool:
    """Return whether each row occurs once, with the predictions of a serial run."""
    table = pds.dataset(trial.output, format="parquet").to_table()
    rows = table.select(["id", "aspects", "error"]).to_pylist()
    ids = Counter(int(row["id"]) for row in rows if row["id"] is not None)
    lost = sum(row["id"] is None for row in rows)
    if len(rows) != len(trial.texts) or len(ids) + lost != len(rows) or lost > 1:
        return False
    for row in rows:
        text = "" if row["id"] is None else trial.texts[int(row["id"])]
        if not text:
            continue
        if row["error"] is not None:
            return False
        found = [tuple(one[name] for name in EXACT) for one in row["aspects"]]
        if found != expected[trial.model][text]:
            return False
    return True


def run_trial(
    number: int, seed: int, faults: Sequence[Fault], expected: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Run one trial and return how it ended."""
    chance = random.Random(f"{seed}-{number}")
    fault = faults[number % len(faults)]
    is_large = number % 9 == 0
    pool = list(expected["fast"])
    uses_base = fault is different_jobs  # with `base`, fewer rows take as long
    rows = MANY_ROWS if is_large and not uses_base else ROWS
    is_on_ray = fault is kill_node or (number % 5 == 4 and fault is not kill_store)
    engine = "ray" if is_on_ray else "local"
    with tempfile.TemporaryDirectory() as folder:
        texts = [chance.choice(pool[:300] if uses_base else pool) for _ in range(rows)]
        trial = Trial(Path(folder), engine, texts, chance)
        trial.write_input()
        start = time.monotonic()
        try:
            codes = fault(trial)
            while not has_succeeded(trial) and len(codes) < MAX_RUNS:
                codes.append(trial.start().wait())
                if codes[-1] == REFUSED_CODE:
                    break
            if has_succeeded(trial):
                right = is_right(trial, expected)
                is_first = len(codes) == 1 or fault in (equal_jobs, different_jobs)
                end = (SUCCESS if is_first else RESUMED) if right else WRONG
            else:
                end = REFUSED if codes[-1] == REFUSED_CODE else FAILED
        finally:
            if (Path(folder) / "disk").exists():
                subprocess.run(["umount", Path(folder) / "disk"], check=True)
        log = (Path(folder) / "log").read_text(errors="replace")[-2000:]
        kept = {"log": log} if end in (WRONG, FAILED) else {}
        if end == WRONG:
            shutil.copytree(folder, LOGS / f"wrong-{number}", dirs_exist_ok=True)
    return {
        "number": number,
        "fault": fault.__name__,
        "engine": engine,
        "rows": rows,
        "end": end,
        "codes": codes,
        "seconds": round(time.monotonic() - start, 1),
    } | kept


def predict(texts: list[str], model: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the aspects of each text by a serial run."""
    found = capsar.load(model).analyze(texts)
    return {
        text: [(a.text, a.start, a.end, str(a.polarity)) for a in aspects]
        for text, aspects in zip(texts, found, strict=True)
    }


def main(trials: str = "200", seed: str = "0", *only: str) -> None:
    name = "-".join(("faults", *only))
    faults = [fault for fault in FAULTS if not only or fault.__name__ in only]
    if not faults:
        raise SystemExit(f"There is no fault {' '.join(only)!r}")
    log = LOGS / f"{name}.jsonl"
    texts = list(dict.fromkeys(reviews(4_000)))
    expected = {"fast": predict(texts, "fast"), "base": predict(texts[:300], "base")}
    LOGS.mkdir(exist_ok=True)
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    done = {row["number"]: row for row in map(json.loads, lines)}
    for number in range(int(trials)):
        if number not in done:
            done[number] = run_trial(number, int(seed), faults, expected)
            print(json.dumps(done[number]), file=sys.stderr, flush=True)
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(done[number]) + "\n")
    rows = [done[number] for number in range(int(trials))]
    ends: dict[str, Any] = {
        fault.__name__: dict(Counter(r["end"] for r in rows if r["fault"] == fault.__name__))
        for fault in faults
    }
    codes = Counter(str(code) for r in rows for code in r["codes"])
    write_result(
        name,
        {
            "trials": len(rows),
            "wrong_successes": sum(r["end"] == WRONG for r in rows),
            "failed": sum(r["end"] == FAILED for r in rows),
            "trials_on_ray": sum(r["engine"] == "ray" for r in rows),
            "trials_of_20000_rows": sum(r["rows"] == MANY_ROWS for r in rows),
        },
        ("pyarrow", "onnxruntime", "ray"),
        facts={"ends": ends, "exit_codes": dict(sorted(codes.items()))},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

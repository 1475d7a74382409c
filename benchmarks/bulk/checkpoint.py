"""Ray Data's own checkpoints under faults: does a driver ever exit with 0 beside a wrong output?

    python benchmarks/bulk/checkpoint.py [NUMBER ...]

Each trial runs `read_parquet`, `map_batches(Score)` and `write_parquet` with
`ray.data.checkpoint.CheckpointConfig` as a separate driver on one small cluster, injects one fault,
and starts the driver again if it has not succeeded. An output is right if it has each row of the
current input once, scored from its current text by the model of the last driver, with the
predictions of a serial run. `results/checkpoint.json` has the same ends as `faults.py`. Trials are
appended to `runs/checkpoint.jsonl` and not repeated; all of them are counted. The number of a trial
selects its fault (modulo the number of faults) and is its seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import capsar
from bulk.corpus import EXACT, reviews
from bulk.faults import FAILED, REFUSED, RESUMED, SUCCESS, WRONG, predict, small_disk
from capsar.bundle import CONFIG, MANIFEST, find_bundle, write_bundle
from measure import ROOT, write_result

LOG = ROOT / "runs" / "checkpoint.jsonl"
ROWS, FILES, BLOCKS, TEXTS = 5_000, 5, 20, 1_500
MAX_RUNS = 3
DEADLINE_SECONDS, HUNG_CODE = 300, 124
PROBLEMS = ("missing", "duplicated", "extra", "other_text", "other_model", "different")
RAY = {"logging_level": "error", "log_to_driver": False}
LOCAL_RAY = RAY | {
    "address": "local",
    "num_cpus": 4,  # logical: room for the actors and tasks of two drivers at once
    "include_dashboard": False,
    "object_store_memory": 250 * 2**20,
}


class Score:
    """An actor that scores batches, names the model, and logs how many rows it scored."""

    def __init__(self, options: capsar.ScoreOptions, log: str) -> None:
        self._options, self._log = options, log

    def __call__(self, batch: Any) -> Any:  # noqa: ANN401  (Arrow has no types)
        """Return the kept columns with `aspects`, `error` and `model`."""
        scored = capsar.score_batch(batch, self._options)
        with Path(self._log).open("a", encoding="utf-8") as stream:
            stream.write(f"{len(scored)}\n")
        name = Path(self._options.model).name
        return scored.append_column("model", pa.array([name] * len(scored)))


def drive(folder: str, output: str, model: str, address: str, deletes: str) -> None:
    """Score the input of a trial: the driver process."""
    import ray
    from ray.data.checkpoint import CheckpointConfig

    is_local = address == "local"
    settings = (
        LOCAL_RAY | {"_temp_dir": f"{folder}/ray"} if is_local else RAY | {"address": address}
    )
    ray.init(**settings)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.use_datasource_v2 = False  # its readers are five more processes
    context.checkpoint_config = CheckpointConfig(
        "id", f"{output}-checkpoint", delete_checkpoint_on_success=deletes == "True"
    )
    is_csv = any(Path(folder, "in").glob("*.csv"))
    read = ray.data.read_csv if is_csv else ray.data.read_parquet
    kept = ("version",) if is_csv else ("id", "version")
    options = capsar.ScoreOptions(model=model, text_column="review", keep=kept)
    read(f"{folder}/in", override_num_blocks=BLOCKS).map_batches(
        Score,
        fn_constructor_args=[options, f"{folder}/scored"],
        batch_format="pyarrow",
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).write_parquet(output)


@dataclass
class Trial:
    """The input, the drivers and the current state of one trial."""

    folder: Path
    address: str
    pool: list[str]
    chance: random.Random
    other_model: str
    model: str = "fast"
    target: str = ""
    deletes: bool = False
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The (id, version of the text) of each row of the current input."""
    victim: str = ""
    """The command line of the killed process."""

    @property
    def output(self) -> Path:
        """The output folder."""
        return Path(self.target or self.folder / "out")

    def text(self, number: int, version: int) -> str:
        """Return a version of the text of a row."""
        return self.pool[(number + version * 700) % len(self.pool)]

    def write(self, part: int, version: int = 1, *, modulus: int = ROWS, ending: str = "") -> None:
        """Write one input file."""
        size = ROWS // FILES
        ids = [number % modulus for number in range(part * size, (part + 1) * size)]
        columns = {"version": [version] * size, "review": [self.text(i, version) for i in ids]}
        path = self.folder / "in" / f"part-{part}{ending or '.parquet'}"
        path.parent.mkdir(exist_ok=True)
        if ending:
            pc.write_csv(pa.table(columns), path)
        else:
            pq.write_table(pa.table({"id": ids} | columns), path, row_group_size=size // 4)
            self.rows.update((number, version) for number in ids)

    def start(self, address: str = "") -> subprocess.Popen[bytes]:
        """Start a driver."""
        words = [self.folder, self.output, self.model, address or self.address, self.deletes]
        return subprocess.Popen(
            [sys.executable, __file__, "drive", *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log").open("ab"),
            start_new_session=True,
        )

    def wait(self, driver: subprocess.Popen[bytes]) -> int:
        """Return the exit code of a driver, and kill one that hangs."""
        try:
            return driver.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            kill(driver.pid)
            driver.wait()
            return HUNG_CODE

    def wait_randomly(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for a random moment at which a part of the blocks is finished."""
        number = self.chance.randint(1, BLOCKS * 3 // 4)
        folder = self.output.with_name(f"{self.output.name}-checkpoint")
        while driver.poll() is None and len(list(folder.glob("*.parquet"))) < number:
            time.sleep(0.02)
        time.sleep(self.chance.uniform(0, 1))

    def kill_driver(self) -> int:
        """Kill a driver at a random moment."""
        driver = self.start()
        self.wait_randomly(driver)
        driver.kill()
        return driver.wait()


def kill(process_id: int) -> None:
    """Kill a process with its descendants."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(process_id)
        for process in [*parent.children(recursive=True), parent]:
            with contextlib.suppress(psutil.Error):
                process.kill()


def find(process_id: int, *names: str) -> list[psutil.Process]:
    """Return the descendants of a process with one of the names in their command line."""
    found = []
    for process in psutil.Process(process_id).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(name in " ".join(process.cmdline()) for name in names):
                found.append(process)
    return found


def no_fault(trial: Trial) -> list[int]:
    """Run the driver once."""
    return [trial.wait(trial.start())]


def kill_driver(trial: Trial) -> list[int]:
    """Kill the driver; its cluster stays."""
    return [trial.kill_driver()]


def kill_worker(trial: Trial) -> list[int]:
    """Kill an actor or a task that writes."""
    driver = trial.start()
    trial.wait_randomly(driver)
    worker = trial.chance.choice(find(os.getpid(), "ray::MapWorker", "ray::Write"))
    trial.victim = " ".join(worker.cmdline()).strip()
    worker.kill()
    return [trial.wait(driver)]


def kill_raylet(trial: Trial) -> list[int]:
    """Kill the raylet of a cluster that the driver started."""
    driver = trial.start("local")
    trial.wait_randomly(driver)
    left = psutil.Process(driver.pid).children(recursive=True)
    find(driver.pid, "raylet/raylet")[0].kill()
    code = trial.wait(driver)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return [code]


def pause_worker(trial: Trial) -> list[int]:
    """Stop the actor for ten seconds."""
    driver = trial.start()
    trial.wait_randomly(driver)
    for process in find(os.getpid(), "ray::MapWorker(MapBatches(Score))"):
        process.send_signal(signal.SIGSTOP)
        time.sleep(10)
        process.send_signal(signal.SIGCONT)
    return [trial.wait(driver)]


def rewrite_input(trial: Trial) -> list[int]:
    """Kill the driver and rewrite the first file: other texts, same ids."""
    code = trial.kill_driver()
    trial.rows.subtract((number, 1) for number in range(ROWS // FILES))
    trial.write(0, 2)
    return [code]


def remove_input(trial: Trial) -> list[int]:
    """Kill the driver and remove the file that is being scored."""
    code = trial.kill_driver()
    done = len(list(trial.output.glob("*.parquet"))) * FILES // BLOCKS
    trial.rows.subtract((done * ROWS // FILES + number, 1) for number in range(ROWS // FILES))
    (trial.folder / "in" / f"part-{done}.parquet").unlink()
    return [code]


def truncate_input(trial: Trial) -> list[int]:
    """Kill the driver and cut the last file off, until a second driver has ended."""
    codes = [trial.kill_driver()]
    path = trial.folder / "in" / f"part-{FILES - 1}.parquet"
    content = path.read_bytes()
    os.truncate(path, len(content) // 2)
    codes.append(trial.wait(trial.start()))
    path.write_bytes(content)
    return codes


def other_model(trial: Trial) -> list[int]:
    """Kill the driver and continue with another model."""
    code = trial.kill_driver()
    trial.model = trial.other_model
    return [code]


def equal_drivers(trial: Trial) -> list[int]:
    """Start the same driver twice."""
    drivers = [trial.start()]
    time.sleep(trial.chance.uniform(0, 15))
    drivers.append(trial.start())
    return [trial.wait(driver) for driver in drivers]


def repeat(trial: Trial) -> list[int]:
    """Start a finished driver again, with Ray's default of deleting checkpoints on success."""
    trial.deletes = True
    return [trial.wait(trial.start()), trial.wait(trial.start())]


def repeated_ids(trial: Trial) -> list[int]:
    """Give each id to two rows, and kill the driver."""
    trial.rows.clear()
    for part in range(FILES):
        trial.write(part, modulus=ROWS // 2)
    return [trial.kill_driver()]


def no_ids(trial: Trial) -> list[int]:
    """Score CSV without an id column."""
    for part in range(FILES):
        (trial.folder / "in" / f"part-{part}.parquet").unlink()
        trial.write(part, ending=".csv")
    return [trial.wait(trial.start())]


def full_disk(trial: Trial) -> list[int]:
    """Write to a disk that is too small."""
    with small_disk(trial.folder, trial.chance) as disk:
        trial.target = str(disk / "out")
        return [trial.wait(trial.start())]


FAULTS = (
    no_fault, kill_driver, rewrite_input, other_model, equal_drivers, repeat, repeated_ids,
    remove_input, no_ids, full_disk, kill_worker, truncate_input, pause_worker, kill_raylet,
)  # fmt: skip


def check(trial: Trial, expected: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Return the number of rows of the output, and of those with each problem."""
    files = [str(path) for path in trial.output.glob("*.parquet")]
    rows = pds.dataset(files, format="parquet").to_table().to_pylist() if files else []
    current: Counter[int] = Counter()
    for (number, _), times in trial.rows.items():
        current[number] += times
    found = Counter(row["id"] for row in rows)
    known = [row for row in rows if current[row["id"]] > 0]
    different = 0
    for row in rows:
        aspects = [tuple(one[name] for name in EXACT) for one in row["aspects"] or []]
        text = trial.text(row["id"], row["version"])
        different += row["error"] is not None or aspects != expected[row["model"]][text]
    return {
        "rows": len(rows),
        "missing": (current - found).total(),
        "duplicated": sum(max(0, found[n] - times) for n, times in current.items() if times > 0),
        "extra": len(rows) - len(known),
        "other_text": sum(trial.rows[row["id"], row["version"]] <= 0 for row in known),
        "other_model": sum(row["model"] != Path(trial.model).name for row in rows),
        "different": different,
    }


def run_trial(
    number: int, address: str, expected: dict[str, dict[str, Any]], other: str
) -> dict[str, Any]:
    """Run one trial and return how it ended."""
    fault = FAULTS[number % len(FAULTS)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), address, list(expected["fast"]), random.Random(number), other)
        for part in range(FILES):
            trial.write(part)
        start = time.monotonic()
        try:
            codes = fault(trial)
            while 0 not in codes and len(codes) < MAX_RUNS:
                codes.append(trial.wait(trial.start()))
            found = check(trial, expected)
        finally:
            if (trial.folder / "disk").exists():
                subprocess.run(["umount", trial.folder / "disk"], check=True)
        scored = trial.folder / "scored"
        lines = scored.read_text(encoding="utf-8").split() if scored.exists() else []
        log = (trial.folder / "log").read_text(encoding="utf-8", errors="replace")
    is_first = codes[0] == 0
    end = (SUCCESS if is_first else RESUMED) if 0 in codes else FAILED if found["rows"] else REFUSED
    if 0 in codes and any(found[name] for name in PROBLEMS):
        end = WRONG
    return {
        "number": number,
        "fault": fault.__name__,
        "end": end,
        "codes": codes,
        **found,
        "rows_scored": sum(map(int, lines)),
        "victim": trial.victim,
        "seconds": round(time.monotonic() - start, 1),
    } | ({"log": log[-1500:]} if end in (FAILED, REFUSED) else {})


def write_other_model(folder: Path) -> str:
    """Write a copy of `fast` that finds more aspects, and return its folder."""
    bundle = find_bundle("fast")
    names = {path.name for path in bundle.folder.iterdir()} - {CONFIG, MANIFEST}
    files = {name: (bundle.folder / name).read_bytes() for name in names}
    write_bundle(folder, {**bundle.config, "span_threshold": 0.3}, files)
    return str(folder)


def main(*numbers: int) -> None:
    import ray

    LOG.parent.mkdir(exist_ok=True)
    lines = LOG.read_text(encoding="utf-8").splitlines() if LOG.exists() else []
    done = {row["number"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        other = write_other_model(Path(folder) / "other")
        texts = list(dict.fromkeys(reviews(TEXTS)))
        expected = {"fast": predict(texts, "fast"), "other": predict(texts, other)}
        address = ray.init(**LOCAL_RAY, _temp_dir=f"{folder}/ray").address_info["gcs_address"]
        for number in sorted(set(numbers or range(2 * len(FAULTS))) - set(done)):
            done[number] = run_trial(number, address, expected, other)
            print(json.dumps(done[number]), file=sys.stderr, flush=True)
            with LOG.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(done[number]) + "\n")
        ray.shutdown()
    rows = [{k: v for k, v in done[n].items() if k != "log"} for n in sorted(done)]
    names = [fault.__name__ for fault in FAULTS]
    ends = {name: dict(Counter(r["end"] for r in rows if r["fault"] == name)) for name in names}
    wrong = {name: end[WRONG] for name, end in ends.items() if WRONG in end}
    write_result(
        "checkpoint",
        {
            "trials": len(rows),
            "rows": ROWS,
            "wrong_successes": sum(wrong.values()),
            "faults_with_wrong_successes": len(wrong),
        },
        ("pyarrow", "onnxruntime", "ray"),
        facts={"ends": ends, "wrong_successes_by_fault": wrong, "runs": rows},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))

"""Whole jobs on the local engine: exactly-once output, resume, and invalid input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from corpora import OPTIONS, assert_exactly_once, read_output, reviews, write

from capsar.bulk.run import EngineOptions, JobProgress, score
from capsar.errors import ArtifactError, ConfigError, DataError

TWO = EngineOptions(workers=2)
TEXT = ("--text-column", "review")
FAULTS = Path(__file__).parent / "fault_injection"


def outputs(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_every_format_is_scored_exactly_once(tmp_path: Path) -> None:
    texts = reviews(2100)
    names = ["a.parquet", "b.csv", "c.jsonl", "deep/d.jsonl.gz", "deep/e.csv.gz", "f.xlsx"]
    for index, name in enumerate(names):
        write(tmp_path / "in" / name, texts[index * 350 : index * 350 + 350], index * 350)
    (tmp_path / "in" / "notes.txt").write_text("not read")
    (tmp_path / "in" / "_hidden.csv").write_text("not read")
    seen: list[JobProgress] = []
    out = tmp_path / "out"
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO, on_progress=seen.append)
    assert_exactly_once(read_output(out), texts)
    assert (summary.rows, summary.rows_with_error, summary.shards_skipped) == (2100, 0, 0)
    assert summary.shards > len(names)
    assert [Path(name).name for name in summary.ignored] == ["notes.txt"]
    assert (out / "_SUCCESS").exists()
    assert json.loads((out / "_summary.json").read_text())["rows"] == 2100
    assert sorted(path.name for path in (out / "_job").rglob("*.*")) == ["job.json"]
    assert seen[-1].shards_done == seen[-1].shards == summary.shards
    assert (seen[-1].rows, seen[-1].seconds_left, seen[-1].workers) == (2100, 0, 2)
    before = outputs(out)
    again = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert again.shards_skipped == again.shards == summary.shards
    assert (again.rows, outputs(out)) == (2100, before)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job."""
    folder = tmp_path_factory.mktemp("done")
    write(folder / "in" / "a.csv", reviews(100))
    score(str(folder / "in"), str(folder / "out"), OPTIONS, engine=EngineOptions(workers=1))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": ()}, r"was started with keep=\['id'\], now it is \[\]"),
        ({"max_chars": 7}, "was started with max_chars=100000, now it is 7"),
        ({"shard_mb": 1.0}, "was started with shard_mb=0.02"),
        ({"encoding": "cp1252"}, "was started with encoding='utf-8', now it is 'cp1252'"),
        ({"text_column": "Review"}, r"no column 'Review'; the columns are \['id', 'review'\]"),
    ],
)
def test_changed_option_is_rejected(done: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        score(str(done / "in"), str(done / "out"), replace(OPTIONS, **change))


def test_changed_model_or_release_is_rejected(done: Path, small_bundle: Path) -> None:
    with pytest.raises(DataError, match="started with another model sha256"):
        score(str(done / "in"), str(done / "out"), replace(OPTIONS, model=str(small_bundle)))
    job = done / "out" / "_job" / "job.json"
    content = job.read_text()
    job.write_text(json.dumps(json.loads(content) | {"capsar": "0.0.1"}))
    with pytest.raises(DataError, match=r"another capsar \('0\.0\.1'"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    job.write_text(content)


def test_an_output_with_the_name_of_a_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["Great soup."])
    with pytest.raises(
        ConfigError, match=r"The output is a folder of Parquet files, got .*out\.csv"
    ):
        score(str(path), str(tmp_path / "out.csv"), OPTIONS)
    assert not (tmp_path / "out.csv").exists()


def test_changed_input_is_rejected(done: Path, tmp_path: Path) -> None:
    path = done / "in" / "a.csv"
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"soup", b"stew"))
    with pytest.raises(DataError, match=r"a\.csv' has changed since"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert score(str(done / "in"), str(done / "out"), OPTIONS).shards_skipped > 0
    path.rename(done / "b.csv")
    write(done / "in" / "c.csv", ["another"])
    with pytest.raises(DataError, match=r"a\.csv' is not among the inputs any more since"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    (done / "in" / "c.csv").unlink()
    (done / "b.csv").rename(path)
    write(tmp_path / "foreign" / "x.parquet", ["not ours"])
    with pytest.raises(DataError, match="Parquet files that are not part of a job"):
        score(str(done / "in"), str(tmp_path / "foreign"), OPTIONS)


@pytest.mark.parametrize("name", ["b.parquet", "b.xlsx"])
def test_repaired_file_is_scored_by_the_next_run(tmp_path: Path, name: str) -> None:
    texts = reviews(400)
    write(tmp_path / "in" / "a.parquet", texts[:200])
    broken = write(tmp_path / "in" / name, texts[200:], 200)
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert summary.rows == 200
    assert [Path(one["file"]).name for one in summary.unreadable] == [name]
    assert not (out / "_SUCCESS").exists()
    broken.write_bytes(whole)
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert (summary.shards_skipped, summary.unreadable) == (2, [])
    assert (out / "_SUCCESS").exists()
    assert_exactly_once(read_output(out), texts)


def capsar(*arguments: object, faults: bool = False) -> subprocess.CompletedProcess[str]:
    path = [str(FAULTS)] if faults else []
    path += filter(None, [os.environ.get("PYTHONPATH")])
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "capsar",
            "score",
            "--model",
            "fast",
            *map(str, arguments),
            "--workers",
            "2",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "COLUMNS": "100"},
    )


def test_every_kind_of_invalid_row_and_file_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = reviews(300)
    rows = [*good[:100], None, "poison that raises", "x" * 5_000_000, *good[100:200]]
    write(folder / "a.parquet", rows)
    lines = write(folder / "b.jsonl", good[200:], 203)
    with lines.open("ab") as stream:
        stream.write(b'{"id": 303, "review": \n{"id": 304, "review": "caf\xe9"}\n[1]\n')
        stream.write(b'{"id": 305}\n{"id": 306, "review": 7}\n{"id": 307, "review": "\\ud800"}\n')
    write(folder / "c.csv", [])
    with (folder / "c.csv").open("ab") as stream:
        stream.write(b'308,caf\xe9\n309\n310,"fine"\n')
    (folder / "d.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-100])
    out = tmp_path / "out"
    command = (folder, out, "--text-column", "review", "--keep", "id")
    done = capsar(*command, "--shard-mb", "0.02", faults=True)
    assert done.returncode == 3, done.stderr
    summary = json.loads((out / "_summary.json").read_text())
    kinds = {"null text": 1, "the model failed": 1, "too long": 1, "not JSON": 1, "not UTF-8": 3}
    kinds |= {"not an object": 1, "no text": 1, "not text": 1, "not CSV": 1}
    assert summary["errors"] == kinds
    assert summary["rows"] == 303 + 100 + 6 + 3 - 100
    first_errors = {(Path(one["file"]).name, one["error"][:20]) for one in summary["first_errors"]}
    assert ("a.parquet", "the model failed: Ru") in first_errors
    assert {"location": "row 101"}.items() <= next(
        one for one in summary["first_errors"] if one["error"].startswith("the model")
    ).items()
    assert [Path(one["file"]).name for one in summary["unreadable"]] == ["d.parquet"]
    assert "d.parquet: " in done.stderr
    assert "1 × the model failed; the first: " in done.stderr
    scored = [row for row in read_output(out) if row["error"] is None]
    assert len(scored) == 301
    assert all(row["aspects"] is not None for row in scored)


def test_row_that_crashes_its_process_affects_no_other_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = reviews(300)
    texts[123] = "poison that kills"
    write(tmp_path / "a.parquet", texts)
    monkeypatch.syspath_prepend(FAULTS)
    summary = score(str(tmp_path / "a.parquet"), str(tmp_path / "out"), OPTIONS, engine=TWO)
    assert summary.errors == {"the process crashed": 1}
    assert summary.first_errors[0]["location"] == "row 123"
    assert summary.shards_retried == 2
    rows = read_output(tmp_path / "out")
    assert rows[123]["error"] == "the process crashed: exit code -9"
    assert [row["id"] for row in rows] == list(range(300))
    assert [row["id"] for row in rows if row["aspects"] is None] == [123]


@pytest.mark.slow
def test_full_disk_stops_the_job_and_a_rerun_resumes_it(
    tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    texts = reviews(3000)
    write(tmp_path / "a.parquet", texts)
    disk = small_disk("1m")
    (disk / "ballast").write_bytes(bytes(970_000))
    command = (tmp_path / "a.parquet", disk / "out", "--text-column", "review", "--keep", "id")
    command += ("--shard-mb", "0.01")
    done = capsar(*command)
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr
    assert "Run the same command again to resume." in done.stderr
    assert not (disk / "out" / "_SUCCESS").exists()
    finished = outputs(disk / "out")
    assert len(finished) >= 1
    for row in read_output(disk / "out"):  # published files are complete
        assert row["error"] is None
    (disk / "ballast").unlink()
    done = capsar(*command, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["event"], summary["shards_skipped"]) == ("summary", len(finished))
    assert finished.items() <= outputs(disk / "out").items()
    assert_exactly_once(read_output(disk / "out"), texts)


def test_command_prints_text_and_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(30))
    done = capsar(path, tmp_path / "out", "--text-column", "review", "--json")
    assert done.returncode == 0, done.stderr
    *_, before, last = map(json.loads, done.stdout.splitlines())
    assert (before["event"], before["rows"]) == ("progress", 30)
    assert (last["event"], last["rows"]) == ("summary", 30)
    done = capsar(path, tmp_path / "out", "--text-column", "review")
    assert "out: 30 rows, 0 with an error" in done.stdout
    assert "1 of 1 shards skipped" in done.stdout
    with path.open("a") as stream:
        stream.write("1,2,3\n")
    done = capsar(path, tmp_path / "out2", "--text-column", "review")
    assert done.returncode == 1
    assert "1 × not CSV; the first: " in done.stderr


def test_file_in_another_encoding_needs_the_option(tmp_path: Path) -> None:
    table = "id;Hotel;Größe;review\n1;Müller;5;The soup is “cold”.\n2;Möller;7;Fine soup.\n"
    path = tmp_path / "b.csv"
    path.write_text(table, encoding="cp1252")
    done = capsar(path, tmp_path / "out", *TEXT, "--keep", "id,Hotel")
    assert done.returncode == 2, done.stderr
    assert "b.csv: The file is not UTF-8: byte 0xf6" in done.stderr
    assert "--encoding cp1252" in done.stderr
    assert not (tmp_path / "out").exists()
    options = (*TEXT, "--keep", "id,Hotel,Größe", "--encoding", "cp1252")
    done = capsar(path, tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    rows = read_output(tmp_path / "out")
    assert [(row["Hotel"], row["Größe"]) for row in rows] == [("Müller", "5"), ("Möller", "7")]
    assert [one["start"] for one in rows[0]["aspects"]] == [4]


def test_json_lines_in_another_encoding_need_the_option(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "caf\xe9"}\n{"text": "na\xefve"}\n')
    done = capsar(tmp_path / "a.jsonl", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert "a.jsonl: The file is not UTF-8: byte 0xe9" in done.stderr


def test_one_damaged_byte_is_the_error_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,review\n1,Fine soup.\n2,Fi\xfce soup.\n")
    done = capsar(tmp_path / "a.csv", tmp_path / "out", *TEXT, "--keep", "id")
    assert done.returncode == 1, done.stderr
    rows = read_output(tmp_path / "out")
    assert [(row["id"], row["error"] is None) for row in rows] == [(1, True), (2, False)]


def test_undecodable_rows_of_utf8_input_are_errors(tmp_path: Path) -> None:
    """The first file is UTF-8 with a damaged row; the second one is not UTF-8."""
    (tmp_path / "in").mkdir()
    table = "id,Hotel,review\n1,Müller,Fine soup.\n".encode() + b"2,M\xfcller,Fine soup.\n"
    (tmp_path / "in" / "a.csv").write_bytes(table)
    other = "id;Hotel;review\n3;Möller;Fine soup.\n4;Müller;The soup is “cold”.\n"
    (tmp_path / "in" / "b.csv").write_text(other, encoding="cp1252")
    done = capsar(tmp_path / "in", tmp_path / "out", *TEXT, "--keep", "id,Hotel")
    assert done.returncode == 1, done.stderr
    assert "3 × not UTF-8; the first: " in done.stderr
    assert "--encoding cp1252" in done.stderr
    rows = read_output(tmp_path / "out")
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert [row["Hotel"] for row in rows] == ["Müller", None, None, None]
    assert [row["aspects"] is None for row in rows] == [False, True, True, True]
    assert "byte 0xf6 at position 3 is not valid utf-8" in rows[2]["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.csv", "out"), "There is no file or folder"),
        (("{csv}", "out"), "a.csv: There is no column 'text'; the columns are ['id', 'review']."),
        (("{csv}", "out"), "Choose with --text-column."),
        (("{csv}", "out", *TEXT, "--keep", "date"), "['id', 'review']. Choose with --keep."),
        (("{csv}", "out", *TEXT, "--aspect-column", "a"), "Choose with --aspect-column."),
        (("{jsonl}", "out"), "a.jsonl: There is no field 'text'; the fields are"),
        (("{jsonl}", "out"), "['id', 'review']. Choose with --text-column."),
        (("{jsonl}", "out", *TEXT, "--keep", "date"), "['id', 'review']. Choose with --keep."),
        (("{gz}", "out"), "a.csv.gz: There is no column 'text'"),
        (("{csv}", "out", "--engine", "spark"), "no engine 'spark'; expected 'local' or 'ray'"),
        (("{csv}", "out", "--address", "auto"), "An address requires the engine 'ray'"),
        (("{csv}", "out", "--model", "nothing"), "'nothing' is not a bundle"),
        (("{csv}", "out", "--encoding", "utf-16"), "cannot be read by line; save them as UTF-8"),
        (("{txt}", "out"), "Unknown format of"),
        (("{xls}", "out"), "Save .xls files as .xlsx."),
        (("{xlsx}", "out"), "a.xlsx: There is no column 'text'; the columns are ['id', 'review']."),
    ],
)
def test_job_that_cannot_start_prints_the_reason(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write(tmp_path / "a.csv", ["x"])
    write(tmp_path / "a.jsonl", ["x"])
    write(tmp_path / "a.csv.gz", ["x"])
    write(tmp_path / "a.xlsx", ["x"])
    for name in ("a.txt", "a.xls"):
        (tmp_path / name).write_text("x\n")
    endings = ("csv", "txt", "jsonl", "xls", "xlsx")
    places = {f"{{{ending}}}": tmp_path / f"a.{ending}" for ending in endings}
    places |= {"{gz}": tmp_path / "a.csv.gz", "out": tmp_path / "out"}
    done = capsar(*(places.get(argument, argument) for argument in arguments))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_invalid_number_of_workers_is_rejected() -> None:
    with pytest.raises(ConfigError, match="workers must be 1 or more, got 0"):
        EngineOptions(workers=0)


def test_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from capsar.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "score", "a.csv", "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'capsar[bulk]'" in done.stderr


def test_worker_with_another_model_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", ["x"])
    monkeypatch.setattr("capsar.bulk.job.model_fingerprint", lambda _: "other")
    with pytest.raises(ArtifactError, match="cannot start: The model 'fast' on this machine"):
        score(str(path), str(tmp_path / "out"), OPTIONS)


def test_unreadable_first_line_does_not_end_the_job(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", reviews(20))
    path.write_text("[" * 200_000 + "\n" + path.read_text())
    summary = score(str(path), str(tmp_path / "out"), OPTIONS)
    assert (summary.rows, summary.rows_with_error) == (21, 1)


def test_input_without_rows_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    done = capsar(tmp_path / "a.jsonl", tmp_path / "out")
    assert done.returncode == 0
    assert "the input has no rows" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_a_job_and_its_workers(tmp_path: Path, how: signal.Signals) -> None:
    """Send the signal in the middle of a long shard."""
    path = write(tmp_path / "a.jsonl", reviews(2000) * 40)
    command = [sys.executable, "-m", "capsar", "score", path, tmp_path / "out", "--model", "fast"]
    # A test run in the background ignores SIGINT, and the job would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    job = subprocess.Popen(
        [*command, "--text-column", "review", "--workers", "2", "--shard-mb", "4"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    workers: list[psutil.Process] = []
    while not list((tmp_path / "out").glob("_job/scratch/*")):
        assert job.poll() is None
        time.sleep(0.05)
    workers = psutil.Process(job.pid).children(recursive=True)
    assert workers
    job.send_signal(how)
    printed = job.communicate(timeout=60)[1]
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    if how != signal.SIGKILL:
        assert job.returncode == 4
        message = "stopped; finished shards are kept, run the same command again to resume"
        assert printed.endswith(f"capsar: {message}\n")

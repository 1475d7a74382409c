"""Whole jobs on this machine: exactly once, resumed, refused, and with every kind of bad input."""

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

from capsar.bulk.run import Engine, score
from capsar.bulk.summary import Progress
from capsar.errors import ArtifactError, ConfigError, DataError

TWO = Engine(workers=(2, 2))
FAULTS = Path(__file__).parent / "faults"


def outputs(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_every_format_exactly_once(tmp_path: Path) -> None:
    texts = reviews(2000)
    names = ["a.parquet", "b.csv", "c.jsonl", "deep/d.jsonl.gz", "deep/e.csv.gz"]
    for index, name in enumerate(names):
        write(tmp_path / "in" / name, texts[index * 400 : index * 400 + 400], index * 400)
    (tmp_path / "in" / "notes.txt").write_text("not read")
    (tmp_path / "in" / "_hidden.csv").write_text("not read")
    seen: list[Progress] = []
    out = tmp_path / "out"
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO, on_progress=seen.append)
    assert_exactly_once(read_output_by_kind(out), texts)
    assert (summary.rows, summary.rows_with_error, summary.fragments_skipped) == (2000, 0, 0)
    assert summary.fragments > len(names)
    assert [Path(name).name for name in summary.ignored] == ["notes.txt"]
    assert (out / "_SUCCESS").exists()
    assert json.loads((out / "_summary.json").read_text())["rows"] == 2000
    assert not list((out / "_job" / "scratch").iterdir())
    assert seen[-1].fragments_done == seen[-1].fragments == summary.fragments
    assert (seen[-1].rows, seen[-1].seconds_left, seen[-1].workers) == (2000, 0, 2)
    before = outputs(out)
    again = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert again.fragments_skipped == again.fragments == summary.fragments
    assert (again.rows, outputs(out)) == (2000, before)


def read_output_by_kind(out: Path) -> list[dict[str, Any]]:
    """Ids of Parquet input are numbers, of text files texts: read file by file."""
    rows = [row for path in sorted(out.glob("*.parquet")) for row in read_output(path)]
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job."""
    folder = tmp_path_factory.mktemp("done")
    write(folder / "in" / "a.csv", reviews(100))
    score(str(folder / "in"), str(folder / "out"), OPTIONS, engine=Engine(workers=(1, 1)))
    return folder


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"keep": ()}, r"was begun with keep=\['id'\], now it is \[\]"),
        ({"max_chars": 7}, "was begun with max_chars=100000, now it is 7"),
        ({"fragment_mb": 1.0}, "was begun with fragment_mb=0.02"),
        ({"encoding": "cp1252"}, "was begun with encoding='utf-8', now it is 'cp1252'"),
        ({"text_column": "Review"}, r"no column 'Review'; there are \['id', 'review'\]"),
    ],
)
def test_another_option_is_refused(done: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        score(str(done / "in"), str(done / "out"), replace(OPTIONS, **change))


def test_another_model_or_release_is_refused(done: Path, small_bundle: Path) -> None:
    with pytest.raises(DataError, match="begun with another model sha256"):
        score(str(done / "in"), str(done / "out"), replace(OPTIONS, model=str(small_bundle)))
    job = done / "out" / "_job" / "job.json"
    content = job.read_text()
    job.write_text(json.dumps(json.loads(content) | {"capsar": "0.0.1"}))
    with pytest.raises(DataError, match=r"another capsar \('0\.0\.1'"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    job.write_text(content)


def test_other_input_is_refused(done: Path, tmp_path: Path) -> None:
    extra = write(done / "in" / "b.csv", ["new"])
    with pytest.raises(DataError, match=r"1 files that .* begun without, as .*b\.csv"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    extra.unlink()
    path = done / "in" / "a.csv"
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"soup", b"stew"))
    with pytest.raises(DataError, match=r"a\.csv' has changed since"):
        score(str(done / "in"), str(done / "out"), OPTIONS)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert score(str(done / "in"), str(done / "out"), OPTIONS).fragments_skipped > 0
    write(tmp_path / "strange" / "x.parquet", ["not ours"])
    with pytest.raises(DataError, match="Parquet files of no job"):
        score(str(done / "in"), str(tmp_path / "strange"), OPTIONS)


def test_input_that_changes_after_planning_is_not_read(tmp_path: Path) -> None:
    from capsar.bulk.job import Job
    from capsar.bulk.ledger import open_ledger
    from capsar.bulk.worker import Worker

    path = write(tmp_path / "a.csv", reviews(10))
    job = Job.make(OPTIONS, str(tmp_path / "out"))
    (fragment,) = open_ledger(job, [str(path)]).fragments
    path.write_bytes(path.read_bytes() + b"10,new\n")
    report = Worker(job).score(fragment)
    assert "has changed since the job began" in report.unreadable
    assert not outputs(tmp_path / "out")


def test_a_file_that_is_mended_is_taken_in_by_the_next_run(tmp_path: Path) -> None:
    texts = reviews(400)
    write(tmp_path / "in" / "a.parquet", texts[:200])
    broken = write(tmp_path / "in" / "b.parquet", texts[200:], 200)
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert summary.rows == 200
    assert [Path(one["file"]).name for one in summary.unreadable] == ["b.parquet"]
    assert not (out / "_SUCCESS").exists()
    broken.write_bytes(whole)
    summary = score(str(tmp_path / "in"), str(out), OPTIONS, engine=TWO)
    assert (summary.fragments_skipped, summary.unreadable) == (1, [])
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


def test_every_kind_of_bad_row_and_file_is_named(tmp_path: Path) -> None:
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
    done = capsar(*command, "--fragment-mb", "0.02", faults=True)
    assert done.returncode == 3, done.stderr
    summary = json.loads((out / "_summary.json").read_text())
    kinds = {"null text": 1, "the model failed": 1, "too long": 1, "not JSON": 1, "not UTF-8": 3}
    kinds |= {"not an object": 1, "no text": 1, "not text": 1, "not CSV": 1}
    assert summary["errors"] == kinds
    assert summary["rows"] == 303 + 100 + 6 + 3 - 100
    named = {(Path(one["file"]).name, one["error"][:20]) for one in summary["named"]}
    assert ("a.parquet", "the model failed: Ru") in named
    assert {"place": "row 101"}.items() <= next(
        one for one in summary["named"] if one["error"].startswith("the model")
    ).items()
    assert [Path(one["file"]).name for one in summary["unreadable"]] == ["d.parquet"]
    assert "d.parquet: " in done.stderr
    assert "1 × the model failed; the first: " in done.stderr
    answered = [row for row in read_output_by_kind_or_none(out) if row["error"] is None]
    assert len(answered) == 301
    assert all(row["aspects"] is not None for row in answered)


def read_output_by_kind_or_none(out: Path) -> list[dict[str, Any]]:
    return [row for path in out.glob("*.parquet") for row in read_output(path)]


def test_a_row_that_kills_its_process_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = reviews(300)
    texts[123] = "poison that kills"
    write(tmp_path / "a.parquet", texts)
    monkeypatch.syspath_prepend(FAULTS)
    summary = score(str(tmp_path / "a.parquet"), str(tmp_path / "out"), OPTIONS, engine=TWO)
    assert summary.errors == {"the process died": 1}
    assert summary.named[0]["place"] == "row 123"
    assert summary.fragments_begun_again == 2
    rows = read_output(tmp_path / "out")
    assert rows[123]["error"] == "the process died: exit code -9"
    assert [row["id"] for row in rows] == list(range(300))
    assert [row["id"] for row in rows if row["aspects"] is None] == [123]


@pytest.mark.slow
def test_a_full_disk_stops_the_job_and_a_rerun_goes_on(
    tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    texts = reviews(3000)
    write(tmp_path / "a.parquet", texts)
    disk = small_disk("400k")
    (disk / "ballast").write_bytes(bytes(350_000))
    command = (tmp_path / "a.parquet", disk / "out", "--text-column", "review", "--keep", "id")
    command += ("--fragment-mb", "0.01")
    done = capsar(*command)
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr
    assert "Run again, the job goes on where it was." in done.stderr
    assert not (disk / "out" / "_SUCCESS").exists()
    finished = outputs(disk / "out")
    assert len(finished) >= 1
    for row in read_output(disk / "out"):  # what is visible is whole
        assert row["error"] is None
    (disk / "ballast").unlink()
    done = capsar(*command, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["event"], summary["fragments_skipped"]) == ("summary", len(finished))
    assert finished.items() <= outputs(disk / "out").items()
    assert_exactly_once(read_output(disk / "out"), texts)


def test_the_command_tells_people_and_machines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(30))
    done = capsar(path, tmp_path / "out", "--text-column", "review", "--json")
    assert done.returncode == 0, done.stderr
    first, last = map(json.loads, done.stdout.splitlines())
    assert (first["event"], first["rows"]) == ("progress", 30)
    assert (last["event"], last["rows"]) == ("summary", 30)
    done = capsar(path, tmp_path / "out", "--text-column", "review")
    assert "out: 30 rows, 0 with an error" in done.stdout
    assert "1 of 1 parts were there already" in done.stdout
    with path.open("a") as stream:
        stream.write("1,2,3\n")
    done = capsar(path, tmp_path / "out2", "--text-column", "review")
    assert done.returncode == 1
    assert "1 × not CSV; the first: " in done.stderr


def test_a_table_in_another_encoding_is_scored_or_says_what_to_do(tmp_path: Path) -> None:
    table = "id;Hotel;Größe;review\n1;Müller;5;The soup is “cold”.\n2;Möller;7;Fine soup.\n"
    path = tmp_path / "a.csv"
    path.write_text(table, encoding="cp1252")
    asked = (path, tmp_path / "out", "--text-column", "review", "--keep", "id,Hotel")
    done = capsar(*asked)
    assert done.returncode == 1, done.stderr
    assert "2 × not UTF-8; the first: " in done.stderr
    assert "save the file as UTF-8, or give its encoding (as --encoding cp1252)" in done.stderr
    rows = read_output(tmp_path / "out")
    assert [(row["id"], row["Hotel"], row["aspects"]) for row in rows] == [
        (1, None, None),
        (2, None, None),
    ]
    assert "in 'Hotel', byte 0xf6 at position 1 is not valid utf-8" in rows[1]["error"]
    done = capsar(path, tmp_path / "out2", *asked[2:-1], "id,Hotel,Größe", "--encoding", "cp1252")
    assert done.returncode == 0, done.stderr
    rows = read_output(tmp_path / "out2")
    assert [(row["Hotel"], row["Größe"]) for row in rows] == [("Müller", "5"), ("Möller", "7")]
    assert [one["start"] for one in rows[0]["aspects"]] == [4]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.csv", "out"), "There is no file or folder"),
        (("{csv}", "out"), "a.csv: There is no column 'text'"),
        (("{csv}", "out", "--text-column", "review", "--keep", "date"), "no column 'date'"),
        (
            ("{jsonl}", "out"),
            "a.jsonl: No line of the first ones has a field 'text'; they",
        ),
        (("{jsonl}", "out", "--text-column", "review", "--keep", "date"), "has a field 'date'"),
        (("{gz}", "out"), "a.csv.gz: There is no column 'text'"),
        (("{csv}", "out", "--engine", "spark"), "no engine 'spark'; expected 'local' or 'ray'"),
        (("{csv}", "out", "--address", "auto"), "choose the engine 'ray'"),
        (("{csv}", "out", "--model", "nothing"), "'nothing' is not a bundle"),
        (("{csv}", "out", "--encoding", "shift-jis"), "save them as UTF-8 (iconv -f shift-jis"),
        (("{txt}", "out"), "Cannot tell the format of"),
    ],
)
def test_what_cannot_begin_says_why(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    write(tmp_path / "a.csv", ["x"])
    write(tmp_path / "a.jsonl", ["x"])
    write(tmp_path / "a.csv.gz", ["x"])
    (tmp_path / "a.txt").write_text("x\n")
    files = {"{csv}": "a.csv", "{txt}": "a.txt", "{jsonl}": "a.jsonl", "{gz}": "a.csv.gz"}
    places = {name: tmp_path / file for name, file in (files | {"out": "out"}).items()}
    done = capsar(*(places.get(argument, argument) for argument in arguments))
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [(0, 1), (3, 2)])
def test_ranges_of_workers_are_checked(workers: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="the least first"):
        Engine(workers=workers)


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from capsar.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "score", "a.csv", "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'capsar[bulk]'" in done.stderr


def test_a_worker_that_has_another_model_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", ["x"])
    monkeypatch.setattr("capsar.bulk.job.model_fingerprint", lambda _: "other")
    with pytest.raises(ArtifactError, match="cannot begin: The model 'fast' is"):
        score(str(path), str(tmp_path / "out"), OPTIONS)


def test_a_first_line_that_nobody_can_read_does_not_end_the_job(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", reviews(20))
    path.write_text("[" * 200_000 + "\n" + path.read_text())
    summary = score(str(path), str(tmp_path / "out"), OPTIONS)
    assert (summary.rows, summary.rows_with_error) == (21, 1)


def test_an_input_without_a_row_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    done = capsar(tmp_path / "a.jsonl", tmp_path / "out")
    assert done.returncode == 0
    assert "there was not one row to score" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_job_ends_its_workers(tmp_path: Path, how: signal.Signals) -> None:
    """In the middle of a fragment that would take long."""
    path = write(tmp_path / "a.jsonl", reviews(2000) * 40)
    command = [sys.executable, "-m", "capsar", "score", path, tmp_path / "out", "--model", "fast"]
    # Whoever runs the tests in the background ignores it, and so would the job.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    job = subprocess.Popen(
        [*command, "--text-column", "review", "--workers", "2", "--fragment-mb", "4"],
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
    told = job.communicate(timeout=60)[1]
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    if how != signal.SIGKILL:
        assert job.returncode == 4
        assert (
            told
            == "capsar: stopped; what is finished is kept, run the same command again to go on\n"
        )

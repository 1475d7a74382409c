"""The command line: help, output for people and machines, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def capsar(
    *arguments: object, data: object = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "capsar", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=cwd,
        env=os.environ | {"CAPSAR_DATA": str(data), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
    )


def test_help_and_version() -> None:
    from capsar import __version__

    done = capsar("--help")
    assert done.returncode == 0
    assert "data" in done.stdout
    assert capsar("--version").stdout.strip() == __version__
    assert "capsar data check reviews.csv" in capsar("data", "check", "--help").stdout


def test_the_list_says_where_to_get_what_is_missing(tmp_path: Path) -> None:
    done = capsar("data", "list", data=tmp_path)
    assert done.returncode == 0
    assert "mams" in done.stdout
    assert (
        "get data/mams/MAMS-ATSA/train.xml: data/MAMS-ATSA/raw/train.xml of https://" in done.stdout
    )
    assert "CAPSAR_DATA is not set" in capsar("data", "list").stderr
    entries = json.loads(capsar("data", "list", "--json", data=tmp_path).stdout)
    assert {"name", "licence", "files", "present"} <= set(entries[0])


@pytest.mark.data
def test_the_list_shows_what_is_here(shared: Path) -> None:
    assert "(missing)" not in capsar("data", "list", data=shared).stdout


def test_check_names_every_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("review,aspect,polarity\nCold soup.,soup,negative\nCold soup.,stew,negative\n")
    done = capsar("data", "check", path, "--text-column", "review")
    assert done.returncode == 1
    assert "BAD line 3: Aspect 'stew' does not occur" in done.stdout
    assert "labels: 2 negative" in done.stdout


def test_check_as_json(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("text,aspect,polarity\nCold soup.,soup,negative\n")
    done = capsar("data", "check", tmp_path, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [file["labels"] for file in document["files"]] == [{"negative": 1}] * 2
    assert document["overlaps"][0]["exact"] == 1
    done = capsar("data", "check", tmp_path)
    assert "1 sentences equal and 0 nearly equal" in done.stdout


def test_what_cannot_be_printed_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "x", "aspect": "\\ud800\\u202e", "polarity": "neutral"}\n')
    done = capsar("data", "check", path)
    assert done.returncode == 1
    assert r"\ud800" in done.stdout


@pytest.mark.parametrize("arguments", [["absent.csv"], ["."], ["mams"], []])
def test_bad_input_is_exit_code_2_and_a_message(tmp_path: Path, arguments: list[str]) -> None:
    done = capsar("data", "check", *arguments, data=tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr


@pytest.mark.data
def test_check_over_every_published_file(shared: Path) -> None:
    done = capsar("data", "check", shared / "data", data=shared)
    assert done.returncode == 1  # some published records are bad, and named
    assert done.stdout.count("(as published)") == 36
    assert "NOT as published" not in done.stdout
    assert "10 sentences equal and 6 nearly equal" in done.stdout
    assert "not a published file" not in done.stdout

"""`examples/nightly.sh` scores only new files and returns the highest exit code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "nightly.sh"
FAKE_CAPSAR = """#!/bin/sh
echo "$@"
code=$(cat "$2")
mkdir -p "$3"
if [ "$code" -lt 2 ]; then touch "$3/_SUCCESS"; fi
exit "$code"
"""
"""Replaces `capsar score`: the content of the input file is the exit code."""


def run_script(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["sh", str(SCRIPT), "in box", "scored", "--keep", "id"],
        cwd=folder,
        env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_each_file_is_scored_until_it_is_finished(tmp_path: Path) -> None:
    (tmp_path / "capsar").write_text(FAKE_CAPSAR)
    (tmp_path / "capsar").chmod(0o755)
    inbox = tmp_path / "in box"
    inbox.mkdir()
    assert run_script(tmp_path) == (0, [])
    for name, code in {"a.csv": 1, "b.csv": 3, "c d.csv": 0, ".late.csv": 0}.items():
        (inbox / name).write_text(str(code))
    first = [f"score in box/{n} scored/{n} --keep id" for n in ("a.csv", "b.csv", "c d.csv")]
    assert run_script(tmp_path) == (3, first)
    assert run_script(tmp_path) == (3, first[1:2])  # could not be read, so it is retried
    (inbox / "b.csv").write_text("0")
    assert run_script(tmp_path) == (0, first[1:2])
    assert run_script(tmp_path) == (0, [])

"""The wheel as a user installs it: in a fresh environment, with nothing but what it asks for."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_wheel_installs_and_answers(root: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", dist, root],
        check=True,
        capture_output=True,
    )
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    constraints = root / "constraints.txt"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", constraints, wheel],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [python.parent / "capsar", "data", "check", root / "examples" / "reviews.csv"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "labels: 1 negative, 1 neutral, 2 positive" in done.stdout
    done = subprocess.run(
        [python.parent / "capsar", "analyze", "Great food!", "--aspect", "food", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["aspects"][0]["polarity"] == "positive"
    done = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert done.returncode != 0

"""The wheel as a user installs it: in a fresh environment, with nothing but what it asks for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from no_sockets import SITE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    constraints = ROOT / "constraints.txt"
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", constraints]
    subprocess.run([*install, wheel], check=True, capture_output=True)
    return folder / "bin"


@pytest.fixture
def offline(fresh: Path, tmp_path: Path) -> dict[str, str]:
    """That environment's variables, with sockets forbidden and no other capsar in sight."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    path = f"{fresh}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": str(tmp_path), "PATH": path}


def test_the_wheel_installs_and_answers(fresh: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [fresh / "capsar", "analyze", "Great food!", "--aspect", "food", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["aspects"][0]["polarity"] == "positive"
    done = subprocess.run(
        [fresh / "python", "-c", "import torch"], capture_output=True, check=False
    )
    assert done.returncode != 0


def test_the_readme_is_true_in_it_without_sockets(fresh: Path, offline: dict[str, str]) -> None:
    """Its Python and its commands, copied from it, print what it says."""
    where = [fresh / "python", "-c", "import capsar; print(capsar.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, env=offline).stdout
    assert Path(found).is_relative_to(fresh.parent)
    python = [fresh / "python", "-m", "doctest", "README.md"]
    done = subprocess.run(
        python, capture_output=True, text=True, check=False, cwd=ROOT, env=offline
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [
        pair
        for block in re.findall(r"^```console\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
        for pair in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]
    assert shown
    for command, output in shown:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, check=False, cwd=ROOT, env=offline
        )
        assert done.stdout == output, done.stderr


def test_the_wheel_is_small_and_carries_its_attributions(wheel: Path) -> None:
    assert wheel.stat().st_size <= 45e6
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        notice = archive.read("capsar/models/NOTICE.md").decode()
    for owner in ("MAMS", "Bing Liu", "CC BY 4.0", "GloVe", "all-MiniLM-L6-v2", "Apache License"):
        assert owner in notice
    models = {name.split("/")[2] for name in names if re.match(r"capsar/models/\w+/", name)}
    sizes = {"base": 30e6, "fast": 12e6}
    assert models == set(sizes)
    for model in models:
        folder = ROOT / "src" / "capsar" / "models" / model
        assert sum(file.stat().st_size for file in folder.iterdir()) <= sizes[model]
        assert f"capsar/models/{model}/README.md" in names

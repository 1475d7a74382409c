"""What is published, as a user installs it: in a fresh environment, with what it asks for alone.

The environment is of the newest Python at hand: all other tests are run by an older one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from markdown_pages import blocks_of
from no_sockets import SITE

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel that is built from it and from nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


def newest_python() -> str:
    """The newest Python at hand that can make environments; the running one if none is newer."""
    named = [shutil.which(f"python3.{minor}") for minor in range(12, 20)]
    managed = [str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python")]
    versions = {sys.version_info.minor: sys.executable}
    probe = "import ensurepip, ssl, sys, venv; print(sys.version_info.minor)"
    for python in filter(None, [*named, *managed]):
        asked = [python, "-c", probe]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            versions.setdefault(int(done.stdout), python)
    return versions[max(versions)]


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([newest_python(), "-m", "venv", folder], check=True)
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


def test_the_wheel_installs_answers_and_judges(fresh: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [fresh / "capsar", "analyze", "Great food!", "--aspect", "food", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["aspects"][0]["polarity"] == "positive"
    for extra in ("torch", "scipy"):
        done = subprocess.run(
            [fresh / "python", "-c", f"import {extra}"], capture_output=True, check=False
        )
        assert done.returncode != 0
    coffee = ROOT / "examples" / "coffee-test.csv"
    judged = subprocess.run(
        [fresh / "capsar", "evaluate", "fast", "--data", coffee, "--confidence", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["metrics"]["num_examples"] == 36


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
    blocks = blocks_of(ROOT / "README.md")
    shown = [pair for block in blocks if block.language == "console" for pair in block.commands()]
    assert shown
    for command, output in shown:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, check=False, cwd=ROOT, env=offline
        )
        assert done.stdout == output, done.stderr


def test_the_sdist_holds_what_is_tracked_and_nothing_else(dist: Path) -> None:
    (built,) = dist.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {file.name.partition("/")[2] for file in archive if file.isfile()}
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.splitlines())
    assert names - tracked == {"PKG-INFO"}
    folders = ("src/", "tests/", "docs/", "examples/")
    assert {name for name in tracked if name.startswith(folders)} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names


def test_the_wheel_is_small_and_carries_its_attributions(wheel: Path) -> None:
    assert wheel.stat().st_size <= 48e6
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        notice = archive.read("capsar/models/NOTICE.md").decode()
    for owner in ("MAMS", "Bing Liu", "CC BY 4.0", "GloVe", "all-MiniLM-L6-v2", "Apache License"):
        assert owner in notice
    models = {name.split("/")[2] for name in names if re.match(r"capsar/models/\w+/", name)}
    sizes = {"base": 32e6, "fast": 13e6}
    assert models == set(sizes)
    for model in models:
        folder = ROOT / "src" / "capsar" / "models" / model
        assert sum(file.stat().st_size for file in folder.iterdir()) <= sizes[model]
        assert f"capsar/models/{model}/README.md" in names

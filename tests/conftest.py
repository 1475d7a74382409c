"""Shared fixtures: benchmark data, encoders, a small bundle; and a guard against silent skips."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent

# The time of an example depends on the load of the machine, so there is no deadline.
settings.register_profile("capsar", deadline=None)
settings.load_profile("capsar")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data folder; tests that need it are skipped without it."""
    folder = os.environ.get("CAPSAR_DATA")
    if not folder:
        pytest.skip("CAPSAR_DATA is not set: the benchmark files may not be redistributed")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2; tests that need it are skipped without it."""
    folder = os.environ.get("CAPSAR_ENCODERS")
    if not folder:
        pytest.skip("CAPSAR_ENCODERS is not set: no pre-trained encoder is available")
    return Path(folder).resolve() / "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; tests that need it are skipped without it."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete bundle of a tiny network, trained for one epoch. Tests must not change it."""
    from synthetic_reviews import write_reviews

    from capsar.config import run_config
    from capsar.training.trainer import train

    folder = tmp_path_factory.mktemp("small")
    data = write_reviews(folder / "reviews.csv", 120)
    sizes = {"units": 8, "primary_dim": 6, "intermediate_capsules": 4, "intermediate_dim": 8}
    content = {
        "data": {"train": str(data), "word_dim": 12},
        "model": sizes | {"class_dim": 10, "span_weight": 1.0},
        "train": {"max_epochs": 1},
    }
    return train(run_config(content), folder / "run").bundle


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a file system of a given size, which needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", disk], check=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report skipped tests as failures if CAPSAR_NO_SKIPS is set."""
    report = yield
    if os.environ.get("CAPSAR_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped despite CAPSAR_NO_SKIPS: {report.longrepr}"
    return report

"""What every test may use: the benchmark data if it is here, and a guard against silent skips."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of all data; without it, tests that need it are skipped with the reason."""
    folder = os.environ.get("CAPSAR_DATA")
    if not folder:
        pytest.skip("CAPSAR_DATA is not set: the benchmark files may not be redistributed")
    return Path(folder).resolve()


@pytest.fixture
def root() -> Path:
    """The project's own folder."""
    return ROOT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Where everything is at hand (CAPSAR_NO_SKIPS), a skipped test is a failed one."""
    report = yield
    if os.environ.get("CAPSAR_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report

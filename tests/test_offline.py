"""The library and the command line work with sockets forbidden by Python and the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from no_sockets import SITE
from synthetic_reviews import write_reviews


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that cannot create sockets."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    paths = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "100"}


def run(environment: dict[str, str], *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_sockets_are_forbidden(offline: dict[str, str]) -> None:
    """Otherwise the other tests would be void."""
    code = """
import ctypes, socket
for family in (socket.AF_INET, socket.AF_INET6):
    try:
        socket.socket(family)
    except RuntimeError as error:
        print(error)
    print(ctypes.CDLL(None).socket(int(family), 1, 0) < 0)
try:
    socket.create_connection(("localhost", 9))
except RuntimeError as error:
    print(error)
socket.socketpair()
"""
    lines = run(offline, "-c", code).splitlines()
    refused = ["forbidden: socket.__new__", "True"]
    assert lines == [*refused, *refused, "forbidden: socket.getaddrinfo"]


def test_the_command_line_needs_no_socket(
    offline: dict[str, str], small_bundle: Path, tmp_path: Path
) -> None:
    data = write_reviews(tmp_path / "held-out.csv", 30, seed=4)
    text = "The soup was cold but the staff were lovely."
    output = run(offline, "-m", "capsar", "analyze", text, "--model", small_bundle)
    assert output.startswith(text)
    assert "  soup: " in output
    page = tmp_path / "page.html"
    run(offline, "-m", "capsar", "analyze", text, "--model", small_bundle, "--html", page)
    assert "soup" in page.read_text()
    options = ("--aspect", "soup", "--json", "--model", small_bundle)
    output = run(offline, "-m", "capsar", "analyze", text, *options)
    assert json.loads(output)["aspects"][0]["text"] == "soup"
    assert "all files match" in run(offline, "-m", "capsar", "inspect", small_bundle)
    assert "30 examples" in run(offline, "-m", "capsar", "evaluate", small_bundle, "--data", data)
    assert "30 examples" in run(offline, "-m", "capsar", "data", "check", data)
    assert "out" in run(offline, "-m", "capsar", "export", small_bundle, tmp_path / "out")


def test_the_python_api_needs_no_socket(offline: dict[str, str], small_bundle: Path) -> None:
    code = f"""
import capsar
analyzer = capsar.load({str(small_bundle)!r}, threads=2)
text = "The soup was awful."
print(len(analyzer.classify([text], [["soup", capsar.AspectSpan(4, 8)]])[0]))
print(len(analyzer.analyze([text] * 3)), len(list(analyzer.analyze_stream(iter([text])))))
print(len(analyzer.explain(text, "soup").words))
"""
    output = run(offline, "-c", code)
    assert output.split() == ["2", "3", "1", "5"]

"""A page's blocks, run one after the other as a reader would who has a checkout."""

from __future__ import annotations

import doctest
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from pages import ROOT, is_as_shown

if TYPE_CHECKING:
    from pages import Block

_PORT = "8000"
"""The port that pages show. Tests run side by side, so each story has one of its own instead."""
_READY_SECONDS = 60


class Story:
    """The folder, the names and the service that blocks of one page share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        self._names: dict[str, Any] = {}
        self._services: list[subprocess.Popen[bytes]] = []
        scripts = Path(sys.executable).parent
        self._environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}

    def tell(self, block: Block, page: str) -> None:
        """Run one block; fail if it fails, or prints something else than the page says."""
        if block.language == "python":
            self._python(block, page)
            return
        for command, shown in block.commands():
            place = f"{page}, line {block.line}: {command}"
            own = command.replace(_PORT, self._port)
            if command.startswith("capsar serve"):
                self._serve(own, place)
                continue
            done = subprocess.run(
                ["bash", "-c", own],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if shown is None:
                assert done.returncode == 0, f"{place}\n{done.stdout}{done.stderr}"
            else:
                printed = done.stdout.replace(self._port, _PORT)
                assert is_as_shown(printed, shown), f"{place}\n{printed}{done.stderr}"

    def end(self) -> None:
        """Stop what was started, as a reader would."""
        for service in self._services:
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=30) == 0

    def _python(self, block: Block, page: str) -> None:
        test = doctest.DocTestParser().get_doctest(block.code, {}, page, page, block.line - 1)
        test.globs = self._names
        told: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, clear_globs=False, out=told.append)
        assert not told, "".join(told)

    def _serve(self, command: str, place: str) -> None:
        words = command.partition(" #")[0]
        port = "" if "--port" in words else f" --port {self._port}"
        service = subprocess.Popen(
            ["bash", "-c", f"exec {words}{port}"],
            cwd=self.folder,
            env=self._environment,
            stderr=subprocess.DEVNULL,
        )
        self._services.append(service)
        end = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            assert service.poll() is None, f"{place}\nended with {service.returncode}"
            assert time.monotonic() < end, f"{place}\nnot ready in {_READY_SECONDS} s"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, or not answered in time
            return False

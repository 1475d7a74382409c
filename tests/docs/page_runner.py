"""Run the code blocks of a page in order, as a reader with a checkout would."""

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

from markdown_pages import ROOT, is_as_shown

if TYPE_CHECKING:
    from markdown_pages import Block

_PORT = "8000"
"""The port that pages show. Tests run in parallel, so each page gets a free port instead."""
_READY_SECONDS = 60


class PageRunner:
    """The folder, the names and the service that the blocks of one page share."""

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

    def run_block(self, block: Block, page: str) -> None:
        """Run one block; fail if it fails or prints something other than the page shows."""
        if block.language == "python":
            self._python(block, page)
            return
        for command, shown in block.commands():
            location = f"{page}, line {block.line}: {command}"
            own = command.replace(_PORT, self._port)
            if command.startswith("capsar serve"):
                self._serve(own, location)
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
                assert done.returncode == 0, f"{location}\n{done.stdout}{done.stderr}"
            else:
                printed = done.stdout.replace(self._port, _PORT)
                assert is_as_shown(printed, shown), f"{location}\n{printed}{done.stderr}"

    def stop(self) -> None:
        """Stop the services that were started."""
        for service in self._services:
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=30) == -signal.SIGTERM

    def _python(self, block: Block, page: str) -> None:
        test = doctest.DocTestParser().get_doctest(block.code, {}, page, page, block.line - 1)
        test.globs = self._names
        output: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, clear_globs=False, out=output.append)
        assert not output, "".join(output)

    def _serve(self, command: str, location: str) -> None:
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
            assert service.poll() is None, f"{location}\nended with {service.returncode}"
            assert time.monotonic() < end, f"{location}\nnot ready in {_READY_SECONDS} s"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:  # refused, or timed out
            return False

"""A process that searches, selects or teaches must not see a test part: it cannot open one.

`close_test_parts()` cannot be undone while the process lives: it is an audit hook of Python, which
sees every file that is opened, by whatever code.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from capsar.data.catalog import TEST, datasets, locate

CORPUS = Path(__file__).parent.parent / "corpus"


class ClosedError(PermissionError):
    """A test part was about to be opened where nothing may depend on it."""


def closed_paths() -> frozenset[str]:
    """Return the files of all test parts, ARTS and the corpus' marked-up text included."""
    files = [
        locate(file)
        for dataset in datasets().values()
        for file in dataset.files
        if file.part == TEST
    ]
    marked_up = [*CORPUS.glob("test/*.txt"), *CORPUS.glob("checks/test-*.txt")]
    return frozenset(os.path.realpath(path) for path in (*files, *marked_up))


def close_test_parts() -> None:
    """Let every attempt to open a test part fail, in this process and from now on."""
    closed = closed_paths()

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path in closed:
            raise ClosedError(f"{path!r} is a test part: nothing here may depend on it")

    sys.addaudithook(watch)

"""A process that searches, selects or teaches must not see a test part: it cannot open one.

`close_test_parts()` cannot be undone while the process lives: it is an audit hook of Python, which
sees every file that is opened, by whatever code.
"""

from __future__ import annotations

import os
import sys

from capsar.data.catalog import TEST, data_folder, datasets


class ClosedError(PermissionError):
    """A test part was about to be opened where nothing may depend on it."""


def closed_paths() -> frozenset[str]:
    """Return the files of all test parts; those of ARTS are some of them."""
    folder = data_folder()
    return frozenset(
        os.path.realpath(folder / file.path)
        for dataset in datasets().values()
        for file in dataset.files
        if file.part == TEST
    )


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

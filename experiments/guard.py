"""The test-set guard: a process that searches, selects or labels cannot open a test set.

`close_test_sets()` installs an audit hook, which sees every file that Python opens and cannot be
removed while the process lives.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from capsar.data.catalog import TEST, data_folder, datasets, expected_path

CORPUS = Path(__file__).parent.parent / "corpus"


class ClosedError(PermissionError):
    """Raised when a guarded process tries to open a test set."""


def guarded_paths() -> frozenset[str]:
    """Return the files of all test sets: also ARTS, MEMD, ASTE, M-ABSA and the corpus' sources."""
    files = [
        expected_path(file)
        for dataset in datasets().values()
        for file in dataset.files
        if file.part == TEST
    ]
    patterns = ("test/*.txt", "checks/test-*.txt", "opinions/test.jsonl", "checks/opinions-*")
    sources = [path for pattern in patterns for path in CORPUS.glob(pattern)]
    more = (data_folder() / "evaluation").glob("**/test*")
    return frozenset(os.path.realpath(path) for path in (*files, *sources, *more))


def close_test_sets() -> None:
    """Make every later attempt of this process to open a test set fail."""
    closed = guarded_paths()

    def check(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path in closed:
            raise ClosedError(f"{path!r} belongs to a test set: this process must not read it")

    sys.addaudithook(check)

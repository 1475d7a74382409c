"""A guarded process cannot open a test set, whatever path it uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
CODE = """
import os, sys
from pathlib import Path
from capsar.data.catalog import test_examples, training_examples
from guard import ClosedError, close_test_sets, guarded_paths

close_test_sets()
assert len(training_examples("mams")) > 1000
assert len(guarded_paths()) > 15
path = sorted(guarded_paths())[0]
link = Path(sys.argv[1]) / "link.txt"
link.symlink_to(path)
os.chdir(Path(path).parent)
for attempt in (
    lambda: test_examples("semeval14-laptops"),
    lambda: test_examples("arts-restaurants"),
    lambda: open(path),
    lambda: Path(Path(path).name).read_bytes(),
    lambda: open(os.fsencode(path), "rb"),
    lambda: os.open(path, os.O_RDONLY),
    lambda: link.read_text(),
):
    try:
        attempt()
    except ClosedError:
        continue
    sys.exit("a test set was opened")
"""


def test_a_guarded_process_cannot_open_a_test_set(shared: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(EXPERIMENTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path],
        env=os.environ | {"PYTHONPATH": path, "CAPSAR_DATA": str(shared)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

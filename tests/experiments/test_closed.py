"""What searches, selects or teaches cannot open a test part, however it is named."""

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
from closed import ClosedError, close_test_parts, closed_paths

close_test_parts()
assert len(training_examples("mams")) > 1000
assert len(closed_paths()) > 15
path = sorted(closed_paths())[0]
link = Path(sys.argv[1]) / "innocent.txt"
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
    sys.exit("a test part was opened")
"""


def test_no_test_part_can_be_opened_any_more(shared: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(EXPERIMENTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path],
        env=os.environ | {"PYTHONPATH": path, "CAPSAR_DATA": str(shared)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

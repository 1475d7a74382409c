"""A coverage-guided fuzzer for every reader: `python tests/fuzz/fuzz_readers.py CORPUS [-runs=N]`.

The first byte chooses the file name, and so the format; the rest is the file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["capsar"]):
    from capsar.data.readers import read_rows
    from capsar.data.records import Notice
    from capsar.errors import FormatError
    from capsar.schema import Example

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
import samples

NAMES = list(samples.FILES)
FOLDER = Path(tempfile.mkdtemp(prefix="capsar-fuzz-"))


def test_one_input(data: bytes) -> None:
    """Read any bytes; every result must be a valid row."""
    if not data:
        return
    path = FOLDER / NAMES[data[0] % len(NAMES)]
    path.write_bytes(data[1:])
    for row in read_rows(path):
        if isinstance(row, FormatError):
            if not (row.record and row.reason):
                raise AssertionError("an error without a record or reason")
        elif isinstance(row, Example):
            if any(not row.text[span.start : span.end] for span in row.spans):
                raise AssertionError("a span outside its text")
        elif not isinstance(row, Notice):
            raise AssertionError(f"not a row: {row!r}")


if __name__ == "__main__":
    corpus = Path(sys.argv[1])
    for number, content in enumerate(samples.FILES.values()):
        (corpus / f"seed-{number}").write_bytes(bytes([number]) + content)
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()

"""`Fragment`: a bounded run of rows of one input file, and the name of its output."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from capsar.bulk.store import base_name
from capsar.errors import DataError

if TYPE_CHECKING:
    from capsar.bulk.store import InputFile

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
END = -1
"""As a fragment's end: that of the file, whatever it is."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A run of rows: Parquet row groups or a range of bytes, from `start` up to `end`."""

    address: str
    start: int
    end: int
    size: int
    """Bytes of the input: what the time left is reckoned from."""
    name: str
    """Of the output file."""

    def to_json(self) -> str:
        """Return the fragment as workers of any engine receive it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Fragment:
        """Return the fragment that `to_json` wrote."""
        return Fragment(**json.loads(text))


def make_fragment(file: InputFile, start: int, end: int, size: int) -> Fragment:
    """Return a fragment whose name is a function of the file, its version and the range."""
    what = "\n".join((file.address, str(file.size), file.version, str(start), str(end)))
    digest = hashlib.blake2b(what.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    stem = re.sub(r"[^\w-]+", "-", base_name(file.address).partition(".")[0], flags=re.ASCII)
    return Fragment(file.address, start, end, size, f"{stem[:40]}-{start:012d}-{digest}.parquet")


def file_format(address: str) -> tuple[str, str | None]:
    """Return a file's format and compression, as its name tells them.

    Raises:
        DataError: If it tells none that can be read.
    """
    name = base_name(address).lower()
    compression = next((c for ending, c in _COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression:
        name = name.rpartition(".")[0]
    for ending, kind in _FORMATS.items():
        if name.endswith(ending) and not (compression and kind == "parquet"):
            return kind, compression
    raise DataError(
        f"Cannot tell the format of {address!r}. Files that are read end in "
        f"{', '.join(_FORMATS)}, and but for Parquet may go on in {', '.join(_COMPRESSIONS)}."
    )

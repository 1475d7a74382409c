"""Shards: bounded ranges of rows in one input file, each with the name of its output file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from capsar.bulk.filesystem import base_name
from capsar.errors import DataError

if TYPE_CHECKING:
    from capsar.bulk.filesystem import InputFile

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
"""Value of `Shard.end` for the end of the file."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The Parquet row groups, or the bytes, from `start` up to `end` of one file."""

    uri: str
    start: int
    end: int
    size: int
    """Bytes of input, used to estimate the remaining time."""
    name: str
    """Name of the output file."""

    def to_json(self) -> str:
        """Return the shard as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Shard:
        """Return the shard written by `to_json`."""
        return Shard(**json.loads(text))


def make_shard(file: InputFile, start: int, end: int, size: int) -> Shard:
    """Return a shard whose name is a function of the file, its version and the range."""
    key = "\n".join((file.uri, str(file.size), file.version, str(start), str(end)))
    digest = hashlib.blake2b(key.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    stem = re.sub(r"[^\w-]+", "-", base_name(file.uri).partition(".")[0], flags=re.ASCII)
    return Shard(file.uri, start, end, size, f"{stem[:40]}-{start:012d}-{digest}.parquet")


def file_format(uri: str) -> tuple[str, str | None]:
    """Return the format and the compression that a file's name implies.

    Raises:
        DataError: If the extension is not supported.
    """
    name = base_name(uri).lower()
    compression = next((c for ending, c in _COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression:
        name = name.rpartition(".")[0]
    for ending, kind in _FORMATS.items():
        if name.endswith(ending) and not (compression and kind == "parquet"):
            return kind, compression
    raise DataError(
        f"Unknown format of {uri!r}. Supported extensions are {', '.join(_FORMATS)}; all except "
        f"those of Parquet can be followed by {', '.join(_COMPRESSIONS)}."
    )

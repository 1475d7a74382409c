"""The output of a shard: a Parquet file with its result in the metadata."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from capsar.bulk import filesystem

if TYPE_CHECKING:
    from pathlib import Path

_METADATA_KEY = b"capsar"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The outcome of one shard."""

    uri: str
    """The input file."""
    size: int
    """Bytes of input."""
    num_shards: int
    """Number of shards of the input file."""
    rows: int
    errors: dict[str, int]
    """Number of rows with an error, by kind."""
    first_errors: list[list[str]]
    """Location and error of the first rows with an error."""


def write_output(path: Path, table: Any, result: ShardResult) -> None:  # noqa: ANN401
    """Write an output file, and verify that it can be read."""
    metadata = {_METADATA_KEY: json.dumps(asdict(result))}
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
    if read_result(str(path)) != result:
        raise OSError(f"{path} was not written completely")


def read_result(uri: str) -> ShardResult:
    """Return the result stored in the metadata of a finished output file.

    Raises:
        pyarrow.ArrowException, KeyError, TypeError, ValueError: If the file is damaged.
    """

    def read() -> bytes:
        with filesystem.open_input(uri) as stream:
            try:
                return bytes((pq.read_metadata(stream).metadata or {})[_METADATA_KEY])
            except OSError as error:  # also of a damaged footer, which has no number
                if error.errno is None and filesystem.is_local(uri):
                    raise ValueError(str(error)) from error
                raise

    return ShardResult(**json.loads(filesystem.retry(uri, read)))

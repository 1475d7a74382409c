"""The output of one fragment: a Parquet file with a report inside it, written aside."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.bulk.fragments import Fragment
    from capsar.bulk.objections import Answer

JOB_FOLDER = "_job"
_SCRATCH = "scratch"
_NOTE = b"capsar"
"""The key of a report in the metadata of the file it is about."""
_ROWS_A_GROUP = 1 << 15
_BYTES_A_GROUP = 1 << 24
_ERRORS_NAMED = 20


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a fragment."""

    name: str
    address: str
    size: int
    rows: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """How many rows have an error of each kind."""
    named: list[tuple[str, str]] = field(default_factory=list)
    """The first of them: place and error."""
    unreadable: str = ""
    """Why there is no output: the file is at fault, and others may go on."""
    stopped: str = ""
    """Why there is no output: nothing can be written, and nobody should go on."""

    def to_json(self) -> str:
        """Return the report as an engine's driver receives it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Report:
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        fields["named"] = [(place, error) for place, error in fields["named"]]
        return Report(**fields)


class FragmentOutput:
    """Gathers scored rows into row groups of a Parquet file, and counts them."""

    def __init__(self, path: Path, fragment: Fragment) -> None:
        self._path = path
        self._fragment = fragment
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._rows = 0
        self._errors: Counter[str] = Counter()
        self._named: list[tuple[str, str]] = []

    def write(self, scored: Any, places: list[str], answers: list[Answer]) -> None:  # noqa: ANN401
        """Take the next rows, each with its place and answer."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, scored.schema, compression="zstd")
        self._rows += len(places)
        for place, (_, error) in zip(places, answers, strict=True):
            if error:
                self._errors[error.partition(":")[0]] += 1
                if len(self._named) < _ERRORS_NAMED:
                    self._named.append((place, error[:500]))
        self._waiting.append(scored)
        many = sum(map(len, self._waiting)) >= _ROWS_A_GROUP
        if many or sum(table.nbytes for table in self._waiting) >= _BYTES_A_GROUP:
            self._flush()

    def finish(self) -> Report:
        """Write what waits, and the report; the file is then whole."""
        self._flush()
        report = Report(
            self._fragment.name,
            self._fragment.address,
            self._fragment.size,
            self._rows,
            dict(sorted(self._errors.items())),
            self._named,
        )
        self._writer.add_key_value_metadata({_NOTE: report.to_json()})
        self._writer.close()
        return report

    def abandon(self) -> None:
        """Let go of the file; it will be removed, so that it cannot be closed is no matter."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_ROWS_A_GROUP)
            self._waiting = []


def read_report(address: str) -> Report:
    """Return the report inside a finished file."""

    def read() -> bytes:
        with store.open_input(address) as stream:
            return bytes(pq.read_metadata(stream).metadata[_NOTE])

    return Report.from_json(store.retried(address, read))


@contextmanager
def scratch_file(output: str, name: str) -> Iterator[Path]:
    """Give a path to write at: on the output's disk, or for a store on this machine's."""
    folder = Path(scratch_folder(output))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def scratch_folder(output: str) -> str:
    """Return where fragments are written before they are published."""
    if store.is_local(output):
        return store.join(output, JOB_FOLDER, _SCRATCH)
    return str(Path(tempfile.gettempdir()) / "capsar-scratch")

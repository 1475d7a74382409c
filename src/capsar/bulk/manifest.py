"""The job manifest: the identity, the plan and the finished shards of an output folder.

```
OUTPUT/
├── NAME.parquet …       one file per finished shard
├── _job/job.json        options, model and release, which must not change
├── _job/plan.parquet    every input file with its version, every shard with its name
├── _job/scratch/        output files that are not finished
├── _summary.json        counts of rows and errors
└── _SUCCESS             exists if every shard is finished
```
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.bulk.filesystem import InputFile
from capsar.bulk.output import JOB_FOLDER
from capsar.bulk.planning import check_first_file, find_files, plan_shards
from capsar.bulk.shards import Shard
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.bulk.job import Job

SUCCESS = "_SUCCESS"
SUMMARY = "_summary.json"
_SHARD_COLUMNS = ("uri", "start", "end", "size", "name")
_NEXT_STEP = "Use another output folder, or remove this one."


@dataclass(frozen=True, slots=True)
class JobManifest:
    """All shards of a job, and which of them are finished."""

    shards: list[Shard]
    finished: set[str]
    """Names of the finished output files."""
    ignored: list[str]
    """Input files of unknown format."""


def open_manifest(job: Job, inputs: Sequence[str]) -> JobManifest:
    """Plan a new job, or resume the job of an existing output folder.

    Raises:
        DataError: If the output folder belongs to another job or to other input.
    """
    files, ignored = find_files(inputs)
    finished = {name for name in filesystem.list_names(job.output) if name.endswith(".parquet")}
    stored = filesystem.read_bytes(_job_file(job))
    if stored is None:
        if finished:
            raise DataError(
                f"{job.output!r} contains Parquet files that are not part of a job. {_NEXT_STEP}"
            )
        check_first_file(files, job.options)
        shards = _write(job, files, plan_shards(files, job.options))
    else:
        _check_same(job, json.loads(stored), files)
        shards = _resume(job, files, finished)
    unknown = finished - {shard.name for shard in shards}
    if unknown:
        raise DataError(
            f"{job.output!r} contains {min(unknown)!r}, which is not part of this job. {_NEXT_STEP}"
        )
    return JobManifest(shards, finished, ignored)


def _job_file(job: Job) -> str:
    return filesystem.join(job.output, JOB_FOLDER, "job.json")


def _plan_file(job: Job) -> str:
    return filesystem.join(job.output, JOB_FOLDER, "plan.parquet")


def _check_same(job: Job, stored: dict[str, Any], files: list[InputFile]) -> None:
    """Raise a DataError if the job differs from the one that started the output folder."""
    current = job.identity()
    for name in current:
        if name != "options" and current[name] != stored.get(name):
            raise DataError(
                f"{job.output!r} was started with another {name.replace('_', ' ')} "
                f"({stored.get(name)!r}, now {current[name]!r}), and results must not be mixed. "
                f"{_NEXT_STEP}"
            )
    for name, value in current["options"].items():
        before = stored["options"].get(name)
        if value != before:
            check_first_file(files, job.options)  # report a misspelled column as such
            raise DataError(
                f"{job.output!r} was started with {name}={before!r}, now it is {value!r}, and "
                f"results must not be mixed. {_NEXT_STEP}"
            )


def _resume(job: Job, files: list[InputFile], finished: set[str]) -> list[Shard]:
    """Return the stored plan. Plan changed files again if none of their shards are finished."""
    planned, shards = _read(job)
    new = [file.uri for file in files if file.uri not in planned]
    if new:
        raise DataError(
            f"The input has {len(new)} files that were not there when {job.output!r} was started, "
            f"such as {new[0]!r}. Score them into another output folder."
        )
    current = {file.uri: file for file in files}
    changed = {uri for uri, file in planned.items() if current.get(uri) != file}
    for shard in shards:
        if shard.uri in changed and shard.name in finished:
            raise DataError(
                f"{shard.uri!r} has changed since {job.output!r} was started, which contains "
                f"results of the old content. {_NEXT_STEP}"
            )
    if not changed:
        return shards
    kept = [shard for shard in shards if shard.uri not in changed]
    replanned = plan_shards((current[uri] for uri in sorted(changed & current.keys())), job.options)
    return _write(job, files, sorted([*kept, *replanned], key=lambda s: (s.uri, s.start)))


def _write(job: Job, files: Iterable[InputFile], shards: list[Shard]) -> list[Shard]:
    """Write the plan first, then the job."""
    known = {file.uri: file for file in files}
    table = pa.table(
        {
            **{name: [getattr(shard, name) for shard in shards] for name in _SHARD_COLUMNS},
            "file_size": [known[shard.uri].size for shard in shards],
            "version": [known[shard.uri].version for shard in shards],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    filesystem.write_bytes(_plan_file(job), sink.getvalue().to_pybytes())
    filesystem.write_bytes(_job_file(job), json.dumps(job.identity(), indent=1).encode() + b"\n")
    return shards


def _read(job: Job) -> tuple[dict[str, InputFile], list[Shard]]:
    content = filesystem.read_bytes(_plan_file(job))
    if content is None:
        raise DataError(f"{job.output!r} has no plan ({JOB_FOLDER}/plan.parquet). {_NEXT_STEP}")
    columns = pq.read_table(pa.BufferReader(content)).to_pydict()
    files = {
        uri: InputFile(uri, size, version)
        for uri, size, version in zip(
            columns["uri"], columns["file_size"], columns["version"], strict=True
        )
    }
    values = zip(*(columns[name] for name in _SHARD_COLUMNS), strict=True)
    return files, [Shard(*row) for row in values]

"""The job manifest: what an output folder says about its job.

```
OUTPUT/
├── NAME.parquet …       one file per finished shard
├── _job/job.json        options, model, release and column types, which must not change
├── _job/converted/      text files as Parquet, until all of their shards are finished
├── _job/scratch/        output files that are not finished
├── _summary.json        counts of rows and errors
└── _SUCCESS             exists if every shard is finished
```
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.bulk import filesystem
from capsar.bulk.output import read_result
from capsar.bulk.planning import (
    check_first_file,
    digest_of,
    file_digest,
    find_files,
    kept_schema,
    plan_files,
)
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.bulk.filesystem import InputFile
    from capsar.bulk.job import Job
    from capsar.bulk.output import ShardResult
    from capsar.bulk.planning import PlannedFile

SUCCESS = "_SUCCESS"
SUMMARY = "_summary.json"
_NUM_THREADS = 16
_NEXT_STEP = "Use another output folder, or remove this one."


@dataclass(frozen=True, slots=True)
class JobManifest:
    """The input files of a job, and its finished shards."""

    job: Job
    """The job, with the schema of its output."""
    planned: list[PlannedFile]
    finished: dict[str, ShardResult]
    """The results of finished shards by the name of their output file."""
    ignored: list[str]
    """Input files of unknown format."""


def open_manifest(job: Job, inputs: Sequence[str]) -> JobManifest:
    """Plan a new job, or resume the job of an existing output folder. Change only the manifest.

    Raises:
        DataError: If the output folder belongs to another job or to other input.
    """
    files, ignored = find_files(inputs, job.output)
    names = [name for name in filesystem.list_names(job.output) if name.endswith(".parquet")]
    planned = None
    content = filesystem.read_bytes(_job_file(job))
    if content is None:
        if names:
            raise DataError(
                f"{job.output!r} contains Parquet files that are not part of a job. {_NEXT_STEP}"
            )
        check_first_file(files, job.options)
        planned = plan_files(job, files)
        schema = kept_schema(planned, job.options)
        serialized = base64.b64encode(schema.serialize().to_pybytes()).decode()
        content = json.dumps(job.identity() | {"schema": serialized}, indent=1).encode()
        content = filesystem.create(_job_file(job), content + b"\n")
    stored = json.loads(content)
    _check_same(job, stored, files)
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(stored["schema"])))
    job = replace(job, schema=schema)
    finished = _read_results(job, names)
    _check_versions(job, files, names, finished)
    return JobManifest(job, planned or plan_files(job, files), finished, ignored)


def discard_manifest(job: Job) -> None:
    """Remove the manifest of a job without output, so that the options can be changed."""
    if not any(name.endswith(".parquet") for name in filesystem.list_names(job.output)):
        filesystem.remove(_job_file(job))


def _job_file(job: Job) -> str:
    return filesystem.join(job.output, filesystem.JOB_FOLDER, "job.json")


def _check_same(job: Job, stored: dict[str, Any], files: list[InputFile]) -> None:
    """Raise a DataError if the job differs from the one that started the output folder."""
    current = job.identity()
    for name in current:
        if name != "options" and current[name] != stored.get(name):
            raise DataError(
                f"{job.output!r} was started with another {name.replace('_', ' ')} "
                f"({stored.get(name)!r:.12}, now {current[name]!r:.12}), and results must not be "
                f"mixed. {_NEXT_STEP}"
            )
    for name, value in current["options"].items():
        before = stored["options"].get(name)
        if value != before:
            check_first_file(files, job.options)  # report a misspelled column as such
            raise DataError(
                f"{job.output!r} was started with {name}={before!r:.200}, now it is "
                f"{value!r:.200}, and "
                f"results must not be mixed. {_NEXT_STEP}"
            )


def _check_versions(
    job: Job, files: list[InputFile], names: list[str], finished: dict[str, ShardResult]
) -> None:
    """Raise a DataError if the output contains results of files that changed, or other files."""
    current, uris = {file_digest(job, file) for file in files}, {file.uri for file in files}
    for name in sorted(names):
        if digest_of(name) in current:
            continue
        if name not in finished:
            raise DataError(
                f"{job.output!r} contains {name!r}, which is not part of this job. {_NEXT_STEP}"
            )
        uri = finished[name].uri
        raise DataError(
            f"{uri!r} {'has changed' if uri in uris else 'is not among the inputs any more'} since "
            f"{job.output!r} was started, which contains results of it. {_NEXT_STEP}"
        )


def _read_results(job: Job, names: list[str]) -> dict[str, ShardResult]:
    """Return the results of undamaged output files. The others are scored again."""

    def read(name: str) -> ShardResult | None:
        try:
            return read_result(filesystem.join(job.output, name))
        except (pa.ArrowException, KeyError, TypeError, ValueError, FileNotFoundError):
            return None

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        results = zip(names, pool.map(read, names), strict=True)
        return {name: result for name, result in results if result is not None}

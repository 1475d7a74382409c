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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.bulk import filesystem, planning
from capsar.bulk.output import read_result
from capsar.bulk.planning import digest_of, plan_files
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
    """Plan a new job, or resume the job of an existing output folder.

    Only the manifest is changed, and output of files that were replaced is removed.

    Raises:
        DataError: If the output folder belongs to another job or to other input.
    """
    files, ignored = planning.find_files(inputs, job.output)
    names = output_names(job)
    planned = None
    content = filesystem.read_bytes(_job_file(job))
    if content is None:
        if names:
            raise DataError(
                f"{job.output!r} contains Parquet files that are not part of a job. {_NEXT_STEP}"
            )
        planning.check_first_file(files, job.options)
        planned = plan_files(job, files)
        schema = base64.b64encode(planning.kept_schema(planned, job.options).serialize()).decode()
        content = json.dumps(job.identity() | {"schema": schema}, indent=1).encode() + b"\n"
        content = filesystem.create(_job_file(job), content)
    stored = json.loads(content)
    _check_same(job, stored, files)
    schema_buffer = pa.py_buffer(base64.b64decode(stored["schema"]))
    job = replace(job, schema=pa.ipc.read_schema(schema_buffer))
    finished = _read_results(job, names)
    _check_versions(job, files, names, finished)
    return JobManifest(job, planned or plan_files(job, files), finished, ignored)


def complete_files(finished: dict[str, ShardResult]) -> set[str]:
    """Return the digests of the files whose shards are all finished."""
    found = Counter((digest_of(name), result.num_shards) for name, result in finished.items())
    return {digest for (digest, num_shards), number in found.items() if number == num_shards}


def discard_manifest(job: Job) -> None:
    """Remove the manifest of a job without output, so that the options can be changed."""
    if not output_names(job):
        filesystem.remove(_job_file(job))


def output_names(job: Job) -> list[str]:
    """Return the names of the Parquet files in the output folder, sorted."""
    return sorted(n for n in filesystem.list_names(job.output) if n.endswith(".parquet"))


def _job_file(job: Job) -> str:
    return filesystem.join(job.output, filesystem.JOB_FOLDER, "job.json")


def _check_same(job: Job, stored: dict[str, Any], files: list[InputFile]) -> None:
    """Raise a DataError if the job differs from the one that started the output folder."""
    current, stored = job.identity(), stored | stored["options"]
    options = current.pop("options")
    for name, value in (current | options).items():
        before = stored.get(name)
        if value == before:
            continue
        change = f"another {name.replace('_', ' ')} ({before!r:.12}, now {value!r:.12})"
        if name in options:
            planning.check_first_file(files, job.options)  # report a misspelled column as such
            change = f"{name}={before!r:.200}, now it is {value!r:.200}"
        raise DataError(
            f"{job.output!r} was started with {change}, and results must not be mixed. {_NEXT_STEP}"
        )


def _check_versions(
    job: Job, files: list[InputFile], names: list[str], finished: dict[str, ShardResult]
) -> None:
    """Raise a DataError if the output contains results of files that changed, or other files.

    A file that could not be read completely can be replaced: what was read of it is removed.
    """
    complete = complete_files(finished)
    uris = {planning.file_digest(job, file): file.uri for file in files}
    for name in names:
        if digest_of(name) in uris:
            continue
        reason = f"{job.output!r} contains {name!r}, which is not part of this job"
        if name in finished:
            uri = finished[name].uri
            is_input = uri in uris.values()
            if is_input and digest_of(name) not in complete:
                filesystem.remove(filesystem.join(job.output, name))
                del finished[name]
                continue
            reason = (
                f"{uri!r} {'has changed' if is_input else 'is not among the inputs any more'} "
                f"since {job.output!r} was started, which contains results of it"
            )
        raise DataError(f"{reason}. {_NEXT_STEP}")


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

"""What an output folder holds: the job it belongs to, the plan, and what of it is finished.

```
OUTPUT/
├── NAME.parquet …       one for each finished fragment
├── _job/job.json        options, model and release: what may not change
├── _job/plan.parquet    every input file with its version, every fragment with its name
├── _job/scratch/        what is being written
├── _summary.json        what became of it all
└── _SUCCESS             there if every fragment is
```
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import store
from capsar.bulk.fragments import Fragment
from capsar.bulk.output import JOB_FOLDER
from capsar.bulk.plan import check_first, find_files, plan
from capsar.bulk.store import InputFile
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.bulk.job import Job

SUCCESS = "_SUCCESS"
SUMMARY = "_summary.json"
_ELSE = "Name another output, or remove this one."


@dataclass(frozen=True, slots=True)
class Ledger:
    """All fragments of a job, and those that have their output."""

    fragments: list[Fragment]
    finished: set[str]
    """Names of output files."""
    ignored: list[str]
    """Files in the input's folders whose format is not known."""


def open_ledger(job: Job, inputs: Sequence[str]) -> Ledger:
    """Plan a job, or take up the one that the output was begun with.

    Raises:
        DataError: If the output belongs to another job, or to other input.
    """
    files, ignored = find_files(inputs)
    finished = {name for name in store.names_in(job.output) if name.endswith(".parquet")}
    begun = store.read_bytes(_job_file(job))
    if begun is None:
        if finished:
            raise DataError(f"{job.output!r} holds Parquet files of no job. {_ELSE}")
        check_first(files, job.options)
        fragments = _write(job, files, plan(files, job.options))
    else:
        _check_same(job, json.loads(begun), files)
        fragments = _resume(job, files, finished)
    strange = finished - {fragment.name for fragment in fragments}
    if strange:
        raise DataError(f"{job.output!r} holds {min(strange)!r}, which is not of this job. {_ELSE}")
    return Ledger(fragments, finished, ignored)


def _job_file(job: Job) -> str:
    return store.join(job.output, JOB_FOLDER, "job.json")


def _plan_file(job: Job) -> str:
    return store.join(job.output, JOB_FOLDER, "plan.parquet")


def _check_same(job: Job, begun: dict[str, Any], files: list[InputFile]) -> None:
    now = job.identity()
    for name in now:
        if name != "options" and now[name] != begun.get(name):
            raise DataError(
                f"{job.output!r} was begun with another {name.replace('_', ' ')} "
                f"({begun.get(name)!r}, now {now[name]!r}); answers are not mixed. {_ELSE}"
            )
    for name, value in now["options"].items():
        before = begun["options"].get(name)
        if value != before:
            check_first(files, job.options)  # a misspelt column is better told as such
            raise DataError(
                f"{job.output!r} was begun with {name}={before!r}, now it is {value!r}; answers "
                f"are not mixed. {_ELSE}"
            )


def _resume(job: Job, files: list[InputFile], finished: set[str]) -> list[Fragment]:
    """Return the plan that was made; files that changed are planned anew if nothing is of them."""
    planned, fragments = _read(job)
    new = [file.address for file in files if file.address not in planned]
    if new:
        raise DataError(
            f"The input has {len(new)} files that {job.output!r} was begun without, as "
            f"{new[0]!r}. Score them into an output of their own."
        )
    now = {file.address: file for file in files}
    changed = {address for address, file in planned.items() if now.get(address) != file}
    for fragment in fragments:
        if fragment.address in changed and fragment.name in finished:
            raise DataError(
                f"{fragment.address!r} has changed since {job.output!r} was begun, which holds "
                f"answers to what it was. {_ELSE}"
            )
    if not changed:
        return fragments
    kept = [fragment for fragment in fragments if fragment.address not in changed]
    again = plan((now[address] for address in sorted(changed & now.keys())), job.options)
    return _write(job, files, sorted([*kept, *again], key=lambda f: (f.address, f.start)))


def _write(job: Job, files: Iterable[InputFile], fragments: list[Fragment]) -> list[Fragment]:
    """Write the plan and then, when it is there, the job."""
    known = {file.address: file for file in files}
    table = pa.table(
        {
            "address": [f.address for f in fragments],
            "file_size": [known[f.address].size for f in fragments],
            "version": [known[f.address].version for f in fragments],
            "start": [f.start for f in fragments],
            "end": [f.end for f in fragments],
            "size": [f.size for f in fragments],
            "name": [f.name for f in fragments],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    store.write_bytes(_plan_file(job), sink.getvalue().to_pybytes())
    store.write_bytes(_job_file(job), json.dumps(job.identity(), indent=1).encode() + b"\n")
    return fragments


def _read(job: Job) -> tuple[dict[str, InputFile], list[Fragment]]:
    content = store.read_bytes(_plan_file(job))
    if content is None:
        raise DataError(f"{job.output!r} has lost its plan. {_ELSE}")
    columns = pq.read_table(pa.BufferReader(content)).to_pydict()
    files = {
        address: InputFile(address, size, version)
        for address, size, version in zip(
            columns["address"], columns["file_size"], columns["version"], strict=True
        )
    }
    names = ("address", "start", "end", "size", "name")
    fragments = [
        Fragment(*values) for values in zip(*(columns[name] for name in names), strict=True)
    ]
    return files, fragments

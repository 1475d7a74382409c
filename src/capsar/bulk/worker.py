"""A fragment -> its output file. What every engine calls, and all that touches the output."""

from __future__ import annotations

import errno
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.bulk import store
from capsar.bulk.fragments import Fragment, make_fragment
from capsar.bulk.isolated import IsolatedScorer
from capsar.bulk.job import Job, model_fingerprint
from capsar.bulk.output import FragmentOutput, Report, scratch_file
from capsar.bulk.process import serve_lines
from capsar.bulk.readers import read_slices
from capsar.bulk.scorer import Scorer, with_answers
from capsar.errors import ArtifactError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from capsar.bulk.readers import Slice

_READS = 3
"""How often a file of a store is read before it is called damaged."""


class _UnreadableError(DataError):
    """An input file that cannot be read, whoever is at fault."""


class Worker:
    """Holds a job's model, and scores one fragment after the other."""

    def __init__(self, job: Job) -> None:
        """Load the model.

        Raises:
            ArtifactError: If it is not the model that the job was begun with.
        """
        if model_fingerprint(job.options.model) != job.model_sha256:
            raise ArtifactError(
                f"The model {job.options.model!r} is another one here than where the job was "
                "begun. Every machine needs the same."
            )
        pa.set_cpu_count(1)
        self._job = job
        self._scorer = Scorer(job.options)

    def score(self, fragment: Fragment, *, careful: bool = False) -> Report:
        """Score a fragment and make its output visible, or report why that cannot be.

        Args:
            fragment: What to score.
            careful: Whether its rows are scored in a process of their own, because the process
                of a worker has died of it.
        """
        waits, reads = store.waiting_times(), 0
        while True:
            try:
                return self._attempt(fragment, careful=careful)
            except _UnreadableError as error:
                # A store that is away looks like a damaged file, until it is asked again.
                reads += _answers_of_store(fragment.address)
                if not isinstance(error.__cause__, OSError) or reads >= _READS:
                    return _without_output(fragment, unreadable=str(error))
                reason = str(error)
                wait = next(waits, None)
            except OSError as error:
                reason = f"Cannot write {fragment.name} to {self._job.output!r}: {error}"
                is_final = store.is_local(self._job.output) or error.errno == errno.ENOSPC
                wait = None if is_final else next(waits, None)
            if wait is None:
                return _without_output(fragment, stopped=reason)
            time.sleep(wait)

    def _attempt(self, fragment: Fragment, *, careful: bool) -> Report:
        with scratch_file(self._job.output, fragment.name) as path:
            if careful:
                with IsolatedScorer(self._job.options) as scorer:
                    report = self._write(path, fragment, scorer)
            else:
                report = self._write(path, fragment, self._scorer)
            store.publish(path, store.join(self._job.output, fragment.name))
        return report

    def _write(self, path: Path, fragment: Fragment, scorer: Scorer | IsolatedScorer) -> Report:
        output = FragmentOutput(path, fragment)
        try:
            for part in self._slices(fragment):
                answers = scorer.answer(part.rows)
                places = [row.place for row in part.rows]
                output.write(with_answers(part.kept, answers), places, answers)
            return output.finish()
        finally:
            output.abandon()

    def _slices(self, fragment: Fragment) -> Iterator[Slice]:
        """Read a fragment of the very file that was planned; tell reading's errors from others."""
        slices = read_slices(fragment, self._job.options)
        try:
            _check_unchanged(fragment)
            yield from slices
        except (OSError, pa.ArrowException, DataError) as error:
            raise _UnreadableError(f"{fragment.address}: {error}") from error


def _check_unchanged(fragment: Fragment) -> None:
    """Raise a DataError if a file is not the one that a fragment's name was made from."""
    file = store.look_at(fragment.address)
    if make_fragment(file, fragment.start, fragment.end, fragment.size).name != fragment.name:
        raise DataError("it has changed since the job began")


def _answers_of_store(address: str) -> int:
    """Count an answer of a file's store; what this machine's disk says is final."""
    if store.is_local(address):
        return _READS
    try:
        store.look_at(address)
    except FileNotFoundError:
        return _READS
    except OSError:
        return 0
    return 1


def _without_output(fragment: Fragment, *, unreadable: str = "", stopped: str = "") -> Report:
    return Report(
        fragment.name, fragment.address, fragment.size, unreadable=unreadable, stopped=stopped
    )


def ask_worker(fragment: Fragment, *, careful: bool) -> str:
    """Return the line that asks a worker's process to score a fragment."""
    return json.dumps({"fragment": fragment.to_json(), "careful": careful})


def main() -> None:
    """Score the fragments that come on standard input: the first line is the job."""

    def begin(first: str) -> Any:  # noqa: ANN401
        worker = Worker(Job.from_json(first))

        def reply(line: str) -> str:
            asked = json.loads(line)
            fragment = Fragment.from_json(asked["fragment"])
            return worker.score(fragment, careful=asked["careful"]).to_json()

        return reply

    serve_lines(begin)


if __name__ == "__main__":
    main()

"""Score one shard and write its output file. Every engine uses this code."""

from __future__ import annotations

import errno
import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from capsar.bulk import filesystem
from capsar.bulk.job import Job, model_fingerprint
from capsar.bulk.output import ShardResult, ShardWriter, scratch_file
from capsar.bulk.processes import serve_requests
from capsar.bulk.readers import read_batches
from capsar.bulk.scorer import Scorer, SubprocessScorer, append_results
from capsar.bulk.shards import Shard, make_shard
from capsar.errors import ArtifactError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capsar.bulk.readers import RowBatch

_MAX_READS = 3
"""How often to read a remote file before it counts as damaged."""


class _UnreadableError(DataError):
    """An input file that cannot be read, for any reason."""


class Worker:
    """Holds the model of a job and scores its shards."""

    def __init__(self, job: Job) -> None:
        """Load the model.

        Raises:
            ArtifactError: If it is not the model with which the job was started.
        """
        if model_fingerprint(job.options.model) != job.model_sha256:
            raise ArtifactError(
                f"The model {job.options.model!r} on this machine differs from the one with which "
                "the job was started. Install the same model on every machine."
            )
        pa.set_cpu_count(1)
        self._job = job
        self._scorer = Scorer(job.options)

    def score(self, shard: Shard, *, isolate: bool = False) -> ShardResult:
        """Score a shard and publish its output, or return the reason for the failure.

        Args:
            shard: The shard to score.
            isolate: Whether to score its rows in a subprocess, because it has crashed workers.
        """
        delays, num_reads = filesystem.retry_delays(), 0
        while True:
            try:
                return self._score_once(shard, isolate=isolate)
            except _UnreadableError as error:
                # Remote storage that is unavailable looks like a damaged file at first.
                num_reads += _count_read(shard.uri)
                if not isinstance(error.__cause__, OSError) or num_reads >= _MAX_READS:
                    return ShardResult.failed(shard, unreadable=str(error))
                reason = str(error)
                delay = next(delays, None)
            except OSError as error:
                reason = f"Cannot write {shard.name} to {self._job.output!r}: {error}"
                is_final = filesystem.is_local(self._job.output) or error.errno == errno.ENOSPC
                delay = None if is_final else next(delays, None)
            if delay is None:
                return ShardResult.failed(shard, stopped=reason)
            time.sleep(delay)

    def _score_once(self, shard: Shard, *, isolate: bool) -> ShardResult:
        with scratch_file(self._job.output, shard.name) as path:
            if isolate:
                with SubprocessScorer(self._job.options) as scorer:
                    result = self._write(path, shard, scorer)
            else:
                result = self._write(path, shard, self._scorer)
            filesystem.publish(path, filesystem.join(self._job.output, shard.name))
        return result

    def _write(self, path: Path, shard: Shard, scorer: Scorer | SubprocessScorer) -> ShardResult:
        writer = ShardWriter(path, shard)
        try:
            for batch in self._read(shard):
                results = scorer.score(batch.rows)
                locations = [row.location for row in batch.rows]
                writer.write(append_results(batch.kept, results), locations, results)
            return writer.finish()
        finally:
            writer.discard()

    def _read(self, shard: Shard) -> Iterator[RowBatch]:
        """Yield the rows of a shard; raise `_UnreadableError` to separate errors of the input."""
        batches = read_batches(shard, self._job.options)
        try:
            _check_unchanged(shard)
            yield from batches
        except (OSError, pa.ArrowException, DataError) as error:
            raise _UnreadableError(f"{shard.uri}: {error}") from error


def _check_unchanged(shard: Shard) -> None:
    """Raise a DataError if the file has changed since the shard was planned."""
    file = filesystem.stat(shard.uri)
    if make_shard(file, shard.start, shard.end, shard.size).name != shard.name:
        raise DataError("the file has changed since the job was planned")


def _count_read(uri: str) -> int:
    """Return how many reads a failure counts as: all for a local file, none if storage is down."""
    if filesystem.is_local(uri):
        return _MAX_READS
    try:
        filesystem.stat(uri)
    except FileNotFoundError:
        return _MAX_READS
    except OSError:
        return 0
    return 1


def shard_request(shard: Shard, *, isolate: bool) -> str:
    """Return the line that requests a shard from a worker process."""
    return json.dumps({"shard": shard.to_json(), "isolate": isolate})


def main() -> None:
    """Run a worker process: the first line is the job, each other line a shard."""

    def setup(job: str) -> Callable[[str], str]:
        """Return the handler for a job."""
        worker = Worker(Job.from_json(job))

        def handle(line: str) -> str:
            """Score the shard that a line names."""
            request = json.loads(line)
            shard = Shard.from_json(request["shard"])
            return worker.score(shard, isolate=request["isolate"]).to_json()

        return handle

    serve_requests(setup)


if __name__ == "__main__":
    main()

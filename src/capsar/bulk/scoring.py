"""Score rows. A row that cannot be scored gets an error and does not affect other rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.bulk.job import ScoreOptions
from capsar.bulk.processes import CRASHED, DONE, FAILED, WorkerProcess, serve_requests
from capsar.bulk.rows import InputRow, table_batch
from capsar.errors import ArtifactError
from capsar.inference.analyzer import load
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from capsar.inference.analyzer import Analyzer
    from capsar.schema import AspectSentiment

_SPAN = [("text", pa.string()), ("start", pa.int32()), ("end", pa.int32())]
_OPINIONS = pa.list_(pa.struct([*_SPAN, ("confidence", pa.float32())]))
_ASPECT = [
    *_SPAN,
    ("polarity", pa.string()),
    ("scores", pa.struct([(str(polarity), pa.float32()) for polarity in CLASSES])),
    ("confidence", pa.float32()),
    ("aspect_confidence", pa.float32()),
    ("opinions", _OPINIONS),
    ("theme", pa.string()),
    ("theme_confidence", pa.float32()),
    ("implicit", pa.bool_()),
]
ASPECTS = pa.list_(pa.struct(_ASPECT))
"""Arrow type of the column `aspects`. Offsets count characters (code points) of the text. Opinions
are null if the model has no opinion head, themes if none were given. The text of an implicit
mention is its sentence."""
RowResult = tuple[list[dict[str, Any]] | None, str | None]
"""The aspects of a row, or its error. The part of an error before the first colon is its kind."""
ScoreFunction = Callable[[Sequence["InputRow"]], Iterator[RowResult]]
"""Yields the results of valid rows until one of them fails."""
_SUBPROCESS_ROWS = 256
_REPORT_SECONDS = 2.0


def score_batch(
    table: pa.Table | pa.RecordBatch, options: ScoreOptions | None = None
) -> pa.Table | pa.RecordBatch:
    """Return the kept columns of an Arrow table or record batch, with `aspects` and `error`.

    Any distributed engine can call this function: it depends only on its arguments, and loads the
    model once per process.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": [7], "text": ["The soup was cold."]})
    >>> score_batch(table, ScoreOptions(keep=("id",))).column_names
    ['id', 'aspects', 'error']

    Raises:
        DataError: If a column is missing, or the text column does not hold text.
    """
    options = options or ScoreOptions()
    if isinstance(table, pa.RecordBatch):
        scored = score_batch(pa.Table.from_batches([table]), options)
        columns = [column.combine_chunks() for column in scored.columns]
        return pa.RecordBatch.from_arrays(columns, schema=scored.schema)
    batch = table_batch(table, options)
    return append_results(batch.kept, _cached_scorer(options).score(batch.rows))


def append_results(kept: pa.Table, results: list[RowResult]) -> pa.Table:
    """Return the kept columns followed by `aspects` and `error`."""
    aspects = pa.array([found for found, _ in results], ASPECTS)
    errors = pa.array([error for _, error in results], pa.string())
    if not kept.num_columns:
        return pa.table({"aspects": aspects, "error": errors})
    return kept.append_column("aspects", aspects).append_column("error", errors)


class _FailedError(Exception):
    """Rows that could not be scored, because of at least one of them."""


def _score_rows(
    rows: Sequence[InputRow], score: ScoreFunction, report: Callable[[int], None]
) -> list[RowResult]:
    """Call `score` with the valid rows, and return the results of all rows in order."""
    scored = _bisect([row for row in rows if not row.error], score)
    results: list[RowResult] = []
    reported, last = 0, time.monotonic()
    for row in rows:
        results.append((None, row.error) if row.error else next(scored))
        if time.monotonic() - last > _REPORT_SECONDS:
            report(len(results) - reported)
            reported, last = len(results), time.monotonic()
    report(len(results) - reported)
    return results


def _bisect(rows: Sequence[InputRow], score: ScoreFunction) -> Iterator[RowResult]:
    """Yield the results of valid rows. If `score` fails, bisect to the row that causes it."""
    num_scored = 0
    try:
        for result in score(rows):
            yield result
            num_scored += 1
    except _FailedError as error:
        rest = rows[num_scored:]
        half = len(rest) // 2
        if half:
            yield from _bisect(rest[:half], score)
            yield from _bisect(rest[half:], score)
        else:
            yield None, str(error)


class Scorer:
    """Scores rows with a model in this process. An exception costs only the row that raises it."""

    def __init__(
        self,
        options: ScoreOptions,
        analyzer: Analyzer | None = None,
        report: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Load the model.

        Args:
            options: The options of the job.
            analyzer: The model, if it is already loaded.
            report: Called with the number of rows that were scored, every few seconds.
        """
        self._options = options
        # One thread, because there is one worker per core.
        self._analyzer = analyzer or load(options.model, threads=1, backend=options.backend)
        self._report = report

    def score(self, rows: Sequence[InputRow]) -> list[RowResult]:
        """Return the result of every row, in order."""
        return _score_rows(rows, self._score_valid, self._report)

    def _score_valid(self, rows: Sequence[InputRow]) -> Iterator[RowResult]:
        try:
            for _, aspects in zip(rows, self._predict(rows), strict=True):
                yield [aspect.as_dict() for aspect in aspects], None
        except Exception as error:  # any exception becomes the error of its row
            raise _FailedError(f"the model failed: {type(error).__name__}: {error}") from error

    def _predict(self, rows: Sequence[InputRow]) -> Iterator[list[AspectSentiment]]:
        if self._options.aspect_column is None:
            texts = (row.text for row in rows)
            return self._analyzer.analyze_stream(texts, themes=self._options.themes)
        return self._analyzer.classify_stream((row.text, row.aspects or ()) for row in rows)


_cached_scorer = lru_cache(maxsize=2)(Scorer)


@dataclass(slots=True)
class SubprocessScorer:
    """Scores rows in a subprocess, so that a crash costs only the row that causes it.

    `Scorer` handles exceptions. This class also handles rows that end or hang the process (a fault
    in native code, lack of memory). It needs another process with another copy of the model, so it
    is used only for shards that have crashed a worker.
    """

    options: ScoreOptions
    report: Callable[[int], None]
    """Called with the number of rows that were scored."""
    silent_seconds: float
    """How long the process may be silent before it is replaced."""
    _process: WorkerProcess = field(init=False)

    def score(self, rows: Sequence[InputRow]) -> list[RowResult]:
        """Return the result of every row, in order."""
        results: list[RowResult] = []
        self._start()
        try:
            for start in range(0, len(rows), _SUBPROCESS_ROWS):
                part = rows[start : start + _SUBPROCESS_ROWS]
                results += _score_rows(part, self._score_valid, self.report)
        finally:
            self._process.close()
        return results

    def _score_valid(self, rows: Sequence[InputRow]) -> Iterator[RowResult]:
        process = self._process
        process.send(rows)
        reason = f"no response in {self.silent_seconds:.0f} seconds"
        while process.connection.poll(self.silent_seconds):
            kind, content = process.receive()
            if kind == DONE:
                return iter(content)
            if kind == FAILED:
                raise ArtifactError(f"A worker cannot start: {content}")
            if kind == CRASHED:
                reason = f"exit code {content}"
                break
            self.report(0)
        process.close()
        self._start()
        raise _FailedError(f"the process crashed: {reason}")

    def _start(self) -> None:
        self._process = WorkerProcess("capsar.bulk.scoring", self.options)


def main() -> None:
    """Run the process of a `SubprocessScorer`: each request is a list of rows."""
    serve_requests(lambda options, report: Scorer(options, report=report).score)

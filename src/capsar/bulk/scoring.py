"""Score rows. A row that cannot be scored gets an error and does not affect other rows."""

from __future__ import annotations

import time
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
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import AspectSentiment

_SPAN = [("text", pa.string()), ("start", pa.int32()), ("end", pa.int32())]
_OPINIONS = pa.list_(pa.struct([*_SPAN, ("confidence", pa.float32())]))
ASPECTS = pa.list_(
    pa.struct(
        [
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
    )
)
"""Arrow type of the column `aspects`. Offsets count characters (code points) of the text. Opinions
are null if the model has no opinion head, themes if none were given. The text of an implicit
mention is its sentence."""
RowResult = tuple[list[dict[str, Any]] | None, str | None]
"""The aspects of a row, or its error. The part of an error before the first colon is its kind."""
_SUBPROCESS_ROWS = 256
_REPORT_SECONDS = 2.0


def score_batch(
    table: Any,  # noqa: ANN401  (Arrow has no types)
    options: ScoreOptions | None = None,
) -> Any:  # noqa: ANN401
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
    is_batch = isinstance(table, pa.RecordBatch)
    if is_batch:
        table = pa.Table.from_batches([table])
    batch = table_batch(table, options)
    scored = append_results(batch.kept, _cached_scorer(options).score(batch.rows))
    if not is_batch:
        return scored
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in scored.columns], schema=scored.schema
    )


def append_results(kept: Any, results: list[RowResult]) -> Any:  # noqa: ANN401
    """Return the kept columns followed by `aspects` and `error`."""
    aspects = pa.array([found for found, _ in results], ASPECTS)
    errors = pa.array([error for _, error in results], pa.string())
    if not kept.num_columns:
        return pa.table({"aspects": aspects, "error": errors})
    return kept.append_column("aspects", aspects).append_column("error", errors)


@lru_cache(maxsize=2)
def _cached_scorer(options: ScoreOptions) -> Scorer:
    return Scorer(options)


class Scorer:
    """Scores rows with a model in this process."""

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
        return _score_valid(rows, self.score_valid)

    def score_valid(self, rows: Sequence[InputRow]) -> list[RowResult]:
        """Score valid rows. If the model fails, bisect to the row that causes it."""
        results: list[RowResult] = []
        reported, last = 0, time.monotonic()
        try:
            for _, aspects in zip(rows, self._predict(rows), strict=True):
                results.append(([aspect.as_dict() for aspect in aspects], None))
                if time.monotonic() - last > _REPORT_SECONDS:
                    self._report(len(results) - reported)
                    reported, last = len(results), time.monotonic()
        except Exception as error:  # noqa: BLE001  (any exception becomes the error of its row)
            rest = rows[len(results) :]
            if len(rest) == 1:
                return [*results, (None, f"the model failed: {type(error).__name__}: {error}")]
            half = len(rest) // 2
            return [*results, *self.score_valid(rest[:half]), *self.score_valid(rest[half:])]
        self._report(len(results) - reported)
        return results

    def _predict(self, rows: Iterable[InputRow]) -> Iterator[list[AspectSentiment]]:
        if self._options.aspect_column is None:
            texts = (row.text for row in rows)
            return self._analyzer.analyze_stream(texts, themes=self._options.themes)
        return self._analyzer.classify_stream((row.text, row.aspects or ()) for row in rows)


def _score_valid(
    rows: Sequence[InputRow], score: Callable[[list[InputRow]], list[RowResult]]
) -> list[RowResult]:
    """Call `score` with the valid rows, and return the results of all rows in order."""
    results = iter(score([row for row in rows if not row.error]))
    return [(None, row.error) if row.error else next(results) for row in rows]


class SubprocessScorer:
    """Scores rows in a subprocess, so that a crash costs only the row that causes it.

    `Scorer` handles exceptions. This class also handles rows that end or hang the process (a fault
    in native code, lack of memory). It needs another process with another copy of the model, so it
    is used only for shards that have crashed a worker.
    """

    def __init__(
        self, options: ScoreOptions, report: Callable[[int], None], seconds: float
    ) -> None:
        """Start the process.

        Args:
            options: The options of the job.
            report: Called with the number of rows that were scored.
            seconds: How long the process may be silent before it is replaced.
        """
        self._options = options
        self._report = report
        self._seconds = seconds
        self._process = self._start()

    def __enter__(self) -> SubprocessScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def score(self, rows: Sequence[InputRow]) -> list[RowResult]:
        """Return the result of every row, in order."""
        parts = (rows[i : i + _SUBPROCESS_ROWS] for i in range(0, len(rows), _SUBPROCESS_ROWS))
        return [result for part in parts for result in _score_valid(part, self._score_part)]

    def _score_part(self, rows: Sequence[InputRow]) -> list[RowResult]:
        if not rows:
            return []
        self._process.send(rows)
        kind, content = self._receive()
        if kind == DONE or len(rows) == 1:
            self._report(len(rows))
        if kind == DONE:
            return list(content)
        self._process = self._start()
        if len(rows) == 1:
            return [(None, f"the process crashed: {content}")]
        half = len(rows) // 2
        return [*self._score_part(rows[:half]), *self._score_part(rows[half:])]

    def _receive(self) -> tuple[str, Any]:
        """Return the last message of the process, or how it ended."""
        while self._process.connection.poll(self._seconds):
            kind, content = self._process.receive()
            if kind == CRASHED:
                return CRASHED, f"exit code {content}"
            if kind == FAILED:
                raise ArtifactError(f"A worker cannot start: {content}")
            if kind == DONE:
                return DONE, content
            self._report(0)
        self._process.close()
        return CRASHED, f"no response in {self._seconds:.0f} seconds"

    def _start(self) -> WorkerProcess:
        return WorkerProcess("capsar.bulk.scoring", self._options)


def main() -> None:
    """Run the process of a `SubprocessScorer`: each request is a list of rows."""
    serve_requests(lambda options, report: Scorer(options, report=report).score_valid)

"""Rows -> answers. A row that cannot be answered says why, and costs no other row its answer."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.analyze import load
from capsar.bulk.job import ScoreOptions
from capsar.bulk.objections import Answer, answer_askable, aspect_list
from capsar.bulk.readers import table_slice
from capsar.labels import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from capsar.analyze import Analyzer
    from capsar.bulk.readers import Row
    from capsar.schema import AspectSentiment

ASPECTS = pa.list_(
    pa.struct(
        [
            ("surface", pa.string()),
            ("start", pa.int32()),
            ("end", pa.int32()),
            ("polarity", pa.string()),
            ("scores", pa.struct([(str(polarity), pa.float32()) for polarity in CLASSES])),
            ("confidence", pa.float32()),
            ("aspect_confidence", pa.float32()),
        ]
    )
)
"""Offsets count characters (code points) of the text, as everywhere in this package."""


def aspect_record(found: AspectSentiment) -> dict[str, Any]:
    """Return an answer as the column `aspects` holds it."""
    return {
        "surface": found.text,
        "start": found.start,
        "end": found.end,
        "polarity": str(found.polarity),
        "scores": {str(polarity): score for polarity, score in found.scores.items()},
        "confidence": found.confidence,
        "aspect_confidence": found.aspect_confidence,
    }


def score_batch(
    table: Any,  # noqa: ANN401  (Arrow has no types)
    options: ScoreOptions | None = None,
) -> Any:  # noqa: ANN401
    """Score an Arrow table (or record batch): the kept columns, `aspects` and `error`.

    The one function that any engine can call: it needs nothing but its arguments, and loads the
    model once a process.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": [7], "text": ["The soup was cold."]})
    >>> score_batch(table, ScoreOptions(keep=("id",))).column_names
    ['id', 'aspects', 'error']

    Raises:
        DataError: If the table does not have the columns, or the text column holds no texts.
    """
    options = options or ScoreOptions()
    is_batch = isinstance(table, pa.RecordBatch)
    if is_batch:
        table = pa.Table.from_batches([table])
    part = table_slice(table, options)
    scored = with_answers(part.kept, shared_scorer(options).answer(part.rows))
    if not is_batch:
        return scored
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in scored.columns], schema=scored.schema
    )


def with_answers(kept: Any, answers: list[Answer]) -> Any:  # noqa: ANN401
    """Return the kept columns with `aspects` and `error` beside them."""
    aspects = pa.array([found for found, _ in answers], ASPECTS)
    errors = pa.array([error for _, error in answers], pa.string())
    if not kept.num_columns:
        return pa.table({"aspects": aspects, "error": errors})
    return kept.append_column("aspects", aspects).append_column("error", errors)


@lru_cache(maxsize=2)
def shared_scorer(options: ScoreOptions) -> Scorer:
    """Return this process's scorer for some options; the model is loaded once."""
    return Scorer(options)


class Scorer:
    """A loaded model that answers rows."""

    def __init__(self, options: ScoreOptions, analyzer: Analyzer | None = None) -> None:
        self._options = options
        # One thread: there are as many workers as processors, and they should not fight.
        self._analyzer = analyzer or load(options.model, threads=1, backend=options.backend)

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """Answer every row, in order."""
        return answer_askable(rows, self._options, self.ask)

    def ask(self, rows: Sequence[Row]) -> list[Answer]:
        """Answer rows that nothing is wrong with; where the model fails, halve down to the row."""
        answers: list[Answer] = []
        try:
            for _, found in zip(rows, self._stream(rows), strict=True):
                answers.append(([aspect_record(one) for one in found], None))
        except Exception as error:  # noqa: BLE001  (whatever it is, it becomes the row's error)
            rest = rows[len(answers) :]
            if len(rest) == 1:
                return [*answers, (None, f"the model failed: {type(error).__name__}: {error}")]
            half = len(rest) // 2
            return [*answers, *self.ask(rest[:half]), *self.ask(rest[half:])]
        return answers

    def _stream(self, rows: Iterable[Row]) -> Iterator[list[AspectSentiment]]:
        if self._options.aspect_column is None:
            return self._analyzer.analyze_stream(str(row.text) for row in rows)
        pairs = ((str(row.text), aspect_list(row.aspects)) for row in rows)
        return self._analyzer.classify_stream(pairs)

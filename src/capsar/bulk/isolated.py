"""Rows scored in a process of their own: what a crash of the model's engine costs is one row.

An exception is the row's error anyway; this is for rows that end the process (a fault in native
code, memory). It costs a process and a model more, so it is used only where a worker has died.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from capsar.bulk.job import ScoreOptions
from capsar.bulk.objections import Answer, answer_askable
from capsar.bulk.process import LineProcess, serve_lines
from capsar.bulk.readers import Row
from capsar.bulk.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS_AT_ONCE = 256


class IsolatedScorer:
    """A `Scorer` whose process may die."""

    def __init__(self, options: ScoreOptions) -> None:
        self._options = options
        self._process = self._start()

    def __enter__(self) -> IsolatedScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """Answer every row, in order."""
        return answer_askable(rows, self._options, self._ask_some)

    def _ask_some(self, rows: Sequence[Row]) -> list[Answer]:
        parts = (rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE))
        return [answer for part in parts for answer in self._ask(part)]

    def _ask(self, rows: Sequence[Row]) -> list[Answer]:
        reply = self._process.ask(json.dumps([[row.text, row.aspects] for row in rows]))
        if reply is not None:
            return [(found, error) for found, error in json.loads(reply)]
        died = self._process.close()
        self._process = self._start()
        if len(rows) == 1:
            return [(None, f"the process died: exit code {died}")]
        half = len(rows) // 2
        return [*self._ask(rows[:half]), *self._ask(rows[half:])]

    def _start(self) -> LineProcess:
        return LineProcess("capsar.bulk.isolated", json.dumps(asdict(self._options)))


def main() -> None:
    """Answer rows from standard input, one JSON list a line, on standard output."""

    def begin(first: str) -> Any:  # noqa: ANN401
        fields = json.loads(first)
        scorer = Scorer(ScoreOptions(**fields))

        def reply(line: str) -> str:
            return json.dumps(scorer.ask([Row(text, asked) for text, asked in json.loads(line)]))

        return reply

    serve_lines(begin)


if __name__ == "__main__":
    main()

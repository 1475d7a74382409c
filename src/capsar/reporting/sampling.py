"""Sentences to show: some of each aspect, polarity and group, drawn so that every one has a chance.

A mention's draw is a hash of its place, so that the same corpus shows the same sentences, and the
ones with the smallest hashes are kept, a bounded number whatever the size of the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from capsar.labels import CLASSES
from capsar.reporting.counting import FILE, ROW_BITS
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from capsar.reporting.scored import Scored

_LONGEST = 420
_SPARE = 2
"""How many times more are drawn than shown: some will be twins."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, the marks in it, and the mention that it was drawn for."""

    aspect: int
    polarity: str
    part: int
    """The number of its group, or -1."""
    period: int
    text: str
    marks: list[tuple[int, int, str]]
    """Start, end and polarity of each mention in it; places count code points of `text`."""
    chosen: int
    """Which of the marks it was drawn for."""
    sure: float | None
    rank: int = 0
    """Its place among those of its aspect, group and polarity."""

    @property
    def num_bytes(self) -> int:
        """About how much of a page it takes."""
        escaped = sum(self.text.count(sign) for sign in '<>&"\\')
        size = len(self.text.encode("utf-8", "surrogatepass"))
        return size + 5 * escaped + 24 * len(self.marks) + 110

    def as_dict(self) -> dict[str, Any]:
        """Return the sentence as JSON holds it."""
        return {
            "text": self.text,
            "marks": self.marks,
            "chosen": self.chosen,
            "polarity": self.polarity,
            "group": self.part,
            "period": self.period,
            "sure": None if self.sure is None else round(self.sure, 2),
        }


class Sampler:
    """Draws mentions batch by batch, and fetches their sentences in the end."""

    def __init__(self, database: DuckDBPyConnection, number: int, min_confidence: float) -> None:
        self._database = database
        self._number = number
        self._limit = min_confidence
        database.execute(
            """CREATE OR REPLACE TEMP TABLE drawn (aspect SMALLINT, part SMALLINT, polarity TINYINT,
               period SMALLINT, review BIGINT, start INT, sure FLOAT, draw UBIGINT)"""
        )

    def add(self) -> None:
        """Draw from the table `mention`."""
        most = self._number * _SPARE
        self._database.execute(
            f"""INSERT INTO drawn SELECT aspect, part, polarity, unnest(best, recursive := true)
                FROM (SELECT aspect, part, polarity,
                             min_by({{period: period, review: review, start: start, sure: sure,
                                      draw: draw}}, draw, {most}) AS best
                      FROM (SELECT *, hash(review, start) AS draw FROM mention WHERE aspect >= 0
                            AND polarity IS NOT NULL AND (sure IS NULL OR sure >= {self._limit}))
                      GROUP BY aspect, part, polarity)"""  # noqa: S608
        )
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE drawn AS SELECT * FROM drawn
                QUALIFY row_number() OVER (PARTITION BY aspect, part, polarity ORDER BY draw)
                        <= {most}"""  # noqa: S608
        )

    def sentences(self, scored: Scored, text_column: str) -> list[Sentence]:
        """Return the sentences of what was drawn, none twice in its group."""
        kept: dict[tuple[int, int, str], list[Sentence]] = {}
        seen: set[tuple[int, int, str, str]] = set()
        for sentence in self._fetch(scored, text_column):
            place = (sentence.aspect, sentence.part, sentence.polarity)
            group = kept.setdefault(place, [])
            twin = (*place, sentence.text.casefold())
            if len(group) < self._number and twin not in seen:
                seen.add(twin)
                group.append(replace(sentence, rank=len(group)))
        return [sentence for group in kept.values() for sentence in group]

    def _fetch(self, scored: Scored, text_column: str) -> Iterator[Sentence]:
        column = scored.column(text_column, "--text-column")
        rows = self._database.execute(
            f"""SELECT drawn.aspect, drawn.part, drawn.polarity, drawn.period, drawn.start,
                       drawn.sure, CAST(source.{column} AS VARCHAR), source.aspects
                FROM read_parquet($files, filename = '{FILE}', file_row_number = true) AS source
                JOIN file_key ON file_key.name = source.{FILE}
                JOIN drawn
                  ON drawn.review = (file_key.number << {ROW_BITS}) + source.file_row_number
                ORDER BY drawn.aspect, drawn.part, drawn.polarity, drawn.draw""",  # noqa: S608
            {"files": scored.files},
        ).fetchall()
        for aspect, part, polarity, period, start, sure, text, found in rows:
            if text is not None:
                cut = _cut(text, found, start)
                if cut is not None:
                    yield Sentence(aspect, str(CLASSES[polarity]), part, period, *cut, sure)


def _cut(
    text: str, found: list[dict[str, Any]], start: int
) -> tuple[str, list[tuple[int, int, str]], int] | None:
    """Return the sentence around a mention, with the marks in it and which is the mention's."""
    first, last = next(
        (span for span in split_sentences(text) if span[0] <= start < span[1]), (0, len(text))
    )
    if last - first > _LONGEST:
        first = max(first, start - _LONGEST // 2)
        last = min(last, first + _LONGEST)
    inside = [one for one in found if first <= one["start"] < one["end"] <= last]
    marks = sorted((one["start"] - first, one["end"] - first, one["polarity"]) for one in inside)
    chosen = next((i for i, mark in enumerate(marks) if mark[0] == start - first), None)
    return None if chosen is None else (text[first:last], marks, chosen)

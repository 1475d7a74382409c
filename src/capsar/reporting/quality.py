"""Count reviews without words, duplicates, and reviews that are not in English."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from capsar.reporting.languages import ENGLISH, identify_language

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions
    from capsar.reporting.query import ScoredFolder

_SAMPLED = 20_000
"""Reviews whose language is identified if none are dropped because of it."""
_MIN_DUPLICATE_LENGTH = 40
"""Characters: many people write "Great product!", but not the same three sentences."""
_PLACEHOLDERS = ("n/a", "na", "nan", "nil", "no comment", "no comments", "none", "nothing", "null")
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Quality:
    """What the reviews are like, as texts."""

    empty: int
    """Reviews without a letter, or with a placeholder such as *n/a*."""
    duplicates: int
    """Reviews with the same text as an earlier one, if it is long enough."""
    sampled: int
    """Reviews whose language was identified."""
    languages: Counter[str] = field(default_factory=Counter)
    """Those of them that are not in English, by the code of the language."""
    is_sample: bool = False
    """Whether there are more reviews."""

    def as_dict(self) -> dict[str, Any]:
        """Return the counts in their JSON form."""
        return {
            "empty": self.empty,
            "duplicates": self.duplicates,
            "language_identified": self.sampled,
            "is_sample": self.is_sample,
            "languages": dict(self.languages.most_common()),
        }


def check_quality(
    database: DuckDBPyConnection, scored: ScoredFolder, text_column: str, options: ReportOptions
) -> Quality:
    """Count such reviews, and add those to drop to the table `dropped`."""
    text = f"CAST({scored.column(text_column, '--text-column')} AS VARCHAR)"
    rows = scored.select(text=text)
    source = {"files": scored.files}
    key = "hash(lower(trim(text)))"
    is_long = f"length(text) >= {_MIN_DUPLICATE_LENGTH}"
    empty, duplicates = database.execute(
        f"""SELECT count(*) FILTER (text IS NULL OR NOT regexp_matches(text, '\\pL')
                       OR (length(text) < 20 AND trim(lower(text), ' .!-') IN {_PLACEHOLDERS})),
                   count(*) FILTER ({is_long}) - count(DISTINCT {key}) FILTER ({is_long})
            FROM {rows}""",  # noqa: S608
        source,
    ).fetchall()[0]
    drops_languages = "non-english" in options.drop
    step = 1 if drops_languages else -(-sum(scored.rows) // _SAMPLED)
    sampled, languages, foreign = 0, Counter[str](), []
    for review, written in _read(database, rows, source, step):
        sampled += 1
        language = identify_language(written)
        if language != ENGLISH:
            languages[language] += 1
            foreign.append(review)
    if drops_languages:
        database.execute("INSERT INTO dropped SELECT unnest($reviews)", {"reviews": foreign})
    if "duplicates" in options.drop:
        database.execute(
            f"""INSERT INTO dropped SELECT review FROM {rows} WHERE {is_long}
                QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY review) > 1""",  # noqa: S608
            source,
        )
    return Quality(int(empty), int(duplicates), sampled, languages, is_sample=step > 1)


def _read(
    database: DuckDBPyConnection, rows: str, source: dict[str, list[str]], step: int
) -> Iterator[tuple[int, str]]:
    """Yield the number and text of every so many reviews, chosen by a hash."""
    result = database.execute(
        f"SELECT review, text FROM {rows} WHERE text IS NOT NULL AND hash(review) % {step} = 0",  # noqa: S608
        source,
    )
    while some := result.fetchmany(_ROWS_AT_ONCE):
        yield from some

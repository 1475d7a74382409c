"""Count the opinion phrases of each topic, and merge those that say the same.

Within a topic and a polarity, phrases are merged that differ only in case, intensifiers, articles
or inflection: *very slow*, *so slow* and *slow*; *crashes* and *crashed*. Negations are kept.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from capsar.reporting.aspect_names import normalize_name, strip_invisible
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection

_SHOWN = 8
"""Phrases per topic and polarity."""
_COUNTED = 2000
"""Only the most frequent phrases of a topic and a polarity are kept from batch to batch."""
_EXAMPLES = 3
"""Mentions per phrase that are kept as examples."""
_MAX_LENGTH = 80
_MAX_VARIANTS = 6
_WORD = re.compile(r"[\w'-]+")
_HEDGE = re.compile(r"\b(?:kind|sort) of\b|\ba (?:little )?bit\b|\ba little\b")
_IGNORED = frozenset(
    """
    a absolutely actually also an completely definitely downright especially extremely fairly
    fucking highly incredibly insanely just overly painfully particularly perfectly pretty quite
    rather really remarkably ridiculously seriously simply slightly so somewhat such super
    surprisingly terribly the too totally truly unbelievably utterly very way
    """.split()  # noqa: SIM905
)
"""Words that are ignored before another word."""
_BARE = frozenset("any hardly never no none not nothing only without".split())  # noqa: SIM905
"""Words that say nothing on their own."""


@dataclass(slots=True)
class Phrase:
    """Opinion phrases of one topic and polarity that say the same."""

    topic: int
    polarity: str
    text: str
    """The most frequent one."""
    mentions: int = 0
    variants: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    """Mentions with the phrase, as rows of the table `drawn`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the phrase in its JSON form."""
        variants = [_unquote(text) for text, _ in self.variants.most_common(_MAX_VARIANTS)]
        return {"text": _unquote(self.text), "mentions": self.mentions, "variants": variants}


class PhraseCounter:
    """Counts the opinion phrases of batches in a table that stays small."""

    def __init__(self, database: DuckDBPyConnection, min_confidence: float) -> None:
        self._database = database
        self._min_confidence = min_confidence
        database.execute(
            """CREATE OR REPLACE TEMP TABLE phrase (topic SMALLINT, polarity TINYINT, text VARCHAR,
               mentions BIGINT, examples STRUCT(draw UBIGINT, implicit BOOLEAN, part SMALLINT,
               period SMALLINT, review BIGINT, start INT, confidence FLOAT)[])"""
        )

    def add(self) -> None:
        """Add the phrases of the table `topic_mention`."""
        self._database.execute(
            f"""INSERT INTO phrase
                SELECT topic, polarity, text, count(*),
                       min_by({{draw: draw, implicit: implicit, part: part, period: period,
                                review: review, start: start, confidence: confidence}},
                              draw, {_EXAMPLES})
                       FILTER (confidence IS NULL OR confidence >= {self._min_confidence})
                FROM (SELECT * EXCLUDE opinions, hash(review, start) AS draw,
                             unnest(list_distinct([lower(one) for one in opinions])) AS text
                      FROM topic_mention WHERE topic >= 0 AND polarity IS NOT NULL)
                WHERE length(text) <= {_MAX_LENGTH} GROUP BY topic, polarity, text"""  # noqa: S608
        )
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE phrase AS
                SELECT topic, polarity, text, CAST(sum(mentions) AS BIGINT) AS mentions,
                       list_sort(flatten(list(coalesce(examples, []))))[:{_EXAMPLES}] AS examples
                FROM phrase GROUP BY topic, polarity, text
                QUALIFY row_number() OVER (PARTITION BY topic, polarity
                                           ORDER BY sum(mentions) DESC, text)
                        <= {_COUNTED}"""  # noqa: S608
        )

    def phrases(self) -> list[Phrase]:
        """Return the most frequent phrases of each topic and polarity, most frequent first."""
        rows = self._database.execute(
            "SELECT * FROM phrase ORDER BY topic, polarity, mentions DESC, text"
        ).fetchall()
        return list(_merge(rows))


def _merge(rows: Iterable[tuple[int, int, str, int, list[dict[str, Any]]]]) -> list[Phrase]:
    merged: dict[tuple[int, int, str], Phrase] = {}
    for topic, polarity, text, mentions, examples in rows:
        if _BARE.issuperset(_WORD.findall(text)):
            continue
        key = (topic, polarity, phrase_key(text))
        own = merged.setdefault(key, Phrase(topic, str(CLASSES[polarity]), text))
        own.mentions += mentions
        own.variants[text] += mentions
        own.examples += examples[: _EXAMPLES - len(own.examples)]
    grouped: dict[tuple[int, str], list[Phrase]] = defaultdict(list)
    for phrase in sorted(merged.values(), key=lambda one: (-one.mentions, one.text)):
        grouped[phrase.topic, phrase.polarity].append(phrase)
    return [phrase for group in grouped.values() for phrase in group[:_SHOWN]]


def _unquote(text: str) -> str:
    return strip_invisible(text).strip(" \"'“”‘’.,;:()-–—")


def phrase_key(text: str) -> str:
    """Return what phrases that say the same have in common.

    >>> phrase_key("Really very slow!") == phrase_key("slow")
    True
    >>> phrase_key("not much") == phrase_key("not") or phrase_key("not slow") == phrase_key("slow")
    False
    """
    form = normalize_name(_HEDGE.sub(" ", text.casefold()))
    words = _WORD.findall(form)
    kept = [word for word in words[:-1] if word not in _IGNORED] + words[-1:]
    return " ".join(map(_stem, kept)) or text


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:  # noqa: ANN401  (the library has no types)
    import snowballstemmer

    return snowballstemmer.stemmer("english")

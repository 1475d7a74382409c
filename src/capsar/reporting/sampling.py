"""Sample example sentences for each topic, polarity and group.

Mentions are ranked by a hash of their position and those with the smallest hashes are kept, so a
corpus always gives the same sentences, and their number is bounded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from capsar.reporting.phrases import phrase_key
from capsar.schema import CLASSES, Polarity
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from capsar.reporting.phrases import Phrase
    from capsar.reporting.query import ScoredFolder

_MAX_LENGTH = 420
_PER_PHRASE = 3
_SPARE = 2
"""How many times more mentions are drawn than shown, because some sentences are duplicates."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, its mentions, and the one that it was drawn for."""

    topic: int
    polarity: str
    group: int
    """The number of its group, or -1."""
    period: int
    text: str
    marks: list[tuple[int, int, str]]
    """Start, end and polarity of each mention; positions count code points of `text`."""
    chosen: int
    """The index in `marks` of the mention that it was drawn for; -1 for an implicit one."""
    opinions: list[tuple[int, int]]
    """Start and end of the opinion phrases of that mention."""
    confidence: float | None
    phrases: list[int] = field(default_factory=list)
    """The numbers of these phrases in the list of its topic and polarity."""
    rank: int = 0
    """Its position among the sentences of its topic, group and polarity."""

    @property
    def num_bytes(self) -> int:
        """The approximate size in the page."""
        escaped = sum(self.text.count(sign) for sign in '<>&"\\')
        size = len(self.text.encode("utf-8", "surrogatepass"))
        return size + 5 * escaped + 24 * len(self.marks) + 12 * len(self.opinions) + 130

    def with_phrases(self, numbers: Mapping[tuple[int, str, str], int]) -> Sentence:
        """Return the sentence with the numbers of its phrases that are shown."""
        keys = (phrase_key(self.text[start:end]) for start, end in self.opinions)
        found = (numbers.get((self.topic, self.polarity, key)) for key in keys)
        return replace(self, phrases=sorted({one for one in found if one is not None}))

    def as_dict(self) -> dict[str, Any]:
        """Return the sentence in its JSON form."""
        return {
            "text": self.text,
            "marks": self.marks,
            "chosen": self.chosen,
            "opinions": self.opinions,
            "phrases": self.phrases,
            "polarity": self.polarity,
            "group": self.group,
            "period": self.period,
            "confidence": None if self.confidence is None else round(self.confidence, 2),
        }


class Sampler:
    """Draws mentions from each batch and reads their sentences at the end."""

    def __init__(self, database: DuckDBPyConnection, number: int, min_confidence: float) -> None:
        self._database = database
        self._number = number
        self._min_confidence = min_confidence
        database.execute(
            """CREATE OR REPLACE TEMP TABLE drawn (topic SMALLINT, part SMALLINT, polarity TINYINT,
               implicit BOOLEAN, period SMALLINT, review BIGINT, start INT, confidence FLOAT,
               draw UBIGINT)"""
        )

    def add(self) -> None:
        """Draw from the table `topic_mention`."""
        most = self._number * _SPARE
        self._database.execute(
            f"""INSERT INTO drawn SELECT topic, part, polarity, unnest(best, recursive := true)
                FROM (SELECT topic, part, polarity,
                             min_by({{implicit: implicit, period: period, review: review,
                                      start: start, confidence: confidence, draw: draw}},
                                    draw, {most}) AS best
                      FROM (SELECT *, hash(review, start) AS draw FROM topic_mention
                            WHERE topic >= 0 AND polarity IS NOT NULL
                            AND (confidence IS NULL OR confidence >= {self._min_confidence}))
                      GROUP BY topic, part, polarity)"""  # noqa: S608
        )
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE drawn AS SELECT * FROM drawn
                QUALIFY row_number() OVER (PARTITION BY topic, part, polarity ORDER BY draw)
                        <= {most}"""  # noqa: S608
        )

    def sentences(
        self, scored: ScoredFolder, text_column: str, phrases: Sequence[Phrase] = ()
    ) -> list[Sentence]:
        """Return the sentences of the drawn mentions, without duplicates within a group.

        Every phrase has a few sentences, also beyond the number per group.
        """
        self._draw_examples(phrases)
        numbers = _number_phrases(phrases)
        kept: dict[tuple[int, int, str], list[Sentence]] = {}
        seen: set[tuple[int, int, str, str]] = set()
        shown: Counter[tuple[int, str, int]] = Counter()
        for drawn in self._read(scored, text_column):
            sentence = drawn.with_phrases(numbers)
            key = (sentence.topic, sentence.group, sentence.polarity)
            group = kept.setdefault(key, [])
            content = (*key, sentence.text.casefold())
            own = [(sentence.topic, sentence.polarity, one) for one in sentence.phrases]
            is_needed = any(shown[one] < _PER_PHRASE for one in own)
            if content not in seen and (len(group) < self._number or is_needed):
                seen.add(content)
                is_first = not all(shown[one] for one in own)
                shown.update(own)
                group.append(replace(sentence, rank=0 if is_first else len(group)))
        return [sentence for group in kept.values() for sentence in group]

    def _draw_examples(self, phrases: Sequence[Phrase]) -> None:
        """Add the examples of phrases to the drawn mentions, after all others."""
        columns = ("implicit", "part", "period", "review", "start", "confidence")
        found = [(phrase, example) for phrase in phrases for example in phrase.examples]
        values = {name: [example[name] for _, example in found] for name in columns}
        values["topic"] = [phrase.topic for phrase, _ in found]
        values["polarity"] = [CLASSES.index(Polarity(phrase.polarity)) for phrase, _ in found]
        self._database.execute(
            f"""INSERT INTO drawn BY NAME
                SELECT {2**64 - 1} AS draw, {", ".join(f"unnest(${n}) AS {n}" for n in values)}""",
            values,
        )

    def _read(self, scored: ScoredFolder, text_column: str) -> Iterator[Sentence]:
        text = f"CAST({scored.column(text_column, '--text-column')} AS VARCHAR)"
        rows = scored.select(text=text, mentions=scored.mentions)
        found = self._database.execute(
            f"""SELECT drawn.topic, drawn.part, drawn.polarity, drawn.period, drawn.start,
                       drawn.implicit, drawn.confidence, kept.text, kept.mentions
                FROM {rows} AS kept JOIN drawn ON drawn.review = kept.review
                WHERE kept.text IS NOT NULL
                ORDER BY drawn.topic, drawn.part, drawn.polarity, drawn.draw, drawn.review,
                         drawn.start, drawn.implicit""",  # noqa: S608
            {"files": scored.files},
        ).fetchall()
        for topic, group, polarity, period, start, implicit, confidence, text, mentions in found:
            extract = _extract(text, mentions, start, is_implicit=implicit)
            if extract is not None:
                name = str(CLASSES[polarity])
                yield Sentence(topic, name, group, period, *extract, confidence)


def _extract(
    text: str, mentions: list[dict[str, Any]], start: int, *, is_implicit: bool
) -> tuple[str, list[tuple[int, int, str]], int, list[tuple[int, int]]] | None:
    """Return the sentence of a mention, its marks, the index of that mention, and its phrases.

    An implicit mention is the whole sentence; it has the index -1.
    """
    first, last = next(
        (span for span in split_sentences(text) if span[0] <= start < span[1]), (0, len(text))
    )
    if last - first > _MAX_LENGTH:
        first = max(first, start - _MAX_LENGTH // 2)
        last = min(last, first + _MAX_LENGTH)
    inside = [one for one in mentions if first <= one["start"] < one["end"] <= last]
    marks = sorted((one["start"] - first, one["end"] - first, one["polarity"]) for one in inside)
    if is_implicit:
        return text[first:last], marks, -1, []
    chosen = next((i for i, mark in enumerate(marks) if mark[0] == start - first), None)
    if chosen is None:
        return None
    opinions = [
        (one["start"] - first, one["end"] - first)
        for mention in inside
        if mention["start"] == start
        for one in mention.get("opinions") or ()
        if first <= one["start"] < one["end"] <= last
    ]
    return text[first:last], marks, chosen, opinions


def _number_phrases(phrases: Sequence[Phrase]) -> dict[tuple[int, str, str], int]:
    """Return the number of each phrase among those of its topic and polarity, by its key."""
    numbers: dict[tuple[int, str, str], int] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for phrase in phrases:
        numbers[phrase.topic, phrase.polarity, phrase_key(phrase.text)] = counts[
            phrase.topic, phrase.polarity
        ]
        counts[phrase.topic, phrase.polarity] += 1
    return numbers

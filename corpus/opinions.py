"""Opinion phrases, the second layer of the corpus: check the files and measure agreement.

    python corpus/opinions.py

`opinions/SPLIT.jsonl` has, for sentences of the split, the phrases that carry the sentiment toward
each positive or negative term (`opinions/GUIDELINE.md`). `checks/opinions-first.jsonl` and
`-second.jsonl` are the two independent annotations of the test part, which were adjudicated.
Writes `opinions/quality.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import DataError
from capsar.schema import AspectSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
SPLITS = ("train", "validation", "test")
Phrase = tuple[AspectSpan, ...]
"""The pieces of a phrase; it has several if the term stands inside it."""


@dataclass(frozen=True, slots=True)
class AnnotatedTerm:
    """A term with its opinion phrases."""

    id: str
    text: str
    span: AspectSpan
    polarity: str
    phrases: tuple[Phrase, ...]


def read_terms(path: Path) -> Iterator[AnnotatedTerm]:
    """Yield the annotated terms of a file.

    Raises:
        DataError: If a phrase is not in its sentence.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        record: dict[str, Any] = json.loads(line)
        for aspect in record["aspects"]:
            if "opinions" not in aspect:
                continue
            phrases = []
            for opinion in aspect["opinions"]:
                spans = tuple(AspectSpan(*span) for span in opinion["spans"])
                pieces = [record["text"][span.start : span.end] for span in spans]
                if " ... ".join(pieces) != opinion["text"]:
                    raise DataError(f"{path.name}, line {number}: {opinion} does not fit the text")
                phrases.append(spans)
            span = AspectSpan(aspect["start"], aspect["end"])
            found = (record["id"], record["text"], span, aspect["polarity"], tuple(phrases))
            yield AnnotatedTerm(*found)


def agreement(first: list[AnnotatedTerm], second: list[AnnotatedTerm]) -> dict[str, float]:
    """Return how often two annotators of the same terms mark the same phrases."""
    pairs = list(zip(first, second, strict=True))
    if any((a.id, a.span) != (b.id, b.span) for a, b in pairs):
        raise DataError("the annotations are of different terms")
    same = sum(len({*a.phrases} & {*b.phrases}) for a, b in pairs)
    total = sum(len(a.phrases) + len(b.phrases) for a, b in pairs)
    overlapping = sum(_overlapping(a, b) + _overlapping(b, a) for a, b in pairs)
    return {
        "terms": len(pairs),
        "terms_equal": sum({*a.phrases} == {*b.phrases} for a, b in pairs) / len(pairs),
        "phrases_equal_f1": 2 * same / total,
        "phrases_overlapping_f1": overlapping / total,
    }


def _overlapping(one: AnnotatedTerm, other: AnnotatedTerm) -> int:
    """Return how many phrases of one annotation share a character with one of the other."""
    pieces = [piece for phrase in other.phrases for piece in phrase]
    return sum(
        any(a.start < b.end and b.start < a.end for a in phrase for b in pieces)
        for phrase in one.phrases
    )


def main() -> None:
    """Check all files and write the measures."""
    sizes = {}
    for split in SPLITS:
        lines = (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        corpus = {record["id"]: record for record in map(json.loads, lines)}
        terms = list(read_terms(FOLDER / "opinions" / f"{split}.jsonl"))
        for term in terms:
            own = corpus[term.id]
            aspect = next(a for a in own["aspects"] if a["start"] == term.span.start)
            if (own["text"], aspect["polarity"]) != (term.text, term.polarity):
                raise DataError(f"{term.id} differs from {split}.jsonl")
        phrases = [phrase for term in terms for phrase in term.phrases]
        sizes[split] = {
            "sentences": len({term.id for term in terms}),
            "terms": len(terms),
            "terms_without_phrase": sum(not term.phrases for term in terms),
            "phrases": len(phrases),
            "discontinuous": sum(len(phrase) > 1 for phrase in phrases),
        }
    checks = [FOLDER / "checks" / f"opinions-{name}.jsonl" for name in ("first", "second")]
    measured = agreement(*(list(read_terms(path)) for path in checks))
    content = {"command": "python corpus/opinions.py", "sizes": sizes}
    content["agreement"] = {name: round(value, 4) for name, value in measured.items()}
    text = json.dumps(content, indent=1) + "\n"
    (FOLDER / "opinions" / "quality.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

"""The layer of opinion phrases: files that fit the corpus, and agreement worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opinions
from capsar.errors import DataError
from capsar.schema import AspectSpan

CORPUS = Path(__file__).parents[2] / "corpus"


@pytest.mark.parametrize("split", opinions.SPLITS)
def test_phrases_are_in_their_sentences(split: str) -> None:
    records = map(json.loads, (CORPUS / f"{split}.jsonl").read_text().splitlines())
    known = {(r["id"], a["start"]): a["polarity"] for r in records for a in r["aspects"]}
    terms = list(opinions.read_terms(CORPUS / "opinions" / f"{split}.jsonl"))
    assert len(terms) == len({(term.id, term.span) for term in terms}) > 900
    for term in terms:
        assert known[term.id, term.span.start] == term.polarity
        assert term.polarity in ("positive", "negative")


def test_numbers_are_those_of_the_files() -> None:
    recorded = json.loads((CORPUS / "opinions" / "quality.json").read_text())
    checks = [CORPUS / "checks" / f"opinions-{name}.jsonl" for name in ("first", "second")]
    found = opinions.agreement(*(list(opinions.read_terms(path)) for path in checks))
    assert {name: round(value, 4) for name, value in found.items()} == recorded["agreement"]
    for split, sizes in recorded["sizes"].items():
        terms = list(opinions.read_terms(CORPUS / "opinions" / f"{split}.jsonl"))
        assert sizes["terms"] == len(terms)


def test_agreement_by_hand() -> None:
    def term(*phrases: tuple[int, int]) -> opinions.AnnotatedTerm:
        spans = tuple((AspectSpan(*phrase),) for phrase in phrases)
        return opinions.AnnotatedTerm("a", "x" * 50, AspectSpan(0, 4), "positive", spans)

    first = [term((5, 9), (12, 20)), term((5, 9)), term()]
    second = [term((5, 9)), term((7, 11)), term()]
    found = opinions.agreement(first, second)
    assert found["terms_equal"] == pytest.approx(1 / 3)
    assert found["phrases_equal_f1"] == pytest.approx(2 * 1 / 5)
    assert found["phrases_overlapping_f1"] == pytest.approx(4 / 5)


def test_wrong_offsets_are_reported(tmp_path: Path) -> None:
    opinion = {"text": "cold", "spans": [[0, 4]]}
    aspect = {"aspect": "soup", "start": 4, "end": 8, "polarity": "negative", "opinions": [opinion]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "a", "text": "The soup was cold.", "aspects": [aspect]}))
    with pytest.raises(DataError, match="line 1"):
        list(opinions.read_terms(path))

"""Marked-up sentences: parsing, formatting, and refused input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar import AspectSpan, Polarity
from capsar.data.markup import MARKS, format_markup, parse_markup
from capsar.errors import DataError

TEXTS = st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=30)
WORDS = TEXTS.filter(lambda word: word and word == word.strip())


def test_terms_have_the_offsets_of_the_plain_text() -> None:
    text, terms = parse_markup("No [lift]-, but the [front desk staff]+ carried our bags.")
    assert text == "No lift, but the front desk staff carried our bags."
    assert [(text[s.start : s.end], p) for s, p in terms] == [
        ("lift", Polarity.NEGATIVE),
        ("front desk staff", Polarity.POSITIVE),
    ]


def test_every_polarity_has_a_mark() -> None:
    assert set(MARKS.values()) == set(Polarity)


@given(
    st.lists(st.tuples(TEXTS, WORDS, st.sampled_from(sorted(MARKS)))),
    TEXTS,
)
def test_markup_survives_parsing_and_formatting(
    parts: list[tuple[str, str, str]], rest: str
) -> None:
    line = "".join(f"{before}[{term}]{mark}" for before, term, mark in parts) + rest
    text, terms = parse_markup(line)
    assert text == "".join(before + term for before, term, _ in parts) + rest
    assert format_markup(text, reversed(terms)) == line


@pytest.mark.parametrize(
    "line", ["[soup was cold", "the soup]+", "[soup] was", "[ soup]+", "[[a]+]"]
)
def test_broken_markup_is_refused(line: str) -> None:
    with pytest.raises(DataError):
        parse_markup(line)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("battery", [(0, 4), (2, 6)]),
        ("battery", [(0, 9)]),
        ("a battery", [(1, 9)]),
        ("a [battery]+", []),
    ],
)
def test_markup_that_could_not_be_parsed_is_not_written(
    text: str, spans: list[tuple[int, int]]
) -> None:
    with pytest.raises(DataError):
        format_markup(text, [(AspectSpan(*span), Polarity.NEUTRAL) for span in spans])

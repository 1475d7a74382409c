"""Merging of aspect names: spellings of one aspect are merged, different aspects never are."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.reporting.aspect_names import (
    merge_names,
    normalize_name,
    singular_forms,
    strip_invisible,
)

_LISTS = tomllib.loads((Path(__file__).parent / "aspect_names.toml").read_text(encoding="utf-8"))
APART, TOGETHER = (
    [tuple(line.split(" / ")) for line in _LISTS[name].strip().splitlines()]
    for name in ("apart", "together")
)
COUNTS = ((1000, 10), (10, 1000), (300, 300), (5000, 1))


def test_lists_are_long_enough() -> None:
    assert len({frozenset(pair) for pair in APART}) >= 200
    assert len(TOGETHER) >= 40


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_different_aspects_stay_apart(counts: tuple[int, int]) -> None:
    joined = [pair for pair in APART if len(merge_names(dict(zip(pair, counts, strict=True)))) != 2]
    assert joined == []


def test_different_aspects_stay_apart_in_one_corpus() -> None:
    """No chain of names leads from one aspect to another."""
    names = {name: 3 + 997 * (len(name) % 3) for name in chain(*APART, *TOGETHER)}
    home = {name: aspect.name for aspect in merge_names(names) for name in aspect.spellings}
    assert [pair for pair in APART if home[pair[0]] == home[pair[1]]] == []


def test_spellings_of_one_aspect_are_merged() -> None:
    assert [pair for pair in TOGETHER if len(merge_names({pair[0]: 1000, pair[1]: 10})) > 1] == []


def test_name_is_the_most_frequent_spelling() -> None:
    aspects = merge_names(
        {"Battery": 30, "battery": 60, "BATTERIES": 20, "batteries": 5, "screen": 1}
    )
    assert [(aspect.name, aspect.mentions) for aspect in aspects] == [
        ("battery", 115),
        ("screen", 1),
    ]
    assert aspects[0].variants == [("battery", 90), ("BATTERIES", 25)]
    assert sum(aspects[0].spellings.values()) == 115


def test_ambiguous_misspelling_is_not_merged() -> None:
    counts = {"blinder": 5000, "blender": 5000, "blxnder": 5}
    assert len(merge_names(counts)) == 3


def test_frequent_unknown_word_is_not_merged() -> None:
    assert len(merge_names({"keyboard": 100, "keybord": 90})) == 2


def test_name_without_letters_is_dropped() -> None:
    (aspect,) = merge_names({"...": 4, "": 3, "\u202e": 2, "soup": 1})
    assert aspect.name == "soup"


@pytest.mark.parametrize("name", ["a A\u0304 soup", "the the soup", "the 'soup'", "á soup"])
def test_normalization_repeats_until_nothing_changes(name: str) -> None:
    assert normalize_name(name) == "soup"


@given(st.text(max_size=30))
def test_normalization_is_idempotent(text: str) -> None:
    form = normalize_name(text)
    assert normalize_name(form) == form
    assert all(singular != form for singular in singular_forms(form))
    invisible = set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\x00\x07")
    assert not set(strip_invisible(text)) & invisible


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 50), max_size=12))
def test_merging_keeps_every_name_once(names: dict[str, int]) -> None:
    aspects = merge_names(names)
    spellings = [spelling for aspect in aspects for spelling in aspect.spellings]
    assert sorted(spellings) == sorted(name for name in names if normalize_name(name))
    assert [a.mentions for a in aspects] == sorted((a.mentions for a in aspects), reverse=True)

"""Names of one aspect are joined, and names of two never: in pairs, and all of them at once."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.reporting.merging import merge
from capsar.reporting.names import plain, shown, singulars

_LISTS = tomllib.loads((Path(__file__).parent / "names.toml").read_text(encoding="utf-8"))
APART, TOGETHER = (
    [tuple(line.split(" / ")) for line in _LISTS[name].strip().splitlines()]
    for name in ("apart", "together")
)
COUNTS = ((1000, 10), (10, 1000), (300, 300), (5000, 1))


def test_the_lists_are_long_enough() -> None:
    assert len({frozenset(pair) for pair in APART}) >= 200
    assert len(TOGETHER) >= 40


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_different_aspects_stay_apart(counts: tuple[int, int]) -> None:
    joined = [pair for pair in APART if len(merge(dict(zip(pair, counts, strict=True)))) != 2]
    assert joined == []


def test_different_aspects_stay_apart_in_one_corpus() -> None:
    """No chain of names may lead from one aspect to another."""
    names = {name: 3 + 997 * (len(name) % 3) for name in chain(*APART, *TOGETHER)}
    home = {name: aspect.name for aspect in merge(names) for name in aspect.surfaces}
    assert [pair for pair in APART if home[pair[0]] == home[pair[1]]] == []


def test_names_of_one_aspect_are_joined() -> None:
    assert [(one, other) for one, other in TOGETHER if len(merge({one: 1000, other: 10})) > 1] == []


def test_what_is_shown_is_the_most_frequent_name_and_all_that_were_merged() -> None:
    aspects = merge({"Battery": 30, "battery": 60, "BATTERIES": 20, "batteries": 5, "screen": 1})
    assert [(aspect.name, aspect.mentions) for aspect in aspects] == [
        ("battery", 115),
        ("screen", 1),
    ]
    assert aspects[0].variants == [("battery", 90), ("BATTERIES", 25)]
    assert sum(aspects[0].surfaces.values()) == 115


def test_a_rare_word_is_not_mended_when_two_words_are_near() -> None:
    counts = {"blinder": 5000, "blender": 5000, "blxnder": 5}
    assert len(merge(counts)) == 3


def test_a_word_that_is_not_rarer_is_its_own() -> None:
    assert len(merge({"keyboard": 100, "keybord": 90})) == 2


def test_a_name_of_nothing_but_marks_is_no_aspect() -> None:
    assert merge({"...": 4, "": 3, "\u202e": 2, "soup": 1})[0].name == "soup"
    assert len(merge({"...": 4, "": 3, "\u202e": 2, "soup": 1})) == 1


@pytest.mark.parametrize("name", ["a A\u0304 soup", "the the soup", "the 'soup'", "á soup"])
def test_what_a_step_lays_bare_is_met(name: str) -> None:
    assert plain(name) == "soup"


@given(st.text(max_size=30))
def test_any_text_has_a_plain_form_that_stays(text: str) -> None:
    form = plain(text)
    assert plain(form) == form
    assert all(single != form for single in singulars(form))
    assert not set(shown(text)) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\x00\x07")


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 50), max_size=12))
def test_merging_loses_and_doubles_nothing(names: dict[str, int]) -> None:
    aspects = merge(names)
    told = [surface for aspect in aspects for surface in aspect.surfaces]
    assert sorted(told) == sorted(name for name in names if plain(name))
    assert [a.mentions for a in aspects] == sorted((a.mentions for a in aspects), reverse=True)

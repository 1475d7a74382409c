"""Lessons drawn from files that do not mark every aspect: what is taught, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsar.config import list_sources, read_config
from capsar.data import catalog
from capsar.data.example import AspectSpan, Example
from capsar.data.splits import drop_hashed
from capsar.labels import Polarity
from lessons import (
    feature_names,
    find_names,
    neutral_mentions,
    read_pros_cons,
    side_odds,
    sided_mentions,
    spelled,
    thinned,
)
from tell import is_believed, rows_of

ROOT = Path(__file__).parent.parent.parent
POSITIVE, NEGATIVE, NEUTRAL = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.NEUTRAL
LINES = {POSITIVE: ["superb screen"] * 12 + ["a"], NEGATIVE: ["lousy screen"] * 12 + ["b"]}
ODDS = side_odds(LINES)


def judged(text: str, aspect: str, polarity: Polarity) -> Example:
    start = text.index(aspect)
    return Example(text, (AspectSpan(start, start + len(aspect)),), polarity)


def test_polar_words_are_counted() -> None:
    assert ODDS["superb"] == -ODDS["lousy"] == pytest.approx(2.565, abs=1e-3)  # log 13
    assert ODDS["screen"] == 0
    assert "a" not in ODDS  # too rare to say


def test_names_are_what_was_judged_twice_and_is_no_judgement() -> None:
    named = ("battery life", "battery life", "Superb", "Superb", "the")
    examples = [judged("the Superb battery life", aspect, POSITIVE) for aspect in named]
    assert feature_names(examples, ODDS) == {"battery life"}


def test_the_longest_name_is_found_at_each_place() -> None:
    words = spelled("Battery life, and a battery.")
    assert list(find_names(words, {"battery", "battery life", "life"})) == [range(2), range(5, 6)]


def test_a_mention_is_neutral_only_where_nothing_is_felt() -> None:
    examples = [
        Example("i took the Screen out of the box"),
        Example("the superb screen of the other box"),
        Example("this screen did n't come with a box"),
        Example("the screen"),
        judged("my screen is in the large box", "box", POSITIVE),
        Example("my screen is in the large box"),
    ]
    (found,) = neutral_mentions(examples, {"screen"}, ODDS)
    place = {"start": 11, "end": 17, "aspect": "Screen"}
    assert found == {"text": examples[0].text, "polarity": NEUTRAL} | place


def test_a_side_counts_only_beside_a_polar_word_of_its_own() -> None:
    lines = {
        POSITIVE: ["screen", "superb screen", "superb, screen", "lousy and superb screen",
                   "lousy superb screen"],
        NEGATIVE: ["the screen is lousy", "superb screen"],
    }  # fmt: skip
    found = [(one["text"], one["polarity"]) for one in sided_mentions(lines, {"screen"}, ODDS)]
    assert found == [
        ("superb screen", POSITIVE),
        ("lousy and superb screen", POSITIVE),
        ("the screen is lousy", NEGATIVE),
    ]


def test_lessons_are_thinned_alike_in_any_order() -> None:
    lessons = [
        {"text": f"line {n // 2}", "aspect": f"a{n % 3}", "start": n % 2, "end": 5, "polarity": "x"}
        for n in range(300)
    ]
    few = thinned(lessons, 50)
    assert few == thinned(lessons[::-1], 50)
    assert len({one["text"] for one in few}) == len(few) == 50
    assert max(sum(o["aspect"] == f"a{n}" for o in thinned(lessons, 999)) for n in range(3)) <= 40


def test_a_teacher_is_believed_where_it_is_sure_and_not_contradicted() -> None:
    def told(polarity: Polarity, confidence: float | None) -> SimpleNamespace:
        return SimpleNamespace(polarity=polarity, confidence=confidence, start=2, end=4)

    assert is_believed([], POSITIVE)
    assert is_believed([told(POSITIVE, 0.9), told(NEUTRAL, 0.6)], POSITIVE)
    assert not is_believed([told(POSITIVE, 0.9), told(POSITIVE, 0.5)], POSITIVE)
    assert not is_believed([told(NEGATIVE, 0.9)], POSITIVE)
    assert not is_believed([told(POSITIVE, None)], POSITIVE)
    assert list(rows_of("abcdef", [])) == [{"text": "abcdef"}]
    (row,) = rows_of("abcdef", [told(POSITIVE, 0.9)])
    assert row == {"text": "abcdef", "aspect": "cd", "start": 2, "end": 4, "polarity": "positive"}


@pytest.mark.parametrize("name", ["base", "fast"])
def test_products_that_choose_are_not_trained_on(name: str) -> None:
    data = read_config(ROOT / "experiments" / "configs" / f"{name}.toml").data
    trained, chosen = set(list_sources(data.train)), set(list_sources(data.dev))
    assert not trained & chosen
    products = {source for source in trained | chosen if source.startswith("bing-liu:")}
    assert len(products) == 14
    assert all("/" in product for product in products)
    assert data.without == "experiments/configs/shared-sentences.json"


@pytest.mark.data
def test_no_line_of_pros_and_cons_that_a_test_set_holds_is_left(shared: Path) -> None:
    path = ROOT / "experiments" / "configs" / "shared-sentences.json"
    lines = read_pros_cons(catalog.find_file("bing-liu-pros-cons", "text"))
    kept, dropped = drop_hashed([Example(line) for some in lines.values() for line in some], path)
    assert dropped > 50
    texts = {example.text for example in kept}
    for name in json.loads(path.read_bytes())["judged_on"]:
        assert not texts & {example.text for example in catalog.test_examples(name)}


def test_a_rebuilt_model_is_compared_on_all_that_dev_has() -> None:
    """As many examples as the one that ships now, the rebuilt one, was chosen on."""
    compared = json.loads((ROOT / "experiments" / "results" / "rebuilt-fast.json").read_bytes())
    shipped = json.loads((ROOT / "src/capsar/models/fast/config.json").read_bytes())["trained_on"]
    sources = compared["sources"].values()
    assert sum(source["num_examples"] for source in sources) == shipped["dev_examples"]
    for who in ("base", "shipped", "rebuilt"):
        same, *other = (source["right"][who] / source["num_examples"] for source in sources)
        assert compared["metrics"][f"{who}_same_accuracy"] == pytest.approx(same, abs=1e-5)
        assert min(other) < compared["metrics"][f"{who}_other_accuracy"] < max(other)

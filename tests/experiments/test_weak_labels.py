"""Weak labels from files that do not mark every aspect, and consistent pseudo-labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsar.config import list_sources, read_config
from capsar.data import catalog
from capsar.data.splits import drop_hashed
from capsar.schema import AspectSpan, Example, Polarity
from pseudo_labels import is_consistent, rows_of
from weak_labels import (
    feature_names,
    find_names,
    lowercase_words,
    neutral_mentions,
    read_pros_cons,
    side_odds,
    sided_mentions,
    subsample,
)

ROOT = Path(__file__).parent.parent.parent
POSITIVE, NEGATIVE, NEUTRAL = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.NEUTRAL
LINES = {POSITIVE: ["superb screen"] * 12 + ["a"], NEGATIVE: ["lousy screen"] * 12 + ["b"]}
ODDS = side_odds(LINES)


def labeled(text: str, aspect: str, polarity: Polarity) -> Example:
    start = text.index(aspect)
    return Example(text, (AspectSpan(start, start + len(aspect)),), polarity)


def test_polar_words_are_counted() -> None:
    assert ODDS["superb"] == -ODDS["lousy"] == pytest.approx(2.565, abs=1e-3)  # log 13
    assert ODDS["screen"] == 0
    assert "a" not in ODDS  # too rare


def test_names_are_aspects_labelled_twice_that_are_not_polar() -> None:
    named = ("battery life", "battery life", "Superb", "Superb", "the")
    examples = [labeled("the Superb battery life", aspect, POSITIVE) for aspect in named]
    assert feature_names(examples, ODDS) == {"battery life"}


def test_the_longest_name_is_found() -> None:
    words = lowercase_words("Battery life, and a battery.")
    assert list(find_names(words, {"battery", "battery life", "life"})) == [range(2), range(5, 6)]


def test_a_mention_is_neutral_only_without_labels_and_polar_words() -> None:
    examples = [
        Example("i took the Screen out of the box"),
        Example("the superb screen of the other box"),
        Example("this screen did n't come with a box"),
        Example("the screen"),
        labeled("my screen is in the large box", "box", POSITIVE),
        Example("my screen is in the large box"),
    ]
    (found,) = neutral_mentions(examples, {"screen"}, ODDS)
    place = {"start": 11, "end": 17, "aspect": "Screen"}
    assert found == {"text": examples[0].text, "polarity": NEUTRAL} | place


def test_a_side_needs_a_polar_word_of_its_own() -> None:
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


def test_subsampling_does_not_depend_on_the_order() -> None:
    labels = [
        {"text": f"line {n // 2}", "aspect": f"a{n % 3}", "start": n % 2, "end": 5, "polarity": "x"}
        for n in range(300)
    ]
    few = subsample(labels, 50)
    assert few == subsample(labels[::-1], 50)
    assert len({one["text"] for one in few}) == len(few) == 50
    assert max(sum(o["aspect"] == f"a{n}" for o in subsample(labels, 999)) for n in range(3)) <= 40


def test_predictions_are_kept_if_confident_and_not_contradicted() -> None:
    def predicted(polarity: Polarity, confidence: float | None) -> SimpleNamespace:
        return SimpleNamespace(polarity=polarity, confidence=confidence, start=2, end=4)

    assert is_consistent([], POSITIVE)
    assert is_consistent([predicted(POSITIVE, 0.9), predicted(NEUTRAL, 0.6)], POSITIVE)
    assert not is_consistent([predicted(POSITIVE, 0.9), predicted(POSITIVE, 0.5)], POSITIVE)
    assert not is_consistent([predicted(NEGATIVE, 0.9)], POSITIVE)
    assert not is_consistent([predicted(POSITIVE, None)], POSITIVE)
    assert list(rows_of("abcdef", [])) == [{"text": "abcdef"}]
    (row,) = rows_of("abcdef", [predicted(POSITIVE, 0.9)])
    assert row == {"text": "abcdef", "aspect": "cd", "start": 2, "end": 4, "polarity": "positive"}


@pytest.mark.parametrize("name", ["base", "fast"])
def test_validation_products_are_not_trained_on(name: str) -> None:
    data = read_config(ROOT / "experiments" / "configs" / f"{name}.toml").data
    trained, chosen = set(list_sources(data.train)), set(list_sources(data.validation))
    assert not trained & chosen
    products = {source for source in trained | chosen if source.startswith("bing-liu:")}
    assert len(products) == 14
    assert all("/" in product for product in products)
    assert data.exclude_hashes == "experiments/configs/shared-sentences.json"


@pytest.mark.data
def test_no_line_of_pros_and_cons_occurs_in_a_test_set(shared: Path) -> None:
    path = ROOT / "experiments" / "configs" / "shared-sentences.json"
    lines = read_pros_cons(catalog.find_file("bing-liu-pros-cons", "text"))
    kept, dropped = drop_hashed([Example(line) for some in lines.values() for line in some], path)
    assert dropped > 50
    texts = {example.text for example in kept}
    for name in json.loads(path.read_bytes())["evaluated_on"]:
        assert not texts & {example.text for example in catalog.test_examples(name)}


def test_a_rebuilt_model_is_compared_on_all_validation_examples() -> None:
    """The current bundled model, which is the rebuilt one, was selected on as many examples."""
    compared = json.loads((ROOT / "experiments" / "results" / "rebuilt-fast.json").read_bytes())
    bundled = json.loads((ROOT / "src/capsar/models/fast/config.json").read_bytes())["trained_on"]
    sources = compared["sources"].values()
    assert sum(source["num_examples"] for source in sources) == bundled["validation_examples"]
    for model in ("base", "bundled", "rebuilt"):
        same, *other = (source["right"][model] / source["num_examples"] for source in sources)
        assert compared["metrics"][f"{model}_same_accuracy"] == pytest.approx(same, abs=1e-5)
        assert min(other) < compared["metrics"][f"{model}_other_accuracy"] < max(other)

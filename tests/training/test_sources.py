"""Training on several sources, and on sentences of which not every aspect is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capsar.config import run_config
from capsar.data.catalog import training_examples
from capsar.data.example import AspectSpan, Example
from capsar.errors import ConfigError
from capsar.labels import Polarity
from capsar.tagging import BEGIN, OUTSIDE, UNTOLD
from capsar.text import WordTokenizer
from capsar.training.batches import collate, encode_examples
from capsar.training.parts import read_parts

POSITIVE, NEUTRAL = Polarity.POSITIVE, Polarity.NEUTRAL


def write(path: Path, *rows: tuple[str, str, str]) -> str:
    names = ("text", "aspect", "polarity")
    lines = [
        json.dumps({n: v for n, v in zip(names, row, strict=True) if v}) + "\n" for row in rows
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def test_sources_are_read_one_after_the_other(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", ("good soup here", "soup", "positive"))
    two = write(tmp_path / "two.jsonl", ("bad bed there", "bed", "negative"), ("we came", "", ""))
    dev = [
        write(tmp_path / "dev.jsonl", ("a fine desk", "desk", "positive")),
        write(tmp_path / "more.jsonl", ("the poor lamp", "lamp", "negative")),
    ]
    parts = read_parts(run_config({"data": {"train": [one, two], "dev": dev}}).data)
    assert [example.aspect for example in parts.train] == ["soup", "bed"]
    assert [example.aspect for example in parts.dev] == ["desk", "lamp"]
    assert [sentence.text for sentence in parts.train_sentences][-1] == "we came"


def test_what_teaches_polarity_only_is_no_sentence_of_the_head(tmp_path: Path) -> None:
    """It is cleared of what dev and test sets hold, like all that is trained on."""
    from capsar.data.splits import sentence_hash

    held = "nobody may learn this line"
    without = tmp_path / "held.json"
    without.write_text(json.dumps({"hashes": [sentence_hash(held)]}))
    data = {
        "train": write(tmp_path / "train.jsonl", ("good soup here", "soup", "positive")),
        "dev": write(tmp_path / "dev.jsonl", ("a fine desk", "desk", "positive")),
        "polarity_only": write(
            tmp_path / "more.jsonl",
            ("great light and sound", "light", "positive"),
            ("a fine desk", "desk", "positive"),
            (held, "line", "neutral"),
            ("nothing is judged", "", ""),
        ),
        "without": str(without),
    }
    parts = read_parts(run_config({"data": data}).data)
    assert [example.aspect for example in parts.polarity_only] == ["light"]
    assert [sentence.text for sentence in parts.train_sentences] == ["good soup here"]
    assert parts.held_by_test_sets == 1


def test_tags_that_nobody_told_teach_nothing() -> None:
    tokenizer = WordTokenizer.build(["good", "soup", "and", "bed"])
    text = "good soup and bed"
    soup, bed = AspectSpan(5, 9), AspectSpan(14, 17)
    untold = "soup and bed"
    encoded = encode_examples(
        [
            Example(text, (soup,), POSITIVE),
            Example(text, (bed,), NEUTRAL),
            Example(untold, (AspectSpan(0, 4),), POSITIVE),
        ],
        tokenizer,
        terms={text: [(5, 9)]},
    )
    assert encoded[0].tags == encoded[1].tags == (OUTSIDE, BEGIN, OUTSIDE, UNTOLD)
    assert encoded[2].tags == (UNTOLD,) * 3
    batch = collate(encoded)
    assert batch.tags is not None
    assert batch.tags[2].tolist() == [UNTOLD] * 4
    assert [example.tag_weight for example in encoded] == [0.5, 0.5, 1]


def test_one_file_of_an_archive_is_a_source(shared: Path) -> None:
    whole = training_examples("bing-liu", "train")
    own = training_examples("bing-liu", "train/Canon_G3")
    assert 600 < len(own) < 700
    assert {example.id.split("/")[1].split(".")[0] for example in own} == {"Canon_G3"}
    assert set(own) < set(whole)
    with pytest.raises(ConfigError, match="no file 'Canon_G4'; its files are: Apex_AD2600"):
        training_examples("bing-liu", "train/Canon_G4")
    with pytest.raises(ConfigError, match="no file 'x'; its files are: none, it is one"):
        training_examples("mams", "train/x")


def test_a_list_of_sources_is_checked_and_kept() -> None:
    config = run_config({"data": {"train": ["a.csv", "b.csv"]}})
    assert config.data.train == ("a.csv", "b.csv")
    assert run_config(config.as_dict()) == config
    assert config.as_dict()["data"]["train"] == ["a.csv", "b.csv"]
    with pytest.raises(ConfigError, match="train must be the name of a source"):
        run_config({"data": {"train": ["a.csv", 3]}})

"""Test reading training data from several sources and from partially annotated ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capsar.config import run_config
from capsar.data.catalog import training_examples
from capsar.errors import ConfigError
from capsar.inference.decoding import BEGIN, IGNORE_INDEX, OUTSIDE
from capsar.schema import AspectSpan, Example, Polarity
from capsar.tokenizer import WordTokenizer
from capsar.training.batches import collate, encode_examples
from capsar.training.dataset import read_splits
from capsar.training.distillation import weight_sources

POSITIVE, NEUTRAL = Polarity.POSITIVE, Polarity.NEUTRAL


def write(path: Path, *rows: tuple[str, str, str]) -> str:
    names = ("text", "aspect", "polarity")
    lines = [
        json.dumps({n: v for n, v in zip(names, row, strict=True) if v}) + "\n" for row in rows
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def test_several_sources_are_concatenated(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", ("good soup here", "soup", "positive"))
    two = write(tmp_path / "two.jsonl", ("bad bed there", "bed", "negative"), ("we came", "", ""))
    validation = [
        write(tmp_path / "validation.jsonl", ("a fine desk", "desk", "positive")),
        write(tmp_path / "more.jsonl", ("the poor lamp", "lamp", "negative")),
    ]
    parts = read_splits(run_config({"data": {"train": [one, two], "validation": validation}}).data)
    assert [example.aspect for example in parts.train] == ["soup", "bed"]
    assert [example.aspect for example in parts.validation] == ["desk", "lamp"]
    assert [sentence.text for sentence in parts.train_sentences][-1] == "we came"


def test_partially_annotated_sources_are_not_used_for_spans(tmp_path: Path) -> None:
    """They are decontaminated like all training data."""
    from capsar.data.splits import sentence_hash

    excluded = "this line is in a test set"
    hashes = tmp_path / "hashes.json"
    hashes.write_text(json.dumps({"hashes": [sentence_hash(excluded)]}))
    data = {
        "train": write(tmp_path / "train.jsonl", ("good soup here", "soup", "positive")),
        "validation": write(tmp_path / "validation.jsonl", ("a fine desk", "desk", "positive")),
        "partially_annotated": write(
            tmp_path / "more.jsonl",
            ("great light and sound", "light", "positive"),
            ("a fine desk", "desk", "positive"),
            ("Good soup here!", "Good", "positive"),
            (excluded, "line", "neutral"),
            ("nothing is labeled", "", ""),
        ),
        "exclude_hashes": str(hashes),
    }
    parts = read_splits(run_config({"data": data}).data)
    assert [example.aspect for example in parts.partially_annotated] == ["light"]
    assert [sentence.text for sentence in parts.train_sentences] == ["good soup here"]
    assert parts.excluded == 1


def test_weights_and_partially_annotated_validation(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", ("good soup here", "soup", "positive"))
    more = write(tmp_path / "more.jsonl", ("great light and sound", "light", "positive"))
    data = {
        "train": train,
        "partially_annotated": [more],
        "weights": {more: 0.5},
        "validation": write(tmp_path / "validation.jsonl", ("a fine desk", "desk", "positive")),
        "partially_annotated_validation": write(
            tmp_path / "partial.jsonl", ("a bad bed and lamp", "bed", "negative")
        ),
    }
    config = run_config({"data": data})
    assert run_config(config.as_dict()) == config
    parts = read_splits(config.data)
    assert parts.weights == {"great light and sound": 0.5}
    assert [example.aspect for example in parts.validation] == ["desk", "bed"]
    assert [sentence.text for sentence in parts.validation_sentences] == ["a fine desk"]
    examples = parts.training_examples(with_unlabeled=False)
    encoded = encode_examples(examples, WordTokenizer.build(["good"]))
    weighted = weight_sources(encoded, examples, parts.weights)
    assert [example.weight for example in weighted] == [1, 0.5]
    for wrong in ({"other.csv": 0.5}, {more: 0}, {more: "much"}):
        with pytest.raises(ConfigError, match="weights"):
            run_config({"data": data | {"weights": wrong}})
    with pytest.raises(ConfigError, match=r"empty without data\.validation"):
        run_config({"data": data | {"validation": ""}})


def test_tags_of_partially_annotated_sentences_are_ignored() -> None:
    tokenizer = WordTokenizer.build(["good", "soup", "and", "bed"])
    text = "good soup and bed"
    soup, bed = AspectSpan(5, 9), AspectSpan(14, 17)
    unknown = "soup and bed"
    encoded = encode_examples(
        [
            Example(text, (soup,), POSITIVE),
            Example(text, (bed,), NEUTRAL),
            Example(unknown, (AspectSpan(0, 4),), POSITIVE),
        ],
        tokenizer,
        terms={text: [(5, 9), (14, 17)]},
    )
    assert encoded[0].tags == encoded[1].tags == (OUTSIDE, BEGIN, OUTSIDE, BEGIN)
    assert encoded[2].tags == (IGNORE_INDEX,) * 3
    batch = collate(encoded)
    assert batch.tags is not None
    assert batch.tags[2].tolist() == [IGNORE_INDEX] * 4
    assert [example.tag_weight for example in encoded] == [0.5, 0.5, 1]


def test_one_file_of_an_archive_can_be_a_source(shared: Path) -> None:
    whole = training_examples("bing-liu", "train")
    own = training_examples("bing-liu", "train/Canon_G3")
    assert 600 < len(own) < 700
    assert {example.id.split("/")[1].split(".")[0] for example in own} == {"Canon_G3"}
    assert set(own) < set(whole)
    with pytest.raises(ConfigError, match="no file 'Canon_G4'; its files are: Apex_AD2600"):
        training_examples("bing-liu", "train/Canon_G4")
    with pytest.raises(ConfigError, match="no file 'x'; its files are: none, it is not an archive"):
        training_examples("mams", "train/x")


def test_list_of_sources_is_checked() -> None:
    config = run_config({"data": {"train": ["a.csv", "b.csv"]}})
    assert config.data.train == ("a.csv", "b.csv")
    assert run_config(config.as_dict()) == config
    assert config.as_dict()["data"]["train"] == ["a.csv", "b.csv"]
    with pytest.raises(ConfigError, match="train must be the name of a source"):
        run_config({"data": {"train": ["a.csv", 3]}})

"""The catalog, the validation split, overlaps between sets, and file checks, on synthetic files."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st

from capsar.data import catalog
from capsar.data.splits import (
    Match,
    MatchKind,
    SentenceIndex,
    decontaminate,
    drop_hashed,
    sentence_hash,
    split_validation,
)
from capsar.data.validate import check_file, data_files, find_overlaps
from capsar.errors import ConfigError, DataError
from capsar.schema import AspectSpan, Example

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from capsar.schema import Polarity


def test_the_catalog_is_complete() -> None:
    known = catalog.datasets()
    files = [file for dataset in known.values() for file in dataset.files]
    assert len({file.path for file in files}) == len(files)
    for file in files:
        assert len(file.sha256) == 64
        assert file.bytes > 0
        known_source = ("github.com" in file.where(), "glove" in file.path, "corpus/" in file.path)
        assert any(known_source), file.path


def test_an_unknown_name_or_part_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"Unknown dataset 'semeval'.*mams"):
        catalog.dataset("semeval")
    with pytest.raises(ConfigError, match="no part 'dev'; its parts are: train, test"):
        catalog.dataset("twitter").file("dev")


def test_a_missing_file_error_names_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAPSAR_DATA", raising=False)
    with pytest.raises(ConfigError, match="Set CAPSAR_DATA"):
        catalog.find_file("mams", "train")
    monkeypatch.setenv("CAPSAR_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"siat-nlp/MAMS.*sha256 26ba39.*Apache-2\.0"):
        catalog.find_file("mams", "train")
    assert catalog.present(catalog.dataset("mams")) == []


def test_a_file_that_is_not_the_published_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSAR_DATA", str(tmp_path))
    file = catalog.dataset("mams").file("train")
    path = tmp_path / file.path
    path.parent.mkdir(parents=True)
    for content in (b"short", b"x" * file.bytes):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not the published file"):
            catalog.find_file("mams", "train")


def test_only_the_corpus_is_read_from_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, data = tmp_path / "checkout", tmp_path / "data"
    monkeypatch.setattr(catalog, "_CHECKOUT", checkout)
    monkeypatch.setenv("CAPSAR_DATA", str(data))
    for name in ("mams", "capsar-corpus"):
        file = catalog.dataset(name).file("train")
        assert catalog.expected_path(file) == data / file.path
        planted = checkout / file.path
        planted.parent.mkdir(parents=True)
        planted.touch()
        expected = planted if name == "capsar-corpus" else data / file.path
        assert catalog.expected_path(file) == expected


def test_a_test_part_cannot_be_trained_on() -> None:
    with pytest.raises(ConfigError, match="only for evaluation"):
        catalog.training_examples("mams", "test")


def example(text: str, polarity: Polarity | None = None) -> Example:
    return Example(text, (), polarity)


@given(st.lists(st.text("abc ", min_size=1), min_size=4), st.integers(0, 5), st.randoms())
def test_a_split_is_by_sentence_and_not_by_order(
    texts: list[str], seed: int, random: Random
) -> None:
    examples = [example(text) for text in texts]
    try:
        split = split_validation(examples, ratio=0.3, seed=seed)
    except ConfigError:
        assert len({" ".join(text.split()) for text in texts}) < 4
        return
    assert Counter(split.train + split.validation) == Counter(examples)
    words = [
        {tuple(e.text.split()) or e.text for e in part} for part in (split.train, split.validation)
    ]
    assert not words[0] & words[1]
    shuffled = list(examples)
    random.shuffle(shuffled)
    assert set(split_validation(shuffled, ratio=0.3, seed=seed).validation) == set(split.validation)


def test_a_split_is_the_same_on_every_machine() -> None:
    """Golden values: a change would silently change every experiment."""
    examples = [example(f"sentence number {number}") for number in range(20)]
    validation = [
        e.text.split()[-1] for e in split_validation(examples, ratio=0.2, seed=7).validation
    ]
    assert validation == ["0", "8", "16", "19"]


def test_a_split_with_an_empty_part_is_refused() -> None:
    examples = [example("same words"), example("Same words!")]
    with pytest.raises(ConfigError, match="1 different sentences"):
        split_validation(examples)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        split_validation(examples, ratio=1.0)


def test_sentences_of_evaluation_sets_are_dropped() -> None:
    evaluation_texts = ["The soup was cold and the staff were lovely!", "Great food."]
    train = [
        "the soup was cold, and the staff were lovely",  # the same words
        "My soup was cold and the staff were rude to us",  # half of its 5-grams
        "great FOOD",
        "Great food and a great view",  # only two words shared
        "We liked the view.",
        "!!!",
    ]
    clean = decontaminate([example(text) for text in train], evaluation_texts)
    assert [e.text for e in clean.kept] == train[3:]
    assert clean.dropped == {MatchKind.EXACT: 2, MatchKind.NEAR: 1}


def test_sentences_without_words_are_compared_by_their_characters() -> None:
    clean = decontaminate([example("😍😍 "), example(":-)"), example("!")], ["😍😍", ":-)", "  "])
    assert [e.text for e in clean.kept] == ["!"]


def test_templated_reviews_take_linear_time() -> None:
    template = "{} the soup was cold, the bread was fine and no waiter came to take our order"
    texts = {template.format(n): str(n) for n in range(20_000)}
    start = time.process_time()
    find_overlaps({"a": texts, "b": texts})
    assert time.process_time() - start < 60  # quadratic time would take half an hour
    index = SentenceIndex()
    index.add("a", texts)
    assert index.find(template.format(19_999))["a"].kind is MatchKind.EXACT


def test_exact_matches_take_precedence_over_near_ones() -> None:
    index = SentenceIndex()
    index.add("a", ["one two three four five six", "one two three four five six seven"])
    assert index.find("one two three four five six") == {"a": Match(MatchKind.EXACT, 0)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in samples.FILES.items():
        (tmp_path / name).write_bytes(content)
    for name in ("README.md", "LICENSE", "MANIFEST.tsv", "schema.xsd"):
        (tmp_path / name).write_text("not data")
    return tmp_path


def test_only_data_files_of_a_folder_are_checked(folder: Path) -> None:
    assert [path.name for path in data_files(folder)] == sorted(samples.FILES)


def test_a_check_counts_and_lists_findings(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "text,aspect,polarity\n"
        "two menus,menu,positive\n"  # inside a word
        "two menus,menu,negative\n"  # another polarity
        "two menus,menu,negative\n"  # again
        " soup\xa0and soup ,soup,neutral\n"
        "no aspect,,\n"
        "no aspect,dog,conflict\n",
        encoding="utf-8",
    )
    report, texts = check_file(path)
    assert report.format == "csv"
    assert report.labels == {"positive": 1, "negative": 2, "neutral": 1, "conflict": 1}
    assert (report.examples, report.sentences, report.sentences_without_aspect) == (5, 3, 1)
    assert [error.record for error in report.bad] == ["line 7"]
    assert {kind: notice.count for kind, notice in report.notices.items()} == {
        "span begins or ends inside a word": 3,
        "same aspect, different polarity": 2,
        "white space around the text": 1,
        "no-break spaces": 1,
    }
    assert report.labels_as_published is None
    assert sorted(texts) == [" soup\xa0and soup ", "no aspect", "two menus"]


def test_a_check_finds_repeated_terms_and_repeated_texts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.xml"
    twice = [samples.sentence("tea and tea", ("tea", "neutral", 8, 11), id=name) for name in "ab"]
    path.write_bytes(samples.semeval14(*twice))
    report, _ = check_file(path)
    counts = {kind: notice.count for kind, notice in report.notices.items()}
    assert counts == {
        "term occurs more than once in its sentence": 2,
        "text of more than one sentence": 1,
        "duplicate annotation": 1,
    }


def test_a_check_compares_a_bounded_number_of_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsar.data.validate.MAX_SENTENCES", 2)
    path = tmp_path / "a.csv"
    path.write_text("text\na\nb\nc\nd\n")
    report, texts = check_file(path)
    assert not report.compared_all
    assert report.examples == 4
    assert texts == {}  # nothing is labeled


def test_a_check_of_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    report, _ = check_file(tmp_path / "x.docx")
    assert "unknown suffix" in report.bad[0].reason


def test_overlaps_are_counted_once_per_pair(tmp_path: Path) -> None:
    texts = {
        "a": {"The soup was cold.": "line 2", "Fine view": "line 3"},
        "b": {"x": "line 2", "the soup WAS cold": "line 9"},
        "c": {"y": "line 2"},
    }
    (overlap,) = find_overlaps(texts)
    assert (overlap.path, overlap.other, overlap.exact, overlap.near) == ("a", "b", 1, 0)
    assert overlap.records == [("line 2", "line 9", "exact")]


def test_a_check_finds_contradictions_without_spans_and_repeated_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,polarity\nGood.,positive\nGood.,negative\nGood.,positive\n")
    report, _ = check_file(path)
    assert report.notices["same aspect, different polarity"].records == ["line 3 and line 2"]
    assert report.notices["duplicate annotation"].records == ["line 4 and line 2"]


def test_sentences_with_one_id_and_different_texts_are_different(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(
        samples.semeval14(
            samples.sentence("tea", ("tea", "neutral", 0, 3), id="1"),
            samples.sentence("ham", ("ham", "neutral", 0, 3), id="1"),
        )
    )
    report, texts = check_file(path)
    assert report.sentences == 2
    assert set(texts) == {"tea", "ham"}


def test_a_large_file_is_checked_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsar.data.validate.MAX_CHARACTERS", 10)
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "".join(f"some review {n}\n" for n in range(9)))
    report, _ = check_file(path)
    assert not report.compared_all
    assert report.examples == 9


def test_spans_are_ordered() -> None:
    assert sorted([AspectSpan(4, 5), AspectSpan(0, 9)])[0] == AspectSpan(0, 9)


def test_sentences_listed_by_hash_are_dropped(tmp_path: Path) -> None:
    texts = ["Cold soup!", "cold  soup", "Warm soup.", "😀"]
    hashes = {"hashes": [sentence_hash("COLD SOUP"), sentence_hash("😀")]}
    (tmp_path / "shared.json").write_text(json.dumps(hashes))
    kept, dropped = drop_hashed([Example(text) for text in texts], tmp_path / "shared.json")
    assert [example.text for example in kept] == ["Warm soup."]
    assert dropped == 3
    for content in ("[]", "{}", '{"hashes": 3}', "not JSON"):
        (tmp_path / "shared.json").write_text(content)
        with pytest.raises(DataError, match="list 'hashes'"):
            drop_hashed([], tmp_path / "shared.json")
    with pytest.raises(DataError, match="absent"):
        drop_hashed([], tmp_path / "absent.json")

"""One idea of a word: golden cuts, exact offsets on any string, linear time, ids."""

from __future__ import annotations

import json
import random
import sys
import time
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hostile_text import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from capsar.errors import ArtifactError, ConfigError
from capsar.text import (
    WordTokenizer,
    build_vocabulary,
    cuts_word,
    segment,
    spelling,
    words_within,
)

if TYPE_CHECKING:
    from pathlib import Path


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in segment(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\r\n\xa0\u200b\x00\x07", []),
        ("The soup was cold.", ["The", "soup", "was", "cold", "."]),
        (
            "I don't, you isn’t, they CAN'T",
            ["I", "do", "n't", ",", "you", "is", "n’t", ",", "they", "CA", "N'T"],
        ),
        (
            "it's we've I'm he'll 'tis",
            ["it", "'s", "we", "'ve", "I", "'m", "he", "'ll", "'", "tis"],
        ),
        ("well-made e-mail great--we", ["well-made", "e-mail", "great", "--", "we"]),
        ("well-don't x-n't", ["well-do", "n't", "x", "-", "n't"]),
        ("don'tcha", ["don", "'", "tcha"]),
        (
            "$5.95 at 10:30pm, 1,000 of 3rd",
            ["$", "5.95", "at", "10:30", "pm", ",", "1,000", "of", "3rd"],
        ),
        ("in the U.S. at 5 a.m. Fine.", ["in", "the", "U.S.", "at", "5", "a.m.", "Fine", "."]),
        ("wow!!! ..... ?! ''so''", ["wow", "!", "!", "!", ".....", "?", "!", "''", "so", "''"]),
        ("nice :) bad :-( I <3 it =D", ["nice", ":)", "bad", ":-(", "I", "<3", "it", "=D"]),
        (
            "see http://a.b/c?d=1. or www.e.org, ok",
            ["see", "http://a.b/c?d=1", ".", "or", "www.e.org", ",", "ok"],
        ),
        ("@user_1 #tag a@b", ["@user_1", "#tag", "a", "@", "b"]),
        ("and/or (food)", ["and", "/", "or", "(", "food", ")"]),
        ("👨‍👩‍👧👍🏽🇫🇷🇩🇪❤️", ["👨‍👩‍👧", "👍🏽", "🇫🇷", "🇩🇪", "❤️"]),
        ("我喜欢 ok", ["我", "喜", "欢", "ok"]),
        ("cafe\u0301 naïve नमस्ते", ["cafe\u0301", "naïve", "नमस्ते"]),
        ("a\ud800b", ["a", "\ud800", "b"]),
    ],
)
def test_golden_cuts(text: str, words: list[str]) -> None:
    assert cut(text) == words


def assert_exact(text: str) -> None:
    """Spans are in order, do not overlap, and only invisible characters stand between them."""
    position = 0
    rebuilt = []
    for start, end in segment(text):
        assert position <= start < end <= len(text)
        gap = text[position:start]
        assert all(is_invisible(c) for c in gap), (gap, text)
        rebuilt += [gap, text[start:end]]
        position = end
    assert all(is_invisible(c) for c in text[position:]), text
    assert "".join([*rebuilt, text[position:]]) == text


def is_invisible(char: str) -> bool:
    return char.isspace() or unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Zs", "Cn")


@pytest.mark.parametrize("seed", range(4))
def test_offsets_are_exact_on_100_000_generated_strings(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(25_000):
        pieces = generator.choices(HOSTILE, k=generator.randrange(12))
        if generator.random() < 0.3:
            pieces.append(chr(generator.randrange(sys.maxunicode + 1)))
        assert_exact("".join(pieces))


@given(st.text(st.characters(codec=None, categories=None)))  # lone surrogates included
def test_offsets_are_exact_on_any_text(text: str) -> None:
    assert_exact(text)


@given(st.text(alphabet=st.sampled_from("ab n't'-. ")))
def test_a_word_alone_is_cut_as_inside_its_sentence_or_finer(text: str) -> None:
    for word in cut(text):
        assert "".join(cut(word)) == word


@pytest.mark.parametrize(
    "unit",
    ["www.!", "1", "a-", "n't", "a.b.", ":(", "n'", "don't-", "http://", "'", ".", "1.", "😀\u200d",
    "-n't"],
)  # fmt: skip
def test_time_is_linear_in_the_text(unit: str) -> None:
    def seconds(repeat: int) -> float:
        text = unit * repeat + "n't"
        best = 9e9
        for _ in range(3):
            start = time.perf_counter()
            segment(text)
            best = min(best, time.perf_counter() - start)
        return best

    # Quadratic time would be 64 times as long.
    assert seconds(160_000) < 30 * max(seconds(20_000), 1e-3)


@given(st.text(max_size=40), st.integers(0, 40), st.integers(1, 10))
def test_words_within_are_those_a_span_touches(text: str, start: int, length: int) -> None:
    words = segment(text)
    touched = [
        i for i, (first, last) in enumerate(words) if first < start + length and last > start
    ]
    assert list(words_within(words, start, start + length)) == touched


def test_a_boundary_inside_a_word_is_told() -> None:
    assert cuts_word("menus", 4)
    assert not any(cuts_word("the menu", position) for position in (0, 3, 4, 8, 99))


def test_vocabulary_is_ordered_and_spelled() -> None:
    vocabulary = build_vocabulary(["Good food, good", "don’t"], ["The", "food"])
    assert vocabulary == ["good", ",", "do", "food", "n't", "the"]


def test_rare_words_are_left_out_unless_they_have_a_vector() -> None:
    assert build_vocabulary(["a a b c"], ["c"], min_count=2) == ["a", "c"]


def test_ids_are_one_a_word_whatever_the_word() -> None:
    tokenizer = WordTokenizer.build(["good", "...", "\ufffd", "café"])
    words = ["GOOD", ".....", "…", "\ud83d", "cafe\u0301", "[PAD]", "nowhere"]
    assert tokenizer.encode([words, []]) == [[2, 3, 3, 4, 5, 1, 1], []]


@given(st.lists(st.lists(st.text(min_size=1).map(lambda t: t), max_size=5), max_size=4))
def test_every_word_gets_an_id(sentences: list[list[str]]) -> None:
    tokenizer = WordTokenizer.build(["a"])
    cut_sentences = [[w for text in texts for w in cut(text)] for texts in sentences]
    assert [len(ids) for ids in tokenizer.encode(cut_sentences)] == [len(s) for s in cut_sentences]


def test_a_tokenizer_survives_saving(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.build(build_vocabulary(["The soup isn't cold, 1.5 × ''hot''…"]))
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = WordTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocabulary() == tokenizer.vocabulary()
    assert len(loaded) == len(tokenizer)
    assert loaded.encode([cut("Soup ISN’T")]) == tokenizer.encode([cut("Soup ISN’T")])


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00", '{"version": "9"}'])
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        WordTokenizer.load(path)


def test_a_foreign_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.build(["a"])
    tokenizer.save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    content["model"]["vocab"] = {"a": 0, "[UNK]": 1}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"\[PAD\]"):
        WordTokenizer.load(tmp_path / "t.json")
    with pytest.raises(ArtifactError, match="Cannot read"):
        WordTokenizer.load(tmp_path / "absent.json")


@pytest.mark.parametrize("vocabulary", [["a", "a"], ["[UNK]"], ["[PAD]", "b"]])
def test_a_vocabulary_names_each_word_once(vocabulary: list[str]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        WordTokenizer.build(vocabulary)


def test_spelling_is_what_the_tokenizer_looks_up() -> None:
    words = ["Isn’t", "İ", "ẞ", "....", "Ａ", "\ud800"]
    tokenizer = WordTokenizer.build(list(dict.fromkeys(map(spelling, words))))
    assert tokenizer.encode([words]) == [[2, 3, 4, 5, 6, 7]]

"""Word tokenization: golden cases, exact offsets on any string, linear time, ids."""

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
from capsar.tokenizer import (
    WordTokenizer,
    build_vocabulary,
    cuts_word,
    spelling,
    tokenize_words,
    words_within,
)

if TYPE_CHECKING:
    from pathlib import Path


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in tokenize_words(text)]


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
def test_golden_tokenization(text: str, words: list[str]) -> None:
    assert cut(text) == words


def assert_exact(text: str) -> None:
    """Check that spans are ordered and disjoint, with only invisible characters between them."""
    position = 0
    rebuilt = []
    for start, end in tokenize_words(text):
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
def test_a_single_word_is_tokenized_as_in_its_sentence_or_finer(text: str) -> None:
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
            start = time.process_time()
            tokenize_words(text)
            best = min(best, time.process_time() - start)
        return best

    # Quadratic time would be a factor of 64.
    assert seconds(160_000) < 30 * max(seconds(20_000), 1e-3)


@given(st.text(max_size=40), st.integers(0, 40), st.integers(1, 10))
def test_words_within_are_the_words_that_a_span_overlaps(
    text: str, start: int, length: int
) -> None:
    words = tokenize_words(text)
    touched = [
        i for i, (first, last) in enumerate(words) if first < start + length and last > start
    ]
    assert list(words_within(words, start, start + length)) == touched


def test_a_boundary_inside_a_word_is_detected() -> None:
    assert cuts_word("menus", 4)
    assert not any(cuts_word("the menu", position) for position in (0, 3, 4, 8, 99))


def test_vocabulary_is_ordered_and_normalized() -> None:
    vocabulary = build_vocabulary(["Good food, good", "don’t"], ["The", "food"])
    assert vocabulary == ["good", ",", "do", "food", "n't", "the"]


def test_every_word_has_one_id() -> None:
    tokenizer = WordTokenizer.build(["good", "...", "\ufffd", "café"])
    words = ["GOOD", ".....", "…", "\ud83d", "cafe\u0301", "[PAD]", "nowhere"]
    assert tokenizer.word_ids([words, []]) == [[2, 3, 3, 4, 5, 1, 1], []]


@given(st.lists(st.lists(st.text(min_size=1).map(lambda t: t), max_size=5), max_size=4))
def test_any_words_have_one_id_each(sentences: list[list[str]]) -> None:
    tokenizer = WordTokenizer.build(["a"])
    cut_sentences = [[w for text in texts for w in cut(text)] for texts in sentences]
    assert [len(ids) for ids in tokenizer.word_ids(cut_sentences)] == [
        len(s) for s in cut_sentences
    ]


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.build(build_vocabulary(["The soup isn't cold, 1.5 × ''hot''…"]))
    (tmp_path / "tokenizer.json").write_bytes(tokenizer.content())
    loaded = WordTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocabulary() == tokenizer.vocabulary()
    assert len(loaded) == len(tokenizer)
    assert loaded.word_ids([cut("Soup ISN’T")]) == tokenizer.word_ids([cut("Soup ISN’T")])


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00", '{"version": "9"}'])
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        WordTokenizer.load(path)


def test_a_foreign_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.build(["a"])
    content = json.loads(tokenizer.content())
    content["model"]["vocab"] = {"a": 0, "[UNK]": 1}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"\[PAD\]"):
        WordTokenizer.load(tmp_path / "t.json")
    with pytest.raises(ArtifactError, match="Cannot read"):
        WordTokenizer.load(tmp_path / "absent.json")


@pytest.mark.parametrize("vocabulary", [["a", "a"], ["[UNK]"], ["[PAD]", "b"]])
def test_a_vocabulary_has_each_word_once(vocabulary: list[str]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        WordTokenizer.build(vocabulary)


def test_spelling_is_the_form_that_the_tokenizer_looks_up() -> None:
    words = ["Isn’t", "İ", "ẞ", "....", "Ａ", "\ud800"]
    tokenizer = WordTokenizer.build(list(dict.fromkeys(map(spelling, words))))
    assert tokenizer.word_ids([words]) == [[2, 3, 4, 5, 6, 7]]

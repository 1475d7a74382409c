"""Subwords: every word has at least one, every subword one word, nothing is truncated."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hostile_text import HOSTILE
from hypothesis import given
from hypothesis import strategies as st
from tiny_bert import subwords, tiny_tokenizer

from capsar.errors import ArtifactError
from capsar.tokenizer import Encoding, SubwordTokenizer, load_tokenizer, pool_words, tokenize_words

IDS = {subword: number for number, subword in enumerate(subwords())}


def tokenizer(window: int = 24, *, reads_aspect: bool = False) -> SubwordTokenizer:
    return SubwordTokenizer(tiny_tokenizer(), window=window, reads_aspect=reads_aspect)


def words_of(text: str) -> list[str]:
    return [text[start:end] for start, end in tokenize_words(text)]


def test_encodings_by_hand() -> None:
    words = ["The", "battery", "was", "cold"]
    (plain,) = tokenizer().encode([words], [["battery"]])
    names = ["[CLS]", "the", "bat", "##tery", "was", "cold", "[SEP]"]
    assert plain.ids == tuple(IDS[name] for name in names)
    assert plain.words == (-1, 0, 1, 1, 2, 3, -1)
    assert set(plain.segments) == {0}
    (pair, alone) = tokenizer(reads_aspect=True).encode([words, words], [["battery"], []])
    assert pair.ids == tuple(IDS[name] for name in [*names, "bat", "##tery", "[SEP]"])
    assert pair.words == (*plain.words, -1, -1, -1)
    assert pair.segments == (0,) * 7 + (1, 1, 1)
    assert alone == plain
    assert tokenizer().encode([[]], [[]])[0].ids == (IDS["[CLS]"], IDS["[SEP]"])


def test_a_long_sentence_continues_in_another_window() -> None:
    words = ["the", "soup", "battery"] * 5  # 20 subwords
    (encoding,) = tokenizer(window=10).encode([words], [[]])
    assert [encoding.ids[start : start + 10].count(IDS["[CLS]"]) for start in (0, 10, 20)] == [
        1
    ] * 3
    assert len(encoding.ids) == 20 + 3 * 2
    assert all(encoding.ids[start] == IDS["[CLS]"] for start in (0, 10, 20))
    assert [word for word in encoding.words if word >= 0] == sorted(
        [*range(15), *range(2, 15, 3)]
    )  # every word, words of two subwords twice
    (pair,) = tokenizer(window=10, reads_aspect=True).encode([words], [["soup"] * 9])
    assert pair.ids.count(IDS["[SEP]"]) == 2 * pair.ids.count(IDS["[CLS]"]) > 6
    assert max(pair.words) == 14
    assert all(pair.ids[start] == IDS["[CLS]"] for start in range(0, len(pair.ids), 10))


@given(st.lists(st.text(st.characters(codec=None, categories=None), min_size=1), max_size=30))
def test_no_word_is_lost(words: list[str]) -> None:
    own = tokenizer(window=9)
    (encoding,) = own.encode([words], [[]])
    assert sorted(set(encoding.words) - {-1}) == list(range(len(words)))
    assert [i for i, word in zip(encoding.ids, encoding.words, strict=True) if word >= 0] == [
        i for ids in own.subwords(words) for i in ids
    ]
    assert len(encoding.ids) == len(encoding.words) == len(encoding.segments)


def test_words_that_normalize_to_nothing_are_unknown() -> None:
    assert tokenizer().subwords(["\u0301", "\ud800", "x" * 1000]) == [[IDS["[UNK]"]]] * 3
    generator = random.Random(0)
    for _ in range(200):
        words = words_of("".join(generator.choices(HOSTILE, k=8)))
        assert all(tokenizer().subwords(words))


def test_cached_words_equal_those_of_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsar.tokenizer._CACHED_WORDS", 3)
    own = tokenizer()
    words = ["the", "soup", "battery", "soup", "terrible", "x" * 80, "the"]
    for _ in range(3):
        assert own.subwords(words) == [
            ids for word in words for ids in tokenizer().subwords([word])
        ]


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    own = tokenizer(reads_aspect=True)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(own.content())
    config = {"subwords": {"window": 24, "reads_aspect": True}}
    loaded = load_tokenizer(path, config)
    inputs = [words_of("The terrible soup, again!")], [["soup"]]
    assert loaded.encode(*inputs) == own.encode(*inputs)
    assert (len(loaded), loaded.vocabulary()) == (len(IDS), subwords())
    for broken in ({"subwords": 7}, {"subwords": {"window": 3}}, {"subwords": {"window": "x"}}):
        with pytest.raises(ArtifactError, match="no valid section `subwords`"):
            load_tokenizer(path, broken)
    content = json.loads(own.content())
    content["model"]["vocab"] = {"a": 0}
    content["model"]["unk_token"] = "a"
    path.write_text(json.dumps(content | {"added_tokens": [], "post_processor": None}))
    with pytest.raises(ArtifactError, match="has no unknown token"):
        load_tokenizer(path, config)


def test_scores_of_subwords_are_pooled_to_words() -> None:
    scores = np.array([[[9, 1, 2, 3, 9], [9, -0.5, 0.5, -0.25, 9]]], dtype=np.float32)
    words = np.array([[-1, 0, 0, 2, -1]])
    assert pool_words(scores, words, how="max").tolist() == [[[2, 0, 3], [0.5, 0, -0.25]]]
    assert pool_words(scores, words, how="sum").tolist() == [[[3, 0, 3], [0, 0, -0.25]]]
    assert pool_words(scores, words * 0 - 1, how="max").shape == (1, 2, 0)


def test_word_tokenizers_encode_one_id_per_word() -> None:
    from capsar.tokenizer import WordTokenizer

    own = WordTokenizer.build(["soup"])
    assert own.encode([["Soup", "x"]], [["soup"]]) == [Encoding((2, 1), (0, 1), (0, 0))]
    assert own.subwords(["Soup", "x"]) == [[2], [1]]

"""Word pieces: every word has one or more, every piece one word, and nothing is cut."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hostile_text import HOSTILE
from hypothesis import given
from hypothesis import strategies as st
from tiny_bert import pieces, tiny_tokenizer

from capsar.errors import ArtifactError
from capsar.pieces import PieceTokenizer, load_tokenizer, to_words
from capsar.text import Layout, segment

IDS = {piece: number for number, piece in enumerate(pieces())}


def tokenizer(window: int = 24, *, reads_aspect: bool = False) -> PieceTokenizer:
    return PieceTokenizer(tiny_tokenizer(), window=window, reads_aspect=reads_aspect)


def words_of(text: str) -> list[str]:
    return [text[start:end] for start, end in segment(text)]


def test_a_sentence_is_laid_out_by_hand() -> None:
    words = ["The", "battery", "was", "cold"]
    (plain,) = tokenizer().lay_out([words], [["battery"]])
    names = ["[CLS]", "the", "bat", "##tery", "was", "cold", "[SEP]"]
    assert plain.ids == tuple(IDS[name] for name in names)
    assert plain.words == (-1, 0, 1, 1, 2, 3, -1)
    assert set(plain.segments) == {0}
    (pair, alone) = tokenizer(reads_aspect=True).lay_out([words, words], [["battery"], []])
    assert pair.ids == tuple(IDS[name] for name in [*names, "bat", "##tery", "[SEP]"])
    assert pair.words == (*plain.words, -1, -1, -1)
    assert pair.segments == (0,) * 7 + (1, 1, 1)
    assert alone == plain
    assert tokenizer().lay_out([[]], [[]])[0].ids == (IDS["[CLS]"], IDS["[SEP]"])


def test_a_long_sentence_goes_on_in_another_window() -> None:
    words = ["the", "soup", "battery"] * 5  # 20 pieces
    (layout,) = tokenizer(window=10).lay_out([words], [[]])
    assert [layout.ids[start : start + 10].count(IDS["[CLS]"]) for start in (0, 10, 20)] == [1] * 3
    assert len(layout.ids) == 20 + 3 * 2
    assert all(layout.ids[start] == IDS["[CLS]"] for start in (0, 10, 20))
    assert [word for word in layout.words if word >= 0] == sorted(
        [*range(15), *range(2, 15, 3)]
    )  # every word, those of two pieces twice
    (pair,) = tokenizer(window=10, reads_aspect=True).lay_out([words], [["soup"] * 9])
    assert pair.ids.count(IDS["[SEP]"]) == 2 * pair.ids.count(IDS["[CLS]"]) > 6
    assert max(pair.words) == 14
    assert all(pair.ids[start] == IDS["[CLS]"] for start in range(0, len(pair.ids), 10))


@given(st.lists(st.text(st.characters(codec=None, categories=None), min_size=1), max_size=30))
def test_no_word_is_lost(words: list[str]) -> None:
    own = tokenizer(window=9)
    (layout,) = own.lay_out([words], [[]])
    assert sorted(set(layout.words) - {-1}) == list(range(len(words)))
    assert [i for i, word in zip(layout.ids, layout.words, strict=True) if word >= 0] == [
        i for ids in own.pieces(words) for i in ids
    ]
    assert len(layout.ids) == len(layout.words) == len(layout.segments)


def test_words_that_normalise_to_nothing_are_unknown() -> None:
    assert tokenizer().pieces(["\u0301", "\ud800", "x" * 1000]) == [[IDS["[UNK]"]]] * 3
    generator = random.Random(0)
    for _ in range(200):
        words = words_of("".join(generator.choices(HOSTILE, k=8)))
        assert all(tokenizer().pieces(words))


def test_remembered_words_are_those_of_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsar.pieces._CACHED_WORDS", 3)
    own = tokenizer()
    words = ["the", "soup", "battery", "soup", "terrible", "x" * 80, "the"]
    for _ in range(3):
        assert own.pieces(words) == [ids for word in words for ids in tokenizer().pieces([word])]


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    own = tokenizer(reads_aspect=True)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(own.content())
    config = {"pieces": {"window": 24, "reads_aspect": True}}
    loaded = load_tokenizer(path, config)
    asked = [words_of("The terrible soup, again!")], [["soup"]]
    assert loaded.lay_out(*asked) == own.lay_out(*asked)
    assert (len(loaded), loaded.vocabulary()) == (len(IDS), pieces())
    for broken in ({"pieces": 7}, {"pieces": {"window": 3}}, {"pieces": {"window": "x"}}):
        with pytest.raises(ArtifactError, match="no usable settings of pieces"):
            load_tokenizer(path, broken)
    content = json.loads(own.content())
    content["model"]["vocab"] = {"a": 0}
    content["model"]["unk_token"] = "a"
    path.write_text(json.dumps(content | {"added_tokens": [], "post_processor": None}))
    with pytest.raises(ArtifactError, match="has none of the pieces"):
        load_tokenizer(path, config)


def test_scores_of_pieces_become_those_of_words() -> None:
    scores = np.array([[[9, 1, 2, 3, 9], [9, -0.5, 0.5, -0.25, 9]]], dtype=np.float32)
    words = np.array([[-1, 0, 0, 2, -1]])
    assert to_words(scores, words, how="about").tolist() == [[[2, -1, 3], [0.5, -1, -0.25]]]
    assert to_words(scores, words, how="because").tolist() == [[[3, 0, 3], [0, 0, -0.25]]]
    assert to_words(scores, words * 0 - 1, how="about").shape == (1, 2, 0)


def test_one_id_a_word_is_a_layout_too() -> None:
    from capsar.text import WordTokenizer

    own = WordTokenizer.build(["soup"])
    assert own.lay_out([["Soup", "x"]], [["soup"]]) == [Layout((2, 1), (0, 1), (0, 0))]
    assert own.pieces(["Soup", "x"]) == [[2], [1]]

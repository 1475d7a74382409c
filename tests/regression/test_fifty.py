"""Fifty sentences of our own: they are what they should be, and models score what is reported."""

from __future__ import annotations

import json
from collections import Counter

from capsar import load
from capsar.hub import shipped_models
from fifty import RESULT, SENTENCES, answer

FIFTY = json.loads(SENTENCES.read_text(encoding="utf-8"))
SCORES = json.loads(RESULT.read_text(encoding="utf-8"))["models"]


def test_there_are_five_sentences_of_each_of_ten_domains() -> None:
    assert set(Counter(sentence["domain"] for sentence in FIFTY).values()) == {5}
    assert len({sentence["text"] for sentence in FIFTY}) == 50
    polarities = Counter(one["polarity"] for sentence in FIFTY for one in sentence["aspects"])
    assert min(polarities[name] for name in ("negative", "neutral", "positive")) > 10
    for sentence in FIFTY:
        for one in sentence["aspects"]:
            assert sentence["text"].count(one["aspect"]) == 1


def test_the_scores_are_those_that_are_reported() -> None:
    assert sorted(SCORES) == shipped_models()
    for name, score in SCORES.items():
        assert answer(load(name), FIFTY) == score

"""The smoke set of fifty sentences: its composition, and the reported scores of the models."""

from __future__ import annotations

import json
from collections import Counter

from capsar import load
from capsar.bundle import bundled_models
from pretrained.smoke_set import RESULT, SENTENCES, evaluate_sentences

SMOKE_SET = json.loads(SENTENCES.read_text(encoding="utf-8"))
SCORES = json.loads(RESULT.read_text(encoding="utf-8"))["models"]


def test_there_are_five_sentences_of_each_of_ten_domains() -> None:
    assert set(Counter(sentence["domain"] for sentence in SMOKE_SET).values()) == {5}
    assert len({sentence["text"] for sentence in SMOKE_SET}) == 50
    polarities = Counter(one["polarity"] for sentence in SMOKE_SET for one in sentence["aspects"])
    assert min(polarities[name] for name in ("negative", "neutral", "positive")) > 10
    for sentence in SMOKE_SET:
        for one in sentence["aspects"]:
            assert sentence["text"].count(one["aspect"]) == 1


def test_the_reported_scores_are_reproduced() -> None:
    assert sorted(SCORES) == bundled_models()
    for name, score in SCORES.items():
        assert evaluate_sentences(load(name), SMOKE_SET) == score

"""Faithfulness: worked by hand on a made-up model whose reasons are known."""

from __future__ import annotations

import numpy as np
import pytest

from capsar import load
from capsar.data.example import AspectSpan, Example
from capsar.errors import DataError
from capsar.evaluation.detection import OpenedSentence
from capsar.evaluation.faithfulness import SHARES, judge_faithfulness
from capsar.labels import CLASSES, Polarity
from capsar.text import segment

WORTH = {"cold": 0.4, "bad": 0.2, "soup": 0.1}


class ByWords:
    """The negative capsule is as long as its words are worth; *because* may say so, or lie."""

    def __init__(self, *, honest: bool = True) -> None:
        self._sign = 1 if honest else -1

    def open_examples(self, examples: list[Example]) -> list[OpenedSentence]:
        found = []
        for example in examples:
            worth = self._worth(example)
            scores = np.zeros((len(CLASSES), len(worth)), dtype=np.float32)
            scores[0] = self._sign * worth
            found.append(OpenedSentence(np.array([worth.sum(), 0, 0], dtype=np.float32), scores))
        return found

    def predict_words(self, examples: list[Example], kept: list[list[int]]) -> np.ndarray:
        lengths = [self._worth(e)[some].sum() for e, some in zip(examples, kept, strict=True)]
        return np.array([[length, 0, 0] for length in lengths], dtype=np.float32)

    def _worth(self, example: Example) -> np.ndarray:
        words = [example.text[start:end] for start, end in segment(example.text)]
        return np.array([WORTH.get(word, 0.0) for word in words], dtype=np.float32)


EXAMPLE = Example("soup is so bad and so cold", (AspectSpan(0, 4),), Polarity.NEGATIVE)


def test_both_measures_by_hand() -> None:
    """Six words can be removed: 5, 10, 20 and 50 % of them are 1, 1, 2 and 3. The soup stays."""
    found = judge_faithfulness(ByWords(), [EXAMPLE])
    assert found.length == pytest.approx(0.7)
    # Without "cold" .4 is lost, without "bad" too .6.
    assert found.comprehensiveness["because"] == pytest.approx((0.4 + 0.4 + 0.6 + 0.6) / 4)
    # With "cold" alone .2 is lost, with "bad" too nothing.
    assert found.sufficiency["because"] == pytest.approx((0.2 + 0.2 + 0 + 0) / 4)
    assert SHARES == (0.05, 0.1, 0.2, 0.5)
    lying = judge_faithfulness(ByWords(honest=False), [EXAMPLE])
    # The three that are worth least, "is", "so" and "and" (or "so"), change nothing.
    assert lying.comprehensiveness["because"] == pytest.approx(0)
    assert lying.sufficiency["because"] == pytest.approx(0.6)


def test_random_words_are_between_and_intervals_tell_them_apart() -> None:
    examples = [EXAMPLE] * 40
    honest, lying = (judge_faithfulness(ByWords(honest=h), examples) for h in (True, False))
    # A random word is worth .1: of 1, 1, 2 and 3 words .1, .1, .2 and .3 are lost on average.
    assert honest.comprehensiveness["random"] == pytest.approx(0.175, abs=0.03)
    assert honest.sufficiency["random"] == pytest.approx(0.6 - 0.175, abs=0.03)
    assert honest.differences["comprehensiveness_vs_random"].low > 0
    assert lying.differences["comprehensiveness_vs_random"].high < 0
    assert honest.differences["sufficiency_vs_random"].high < 0
    again = judge_faithfulness(ByWords(), examples)
    assert again == honest
    assert judge_faithfulness(ByWords(), examples, seed=1) != honest


def test_other_rankings_stand_beside() -> None:
    def backwards(examples: list[Example], classes: np.ndarray) -> list[np.ndarray]:
        assert classes.tolist() == [0]
        return [np.arange(7, dtype=np.float32)]  # the last word, "cold", first; then "so", "and"

    found = judge_faithfulness(ByWords(), [EXAMPLE], rankers={"backwards": backwards})
    assert found.comprehensiveness["backwards"] == pytest.approx(0.4)
    document = found.as_dict()
    assert document["comprehensiveness"] == pytest.approx(0.5)
    assert document["comprehensiveness_backwards"] == pytest.approx(0.4)
    assert document["comprehensiveness_vs_backwards"]["mean"] == pytest.approx(0.1)
    assert {"sufficiency", "sufficiency_random", "sufficiency_vs_random"} <= set(document)


def test_examples_that_are_all_aspect_are_left_out() -> None:
    whole = Example("soup", (AspectSpan(0, 4),), Polarity.NEGATIVE)
    found = judge_faithfulness(ByWords(), [EXAMPLE, whole, Example("nothing here")])
    assert (found.num_examples, found.left_out) == (1, 1)
    with pytest.raises(DataError, match="no example with words besides its aspect"):
        judge_faithfulness(ByWords(), [whole])


def test_the_analyzer_reads_only_the_words_that_are_kept() -> None:
    analyzer = load("fast")
    example = Example("The soup was not cold .", (AspectSpan(4, 8),), Polarity.POSITIVE)
    every = analyzer.predict_words([example], [range(6)])
    np.testing.assert_allclose(every, analyzer.predict_lengths([example]), atol=1e-5)
    shorter = Example("The soup was cold .", (AspectSpan(4, 8),), Polarity.POSITIVE)
    without = analyzer.predict_words([example], [[0, 1, 2, 4, 5]])
    np.testing.assert_allclose(without, analyzer.predict_lengths([shorter]), atol=1e-5)
    (opened,) = analyzer.open_examples([example])
    np.testing.assert_allclose(opened.scores.sum(1), opened.lengths, atol=1e-4)
    np.testing.assert_allclose(opened.lengths, every[0], atol=1e-5)

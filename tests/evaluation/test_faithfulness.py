"""Faithfulness: computed by hand on a synthetic model with known attributions."""

from __future__ import annotations

import numpy as np
import pytest

from capsar import load
from capsar.errors import DataError
from capsar.inference.decoding import CapsuleScores
from capsar.schema import CLASSES, AspectSpan, Example, Polarity
from capsar.tokenizer import tokenize_words
from metrics.faithfulness import SHARES, evaluate_faithfulness

VALUES = {"cold": 0.4, "bad": 0.2, "soup": 0.1}


class SumOfWords:
    """The negative capsule is the sum of its words' values; attributions may be negated."""

    def __init__(self, *, faithful: bool = True) -> None:
        self._sign = 1 if faithful else -1

    def score_examples(self, examples: list[Example]) -> list[CapsuleScores]:
        found = []
        for example in examples:
            values = self._values(example)
            scores = np.zeros((len(CLASSES), len(values)), dtype=np.float32)
            scores[0] = self._sign * values
            found.append(CapsuleScores(np.array([values.sum(), 0, 0], dtype=np.float32), scores))
        return found

    def predict_words(self, examples: list[Example], kept: list[list[int]]) -> np.ndarray:
        lengths = [self._values(e)[some].sum() for e, some in zip(examples, kept, strict=True)]
        return np.array([[length, 0, 0] for length in lengths], dtype=np.float32)

    def _values(self, example: Example) -> np.ndarray:
        words = [example.text[start:end] for start, end in tokenize_words(example.text)]
        return np.array([VALUES.get(word, 0.0) for word in words], dtype=np.float32)


EXAMPLE = Example("soup is so bad and so cold", (AspectSpan(0, 4),), Polarity.NEGATIVE)


def test_metrics_match_hand_computed_values() -> None:
    """Six words can be removed: 5, 10, 20 and 50 % of them are 1, 1, 2 and 3 words."""
    found = evaluate_faithfulness(SumOfWords(), [EXAMPLE])
    assert found.length == pytest.approx(0.7)
    # Removing "cold" loses .4; removing "bad" as well loses .6.
    assert found.comprehensiveness["attributions"] == pytest.approx((0.4 + 0.4 + 0.6 + 0.6) / 4)
    # Keeping only "cold" loses .2; keeping "bad" as well loses nothing.
    assert found.sufficiency["attributions"] == pytest.approx((0.2 + 0.2 + 0 + 0) / 4)
    assert SHARES == (0.05, 0.1, 0.2, 0.5)
    negated = evaluate_faithfulness(SumOfWords(faithful=False), [EXAMPLE])
    # The three lowest words, "is", "so" and "and" (or "so"), change nothing.
    assert negated.comprehensiveness["attributions"] == pytest.approx(0)
    assert negated.sufficiency["attributions"] == pytest.approx(0.6)


def test_random_rankings_are_between_and_intervals_separate_them() -> None:
    examples = [EXAMPLE] * 40
    faithful, negated = (
        evaluate_faithfulness(SumOfWords(faithful=h), examples) for h in (True, False)
    )
    # A random word has the value .1: 1, 1, 2 and 3 removed words lose .1, .1, .2 and .3 on average.
    assert faithful.comprehensiveness["random"] == pytest.approx(0.175, abs=0.03)
    assert faithful.sufficiency["random"] == pytest.approx(0.6 - 0.175, abs=0.03)
    assert faithful.differences["comprehensiveness_vs_random"].low > 0
    assert negated.differences["comprehensiveness_vs_random"].high < 0
    assert faithful.differences["sufficiency_vs_random"].high < 0
    again = evaluate_faithfulness(SumOfWords(), examples)
    assert again == faithful
    assert evaluate_faithfulness(SumOfWords(), examples, seed=1) != faithful


def test_other_rankings_are_reported() -> None:
    def backwards(examples: list[Example], classes: np.ndarray) -> list[np.ndarray]:
        assert classes.tolist() == [0]
        return [np.arange(7, dtype=np.float32)]  # the last word, "cold", first; then "so", "and"

    found = evaluate_faithfulness(SumOfWords(), [EXAMPLE], rankers={"backwards": backwards})
    assert found.comprehensiveness["backwards"] == pytest.approx(0.4)
    document = found.as_dict()
    assert document["comprehensiveness"] == pytest.approx(0.5)
    assert document["comprehensiveness_backwards"] == pytest.approx(0.4)
    assert document["comprehensiveness_vs_backwards"]["mean"] == pytest.approx(0.1)
    assert {"sufficiency", "sufficiency_random", "sufficiency_vs_random"} <= set(document)


def test_examples_without_words_besides_the_aspect_are_excluded() -> None:
    whole = Example("soup", (AspectSpan(0, 4),), Polarity.NEGATIVE)
    found = evaluate_faithfulness(SumOfWords(), [EXAMPLE, whole, Example("nothing here")])
    assert (found.num_examples, found.excluded) == (1, 1)
    with pytest.raises(DataError, match="no example with words besides its aspect"):
        evaluate_faithfulness(SumOfWords(), [whole])


def test_the_analyzer_predicts_from_a_subset_of_the_words() -> None:
    analyzer = load("fast")
    example = Example("The soup was not cold .", (AspectSpan(4, 8),), Polarity.POSITIVE)
    every = analyzer.predict_words([example], [range(6)])
    np.testing.assert_allclose(every, analyzer.predict_lengths([example]), atol=1e-5)
    shorter = Example("The soup was cold .", (AspectSpan(4, 8),), Polarity.POSITIVE)
    without = analyzer.predict_words([example], [[0, 1, 2, 4, 5]])
    np.testing.assert_allclose(without, analyzer.predict_lengths([shorter]), atol=1e-5)
    (scored,) = analyzer.score_examples([example])
    np.testing.assert_allclose(scored.scores.sum(1), scored.lengths, atol=1e-4)
    np.testing.assert_allclose(scored.lengths, every[0], atol=1e-5)

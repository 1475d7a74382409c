"""Robustness: a small file in the ARTS format, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capsar.data.catalog import test_examples as open_test_part
from capsar.data.formats import Variant, variant_of
from capsar.data.readers import read_examples
from capsar.errors import ConfigError, DataError
from capsar.evaluation.robustness import (
    ARTS_OF,
    arts_examples,
    evaluate_mixed,
    evaluate_robustness,
    mixed_polarity,
)
from capsar.schema import CLASSES, AspectSpan, Example, Polarity


class FirstWord:
    """A predictor that uses the first known word."""

    def predict_lengths(self, examples: list[Example]) -> np.ndarray:
        lengths = np.zeros((len(examples), len(CLASSES)), dtype=np.float32)
        for row, example in enumerate(examples):
            words = example.text.lower().split()
            known = [word for word in words if word in ("cold", "plain", "warm")]
            lengths[row, ["cold", "plain", "warm"].index(known[0])] = 0.9
        return lengths


def record(text: str, term: str, polarity: str, group: str) -> dict[str, object]:
    start = text.index(term)
    return {
        "sentence": text, "term": term, "polarity": polarity, "id": group,
        "from": start, "to": start + len(term),
    }  # fmt: skip


@pytest.fixture
def arts(tmp_path: Path) -> list[Example]:
    """Soup: right in all three. Staff: right in the original, wrong in adv3. Tea: wrong."""
    content = {
        "1_0": record("cold soup , warm staff", "soup", "negative", "1_0"),
        "1_0_adv1": record("warm soup , warm staff", "soup", "positive", "1_0"),
        "1_0_adv2": record("cold soup , cold staff", "soup", "negative", "1_0"),
        "1_1": record("warm staff", "staff", "positive", "1_1"),
        "1_1_adv3": record("cold soup , warm staff", "staff", "positive", "1_1"),
        "2_0": record("plain tea", "tea", "positive", "2_0"),
    }
    path = tmp_path / "arts.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return list(read_examples(path))


def test_variants_and_groups_match_hand_computed_values(arts: list[Example]) -> None:
    found = evaluate_robustness(FirstWord(), arts)
    accuracies = {str(v): (row.accuracy, row.num_examples) for v, row in found.variants.items()}
    assert accuracies == {
        "original": (pytest.approx(2 / 3), 3),
        "adv1": (1, 1),
        "adv2": (1, 1),
        "adv3": (0, 1),
    }
    assert found.num_groups == 3
    assert found.ars == pytest.approx(1 / 3)
    assert json.loads(json.dumps(found.as_dict()))["variants"]["adv3"]["accuracy"] == 0


def test_the_variant_is_the_suffix_of_the_key() -> None:
    assert variant_of("key '11#0_adv1_0'") is Variant.ORIGINAL
    assert variant_of('key "it\'s_adv3"') is Variant.OPPOSITE_ADDED
    assert variant_of("x_adv1") is Variant.TARGET_REVERSED


def test_sentences_of_mixed_polarity() -> None:
    span = (AspectSpan(0, 1),)
    examples = [
        Example("cold a", span, Polarity.NEGATIVE),
        Example("cold a", span, Polarity.POSITIVE),
        Example("cold b", span, Polarity.NEGATIVE),
        Example("cold b", span, Polarity.NEGATIVE),
        Example("warm c", span, Polarity.POSITIVE),
        Example("warm c", span, Polarity.CONFLICT),
    ]
    assert mixed_polarity(examples) == examples[:2]
    mixed = evaluate_mixed(FirstWord(), examples)
    assert mixed is not None
    assert (mixed.accuracy, mixed.num_examples) == (0.5, 2)
    assert evaluate_mixed(FirstWord(), examples[2:]) is None


def test_datasets_without_variants_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'twitter'.*semeval14-restaurants, semeval14-laptops"):
        arts_examples("twitter")
    with pytest.raises(DataError, match="no rewritten sentence"):
        evaluate_robustness(FirstWord(), [])


@pytest.mark.data
@pytest.mark.parametrize("dataset", ARTS_OF)
def test_the_originals_of_arts_are_the_test_part(dataset: str, shared: Path) -> None:
    examples = arts_examples(dataset)
    originals = [e for e in examples if variant_of(e.id) is Variant.ORIGINAL]
    assert len({e.group for e in originals}) == len(originals) == len({e.group for e in examples})
    evaluated = [e for e in open_test_part(dataset) if e.spans and e.polarity in CLASSES]
    assert len(originals) == len(evaluated)

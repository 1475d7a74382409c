"""Gradient times input against finite differences, for every encoder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from families import make_bundle

from capsar.schema import AspectSpan, Example, Polarity
from capsar.tokenizer import tokenize_words
from capsar.training.batches import collate, encode_examples
from capsar.training.initialize import load_network
from metrics.gradients import GradientRanker

EXAMPLES = [
    Example("The soup was awful, truly!", (AspectSpan(4, 8),), Polarity.NEGATIVE),
    Example("Great staff", (AspectSpan(6, 11),), Polarity.POSITIVE),
]


@pytest.fixture(scope="module", params=["bigru", "bert"])
def bundle(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return make_bundle(request.param, tmp_path_factory.mktemp("families"))


def test_every_word_has_a_score_that_does_not_depend_on_the_batch(bundle: Path) -> None:
    ranker = GradientRanker.load(bundle)
    classes = np.array([0, 2])
    together = ranker(EXAMPLES, classes)
    assert [len(scores) for scores in together] == [len(tokenize_words(e.text)) for e in EXAMPLES]
    for i, example in enumerate(EXAMPLES):
        (alone,) = ranker([example], classes[i : i + 1])
        np.testing.assert_allclose(alone, together[i], atol=1e-5)
    norms = GradientRanker.load(bundle, by_norm=True)(EXAMPLES, classes)
    assert all((scores >= 0).all() for scores in norms)


def scale_word(
    word: int, factor: float, _: object, inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    vectors = inputs[0].clone()
    vectors[:, word] *= factor
    return (vectors, *inputs[1:])


def test_scores_equal_finite_differences(small_bundle: Path) -> None:
    """Scaling a word's vector by 1 - e shortens the capsule by e times the word's score."""
    model, tokenizer = load_network(small_bundle)
    model.double()
    ranker = GradientRanker(model, tokenizer)
    (scores,) = ranker(EXAMPLES[:1], np.array([0]))
    batch = collate(encode_examples(EXAMPLES[:1], tokenizer))
    step = 1e-6  # small, because ReLU has a kink
    for word, score in enumerate(scores):
        lengths = []
        for factor in (1 - step, 1 + step):
            hook = model.encoder.register_forward_pre_hook(partial(scale_word, word, factor))
            with torch.no_grad():
                lengths.append(float(model(batch).lengths[0, 0]))
            hook.remove()
        slope = (lengths[1] - lengths[0]) / (2 * step)
        assert slope == pytest.approx(float(score), abs=1e-5)

"""Augmented sentences keep their aspect and come from the training set only."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import run as runs
from augmentation import augment
from capsar import AspectSpan, Example
from capsar.training.dataset import read_splits
from pseudo_labels import AUGMENTATIONS, augment_training_set

WORDS = ("blue", "cheese")


@given(st.text("ab .\n\u00e9", max_size=40), st.text("ab .", max_size=40), st.integers(0, 9999))
def test_the_aspect_is_kept(before: str, after: str, seed: int) -> None:
    text = before + "the soup" + after
    augmented = augment(
        Example(text, (AspectSpan(len(before), len(before) + 8),)), WORDS, Random(seed)
    )
    assert augmented.aspect == "the soup"
    assert augmented.polarity is None
    (span,) = augmented.spans
    rest = augmented.text[: span.start].split() + augmented.text[span.end :].split()
    assert set(rest) <= {*before.split(), *after.split(), *WORDS}
    assert len(rest) <= len(before.split()) + len(after.split())


def test_a_quarter_of_the_words_is_changed() -> None:
    text = "soup" + " or" * 10_000
    augmented = augment(Example(text, (AspectSpan(0, 4),)), WORDS, Random(0)).text.split()
    assert len(augmented) - 1 == pytest.approx(9_000, abs=150)
    assert sum(word in WORDS for word in augmented) == pytest.approx(1_500, abs=150)


@pytest.mark.usefixtures("shared")
def test_only_training_sentences_are_augmented(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(request.config.rootpath)
    run = next(run for run in runs.planned(runs.TEACHERS) if run.dataset == "laptop")
    splits = read_splits(run.config().data)
    monkeypatch.setattr("augmentation.DROPPED", 0.0)
    monkeypatch.setattr("augmentation.REPLACED", 0.0)
    augmented = augment_training_set(run.config().data, AUGMENTATIONS["laptop"])
    assert len(augmented) == AUGMENTATIONS["laptop"] * len(splits.train)
    assert {e.text for e in augmented} == {e.text for e in splits.train}
    assert not {e.text for e in augmented} & {e.text for e in splits.validation}

"""Sentences with words changed keep their aspect, and are of the training part alone."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import runs
from capsar import AspectSpan, Example
from capsar.training.parts import read_parts
from teach import VARIANTS, vary_training_part
from vary import vary

WORDS = ("blue", "cheese")


@given(st.text("ab .\n\u00e9", max_size=40), st.text("ab .", max_size=40), st.integers(0, 9999))
def test_the_aspect_stays_where_it_is_said_to_be(before: str, after: str, seed: int) -> None:
    text = before + "the soup" + after
    varied = vary(Example(text, (AspectSpan(len(before), len(before) + 8),)), WORDS, Random(seed))
    assert varied.aspect == "the soup"
    assert varied.polarity is None
    (span,) = varied.spans
    rest = varied.text[: span.start].split() + varied.text[span.end :].split()
    assert set(rest) <= {*before.split(), *after.split(), *WORDS}
    assert len(rest) <= len(before.split()) + len(after.split())


def test_a_quarter_of_the_words_is_touched() -> None:
    text = "soup" + " or" * 10_000
    varied = vary(Example(text, (AspectSpan(0, 4),)), WORDS, Random(0)).text.split()
    assert len(varied) - 1 == pytest.approx(9_000, abs=150)
    assert sum(word in WORDS for word in varied) == pytest.approx(1_500, abs=150)


@pytest.mark.usefixtures("shared")
def test_only_training_sentences_are_varied(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(request.config.rootpath)
    run = next(run for run in runs.planned(runs.TEACHERS) if run.dataset == "laptop")
    parts = read_parts(run.config().data)
    monkeypatch.setattr("vary.LEFT_OUT", 0.0)
    monkeypatch.setattr("vary.CHANGED", 0.0)
    varied = vary_training_part(run.config().data, VARIANTS["laptop"])
    assert len(varied) == VARIANTS["laptop"] * len(parts.train)
    assert {e.text for e in varied} == {e.text for e in parts.train}
    assert not {e.text for e in varied} & {e.text for e in parts.dev}

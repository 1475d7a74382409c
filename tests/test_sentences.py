"""Sentences: every character accounted for, a sentence alone is one sentence, time is linear."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from review_text import REVIEW_LIKE, check_sentences

from capsar.sentences import LONGEST_SENTENCE, read_sentence, split_sentences
from capsar.text import segment
from sentence_cases import CASES

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(text=ANY_TEXT)
def test_any_text_is_accounted_for(text: str) -> None:
    check_sentences(text)


@settings(max_examples=1500)
@given(text=REVIEW_LIKE)
@example(text="a\n1. .\x00a")  # a list's number took the full stop with it
def test_a_sentence_alone_is_one_sentence(text: str) -> None:
    check_sentences(text)


# "in." is also a word: after a number it ends a sentence for us.
KNOWN_WRONG = {"The 15.6 in. screen is dim."}


@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases])
def test_sentences_are_those_people_read(case: str) -> None:
    text = case.replace("|", "")
    expected = [part.strip() for part in case.split("|")]
    found = [text[start:end] for start, end in split_sentences(text)]
    plain = [re.sub(r"^(?:[-*•]|\d\.)\s|</?(?:br|p|ul|li|b)\s*/?>", "", s).strip() for s in found]
    wanted = [
        re.sub(r"^(?:[-*•]|\d\.)\s|</?(?:br|p|ul|li|b)\s*/?>", "", s).strip() for s in expected
    ]
    assert (plain == wanted) is (case not in KNOWN_WRONG)


def words_of(text: str) -> list[str]:
    return [
        text[start:end]
        for sentence in split_sentences(text)
        for words, _ in read_sentence(text, sentence)
        for start, end in words
    ]


def test_remnants_of_html_are_no_words() -> None:
    text = '<p>The <b>best</b> mac &amp; <a href="x">cheese</a><br/>so 3 < 4 &#39;ok&#39;'
    assert words_of(text) == ["The", "best", "mac", "cheese", "so", "3", "<", "4", "ok"]


@given(text=REVIEW_LIKE.filter(lambda text: not set("<&") & set(text)))
def test_words_of_a_sentence_are_those_it_has_alone(text: str) -> None:
    for start, end in split_sentences(text):
        alone = [(a + start, b + start) for a, b in segment(text[start:end])]
        assert [w for words, _ in read_sentence(text, (start, end)) for w in words] == alone


def test_an_overlong_sentence_is_windowed_and_nothing_is_cut() -> None:
    text = "so good, " * 200 + "very " * 600
    (sentence,) = split_sentences(text)
    windows = list(read_sentence(text, sentence))
    assert all(flag for _, flag in windows)
    assert [word for words, _ in windows for word in words] == segment(text)
    sizes = [len(words) for words, _ in windows]
    # A comma is every third word: the last that fits is the 255th. After 600 words there is none.
    assert sizes == [255, 255, 256, 256, 178]
    start, end = windows[0][0][-1]
    assert text[start:end] == ","
    just = "very " * LONGEST_SENTENCE
    assert [flag for _, flag in read_sentence(just, (0, len(just)))] == [False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    ["x", "ab ", "A fine soup. ", "😀", ". ", "<br ", "<b a=", "&a", "- ", "a\n", "\n", "a. ", "\0",
     "a 😀 ", "\n\0", '."', "1. ", "e\u0301", "\ud800"],
)  # fmt: skip
def test_time_is_linear_whatever_the_text_is(unit: str) -> None:
    def seconds(size: int) -> float:
        text = "a" * 60 + unit * (size // len(unit)) + "b"
        times = []
        for _ in range(3):
            start = time.process_time()
            split_sentences(text)
            times.append(time.process_time() - start)
        return min(times)

    # Ten times the text: ten times the time, and far from the hundred of a quadratic one.
    assert seconds(300_000) < 35 * max(seconds(30_000), 1e-3)

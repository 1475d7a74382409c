"""Sentence splitting: all characters are covered, splitting is idempotent, time is linear."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from review_text import REVIEW_LIKE, check_sentences

from capsar.sentences import MAX_SENTENCE_WORDS, iterate_windows, split_sentences
from capsar.tokenizer import tokenize_words
from splitters import CASES

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(text=ANY_TEXT)
def test_all_characters_of_any_text_are_covered(text: str) -> None:
    check_sentences(text)


@settings(max_examples=1500)
@given(text=REVIEW_LIKE)
@example(text="a\n1. .\x00a")  # the number of a list item includes its full stop
def test_a_sentence_alone_is_one_sentence(text: str) -> None:
    check_sentences(text)


# "in." is also a word, so that a full stop after it ends a sentence.
KNOWN_WRONG = {"The 15.6 in. screen is dim."}


@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases])
def test_sentences_match_human_splits(case: str) -> None:
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
        for words, _ in iterate_windows(text, sentence)
        for start, end in words
    ]


def test_html_markup_is_not_tokenized() -> None:
    text = '<p>The <b>best</b> mac &amp; <a href="x">cheese</a><br/>so 3 < 4 &#39;ok&#39;'
    assert words_of(text) == ["The", "best", "mac", "cheese", "so", "3", "<", "4", "ok"]


@given(text=REVIEW_LIKE.filter(lambda text: not set("<&") & set(text)))
def test_words_of_a_sentence_do_not_depend_on_its_review(text: str) -> None:
    for start, end in split_sentences(text):
        alone = [(a + start, b + start) for a, b in tokenize_words(text[start:end])]
        assert [w for words, _ in iterate_windows(text, (start, end)) for w in words] == alone


def test_a_long_sentence_is_split_into_windows_without_loss() -> None:
    text = "so good, " * 200 + "very " * 600
    (sentence,) = split_sentences(text)
    windows = list(iterate_windows(text, sentence))
    assert all(flag for _, flag in windows)
    assert [word for words, _ in windows for word in words] == tokenize_words(text)
    sizes = [len(words) for words, _ in windows]
    # Every third word is a comma, and the last that fits is word 255. Later there are no commas.
    assert sizes == [255, 255, 256, 256, 178]
    start, end = windows[0][0][-1]
    assert text[start:end] == ","
    just = "very " * MAX_SENTENCE_WORDS
    assert [flag for _, flag in iterate_windows(just, (0, len(just)))] == [False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    ["x", "ab ", "A fine soup. ", "😀", ". ", "<br ", "<b a=", "&a", "- ", "a\n", "\n", "a. ", "\0",
     "a 😀 ", "\n\0", '."', "1. ", "e\u0301", "\ud800"],
)  # fmt: skip
def test_time_is_linear_for_any_text(unit: str) -> None:
    def seconds(size: int) -> float:
        text = "a" * 60 + unit * (size // len(unit)) + "b"
        times = []
        for _ in range(3):
            start = time.process_time()
            split_sentences(text)
            times.append(time.process_time() - start)
        return min(times)

    # Linear time is a factor of 10, quadratic time would be a factor of 100.
    assert seconds(300_000) < 35 * max(seconds(30_000), 1e-3)

"""Reviews: processed sentence by sentence, independently, with offsets into the review."""

from __future__ import annotations

import itertools
import random
import re
import time
import timeit
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from review_text import REVIEW_LIKE, check_sentences

from capsar import Analyzer, AspectSentiment, AspectSpan, load
from capsar.inference.inputs import iterate_requests, request_aspects
from capsar.schema import CLASSES
from capsar.sentences import MAX_SENTENCE_WORDS, split_sentences

REVIEW = "The soup was cold.<br/>I loved the staff!! But the soup... Never again."


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    """A bundled model."""
    return load("fast")


def assert_same(found: list[AspectSentiment], alone: list[AspectSentiment], start: int) -> None:
    spans = [(a.text, a.start, a.end, a.polarity) for a in found]
    assert spans == [(a.text, a.start + start, a.end + start, a.polarity) for a in alone]
    for one, other in zip(found, alone, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


def check_alone(analyzer: Analyzer, text: str, aspects: list[AspectSentiment]) -> None:
    """Check that every aspect is in a sentence and equals the prediction for that sentence."""
    sentences = split_sentences(text)
    alone = analyzer.analyze([text[start:end] for start, end in sentences])
    rest = aspects
    for (start, end), expected in zip(sentences, alone, strict=True):
        own = [a for a in rest if start <= a.start and a.end <= end]
        assert_same(own, expected, start)
        rest = rest[len(own) :]
    assert not rest


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(REVIEW_LIKE, max_size=5))
def test_predictions_of_a_sentence_do_not_depend_on_its_review(
    analyzer: Analyzer, texts: list[str]
) -> None:
    for text, aspects in zip(texts, analyzer.analyze(texts), strict=True):
        assert all(text[a.start : a.end] == a.text for a in aspects)
        check_alone(analyzer, text, aspects)


def test_html_markup_is_not_an_aspect(analyzer: Analyzer) -> None:
    text = 'The <b>soup</b> &amp; <a href="http://x.yz">staff</a>.<br /><br /><p>br p b amp</p>'
    (aspects,) = analyzer.analyze([text])
    last = split_sentences(text)[-1]
    assert text[slice(*last)].startswith("br p b amp")  # words outside of tags
    found = " ".join(re.sub(r"<[^>]*>|&\w+;", "", a.text) for a in aspects if a.start < last[0])
    assert set(found.split()) <= {"soup", "staff", "The"}


def test_only_sentences_that_mention_an_aspect_are_used(analyzer: Analyzer) -> None:
    (found,) = analyzer.classify([REVIEW], [["soup", "staff"]])
    assert [(a.text, a.start) for a in found] == [("soup", 4), ("staff", 35)]
    alone = analyzer.classify(
        ["The soup was cold.", "But the soup...", "I loved the staff!!"], ["soup", "soup", "staff"]
    )
    (first,), (second,), (staff,) = alone
    assert found[1].scores == pytest.approx(staff.scores, abs=1e-5)
    for polarity in CLASSES:
        mean = (first.scores[polarity] + second.scores[polarity]) / 2
        assert found[0].scores[polarity] == pytest.approx(mean, abs=1e-5)


def tokens(text: str, aspect: str | AspectSpan) -> list[list[str]]:
    return [request.tokens() for request in request_aspects(text, [aspect]).requests]


def test_words_that_are_processed_for_an_aspect() -> None:
    assert tokens(REVIEW, "staff") == [["I", "loved", "the", "staff", "!", "!"]]
    assert len(tokens(REVIEW, "soup")) == 2
    across = AspectSpan(REVIEW.index("cold"), REVIEW.index("loved") + 1)  # in two sentences
    (words,) = tokens(REVIEW, across)
    assert (words[0], words[-1], "br" in words) == ("The", "!", False)
    nowhere = AspectSpan(REVIEW.index("<br"), REVIEW.index("/>"))  # in none
    (words,) = tokens(REVIEW, nowhere)
    assert (words[0], words[-1]) == ("The", ".")
    located = request_aspects(REVIEW, ["soup", "staff", AspectSpan(4, 8)])
    assert [len(request.aspects) for request in located.requests] == [2, 1, 1]
    assert located.rows == [[(0, 0), (1, 0)], [(2, 0)], [(0, 1)]]


def test_explanations_cover_the_processed_words(analyzer: Analyzer) -> None:
    for aspect, number in ((None, 4), ("soup", 2), ("staff", 1)):
        explanation = analyzer.explain(REVIEW, aspect)
        words = [REVIEW[start:end] for start, end in explanation.words]
        assert sum(word in {".", "...", "!"} for word in words) == number + ("!" in words)
        for polarity in CLASSES:
            total = sum(explanation.attributions[polarity])
            assert total == pytest.approx(explanation.lengths[polarity], abs=1e-4)
            assert len(explanation.aspect_scores[polarity]) == len(words)
    scores = analyzer.classify([REVIEW], ["soup"])[0][0].scores
    assert analyzer.explain(REVIEW, "soup").lengths == pytest.approx(scores, abs=1e-5)
    assert analyzer.explain(" \n").words == ()


def test_a_long_sentence_is_split_into_windows_and_flagged(analyzer: Analyzer) -> None:
    text = "The soup was cold and " * 200 + "the staff was kind."
    requests = list(iterate_requests(text))
    assert max(len(request.words) for request in requests) <= MAX_SENTENCE_WORDS
    assert sum(len(request.words) for request in requests) == 5 * 200 + 5
    (aspects,) = analyzer.analyze([text])
    assert aspects
    assert all(a.windowed and a.as_dict()["windowed"] for a in aspects)
    assert aspects[-1].start > len(text) - 200, "the end is processed too"
    ((staff,),) = analyzer.classify([text], ["staff"])
    assert staff.windowed
    ((short,),) = analyzer.classify(["The staff was kind."], ["staff"])
    assert not short.windowed
    assert "windowed" not in short.as_dict()


def test_streams_read_no_more_than_a_chunk_ahead(analyzer: Analyzer) -> None:
    taken = 0

    def texts(text: str) -> object:
        nonlocal taken
        for _ in itertools.count():
            taken += 1
            yield text

    for text in ("", "Nice soup. Bad staff. Fine room."):
        taken = 0
        stream = analyzer.analyze_stream(texts(text))  # type: ignore[arg-type]
        first = next(stream)
        assert bool(first) is bool(text)
        assert taken <= 1024
    long = "Nice soup. " * 3000
    results = list(analyzer.analyze_stream(["Bad staff.", long, "", "Nice room."]))
    assert [bool(found) for found in results] == [True, True, False, True]
    assert results[1][-1].start > len(long) - 20


def test_many_mentions_in_one_long_sentence_take_linear_time() -> None:
    def seconds(number: int) -> float:
        """Return the least time of three runs; timeit disables the garbage collector."""
        text = "the soup and " * number
        return min(
            timeit.repeat(
                lambda: request_aspects(text, ["soup"]),
                timer=time.thread_time,
                number=1,
                repeat=3,
            )
        )

    assert seconds(8000) < 30 * max(seconds(800), 0.005)


@pytest.fixture(scope="module")
def reviews(shared: Path) -> list[str]:
    """A fixed sample of 10,000 reviews."""
    folder = shared / "data" / "unlabelled"
    found = []
    for path in sorted(folder.glob("fdu-mtl/*")):
        found += path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    for path in sorted(folder.glob("mgan_yelp/*")):
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        found += [line.split("\t")[1] for line in lines if line.count("\t") > 1]
    distinct = sorted({text for text in found if text})
    return random.Random(0).sample(distinct, 10_000)


@pytest.mark.data
@pytest.mark.slow
def test_ten_thousand_reviews(analyzer: Analyzer, reviews: list[str]) -> None:
    """Check all characters of every review, and the predictions of every fourth."""
    num_sentences = 0
    for text in reviews:
        check_sentences(text)
        for request in iterate_requests(text):
            assert all(0 <= start < end <= len(text) for start, end in request.words)
            num_sentences += 1
    assert num_sentences > 30_000
    some = reviews[::4]
    for text, aspects in zip(some, analyzer.analyze_stream(some), strict=True):
        assert all(text[a.start : a.end] == a.text for a in aspects)
        check_alone(analyzer, text, aspects)


@pytest.mark.slow
def test_the_order_of_reviews_does_not_matter(analyzer: Analyzer) -> None:
    generator = random.Random(3)
    words = [
        "soup",
        "staff",
        "cold",
        "lovely",
        "the",
        "was",
        "not",
        "battery",
        "!",
        ".",
        "\n",
        "😀",
    ]
    texts = [" ".join(generator.choices(words, k=generator.randint(1, 80))) for _ in range(300)]
    order = np.random.default_rng(0).permutation(len(texts))
    mixed = analyzer.analyze([texts[i] for i in order])
    for i, aspects in zip(order, mixed, strict=True):
        assert_same(aspects, analyzer.analyze([texts[i]])[0], 0)

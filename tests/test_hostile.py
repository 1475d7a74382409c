"""Arbitrary and hostile texts, in any number, from many threads.

At full size: 200,000 strings, and 176,000 results of 16 threads.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from hostile_text import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import sized

from capsar import Analyzer, AspectSentiment, AspectSpan, CapsarError, Example, load
from capsar.errors import AspectNotFoundError, DataError
from capsar.schema import CLASSES

STRUNG, DRAWN, FUZZED = sized(160_000), sized(20_000), sized(20_000)
TEXTS_A_DRAW = 100
JOBS, TEXTS_A_JOB = sized(160), 1_100  # a job has several chunks


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    """A bundled model."""
    return load("fast")


def check_offsets(text: str, aspects: list[AspectSentiment]) -> None:
    for aspect in aspects:
        assert aspect.text
        assert text[aspect.start : aspect.end] == aspect.text


def check_same(results: list[list[AspectSentiment]], expected: list[list[AspectSentiment]]) -> None:
    """Check for the same aspects and polarities, and equal scores up to rounding."""
    for some, others in zip(results, expected, strict=True):
        for found, other in zip(some, others, strict=True):
            assert _without_scores(found) == _without_scores(other)
            gaps = [found.scores[name] - other.scores[name] for name in CLASSES]
            for one, same in (
                (found.confidence, other.confidence),
                (found.aspect_confidence, other.aspect_confidence),
                *(
                    (one.confidence, same.confidence)
                    for one, same in zip(found.opinions or (), other.opinions or (), strict=True)
                ),
            ):
                assert (one is None) == (same is None)
                gaps.append((one or 0) - (same or 0))
            assert max(map(abs, gaps)) < 1e-5


def _without_scores(aspect: AspectSentiment) -> AspectSentiment:
    opinions = tuple(replace(one, confidence=None) for one in aspect.opinions or ())
    return replace(aspect, scores={}, confidence=None, aspect_confidence=None, opinions=opinions)


@pytest.mark.slow
def test_offsets_of_concatenated_fragments(analyzer: Analyzer) -> None:
    generator = random.Random(0)
    texts = [
        "".join(generator.choices(HOSTILE, k=generator.randrange(16))) for _ in range(STRUNG - 7)
    ]
    texts += ["", " ", "\0" * 50, "x" * 1_000_000, "ab " * 350_000, "\r\n" * 500, "!" * 20_000]
    processed = 0
    for text, aspects in zip(texts, analyzer.analyze_stream(texts), strict=True):
        check_offsets(text, aspects)
        processed += 1
    assert processed == STRUNG


@pytest.mark.slow
@settings(
    max_examples=DRAWN // TEXTS_A_DRAW,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(data=st.data())
def test_offsets_of_drawn_texts_and_only_own_exceptions(
    analyzer: Analyzer, data: st.DataObject
) -> None:
    any_text = st.text(st.characters(codec=None, categories=None), max_size=20)
    texts = data.draw(st.lists(any_text, min_size=TEXTS_A_DRAW, max_size=TEXTS_A_DRAW))
    for text, aspects in zip(texts, analyzer.analyze(texts), strict=True):
        check_offsets(text, aspects)
    start, size = data.draw(st.integers(-2, 20)), data.draw(st.integers(-1, 5))
    for text in texts[:20]:
        with contextlib.suppress(CapsarError):  # and no other exception
            check_offsets(text, analyzer.classify([text], [AspectSpan(start, start + size)])[0])
        with contextlib.suppress(CapsarError):
            check_offsets(text, analyzer.classify([text], [text[start : start + size]])[0])


@pytest.mark.slow
def test_offsets_of_fuzzed_texts(tmp_path: Path) -> None:
    harness = Path(__file__).parent / "fuzz" / "fuzz_analyze.py"
    limits = [f"-runs={FUZZED}", "-max_len=400", "-rss_limit_mb=0"]
    command = [sys.executable, str(harness), str(tmp_path), *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {FUZZED} runs" in done.stderr


@pytest.mark.slow
def test_sixteen_threads_return_the_results_of_one(analyzer: Analyzer) -> None:
    generator = random.Random(1)
    words = ["soup", "staff", "cold", "lovely", "the", "was", "not", "battery", "!", "😀"]
    texts = [
        " ".join(generator.choices(words, k=generator.randint(1, 30))) for _ in range(TEXTS_A_JOB)
    ]
    pairs = [(text, text.split()[0]) for text in texts]
    extracted, classified = analyzer.analyze(texts), list(analyzer.classify_stream(pairs))

    def work(number: int) -> int:
        """Extract aspects in half of the jobs and classify in the others, each in another order."""
        turned = (number * 137) % len(texts)
        order = [*range(turned, len(texts)), *range(turned)]
        if number % 2:
            results = list(analyzer.classify_stream(pairs[i] for i in order))
            check_same(results, [classified[i] for i in order])
        else:
            results = analyzer.analyze([texts[i] for i in order])
            check_same(results, [extracted[i] for i in order])
        return len(results)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(work, range(JOBS))) == JOBS * TEXTS_A_JOB


def test_many_aspects_and_mentions_take_bounded_memory(analyzer: Analyzer) -> None:
    text = "The food was great and the staff were rude to everybody on that night."
    many = analyzer.classify([text] * 20, [["food", "staff"] * 500] * 20)
    once = analyzer.classify([text], [["food", "staff"]])[0]
    assert [len(found) for found in many] == [1000] * 20
    for found in many:
        for aspect, expected in zip(found, once * 500, strict=True):
            assert aspect.scores == pytest.approx(expected.scores, abs=1e-5)
    mentions = analyzer.classify(["ab " * 3000 + "cd " * 200], ["ab"])[0][0]
    assert (mentions.start, mentions.end) == (0, 2)
    assert mentions.windowed
    spans = tuple(AspectSpan(3 * i, 3 * i + 2) for i in range(9_000))
    with pytest.raises(DataError, match="too many mentions"):  # examples are not split
        analyzer.predict_lengths([Example("ab " * 19_000, spans)])


def test_invalid_inputs_are_refused(analyzer: Analyzer) -> None:
    for texts, aspects in (
        (["a b"], [[None]]), (["a b"], [None]), (["a b"], [7]), ("a b", ["a"]), ([None], ["a"]),
    ):  # fmt: skip
        with pytest.raises(DataError):
            analyzer.classify(texts, aspects)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="got one string"):
        analyzer.analyze("a b")


@pytest.mark.parametrize(("missing", "shown"), [(None, "None"), (float("nan"), "nan"), (7, "7")])
def test_the_number_of_an_invalid_text_is_reported(
    analyzer: Analyzer, missing: object, shown: str
) -> None:
    texts: Any = [*["The soup."] * 1500, missing]
    message = rf"Text 1500 \(counted from 0\): A text must be a string, got {shown} .*fillna"
    with pytest.raises(DataError, match=message):
        analyzer.analyze(texts)
    with pytest.raises(DataError, match=message):
        analyzer.classify(texts, ["soup"] * 1501)
    with pytest.raises(AspectNotFoundError, match=r"^Text 1 \(counted from 0\): Aspect 'cat' does"):
        analyzer.classify(["The soup."] * 2, ["soup", "cat"])
    with pytest.raises(
        AspectNotFoundError, match=r"^Aspect 'cat' does"
    ):  # a single text has no number
        analyzer.classify(["The soup."], ["cat"])


def test_columns_are_accepted_and_tables_are_refused(analyzer: Analyzer) -> None:
    texts = ["The soup was awful.", "The staff was kind."]
    frame: Any = pandas.DataFrame({"review": texts, "aspect": ["soup", "staff"]}, index=[9, 4])
    assert analyzer.analyze(frame["review"]) == analyzer.analyze(texts)
    expected = analyzer.classify(texts, ["soup", "staff"])
    assert analyzer.classify(frame["review"], frame["aspect"]) == expected
    assert analyzer.classify(iter(texts), iter(["soup", "staff"])) == expected
    with pytest.raises(DataError, match=r"got a table \(DataFrame\).*frame\['review'\]"):
        analyzer.analyze(frame)
    with pytest.raises(DataError, match=r"list of aspects \(those of each text\), got a table"):
        analyzer.classify(frame["review"], frame)
    with pytest.raises(DataError, match="got a table"):
        next(analyzer.classify_stream(frame))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("soup", "got one string. Put it in a list"),
        (b"soup", "got one string"),
        ({"soup": 1}, "got a mapping, whose keys are not"),
        (3, r"got 3 \(int\)"),
        (None, "got None"),
    ],
)
def test_inputs_that_are_not_lists_are_refused(
    analyzer: Analyzer, wrong: Any, message: str
) -> None:
    with pytest.raises(DataError, match=f"Expected a list of texts, {message}"):
        analyzer.analyze(wrong)
    with pytest.raises(DataError, match=f"Expected a list of texts, {message}"):
        analyzer.classify(wrong, ["soup"])
    with pytest.raises(DataError, match=rf"Expected a list of aspects .*{message}"):
        analyzer.classify(["soup"], wrong)

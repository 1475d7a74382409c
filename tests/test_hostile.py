"""Any text at all, in any number, from any number of threads.

At their full size, 200,000 strings and 176,000 answers of 16 threads.
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

from capsar import Analyzer, AspectSentiment, AspectSpan, CapsarError, load
from capsar.errors import AspectNotFoundError, DataError
from capsar.labels import CLASSES
from capsar.question import route_slices

STRUNG, DRAWN, FUZZED = sized(160_000), sized(20_000), sized(20_000)
TEXTS_A_DRAW = 100
JOBS, TEXTS_A_JOB = sized(160), 1_100  # a job is of several chunks


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    """The model that ships."""
    return load("fast")


def check_places(text: str, answers: list[AspectSentiment]) -> None:
    for answer in answers:
        assert answer.text
        assert text[answer.start : answer.end] == answer.text


def check_same(answers: list[list[AspectSentiment]], expected: list[list[AspectSentiment]]) -> None:
    """Same aspects and polarities; numbers but for the rounding of another batch's products."""
    for some, others in zip(answers, expected, strict=True):
        for answer, other in zip(some, others, strict=True):
            assert _told(answer) == _told(other)
            gaps = [answer.scores[name] - other.scores[name] for name in CLASSES]
            for one, same in (
                (answer.confidence, other.confidence),
                (answer.aspect_confidence, other.aspect_confidence),
            ):
                assert (one is None) == (same is None)
                gaps.append((one or 0) - (same or 0))
            assert max(map(abs, gaps)) < 1e-5


def _told(answer: AspectSentiment) -> AspectSentiment:
    return replace(answer, scores={}, confidence=None, aspect_confidence=None)


@pytest.mark.slow
def test_strung_together_pieces_are_answered_in_place(analyzer: Analyzer) -> None:
    generator = random.Random(0)
    texts = [
        "".join(generator.choices(HOSTILE, k=generator.randrange(16))) for _ in range(STRUNG - 7)
    ]
    texts += ["", " ", "\0" * 50, "x" * 1_000_000, "ab " * 350_000, "\r\n" * 500, "!" * 20_000]
    answered = 0
    for text, answers in zip(texts, analyzer.analyze_stream(texts), strict=True):
        check_places(text, answers)
        answered += 1
    assert answered == STRUNG


@pytest.mark.slow
@settings(
    max_examples=DRAWN // TEXTS_A_DRAW,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(data=st.data())
def test_drawn_texts_are_answered_and_every_failure_is_ours(
    analyzer: Analyzer, data: st.DataObject
) -> None:
    any_text = st.text(st.characters(codec=None, categories=None), max_size=20)
    texts = data.draw(st.lists(any_text, min_size=TEXTS_A_DRAW, max_size=TEXTS_A_DRAW))
    for text, answers in zip(texts, analyzer.analyze(texts), strict=True):
        check_places(text, answers)
    start, size = data.draw(st.integers(-2, 20)), data.draw(st.integers(-1, 5))
    for text in texts[:20]:
        with contextlib.suppress(CapsarError):  # nothing else
            check_places(text, analyzer.classify([text], [AspectSpan(start, start + size)])[0])
        with contextlib.suppress(CapsarError):
            check_places(text, analyzer.classify([text], [text[start : start + size]])[0])


@pytest.mark.slow
def test_fuzzed_texts_are_answered_in_place(tmp_path: Path) -> None:
    harness = Path(__file__).parent / "fuzz" / "fuzz_analyze.py"
    limits = [f"-runs={FUZZED}", "-max_len=400", "-rss_limit_mb=0"]
    command = [sys.executable, str(harness), str(tmp_path), *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {FUZZED} runs" in done.stderr


@pytest.mark.slow
def test_many_answers_of_sixteen_threads_are_those_of_one(analyzer: Analyzer) -> None:
    generator = random.Random(1)
    words = ["soup", "staff", "cold", "lovely", "the", "was", "not", "battery", "!", "😀"]
    texts = [
        " ".join(generator.choices(words, k=generator.randint(1, 30))) for _ in range(TEXTS_A_JOB)
    ]
    pairs = [(text, text.split()[0]) for text in texts]
    found, told = analyzer.analyze(texts), list(analyzer.classify_stream(pairs))

    def work(number: int) -> int:
        """Half of the jobs look for aspects, half are given them, each from another place on."""
        turned = (number * 137) % len(texts)
        order = [*range(turned, len(texts)), *range(turned)]
        if number % 2:
            answers = list(analyzer.classify_stream(pairs[i] for i in order))
            check_same(answers, [told[i] for i in order])
        else:
            answers = analyzer.analyze([texts[i] for i in order])
            check_same(answers, [found[i] for i in order])
        return len(answers)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(work, range(JOBS))) == JOBS * TEXTS_A_JOB


def test_many_aspects_and_many_mentions_are_answered_in_bounded_memory(analyzer: Analyzer) -> None:
    text = "The food was great and the staff were rude to everybody on that night."
    many = analyzer.classify([text] * 20, [["food", "staff"] * 500] * 20)
    once = analyzer.classify([text], [["food", "staff"]])[0]
    assert [len(answers) for answers in many] == [1000] * 20
    for answers in many:
        for answer, expected in zip(answers, once * 500, strict=True):
            assert answer.scores == pytest.approx(expected.scores, abs=1e-5)
    mentions = analyzer.classify(["ab " * 3000 + "cd " * 200], ["ab"])[0][0]
    assert (mentions.start, mentions.end) == (0, 2)
    assert mentions.windowed
    with pytest.raises(DataError, match="too many mentions"):  # a record that is read whole
        list(route_slices(1, 19_000 * 9_000))


def test_questions_that_are_none_are_refused(analyzer: Analyzer) -> None:
    for texts, aspects in (
        (["a b"], [[None]]), (["a b"], [None]), (["a b"], [7]), ("a b", ["a"]), ([None], ["a"]),
    ):  # fmt: skip
        with pytest.raises(DataError):
            analyzer.classify(texts, aspects)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="got one string"):
        analyzer.analyze("a b")


@pytest.mark.parametrize(("missing", "shown"), [(None, "None"), (float("nan"), "nan"), (7, "7")])
def test_of_many_texts_the_wrong_one_is_named(
    analyzer: Analyzer, missing: object, shown: str
) -> None:
    texts: Any = [*["The soup."] * 1500, missing]
    told = rf"Text 1500 \(counted from 0\): A text must be a string, got {shown} .*fillna"
    with pytest.raises(DataError, match=told):
        analyzer.analyze(texts)
    with pytest.raises(DataError, match=told):
        analyzer.classify(texts, ["soup"] * 1501)
    with pytest.raises(AspectNotFoundError, match=r"^Text 1 \(counted from 0\): Aspect 'cat' does"):
        analyzer.classify(["The soup."] * 2, ["soup", "cat"])
    with pytest.raises(
        AspectNotFoundError, match=r"^Aspect 'cat' does"
    ):  # of one there is no doubt
        analyzer.classify(["The soup."], ["cat"])


def test_a_column_of_a_table_is_read_and_the_table_is_not(analyzer: Analyzer) -> None:
    texts = ["The soup was awful.", "The staff was kind."]
    frame: Any = pandas.DataFrame({"review": texts, "about": ["soup", "staff"]}, index=[9, 4])
    assert analyzer.analyze(frame["review"]) == analyzer.analyze(texts)
    asked = analyzer.classify(texts, ["soup", "staff"])
    assert analyzer.classify(frame["review"], frame["about"]) == asked
    assert analyzer.classify(iter(texts), iter(["soup", "staff"])) == asked
    with pytest.raises(DataError, match=r"got a table \(DataFrame\).*frame\['review'\]"):
        analyzer.analyze(frame)
    with pytest.raises(DataError, match=r"list of aspects \(those of each text\), got a table"):
        analyzer.classify(frame["review"], frame)
    with pytest.raises(DataError, match="got a table"):
        next(analyzer.classify_stream(frame))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("soup", "got one string. Put it in a list"),
        (b"soup", "got one string"),
        ({"soup": 1}, "got a mapping, whose keys are no"),
        (3, r"got 3 \(int\)"),
        (None, "got None"),
    ],
)
def test_what_is_no_list_is_refused(analyzer: Analyzer, wrong: Any, told: str) -> None:
    with pytest.raises(DataError, match=f"Expected a list of texts, {told}"):
        analyzer.analyze(wrong)
    with pytest.raises(DataError, match=f"Expected a list of texts, {told}"):
        analyzer.classify(wrong, ["soup"])
    with pytest.raises(DataError, match=rf"Expected a list of aspects .*{told}"):
        analyzer.classify(["soup"], wrong)

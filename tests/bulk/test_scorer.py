"""Rows and answers: the one function for any engine, and bad rows that cost only themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpora import assert_equal_answers, reviews, serial
from hypothesis import given
from hypothesis import strategies as st

import capsar
from capsar.bulk.job import Job, ScoreOptions
from capsar.bulk.readers import Row
from capsar.bulk.scorer import Scorer, score_batch
from capsar.errors import ArtifactError, ConfigError, DataError


class Touchy:
    """An analyzer that fails on any text with a 'x' in it, wherever that stands."""

    def __init__(self) -> None:
        self.asked = 0

    def analyze_stream(self, texts: Any) -> Any:
        for text in texts:
            self.asked += 1
            if "x" in text:
                raise RuntimeError(f"cannot bear {text}")
            yield []


@given(bad=st.lists(st.booleans(), max_size=70))
def test_a_row_that_makes_the_model_raise_costs_only_itself(bad: list[bool]) -> None:
    touchy = Touchy()
    scorer = Scorer(ScoreOptions(), touchy)  # type: ignore[arg-type]
    answers = scorer.answer([Row("x" if is_bad else "fine") for is_bad in bad])
    wanted = (None, "the model failed: RuntimeError: cannot bear x")
    assert answers == [wanted if is_bad else ([], None) for is_bad in bad]
    assert touchy.asked <= (1 + 8 * sum(bad)) * (1 + len(bad))


def test_an_analyzer_that_answers_too_little_is_noticed() -> None:
    class Silent:
        def analyze_stream(self, _: Any) -> Any:
            return iter(())

    answers = Scorer(ScoreOptions(), Silent()).answer([Row("a"), Row("b")])  # type: ignore[arg-type]
    assert [error.startswith("the model failed") for _, error in answers if error] == [True, True]


def test_answers_are_those_of_the_analyzer() -> None:
    texts = reviews(50)
    table = pa.table({"id": range(50), "review": texts, "other": texts})
    options = ScoreOptions(model="fast", text_column="review", keep=("id",))
    scored = score_batch(table, options)
    assert scored.column_names == ["id", "aspects", "error"]
    assert scored.column("error").null_count == 50
    for found, expected in zip(scored.column("aspects").to_pylist(), serial(texts), strict=True):
        assert_equal_answers(found, expected)
    (batch,) = table.to_batches()
    assert pa.Table.from_batches([score_batch(batch, options)]) == scored
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = table.column("review").cast(kind)
        assert score_batch(table.set_column(1, "review", column), options) == scored
    empty = score_batch(table.slice(0, 0), options)
    assert empty.schema == scored.schema


def test_given_aspects_are_asked_about() -> None:
    text = "Great food, terrible service."
    options = ScoreOptions(model="fast", aspect_column="about")
    for about in (["food", "service"], [["food"], ["food", "service"]]):
        scored = score_batch(pa.table({"text": [text, text], "about": about}), options)
        answers = capsar.load("fast").classify([text, text], about)
        found = [[a["surface"] for a in row] for row in scored.column("aspects").to_pylist()]
        assert found == [[a.text for a in row] for row in answers]
    asked = pa.table({"text": [text, text, "x"], "about": ["food", "soup", None]})
    errors = score_batch(asked, options).column("error").to_pylist()
    assert errors[0] is None
    assert errors[1].startswith("aspect not found: Aspect 'soup' does not occur")
    assert errors[2] == "no aspect: NoneType in its place"


def test_texts_that_cannot_be_asked_about_say_why() -> None:
    options = ScoreOptions(model="fast", max_chars=20)
    not_utf8 = pa.array([b"caf\xe9", b"fine", None], pa.binary())
    errors = score_batch(pa.table({"text": not_utf8}), options).column("error").to_pylist()
    assert errors == ["not UTF-8: unexpected end of data at 3", None, "null text"]
    for kind in (pa.string(), pa.large_string()):
        unchecked = pa.Array.from_buffers(
            kind,
            3,
            not_utf8.cast(pa.binary() if kind == pa.string() else pa.large_binary()).buffers(),
        )
        again = score_batch(pa.table({"text": unchecked}), options).column("error").to_pylist()
        assert again == errors
    rows = [Row("x" * 21), Row(7), Row("a\ud800"), Row(None, error="not JSON: it")]
    assert [error for _, error in Scorer(options).answer(rows)] == [
        "too long: 21 characters, at most 20",
        "not text: int",
        "not UTF-8: half of a surrogate pair",
        "not JSON: it",
    ]
    nulls = score_batch(pa.table({"text": pa.nulls(2)}), options)
    assert nulls.column("error").to_pylist() == ["null text", "null text"]


def test_tables_that_cannot_be_scored_are_refused() -> None:
    with pytest.raises(DataError, match=r"no column 'text'; there are \['review'\]"):
        score_batch(pa.table({"review": ["a"]}))
    with pytest.raises(DataError, match="'text' holds int64, not text"):
        score_batch(pa.table({"text": [1]}))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_chars": 0}, "max_chars"),
        ({"fragment_mb": 0}, "fragment_mb"),
        *(
            ({"encoding": name}, name)
            for name in ("utf-16", "utf-7", "gbk", "cp037", "iso2022_jp", "undefined", "rot13")
        ),
        ({"keep": ("error",)}, "names itself"),
        ({"keep": ("id", "id")}, "twice"),
        ({"keep": "id,date"}, r"a list of names, as \('id', 'date'\); got 'id,date'"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ScoreOptions(**wrong)


def test_options_take_lists_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = capsar.ScoreOptions(keep=["id"], model=Path("fast"))
    assert (options.keep, options.model) == (("id",), str(tmp_path / "fast"))
    assert hash(options)
    job = Job(options, "out")
    assert Job.from_json(job.to_json()) == job
    with pytest.raises(ArtifactError, match="no such folder"):  # and not the model that ships
        capsar.score(tmp_path, tmp_path / "out", options)

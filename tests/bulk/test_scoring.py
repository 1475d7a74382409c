"""Scoring of rows: `score_batch`, row validation, and failures that affect only their row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpora import assert_equal_results, reviews, serial_results
from hypothesis import given
from hypothesis import strategies as st

import capsar
from capsar.bulk.job import ScoreOptions
from capsar.bulk.rows import InputRow, check_row
from capsar.bulk.scoring import Scorer, score_batch
from capsar.errors import ArtifactError, ConfigError, DataError


class FailingAnalyzer:
    """An analyzer that fails on every text that contains an x."""

    def __init__(self) -> None:
        self.num_texts = 0

    def analyze_stream(self, texts: Any, *, themes: None) -> Any:
        assert themes is None
        for text in texts:
            self.num_texts += 1
            if "x" in text:
                raise RuntimeError(f"cannot read {text}")
            yield []


@given(bad=st.lists(st.booleans(), max_size=70))
def test_row_that_makes_the_model_raise_affects_no_other_row(bad: list[bool]) -> None:
    analyzer = FailingAnalyzer()
    scorer = Scorer(ScoreOptions(), analyzer)  # type: ignore[arg-type]
    results = scorer.score([InputRow("x" if is_bad else "fine") for is_bad in bad])
    expected = (None, "the model failed: RuntimeError: cannot read x")
    assert results == [expected if is_bad else ([], None) for is_bad in bad]
    assert analyzer.num_texts <= (1 + 8 * sum(bad)) * (1 + len(bad))


def test_analyzer_that_returns_too_few_results_is_detected() -> None:
    class EmptyAnalyzer:
        def analyze_stream(self, _: Any) -> Any:
            return iter(())

    scorer = Scorer(ScoreOptions(), EmptyAnalyzer())  # type: ignore[arg-type]
    results = scorer.score([InputRow("a"), InputRow("b")])
    assert [error.startswith("the model failed") for _, error in results if error] == [True, True]


def test_results_are_those_of_the_analyzer() -> None:
    texts = reviews(50)
    table = pa.table({"id": range(50), "review": texts, "other": texts})
    options = ScoreOptions(model="fast", text_column="review", keep=("id",))
    scored = score_batch(table, options)
    assert scored.column_names == ["id", "aspects", "error"]
    assert scored.column("error").null_count == 50
    for found, expected in zip(
        scored.column("aspects").to_pylist(), serial_results(texts), strict=True
    ):
        assert_equal_results(found, expected)
    (batch,) = table.to_batches()
    assert pa.Table.from_batches([score_batch(batch, options)]) == scored
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = table.column("review").cast(kind)
        assert score_batch(table.set_column(1, "review", column), options) == scored
    empty = score_batch(table.slice(0, 0), options)
    assert empty.schema == scored.schema


def test_given_aspects_are_classified() -> None:
    text = "Great food, terrible service."
    options = ScoreOptions(model="fast", aspect_column="given")
    for aspects in (["food", "service"], [["food"], ["food", "service"]]):
        scored = score_batch(pa.table({"text": [text, text], "given": aspects}), options)
        expected = capsar.load("fast").classify([text, text], aspects)
        found = [[a["text"] for a in row] for row in scored.column("aspects").to_pylist()]
        assert found == [[a.text for a in row] for row in expected]
    table = pa.table({"text": [text, text, "x"], "given": ["food", "soup", None]})
    errors = score_batch(table, options).column("error").to_pylist()
    assert errors[0] is None
    assert errors[1].startswith("aspect not found: Aspect 'soup' does not occur")
    assert errors[2] == "invalid aspect: expected a string, got NoneType"


def test_invalid_texts_get_an_error() -> None:
    options = ScoreOptions(model="fast", max_chars=20)
    not_utf8 = pa.array([b"caf\xe9", b"fine", None], pa.binary())
    errors = score_batch(pa.table({"text": not_utf8}), options).column("error").to_pylist()
    assert errors == ["not UTF-8: invalid at character 3", None, "null text"]
    for kind in (pa.string(), pa.large_string()):
        unchecked = pa.Array.from_buffers(
            kind,
            3,
            not_utf8.cast(pa.binary() if kind == pa.string() else pa.large_binary()).buffers(),
        )
        again = score_batch(pa.table({"text": unchecked}), options).column("error").to_pylist()
        assert again == errors
    rows = [check_row(text, None, "", options) for text in ("x" * 21, 7, "a\ud800")]
    rows.append(InputRow("", error="not JSON: it"))
    assert [error for _, error in Scorer(options).score(rows)] == [
        "too long: 21 characters, the maximum is 20",
        "not text: int",
        "not UTF-8: invalid at character 1",
        "not JSON: it",
    ]
    nulls = score_batch(pa.table({"text": pa.nulls(2)}), options)
    assert nulls.column("error").to_pylist() == ["null text", "null text"]


def test_invalid_tables_are_rejected() -> None:
    with pytest.raises(DataError, match=r"no column 'text'; the columns are \['review'\]"):
        score_batch(pa.table({"review": ["a"]}))
    with pytest.raises(DataError, match="'text' has type int64, expected text"):
        score_batch(pa.table({"text": [1]}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_chars": 0}, "max_chars"),
        ({"shard_mb": 0}, "shard_mb"),
        *(({"encoding": name}, name) for name in ("utf-16", "cp037", "undefined", "rot13")),
        ({"keep": ("error",)}, "the output uses these column names"),
        ({"keep": ("id", "id")}, "twice"),
        ({"keep": "id,date"}, r"a list of column names such as \('id', 'date'\); got 'id,date'"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScoreOptions(**options)


def test_options_accept_lists_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = capsar.ScoreOptions(keep=["id"], model=Path("fast"))
    assert (options.keep, options.model) == (("id",), str(tmp_path / "fast"))
    assert hash(options)
    with pytest.raises(ArtifactError, match="no such folder"):  # not the bundled model of that name
        capsar.score(tmp_path, tmp_path / "out", options)

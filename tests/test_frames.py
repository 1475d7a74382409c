"""Data frames of pandas, Polars and Arrow, and results in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from capsar import Analyzer, load
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: dict[str, list[Any]] = {
    "id": [7, 8, 9, 10],
    "review": ["Great soup, slow waiter.", None, "<b>Nice</b> & cheap pizza!", "I came on Monday."],
}


@pytest.fixture(scope="module")
def model() -> Analyzer:
    return load("fast")


def records(frame: Any) -> list[dict[str, Any]]:
    if isinstance(frame, pd.DataFrame):
        found: list[dict[str, Any]] = frame.to_dict("records")
        return found
    return list(frame.to_dicts() if isinstance(frame, pl.DataFrame) else frame.to_pylist())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_one_row_per_mention_with_the_columns_of_the_frame(
    model: Analyzer, make: Callable[[Any], Any]
) -> None:
    found = model.analyze_frame(make(ROWS), text="review", themes="restaurants")
    assert type(found) is type(make(ROWS))
    rows = records(found)
    expected = model.analyze([text or "" for text in ROWS["review"]], themes="restaurants")
    assert [(row["id"], row["aspect"], row["polarity"], row["theme"]) for row in rows] == [
        (ROWS["id"][number], mention.text, str(mention.polarity), mention.theme)
        for number, mentions in enumerate(expected)
        for mention in mentions
    ]
    assert {row["id"] for row in rows} >= {7, 9}
    assert rows[0]["opinions"] == "Great"
    assert rows[0]["review"][rows[0]["start"] : rows[0]["end"]] == rows[0]["aspect"]


def test_the_index_and_missing_values_of_pandas_do_no_harm(model: Analyzer) -> None:
    texts = ["Great soup.", np.nan, pd.NA, None, "Slow waiter."]
    frame = pd.DataFrame({"text": texts, "n": range(5)}, index=[3, 3, 3, 0, 1])
    found = model.analyze_frame(frame)
    assert found["n"].tolist() == [0, 4]
    assert found["aspect"].tolist() == ["soup", "waiter"]


@pytest.mark.parametrize("dtype", ["string", "str", "object", pd.ArrowDtype(pa.string())])
def test_every_type_of_text_column_may_have_missing_values(model: Analyzer, dtype: Any) -> None:
    frame = pd.DataFrame({"text": pd.Series(["Great soup.", pd.NA, "<NA>", None], dtype=dtype)})
    assert model.analyze_frame(frame)["aspect"].tolist() == ["soup"]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_an_empty_result_has_all_columns(model: Analyzer, make: Callable[[Any], Any]) -> None:
    found = model.analyze_frame(make({"text": ["We came on Monday."]}))
    assert records(found) == []
    columns = found.column_names if isinstance(found, pa.Table) else list(found.columns)
    assert columns[:5] == ["text", "aspect", "start", "end", "polarity"]


def test_a_minimum_confidence_marks_uncertain_mentions(model: Analyzer) -> None:
    frame = pd.DataFrame(ROWS)
    found = model.analyze_frame(frame, text="review", min_confidence=1)
    assert len(found) == len(model.analyze_frame(frame, text="review")) > 0
    assert found["abstained"].all()
    assert not model.analyze_frame(frame, text="review", min_confidence=1e-6)["abstained"].any()


def test_wrong_frames_are_explained(model: Analyzer) -> None:
    with pytest.raises(DataError, match="no column 'text'"):
        model.analyze_frame(pd.DataFrame(ROWS))
    with pytest.raises(DataError, match="review_start"):
        model.analyze_frame(pd.DataFrame({"text": ["a"], "start": [1]}))
    with pytest.raises(DataError, match="collect"):
        model.analyze_frame(pl.DataFrame({"text": ["a"]}).lazy())
    with pytest.raises(DataError, match="Expected a data frame"):
        model.analyze_frame({"text": ["a"]})
    with pytest.raises(DataError, match="0, 1"):
        model.analyze_frame(pd.DataFrame([[1, 2]]))
    with pytest.raises(DataError, match="must be a string"):
        model.analyze_frame(pd.DataFrame({"text": [1, 2]}))


def test_a_model_is_callable_on_one_text_and_on_several(model: Analyzer) -> None:
    one = model("Great soup.")
    assert one == model.analyze(["Great soup."])[0]
    assert model(["Great soup.", ""]) == model.analyze(["Great soup.", ""])
    with pytest.raises(DataError):
        model({"text": "Great soup."})


def test_a_notebook_shows_marked_and_escaped_text(model: Analyzer) -> None:
    html = model("<script>alert(1)</script> Great soup!")._repr_html_()
    assert "<script>" not in html
    assert '">soup</mark>' in html
    assert "soup: positive" in html

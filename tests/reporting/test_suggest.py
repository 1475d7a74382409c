"""Suggested themes: clusters that belong together, and a file that can be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from capsar import Themes, read_themes
from capsar.bulk.scoring import ASPECTS
from capsar.cli import app
from capsar.errors import ConfigError, DataError
from capsar.reporting.suggest import suggest_themes, write_themes
from capsar.themes.schema import Theme

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "delivery": 30, "shipping": 20, "courier": 8, "package": 6,
    "screen": 25, "display": 15, "resolution": 5, "brightness": 4,
    "🍕": 9, "waiter": 22, "waitress": 12, "staff": 18, "bartender": 4,
}  # fmt: skip


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    names = [name for name, number in NAMES.items() for _ in range(number)]
    blank = {field.name: None for field in ASPECTS.value_type}
    rows = [[blank | {"text": name, "start": 0, "end": len(name)}] for name in names]
    rows.append([blank | {"text": "It took weeks.", "implicit": True}])
    table = pa.table(
        {"aspects": pa.array(rows, ASPECTS), "error": pa.nulls(len(rows), pa.string())}
    )
    folder = tmp_path / "scored"
    folder.mkdir()
    pq.write_table(table, folder / "part.parquet")
    return folder


def test_related_aspects_form_a_theme(scored: Path) -> None:
    themes, counts = suggest_themes(scored, 3)
    found = [set(theme.terms) for theme in themes]
    for pair in ({"delivery", "shipping"}, {"screen", "display"}, {"waiter", "waitress"}):
        assert sum(pair <= terms for terms in found) == 1
    assert counts == sorted(counts, reverse=True)
    assert "it took weeks." not in set().union(*found)


def test_the_file_can_be_read_again_and_is_not_overwritten(scored: Path, tmp_path: Path) -> None:
    path = tmp_path / "themes.toml"
    command = ["themes", "suggest", str(scored), "-o", str(path), "--number", "3"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "delivery, shipping" in result.output
    assert read_themes(path).themes == tuple(suggest_themes(scored, 3)[0])
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, ConfigError)


def test_odd_names_are_quoted() -> None:
    theme = Theme('a "b" \\ c', "tab\there", ("é\u202ex", '"' + "quote"))
    [read] = Themes.parse(write_themes([theme], [1])).themes
    assert read.name == theme.name
    assert read.description == "tab here"


def test_too_few_aspects_are_refused(scored: Path) -> None:
    with pytest.raises(DataError, match="too few"):
        suggest_themes(scored, 20)
    with pytest.raises(ConfigError, match="1 or more"):
        suggest_themes(scored, 0)


def test_ready_made_themes_are_shown() -> None:
    result = CliRunner().invoke(app, ["themes", "show", "hotels"])
    assert Themes.parse(result.output).names[0] == "Room"

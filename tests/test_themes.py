"""Themes: the file, listed and excluded terms, similarity, implicit mentions, and their outputs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save
from typer.testing import CliRunner

from capsar import Analyzer, Theme, Themes, load, read_themes
from capsar.bulk.job import ScoreOptions
from capsar.bulk.run import score
from capsar.bulk.scoring import ASPECTS
from capsar.bundle import CONFIG, MANIFEST, THEMES, find_bundle, write_bundle
from capsar.cli import app
from capsar.errors import ArtifactError, ConfigError, DataError
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from capsar.themes.matcher import ThemeMatcher, words_of
from capsar.themes.schema import READY_MADE
from capsar.themes.vectors import read_vectors

if TYPE_CHECKING:
    from pathlib import Path

SHOP = Themes(
    (
        Theme("Delivery", "How and when the order arrives.", ("delivery", "shipping", "courier")),
        Theme("Price", "Prices and value for money.", ("price",)),
        Theme("Screen", "Display, brightness and resolution of the screen.", ("screen",)),
        Theme("Support", "Help by staff, returns and refunds.", ("support", "customer service")),
    )
)
LATE = "Took three weeks to arrive and nobody told me why."
TEXTS = [
    "The shipping was fast but the price is too high.",
    LATE,
    "The display is far too dark outdoors.",
    "",
    "I bought it on Tuesday.",
    "Customer service ignored my emails. The courier was friendly!",
]


@pytest.fixture(scope="module", params=["base", "fast"])
def model(request: pytest.FixtureRequest) -> Analyzer:
    return load(request.param)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 1", "expected only tables"),
        ("[[theme]]\ndescription = 'x'", "needs a name"),
        ("[[theme]]\nname = 'A'\nwords = ['x']", "may have .*; not 'words'"),
        (
            "[[theme]]\nname = 'A'\nterms = ['fit']\n[[theme]]\nname = 'B'\nterms = ['Fit']",
            "'A' and 'B' share 'fit'",
        ),
        ("[[theme]]\nname = 'A'\nterms = 'x'", "list of words"),
        ("[[theme]]\nname = ' '", "needs a name"),
        ("[[theme]]\nname = 'A'\n[[theme]]\nname = 'A'", "Two themes"),
        ("[[theme]]\nname = 'A'\nparent = 'B'", "is not a theme"),
        ("[[theme]]\nname = 'A'\nparent = 'A'", "two levels"),
        ("[[theme]]\nname = 'A", "is not TOML"),
        ("", "expected only tables"),
    ],
)
def test_a_malformed_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Themes.parse(text)


@given(st.text(max_size=200))
def test_any_text_is_themes_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert Themes.parse(text).names


def test_a_missing_file_names_the_ready_made_themes(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="restaurants"):
        read_themes(tmp_path / "none.toml")
    assert len(list(READY_MADE.glob("*.toml"))) == 6
    for path in READY_MADE.glob("*.toml"):
        assert len(read_themes(path.stem).names) >= 8


def test_mentions_get_themes_by_words_and_by_similarity(model: Analyzer) -> None:
    found = model.analyze(TEXTS, themes=SHOP)
    themes = {a.text.lower(): a.theme for aspects in found for a in aspects if not a.implicit}
    assert themes["shipping"] == "Delivery"
    assert themes["price"] == "Price"
    assert themes["display"] == "Screen"  # not a listed term
    assert themes["customer service"] == "Support"
    assert found[3] == []


def test_a_theme_that_is_not_named_is_found(model: Analyzer) -> None:
    [found] = model.analyze([LATE], themes=SHOP)
    implicit = [a for a in found if a.implicit]
    assert [(a.theme, str(a.polarity)) for a in implicit] == [("Delivery", "negative")]
    assert implicit[0].text == LATE[implicit[0].start : implicit[0].end]
    assert 0 < (implicit[0].theme_confidence or 0) <= 1


def test_themes_change_nothing_else(model: Analyzer) -> None:
    plain = model.analyze(TEXTS)
    themed = model.analyze(TEXTS, themes=SHOP)
    for one, other in zip(plain, themed, strict=True):
        explicit = [a for a in other if not a.implicit]
        assert [(a.start, a.end, a.polarity, a.opinions) for a in one] == [
            (a.start, a.end, a.polarity, a.opinions) for a in explicit
        ]
        assert all(a.theme is None and "theme" not in a.as_dict() for a in one)
        assert all({"theme", "implicit"} <= a.as_dict().keys() for a in other)


def test_themes_do_not_depend_on_neighbors(model: Analyzer) -> None:
    together = model.analyze(TEXTS * 3, themes=SHOP)
    for text, found in zip(TEXTS * 3, together, strict=True):
        [alone] = model.analyze([text], themes=SHOP)
        assert [(a.start, a.theme, a.implicit) for a in found] == [
            (a.start, a.theme, a.implicit) for a in alone
        ]
        for one, other in zip(found, alone, strict=True):
            assert one.theme_confidence == pytest.approx(other.theme_confidence, abs=1e-4)


def test_excluded_terms_and_the_longest_listed_term_decide(model: Analyzer) -> None:
    text = "The battery cover broke. The batteries are weak."
    battery = Theme("Battery", "Battery life and charging.", ("battery",))
    covers = Theme("Case", "Case and materials.", ("battery cover",))
    [found] = model.analyze([text], themes=Themes((battery, covers)))
    assert {a.text: a.theme for a in found if not a.implicit} == {
        "battery cover": "Case",
        "batteries": "Battery",
    }
    strict = Theme("Battery", battery.description, battery.terms, excluded=("cover",))
    [found] = model.analyze([text], themes=Themes((strict,)))
    assert next(a for a in found if a.text == "battery cover").theme != "Battery"


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("The batteries are weak.", "battery"),
        ("Superb dishes.", "dish"),
        ("The glass broke.", "glasses"),
        ("Lovely cafe\u0301.", "café"),
        ("BUS was late.", "buses"),
    ],
)
def test_terms_match_in_any_case_and_number(text: str, term: str) -> None:
    words = words_of(text)
    phrases = ThemeMatcher(Themes((Theme("Other"), Theme("It", terms=(term,)))), None)
    features = None
    [(theme, probability)], _ = phrases.match([words], [words], np.zeros(1, np.int64), features)
    assert (theme, probability) == (1, 1.0)


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = read_vectors()
    words = words_of("It took three weeks to arrive and no one said why.")
    expected = vectors.add_words(words)
    for size in range(len(words) + 1):
        monkeypatch.setattr("capsar.themes.vectors._MAX_CACHED", size)
        assert np.array_equal(read_vectors()[0].add_words(words), expected)


@pytest.mark.parametrize("text", ["\u200b", "\ufeff", "\x00", " "])
def test_terms_without_words_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="list of words"):
        Theme("Wine", terms=(text,))
    with pytest.raises(ConfigError, match="needs a name"):
        Theme(text)


def test_odd_texts_and_themes_do_no_harm(model: Analyzer) -> None:
    themes = [Theme("🍕"), Theme("🚗 \ud83d", "\ud83d", ("\ud83d x",)), Theme("a" * 500)]
    model.analyze(
        ["Great soup \ud83d here.", "I love the 🍕 and the 🚗.", "x" * 5000], themes=themes
    )


def test_excluded_terms_prevent_implicit_mentions(model: Analyzer) -> None:
    delivery = replace(SHOP.themes[0], excluded=("week",))
    [found] = model.analyze([LATE], themes=[delivery])
    assert not any(a.implicit for a in found)


def test_windows_of_a_long_sentence_have_no_implicit_mentions(model: Analyzer) -> None:
    text = "the delivery was late and " + "it took three weeks to arrive and " * 60
    [found] = model.analyze([text], themes=SHOP)
    assert not any(a.implicit for a in found)


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    bundle = find_bundle("fast")
    kept = [name for name in bundle.files if name not in (CONFIG, MANIFEST)]
    files = {name: bundle.path(name).read_bytes() for name in kept}
    for content in (b"damaged", save({"mention": np.zeros((2, 2), np.float32)})):
        write_bundle(tmp_path / "bundle", bundle.config, files | {THEMES: content})
        with pytest.raises(ArtifactError, match=r"themes\.safetensors"):
            load(tmp_path / "bundle")


def test_mentions_may_have_no_theme(model: Analyzer) -> None:
    themes = Themes((Theme("Wine", "Quality and choice of wine.", ("wine",)),))
    [found] = model.analyze(["The keyboard feels mushy."], themes=themes)
    assert [a.theme for a in found] == [""]


def test_a_model_without_a_theme_head_finds_explicit_themes(tmp_path: Path) -> None:
    bundle = find_bundle("fast")
    kept = [name for name in bundle.files if name not in (CONFIG, MANIFEST, THEMES)]
    files = {name: bundle.path(name).read_bytes() for name in kept}
    write_bundle(tmp_path / "bundle", bundle.config, files)
    found = load(tmp_path / "bundle").analyze(TEXTS, themes=SHOP)
    assert not any(a.implicit for aspects in found for a in aspects)
    assert "Screen" in {a.theme for a in found[2]}


def test_capsules_have_no_themes(model: Analyzer) -> None:
    with pytest.raises(ConfigError, match="mode"):
        model.analyze(TEXTS, themes=SHOP, mode="capsules")


def test_scoring_with_themes_and_reporting(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text(
        "id,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)), encoding="utf-8"
    )
    options = ScoreOptions(keep=("id", "text"), model="fast", themes=SHOP)
    output = tmp_path / "scored"
    score([str(tmp_path / "reviews.csv")], str(output), options)
    rows = [row for path in output.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    mentions = {m["text"]: m for row in rows for m in row["aspects"] or []}
    assert mentions["shipping"]["theme"] == "Delivery"
    assert [m["theme"] for m in mentions.values() if m["implicit"]] == ["Delivery"]
    score([str(tmp_path / "reviews.csv")], str(output), options)  # resumes
    with pytest.raises(DataError, match="themes"):  # other themes are another job
        score([str(tmp_path / "reviews.csv")], str(output), replace(options, themes="apps"))
    content = report(output, tmp_path / "report.json", ReportOptions())
    found = [mention for row in rows for mention in row["aspects"] or []]
    assert content["totals"]["mentions"] == len(found)
    assert content["totals"]["implicit"] == sum(mention["implicit"] for mention in found) == 1
    delivery = next(theme for theme in content["themes"] if theme["name"] == "Delivery")
    assert delivery["mentions"] == sum(mention["theme"] == "Delivery" for mention in found)


def test_themes_and_given_aspects_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        ScoreOptions(aspect_column="aspect", themes="restaurants")


def test_the_command_shows_themes(tmp_path: Path) -> None:
    path = tmp_path / "themes.toml"
    shutil.copy(READY_MADE / "restaurants.toml", path)
    text = "Lovely soup. We waited an hour for a table."
    result = CliRunner().invoke(app, ["analyze", text, "--themes", str(path), "--model", "fast"])
    assert result.exit_code == 0, result.output
    assert "soup [Food]: positive" in result.output


def test_reports_do_not_mark_implicit_mentions(tmp_path: Path) -> None:
    text = "The staff was nice but it took three weeks to arrive."
    blank = {field.name: None for field in ASPECTS.value_type} | {"polarity": "positive"}
    blank |= {"confidence": 0.9, "aspect_confidence": 0.9, "implicit": False}
    implicit = {"text": text, "start": 0, "end": len(text), "implicit": True}
    aspects = [[blank | {"text": "staff", "start": 4, "end": 9}, blank | implicit]]
    columns = {"text": [text], "aspects": pa.array(aspects, ASPECTS)}
    (tmp_path / "scored").mkdir()
    table = pa.table(columns | {"error": pa.nulls(1, pa.string())})
    pq.write_table(table, tmp_path / "scored" / "part.parquet")
    content = report(tmp_path / "scored", None, ReportOptions(text_column="text"))
    marks = [sentence["marks"] for one in content["aspects"] for sentence in one["sentences"]]
    assert [[tuple(mark) for mark in own] for own in marks] == [[(4, 9, "positive")]]


@pytest.mark.parametrize("name", ["base", "fast"])
def test_a_head_of_other_vectors_is_refused(name: str) -> None:
    head = dict(load_arrays(find_bundle(name).path(THEMES).read_bytes()))
    assert ThemeMatcher(SHOP, head).themes == SHOP
    head["mention"] = head["mention"][:, :-1]
    with pytest.raises(ArtifactError, match="other word vectors"):
        ThemeMatcher(SHOP, head)

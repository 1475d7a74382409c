"""Reports around themes: counts, drivers, data quality and Excel."""

from __future__ import annotations

import json
import random
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from openpyxl import load_workbook
from scored_rows import row, write_rows

import capsar
from capsar.errors import ConfigError, DataError
from capsar.reporting import query
from capsar.reporting.languages import identify_language
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from capsar.reporting.statistics import AspectCounts, estimate_rates
from capsar.themes.schema import Theme

JOB = {
    "options": {
        "themes": {
            "themes": [
                {"name": "Food"},
                {"name": "Service"},
                {"name": "Waiting", "parent": "Service"},
                {"name": "Parking"},
            ]
        }
    }
}


def make_rows() -> list[dict]:
    generator = random.Random(5)
    choices = ("soup:{}@Food", "bread:{}@Food", "staff:{}@Service", "queue:{}@Waiting", "thing:{}")
    rows = []
    for index in range(240):
        notes = [one.format(generator.choice("+o-")) for one in generator.sample(choices, k=2)]
        if generator.random() < 0.2:
            notes.append("*:-@Waiting")
        rows.append(row(" ".join(notes), shop=generator.choice("ab"), id=index))
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return make_rows()


@pytest.fixture(scope="module")
def folder(rows: list[dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("themes") / "scored", rows, files=3, job=JOB)


def test_theme_counts_match_a_plain_loop(rows: list[dict], folder: Path) -> None:
    content = report(folder, None, ReportOptions(by="shop"), format="json")
    parents = {"Waiting": "Service"}
    for theme in content["themes"]:
        name = theme["name"]
        inside = [
            [m for m in one["aspects"] if name in (m["theme"], parents.get(m["theme"]))]
            for one in rows
        ]
        found = [mention for mentions in inside for mention in mentions]
        by_polarity = Counter(mention["polarity"] for mention in found)
        assert theme["counts"] == [by_polarity[one] for one in ("negative", "neutral", "positive")]
        assert theme["reviews"] == sum(map(bool, inside))
        assert theme["implicit"] == sum(mention["implicit"] for mention in found)
        explicit = Counter(m["text"] for m in found if not m["implicit"])
        parts = {
            content["aspects"][p["aspect"]]["name"]: sum(p["counts"]) for p in theme["aspects"]
        }
        assert parts == explicit
        shops = [
            sum(len(inside[n]) for n in range(len(rows)) if rows[n]["shop"] == s) for s in "ab"
        ]
        assert [cell["mentions"] for cell in theme["by_group"]] == shops
    assert [theme["parent"] for theme in content["themes"]] == [None, None, 1, None]
    mentions = [mention for one in rows for mention in one["aspects"]]
    assert content["totals"]["mentions"] == len(mentions) == content["overall"]["mentions"]
    assert content["totals"]["implicit"] == sum(mention["implicit"] for mention in mentions)
    main = {one["name"]: one["theme"] for one in content["aspects"]}
    assert main == {"soup": 0, "bread": 0, "staff": 1, "queue": 2, "thing": None}
    assert {row.get("theme") for row in content["differences"]} >= {0, 1, 2}


def test_themes_do_not_depend_on_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report(folder, None, ReportOptions(by="shop"), format="json")
    monkeypatch.setattr(query, "_ROWS_AT_ONCE", 1)
    assert report(folder, None, ReportOptions(by="shop"), format="json") == whole


def test_sentences_of_implicit_mentions(folder: Path) -> None:
    content = report(folder, None)
    waiting = content["themes"][2]
    implicit = [one for one in waiting["sentences"] if one["chosen"] < 0]
    assert implicit
    assert all(one["opinions"] == [] and one["polarity"] == "negative" for one in implicit)
    assert not any(
        one["chosen"] < 0 for aspect in content["aspects"] for one in aspect["sentences"]
    )


def test_summary_names_main_themes_by_mentions(folder: Path) -> None:
    content = report(folder, None)
    ranked = sorted(
        (one for one in content["themes"] if one["parent"] is None and one["counts"][0]),
        key=lambda one: -one["counts"][0],
    )
    assert content["summary"]["criticized"] == [one["name"] for one in ranked]
    assert "Waiting" not in content["summary"]["criticized"]
    below = [one["name"] for one in ranked if one["net"][2] < 0]
    assert content["summary"]["more_criticized_than_praised"] == below == ["Service"]


def test_themes_without_a_job_manifest_are_flat(rows: list[dict], tmp_path: Path) -> None:
    content = report(write_rows(tmp_path, rows), None)
    assert [theme["name"] for theme in content["themes"]] == ["Food", "Service", "Waiting"]
    assert all(theme["parent"] is None for theme in content["themes"])


def test_given_themes_replace_those_that_were_scored(rows: list[dict], folder: Path) -> None:
    themes = [Theme("Bakery", terms=("bread",)), Theme("Liquids", terms=("soup",))]
    content = report(folder, None, ReportOptions(themes=themes))
    texts = Counter(m["text"] for one in rows for m in one["aspects"] if not m["implicit"])
    found = {theme["name"]: theme["mentions"] for theme in content["themes"]}
    assert found["Bakery"] >= texts["bread"]
    assert found["Liquids"] >= texts["soup"]
    assert content["totals"]["implicit"] == 0
    assert content["totals"]["mentions"] == texts.total()


def test_excluded_aspects_are_not_counted_anywhere(rows: list[dict], folder: Path) -> None:
    content = report(folder, None, ReportOptions(exclude=["The Soup", "thing"]))
    texts = Counter(m["text"] for one in rows for m in one["aspects"])
    assert {one["name"] for one in content["aspects"]} == {"bread", "staff", "queue"}
    assert content["totals"]["excluded"] == texts["soup"] + texts["thing"]
    assert content["themes"][0]["mentions"] == texts["bread"]
    assert content["overall"]["mentions"] == content["totals"]["mentions"]
    with pytest.raises(ConfigError, match="exclude: no aspect has the name 'stapler'"):
        report(folder, None, ReportOptions(exclude=["stapler"]))
    with pytest.raises(ConfigError, match="exclude must be a list of names"):
        ReportOptions(exclude="soup")


def test_drivers_match_least_squares(tmp_path: Path) -> None:
    """Without noise, the effects are exactly those that made the ratings."""
    generator = random.Random(1)
    effects = {("Food", "-"): -1.25, ("Food", "+"): 0.5, ("Service", "-"): -0.75}
    effects |= {("Service", "+"): 0.25}
    rows = []
    for _ in range(300):
        notes, stars = [], 3.0
        for theme in ("Food", "Service"):
            for sign in generator.sample(("-", "+"), k=generator.choice((0, 0, 1, 2))):
                notes += [f"soup:{sign}@{theme}"] * generator.choice((1, 2))
                stars += effects[theme, sign]
        rows.append(row(" ".join(notes), stars=stars))
    rows += [row("soup:-@Food", stars=None), row("soup:-@Food", stars=float("nan"))]
    content = report(write_rows(tmp_path, rows), None, ReportOptions(rating="stars"))
    assert content["rating"]["reviews"] == 300
    found = {
        (theme["name"], "-+"[sign == "positive"]): effect["effect"]
        for theme in content["themes"]
        for sign, effect in theme["rating"].items()
    }
    assert found.keys() == effects.keys()
    for key, (effect, low, high) in found.items():
        assert low <= effect <= high
        assert effect == pytest.approx(effects[key], abs=1e-6)


def test_robust_intervals_match_a_direct_computation(tmp_path: Path) -> None:
    """HC3 standard errors, computed from single reviews instead of sums."""
    generator = np.random.default_rng(2)
    signs = generator.random((500, 2)) < (0.3, 0.4)
    stars = np.round(3 + signs @ (-1.0, 0.6) + generator.normal(0, 1 + signs[:, 0]), 2)
    rows = [
        row(" ".join(["soup:-@Food"] * int(bad) + ["soup:+@Food"] * int(good)), stars=float(one))
        for (bad, good), one in zip(signs, stars, strict=True)
    ]
    content = report(write_rows(tmp_path, rows), None, ReportOptions(rating="stars"))
    design = np.column_stack([np.ones(500), signs])
    inverse = np.linalg.inv(design.T @ design)
    values = inverse @ design.T @ stars
    residuals = (stars - design @ values) / (1 - np.einsum("ij,jk,ik->i", design, inverse, design))
    errors = np.sqrt(np.diag(inverse @ (design.T * residuals**2) @ design @ inverse))
    for place, sign in enumerate(("negative", "positive"), 1):
        found = content["themes"][0]["rating"][sign]
        effect, low, high = found["effect"]
        assert effect == pytest.approx(values[place], abs=1e-3)
        assert found["reviews"] == signs[:, place - 1].sum()
        assert (high - low) / 2 == pytest.approx(1.975 * errors[place], rel=0.01)


def test_drivers_without_themes_are_aspects_with_enough_reviews(tmp_path: Path) -> None:
    rows = [row("soup:-", stars=1)] * 30 + [row("", "Fine.", stars=5)] * 30
    rows += [row("bread:+", stars=4)] * 19
    content = report(write_rows(tmp_path, rows), None, ReportOptions(rating="stars"))
    soup, bread = content["aspects"]
    assert soup["rating"]["negative"]["effect"][0] < -3
    assert "rating" not in bread


def test_page_without_variance_has_no_effects_that_are_not_numbers(tmp_path: Path) -> None:
    rows = [row("box:-@Packaging", stars=2)] * 30 + [row("box:-@Price", stars=2)] * 45
    rows += [row("van:+@Delivery", stars=5)] * 40 + [row("*:-@Price", "All gone.", stars=1)] * 30
    folder = write_rows(tmp_path / "scored", rows)
    content = report(folder, tmp_path / "r.json", ReportOptions(rating="stars"))
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(json.dumps(content))
    effects = [e for one in content["themes"] for e in one.get("rating", {}).values()]
    assert effects
    assert np.isfinite([effect["effect"] for effect in effects]).all()


def test_effects_do_not_depend_on_the_origin_of_ratings(tmp_path: Path) -> None:
    generator = random.Random(4)
    signs = [generator.random() < 0.4 for _ in range(400)]
    noise = [generator.uniform(-0.1, 0.1) for _ in signs]
    effects = []
    for origin in (0.0, 1.7e9):
        rows = [row("soup:-" if bad else "", "The soup.", stars=origin - bad + one)
                for bad, one in zip(signs, noise, strict=True)]  # fmt: skip
        folder = write_rows(tmp_path / str(origin), rows)
        content = report(folder, None, ReportOptions(rating="stars"))
        effects.append(content["aspects"][0]["rating"]["negative"]["effect"])
    assert effects[0] == pytest.approx(effects[1], abs=1e-4)
    assert effects[0][2] - effects[0][1] < 0.05


def test_rates_per_review_have_intervals_that_cover(tmp_path: Path) -> None:
    """The number of mentions varies as well, not only their shares."""
    counts = AspectCounts.zeros(1)
    generator = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        negative = generator.poisson(0.1, 2000).astype(float)
        counts.mentions[0, 0], counts.products[0, 0, 0] = negative.sum(), (negative**2).sum()
        counts.reviews[0] = (negative > 0).sum()
        rates = estimate_rates(counts, 2000)
        inside.append(rates.low[0, 0] <= 0.1 <= rates.high[0, 0])
    assert 0.91 <= np.mean(inside) <= 0.985


def test_theme_of_an_aspect_is_that_of_most_mentions(tmp_path: Path) -> None:
    rows = [row("soup:-")] * 30 + [row("soup:-@Food")] * 10 + [row("bread:+@Food")] * 5
    rows += [row("box:-@Packaging")] * 30 + [row("box:-@Price")] * 45
    job = {"options": {"themes": {"themes": [
        {"name": "Food"}, {"name": "Delivery"}, {"name": "Packaging", "parent": "Delivery"},
        {"name": "Price"},
    ]}}}  # fmt: skip
    content = report(write_rows(tmp_path, rows, job=job), None)
    themes = {one["name"]: one["theme"] for one in content["aspects"]}
    assert themes == {"box": 3, "soup": None, "bread": 0}
    delivery = content["themes"][1]
    assert (delivery["mentions"], delivery["aspects"][0]["counts"]) == (30, [30, 0, 0])


def test_themes_without_mentions_leave_the_page_to_aspects(tmp_path: Path) -> None:
    options = ReportOptions(themes=[Theme("Qqq", terms=("zzzz",))])
    content = report(write_rows(tmp_path, [row("soup:-")] * 30), None, options)
    assert content["summary"]["level"] == "aspect"
    assert content["summary"]["criticized"] == ["soup"]


def test_blank_groups_are_none_and_all_are_counted(tmp_path: Path) -> None:
    shops = ["a", "a", "b", "", " ", None, "c", "d", "\u200bb"]
    rows = [row("soup:-", shop=shop) for shop in shops]
    groups = report(write_rows(tmp_path, rows), None, ReportOptions(by="shop", groups=4))["groups"]
    assert groups["names"] == ["a", "b (1)", "c", "b (2)"] or len(set(groups["names"])) == 4
    assert groups["total"] == 5


def test_dropping_needs_the_text(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row("soup:+").items() if k != "text"} | {"id": 1}] * 3
    with pytest.raises(DataError, match="drop: duplicates are found by the text"):
        report(write_rows(tmp_path, rows), None, ReportOptions(drop=("duplicates",)))


def test_ratings_must_be_numbers(folder: Path) -> None:
    with pytest.raises(DataError, match="fewer than half of the values of 'shop' are numbers"):
        report(folder, None, ReportOptions(rating="shop"))
    with pytest.raises(DataError, match="--rating: there is no column 'stars'"):
        report(folder, None, ReportOptions(rating="stars"))


GERMAN = "Die Lieferung kam leider drei Wochen zu spät und der Karton war völlig zerdrückt."
LONG = "The soup was cold again and the waiter did not even say sorry to us."


def quality_rows() -> list[dict]:
    texts = [LONG, LONG.upper(), f" {LONG}", "Great soup!", "Great soup!", GERMAN]
    texts += ["", " ", "n/a", "N/A.", "👍👍", "None", "...", "No soup for me"]
    return [row("", text) for text in texts] + [row("", LONG, error="too long")]


def test_empty_duplicate_and_foreign_reviews_are_counted(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, quality_rows())
    quality = report(folder, None)["quality"]
    assert quality == {
        "empty": 7, "duplicates": 2, "language_identified": 14, "languages": {"de": 1},
        "is_sample": False,
    }  # fmt: skip


def test_languages_are_identified(root: Path) -> None:
    found = Counter()
    lines = (root / "tests" / "reporting" / "foreign_reviews.tsv").read_text(encoding="utf-8")
    for line in lines.splitlines():
        code, text = line.split("\t")
        if code not in ("hi-Latn", "en-es"):
            found[identify_language(text) != "en", identify_language(text) == code] += 1
    assert found.total() == 510
    assert found[True, True] >= 480  # found, and with the right code
    english = (root / "corpus" / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = sum(identify_language(json.loads(line)["text"]) != "en" for line in english[:1500])
    assert wrong <= 3


@pytest.mark.parametrize(
    "text", ["", " ", "👍", "1234 5678", "\ud800", "a" * 10_000, "Wi-Fi", "ok ok"]
)
def test_texts_without_a_clear_language_count_as_english(text: str) -> None:
    assert identify_language(text) == "en"


def test_dropped_reviews_are_not_counted(tmp_path: Path) -> None:
    rows = [row("soup:-", LONG), row("soup:-", LONG), row("soup:+", "Great soup!")]
    rows += [row("Lieferung:-", GERMAN, shop="x")]
    folder = write_rows(tmp_path, rows, files=2)
    content = report(folder, None, ReportOptions(drop=["duplicates", "non-english"]))
    assert [(one["name"], one["counts"]) for one in content["aspects"]] == [("soup", [1, 0, 1])]
    totals = content["totals"]
    assert (totals["rows"], totals["reviews"], totals["dropped"]) == (4, 2, 2)
    assert len(content["aspects"][0]["sentences"]) == 2
    everything = report(folder, None)
    assert everything["totals"]["dropped"] == 0
    assert everything["totals"]["mentions"] == 4
    with pytest.raises(ConfigError, match="drop must be among duplicates, non-english; got 'all'"):
        ReportOptions(drop=("all",))


def test_workbook(rows: list[dict], folder: Path, tmp_path: Path) -> None:
    hostile = [*rows, row("=1+1:+", "=1+1 \x07\there.", shop="=cmd()", id=999)]
    content = report(
        write_rows(tmp_path / "s", hostile, job=JOB), tmp_path / "r.xlsx", ReportOptions(by="shop")
    )
    book = load_workbook(BytesIO((tmp_path / "r.xlsx").read_bytes()))
    assert book.sheetnames == ["Summary", "Themes", "Aspects", "Shares", "Phrases", "Sentences"]
    themes = {one[0].value: one[2].value for one in book["Themes"].iter_rows(min_row=2)}
    assert themes == {one["name"]: one["mentions"] for one in content["themes"] if one["mentions"]}
    cells = [cell for sheet in book for line in sheet.iter_rows() for cell in line]
    assert not [cell for cell in cells if cell.data_type == "f"]
    assert "=1+1" in {cell.value for cell in cells}
    assert [one[1].value for one in book["Themes"].iter_rows(min_row=2)] == [None, None, "Service"]


def test_scored_themes_in_a_report(tmp_path: Path) -> None:
    """From a CSV with the real model to themes with an implicit mention."""
    source = tmp_path / "reviews.csv"
    source.write_text("text\nTook three weeks to arrive.\nThe courier was rude. Great screen.\n")
    themes = [
        Theme("Delivery", "How and when the order arrives.", terms=("delivery", "courier")),
        Theme("Screen", "Display and brightness.", terms=("screen",)),
    ]
    options = capsar.ScoreOptions(keep=("text",), themes=themes)
    capsar.score(source, tmp_path / "scored", options)
    delivery, screen = capsar.report(tmp_path / "scored")["themes"]
    assert (delivery["name"], delivery["counts"], delivery["implicit"]) == (
        "Delivery",
        [2, 0, 0],
        1,
    )
    assert (screen["name"], screen["counts"]) == ("Screen", [0, 0, 1])

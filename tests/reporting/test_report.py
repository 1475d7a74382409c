"""From scored files to figures: counted as by hand, whatever the batches; bad input is told."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from made_scored import row, write_rows
from typer.testing import CliRunner

import capsar
from capsar.bulk.job import ScoreOptions
from capsar.bundle import TOKENIZER, write_bundle
from capsar.cli import app
from capsar.errors import ArtifactError, ConfigError, DataError, MissingExtraError
from capsar.reporting import scored as scored_module
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from capsar.reporting.tables import COLUMNS, render_csv

SIGNS = {"+": 2, "o": 1, "-": 0}


def made_rows(number: int = 300) -> list[dict]:
    chance = random.Random(3)
    rows = []
    for index in range(number):
        names = chance.choices(("soup", "Soups", "staff", "bill"), k=chance.choice((0, 1, 1, 2, 3)))
        told = " ".join(
            f"{name}:{chance.choice('+o-')}{chance.choice(('', '.3', '.9'))}" for name in names
        )
        month = chance.choice(
            ("2026-01-05", "2026-02-28", "2026-03-01T23:59:59", "2026-04-17", "soon")
        )
        shop = chance.choice(("north", "south", "west", None))
        error = "too long: 9" if chance.random() < 0.05 else None
        rows.append(row(told, error=error, shop=shop, day=month, id=index))
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return made_rows()


@pytest.fixture(scope="module")
def folder(rows: list[dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("made") / "scored", rows, files=5, job={})


OPTIONS = ReportOptions(by="shop", over="day", every="month", threads=1)


def counted(rows: list[dict], **where: str) -> Counter:
    """Mentions by aspect and polarity, as nobody could count them simpler."""
    found: Counter = Counter()
    for one in rows:
        if one["error"] is None and all((one[k] or "").startswith(v) for k, v in where.items()):
            for mention in one["aspects"]:
                name = (
                    mention["surface"].casefold().removesuffix("s")
                    if "oup" in mention["surface"]
                    else mention["surface"]
                )
                found[name, mention["polarity"]] += 1
    return found


def told(cell: dict) -> dict[str, int]:
    return dict(zip(("negative", "neutral", "positive"), cell["told"], strict=True))


def test_counts_are_those_of_a_plain_loop(rows: list[dict], folder: Path) -> None:
    content = report(folder, None, OPTIONS, form="json")
    assert {a["name"].casefold() for a in content["aspects"]} >= {"staff", "bill"}
    assert content["groups"]["names"] == ["north", "south", "west"]
    assert content["periods"]["starts"] == ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]
    for number, aspect in enumerate(content["aspects"]):
        name = aspect["name"].casefold().removesuffix("s")
        name = name if name == "soup" else aspect["name"]
        for polarity, mentions in told(aspect).items():
            assert mentions == counted(rows)[name, polarity]
        for group, cell in zip(content["groups"]["names"], aspect["by_group"], strict=True):
            assert told(cell)["positive"] == counted(rows, shop=group)[name, "positive"]
        for start, cell in zip(content["periods"]["starts"], aspect["by_period"], strict=True):
            assert told(cell)["neutral"] == counted(rows, day=start[:7])[name, "neutral"]
        cell = content["cells"][number][1][2]
        assert (
            told(cell)["negative"] == counted(rows, shop="south", day="2026-03")[name, "negative"]
        )
    totals = content["totals"]
    assert totals["rows"] == 300
    assert totals["errors"] == sum(one["error"] is not None for one in rows)
    assert content["errors"] == [{"kind": "too long", "rows": totals["errors"]}]
    assert totals["mentions"] == counted(rows).total() == sum(content["overall"]["told"])
    unsure = [m["confidence"] for r in rows if not r["error"] for m in r["aspects"]]
    assert totals["unsure"] == sum(sure is not None and sure < 0.5 for sure in unsure)
    assert content["surety"]["unknown"] == sum(sure is None for sure in unsure)
    assert content["periods"]["undated"] == sum(one["day"] == "soon" for one in rows)


def test_batches_and_files_do_not_matter(
    rows: list[dict], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = report(folder, None, OPTIONS, form="json")
    monkeypatch.setattr(scored_module, "_ROWS_AT_ONCE", 1)
    parts = report(folder, None, OPTIONS, form="json")
    assert parts == whole
    other = report(write_rows(tmp_path / "one", rows), None, OPTIONS, form="json")
    for name in ("overall", "aspects", "cells", "differences", "changes"):
        assert other[name] == whole[name]


def test_sentences_are_cut_and_marked_where_the_words_are(tmp_path: Path) -> None:
    text = "🍜🍜 Nice place. The soup was 𝕏 cold, the staff fine! Bye."
    folder = write_rows(
        tmp_path, [row("soup:-.9 staff:+.8", text)] * 2 + [row("soup:-.2", "Dull soup.")]
    )
    content = report(folder, None)
    soup = next(i for i, a in enumerate(content["aspects"]) if a["name"] == "soup")
    (sentence,) = content["sentences"][soup]  # a twin is not shown, nor what is unsure
    assert sentence["text"] == "The soup was 𝕏 cold, the staff fine!"
    assert [sentence["text"][a:b] for a, b, _ in sentence["marks"]] == ["soup", "staff"]
    assert [polarity for _, _, polarity in sentence["marks"]] == ["negative", "positive"]
    assert sentence["chosen"] == 0
    assert sentence["polarity"] == "negative"


def test_a_report_of_what_capsar_score_writes(tmp_path: Path) -> None:
    source = tmp_path / "reviews.csv"
    source.write_text(
        "id,text,shop,day\n1,The food was great.,a,2026-01-02\n"
        "2,Terrible service!,b,2026-02-03\n3,,b,\n"
    )
    options = ScoreOptions(model="fast", keep=("id", "text", "shop", "day"))
    capsar.score(source, tmp_path / "scored", options)
    content = report(tmp_path / "scored", None, ReportOptions(by="shop", over="day"))
    assert content["model"]["name"] == "fast"
    assert content["totals"]["rows"] == 3
    assert content["source"] | {"name": ""} == {
        "name": "", "files": 1, "is_whole": True, "text_column": "text",
    }  # fmt: skip
    assert any("Irony" in limit for limit in content["model"]["limits"])
    assert {"food", "service"} <= {aspect["name"] for aspect in content["aspects"]}
    with pytest.raises(ArtifactError, match="no such folder"):
        report(tmp_path / "scored", None, ReportOptions(model="nobody"))


def test_dates_in_other_forms(tmp_path: Path) -> None:
    rows = [
        row("soup:+", day=f"{day:02d}.03.2026", at=1772323200 + 86400 * day) for day in range(1, 21)
    ]
    write_rows(tmp_path, rows)
    with pytest.raises(DataError, match=r"Only 0 of 20 dates in 'day'.*--date-format"):
        report(tmp_path, None, ReportOptions(over="day"))
    for form in ("%d.%m.%y", "%Y-%m-%d"):
        told = rf"Only 0 of 20 dates in 'day' are of the form '{form}', got '01.03.2026'"
        with pytest.raises(DataError, match=told):
            report(tmp_path, None, ReportOptions(over="day", date_format=form))
    german = report(tmp_path, None, ReportOptions(over="day", date_format="%d.%m.%Y"))
    seconds = report(tmp_path, None, ReportOptions(over="at"))
    assert german["periods"]["unit"] == seconds["periods"]["unit"] == "day"
    assert len(german["periods"]["starts"]) == len(seconds["periods"]["starts"]) == 20


@pytest.mark.parametrize(
    "numbers", [range(1, 6), range(2019, 2027), range(20260301, 20260320)], ids=str
)
@pytest.mark.parametrize("kind", [int, float, str])
def test_numbers_that_are_no_dates_are_refused(
    tmp_path: Path, numbers: range, kind: Callable[[int], object]
) -> None:
    write_rows(tmp_path, [row("soup:+", stars=kind(number)) for number in numbers])
    told = f"Only 0 of {len(numbers)} dates in 'stars' .* got '{kind(numbers[0])}'.*column of dates"
    with pytest.raises(DataError, match=told):
        report(tmp_path, None, ReportOptions(over="stars"))


def test_dates_before_1980_are_dates(tmp_path: Path) -> None:
    rows = [row("soup:+", day=f"19{year}-03-01", year=1900 + year) for year in range(60, 75)]
    write_rows(tmp_path, rows)
    written = report(tmp_path, None, ReportOptions(over="day", every="year"))
    years = report(tmp_path, None, ReportOptions(over="year", every="year", date_format="%Y"))
    assert written["periods"]["starts"][0] == years["periods"]["starts"][0] == "1960-01-01"


def test_two_groups_are_compared_once(tmp_path: Path) -> None:
    rows = [row("soup:+", shop="a")] * 40 + [row("soup:-", shop="b")] * 40
    content = report(write_rows(tmp_path, rows), None, ReportOptions(by="shop"))
    (difference,) = content["differences"]
    assert (difference["group"], difference["here"]["told"], difference["rest"]["told"]) == (
        0, [0, 0, 40], [40, 0, 0],
    )  # fmt: skip
    assert difference["q"] < 1e-6


def test_the_rarer_groups_are_in_no_column_but_in_all_others(tmp_path: Path) -> None:
    rows = [row("soup:+", shop=f"shop {n}") for n in range(5) for _ in range(30 - n)]
    content = report(write_rows(tmp_path, rows), None, ReportOptions(by="shop", groups=2))
    assert content["groups"]["names"] == ["shop 0", "shop 1"]
    assert content["groups"]["in_all"] >= 4
    rest = {row["group"]: row["rest"]["mentions"] for row in content["differences"]}
    assert rest == {0: len(rows) - 30, 1: len(rows) - 29}


def test_every_column_of_the_csv_is_explained(root: Path) -> None:
    page = (root / "docs" / "report.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## The columns of `--format csv`")
    named = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    for column in COLUMNS:
        assert re.sub("^(neutral|positive)_", "negative_", column) in named


def test_csv_holds_every_share_and_no_formula(tmp_path: Path, folder: Path) -> None:
    rows = [
        row("=cmd():+", shop="@x", day="2026-01-01"),
        row("soup:-", shop="y", day="2026-02-01"),
    ] * 9
    options = ReportOptions(by="shop", over="day", every="month")
    content = report(write_rows(tmp_path, rows), tmp_path / "r.csv", options, form="csv")
    lines = list(csv.DictReader(StringIO((tmp_path / "r.csv").read_text())))
    assert render_csv(content) == (tmp_path / "r.csv").read_text()
    assert {line["aspect"] for line in lines} == {"", "'=cmd()", "soup"}
    assert {line["group"] for line in lines} == {"", "'@x", "y"}
    finest = [line for line in lines if line["aspect"] and line["group"] and line["period"]]
    assert [
        (line["mentions"], line["positive_told"]) for line in finest if line["group"] == "y"
    ] == [("9", "0")]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"by": "maker"}, DataError, "--by: there is no column 'maker'.*--keep .*maker"),
        ({"by": "SHOP"}, DataError, r"no column 'SHOP'; did you mean 'shop'\? Kept are"),
        ({"by": "shops"}, DataError, r"no column 'shops'; did you mean 'shop'\?"),
        ({"over": "when"}, DataError, "--over: there is no column 'when'"),
        ({"text_column": "body"}, DataError, "--text-column: there is no column 'body'"),
        ({"by": "aspects"}, DataError, "there is no column 'aspects'"),
        ({"every": "month"}, ConfigError, "give the column of dates"),
        ({"over": "day", "every": "moon"}, ConfigError, "A period is one of day, week"),
        ({"min_confidence": 1.5}, ConfigError, "from 0 to 1"),
        ({"aspects": 0}, ConfigError, "aspects must be 1 or more"),
    ],
)
def test_what_cannot_be_asked_is_told(
    folder: Path, options: dict, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        report(folder, None, ReportOptions(**options))


def test_what_is_not_scored_is_told(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = r"first `capsar score .*`, then `capsar report scored`"
    with pytest.raises(DataError, match=rf"holds no Parquet files.*{first}"):
        report(tmp_path, None)
    with pytest.raises(DataError, match=r"There is no .*nowhere'\. Name the folder"):
        report(tmp_path / "nowhere", None)
    raw = tmp_path / "raw.csv"
    raw.write_text("text\nThe soup was cold.\n")
    with pytest.raises(DataError, match=rf"raw\.csv' is no Parquet file.*{first}"):
        report(raw, None)
    with pytest.raises(DataError, match="copy the scored folder here"):
        report("s3://bucket/scored", None)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "raw.parquet")
    with pytest.raises(DataError, match=rf"has the columns \['text'\]; expected 'asp.*{first}"):
        report(tmp_path, None)
    (tmp_path / "raw.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match="cannot be read"):
        report(tmp_path, None)
    with pytest.raises(ConfigError, match="no form 'pdf'"):
        report(tmp_path, None, form="pdf")


@pytest.mark.parametrize(
    "rows", [[], [row("", error="empty")], [row("", "Fine.")]], ids=["none", "error", "bare"]
)
def test_a_corpus_without_a_mention_is_told_of_too(tmp_path: Path, rows: list[dict]) -> None:
    folder = write_rows(tmp_path / "scored", rows or [row("", "x")])
    for form in ("html", "json", "csv"):
        content = report(folder, tmp_path / "out", form=form)
        assert content["aspects"] == []
        assert (tmp_path / "out").stat().st_size


def test_a_job_that_is_not_finished_is_told(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, [row("soup:+")], job={"options": {"text_column": "review"}})
    (folder / "_SUCCESS").unlink()
    content = report(folder, None)
    assert content["source"]["is_whole"] is False
    assert content["source"]["text_column"] is None
    assert content["sentences"] == [[]]


def test_the_confusion_of_the_model_is_used_and_else_its_lack_is_told(
    folder: Path, tmp_path: Path
) -> None:
    plain = report(folder, None)
    assert plain["model"]["confusion"] is None
    assert "--confusion" in plain["model"]["uncorrected"]
    assert "Name it with `--model`" in plain["model"]["uncorrected"]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([[80, 10, 10], [20, 60, 20], [5, 5, 90]]))
    corrected = report(folder, None, ReportOptions(confusion=path))
    assert report(folder, None, ReportOptions(confusion=str(path))) == corrected
    assert corrected["model"]["uncorrected"] == ""
    assert corrected["overall"]["told"] == plain["overall"]["told"]
    assert corrected["overall"]["neutral"] != plain["overall"]["neutral"]
    assert (
        "Of 100 neutral mentions it tells 20 as negative and 20 as positive."
        in corrected["model"]["limits"]
    )


def test_the_confusion_of_another_model_is_refused(tmp_path: Path) -> None:
    job = {"options": {"model": "runs/mine"}, "model_sha256": "a" * 64}
    scored = write_rows(tmp_path / "scored", [row("soup:+.9"), row("staff:-.9")] * 30, job=job)
    path = tmp_path / "held-out.json"
    measured = {"figures": {"confusion": [[80, 10, 10], [20, 60, 20], [5, 5, 90]]}}
    path.write_text(json.dumps(measured | {"model_sha256": "b" * 64}))
    told = r"another model than the one that scored .*capsar evaluate runs/mine --data FILE --json"
    with pytest.raises(DataError, match=told):
        report(scored, None, ReportOptions(confusion=path))
    for known in ({}, {"model_sha256": None}, {"model_sha256": "a" * 64}):
        path.write_text(json.dumps(measured | known))
        told_of = report(scored, None, ReportOptions(confusion=path))["model"]
        assert told_of["confusion"][0] == (80, 10, 10)
        assert told_of["confusion_warnings"] == []


def test_a_confusion_measured_on_what_was_trained_on_is_told(tmp_path: Path) -> None:
    scored = write_rows(tmp_path / "scored", [row("soup:+.9"), row("staff:-.9")] * 30)
    path = tmp_path / "held-out.json"
    measured = {"figures": {"confusion": [[80, 10, 10], [20, 60, 20], [5, 5, 90]]}}
    path.write_text(json.dumps(measured | {"warnings": ["trained on this very file"]}))
    arguments = ["report", scored, "--confusion", path, "-o", tmp_path / "r.html"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "of held-out.json: trained on this very file" in done.stderr


def test_a_confusion_that_does_not_fit_is_told_and_not_used(tmp_path: Path) -> None:
    """A tenth of everything would be told neutral, and nothing was: 0 would be all that is left."""
    scored = write_rows(tmp_path / "scored", [row("soup:+.9"), row("staff:-.9")] * 300)
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([[800, 100, 100], [200, 600, 200], [50, 100, 850]]))
    content = report(scored, None, ReportOptions(confusion=path))
    assert "does not fit these reviews" in content["model"]["uncorrected"]
    assert "50% negative, 0% neutral, 50% positive" in content["model"]["uncorrected"]
    assert content["overall"]["negative"][0] == 0.5
    assert content["overall"]["corrected"] is False
    assert [aspect["positive"][0] for aspect in content["aspects"]] == [1, 0]
    assert content["model"]["confusion"]  # what is known of the model stays known
    report(scored, tmp_path / "r.csv", ReportOptions(confusion=path), form="csv")
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert {line["corrected"] for line in lines} == {"no"}


def test_an_aspect_that_everybody_praises_is_not_surely_praised_by_everybody(
    tmp_path: Path,
) -> None:
    rows = [row("soup:+.9 tea:o.9"), row("staff:-.9 tea:o.9"), row("bill:-.9 bill:+.9")] * 200
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([[800, 100, 100], [200, 600, 200], [50, 100, 850]]))
    scored = write_rows(tmp_path / "scored", rows)
    content = report(scored, tmp_path / "r.csv", ReportOptions(confusion=path), form="csv")
    assert content["overall"]["corrected"] is True
    assert content["model"]["uncorrected"] == ""
    soup = next(aspect for aspect in content["aspects"] if aspect["name"] == "soup")
    share, low, high = soup["positive"]
    assert 0.9 < low < share < high
    assert high - low > 0.02
    assert soup["negative"][2] > 0.01
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    corrected = {line["aspect"]: line["corrected"] for line in lines}
    assert (corrected[""], corrected["soup"]) == ("yes", "yes")
    assert corrected["tea"] == "no"  # no aspect is told so well, if it is told neutral so badly


def test_a_model_that_cannot_correct_says_so_in_whole_sentences(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "scored", [row("soup:+")])
    for number, counts in enumerate([[[9, 0, 0], [0, 2, 0], [0, 0, 9]], [[1, 8, 0]] * 3, "none"]):
        model = tmp_path / f"model {number}"
        write_bundle(model, {"dev_confusion": counts}, {TOKENIZER: b"{}"})
        told = report(folder, None, ReportOptions(model=model))["model"]
        assert told["name"] == str(model)
        assert told["uncorrected"].startswith(f"The dev part of the model {model}: ")
        assert ".." not in told["uncorrected"].replace("…", "")
        assert ". Measure it on labelled reviews" in told["uncorrected"]


def test_kept_columns_may_have_any_name(tmp_path: Path) -> None:
    names = "kind value aspect part period polarity sure draw name review filename"
    kept = {name: f"{name} 1" for name in [*names.split(), '\'; DROP TABLE "drawn"; --']}
    rows = [row("soup:+.9", "The soup.", **kept)] * 30 + [row("", error="bad", **kept)]
    write_rows(tmp_path, rows)
    for by in kept:
        content = report(tmp_path, None, ReportOptions(by=by, threads=1))
        assert content["groups"]["names"] == [f"{by} 1"]
        assert content["errors"] == [{"kind": "bad", "rows": 1}]
        assert [one["text"] for one in content["sentences"][0]] == ["The soup."]


def test_a_missing_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsar.reporting.run.find_spec", lambda name: name != "duckdb" or None)
    with pytest.raises(MissingExtraError, match=r"pip install 'capsar\[report\]'"):
        capsar.report(folder)


def test_a_damaged_job_is_told(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, [row("soup:+")], job={})
    (folder / "_job" / "job.json").write_text("{")
    with pytest.raises(DataError, match=r"job\.json' is damaged"):
        report(folder, None)


def test_the_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = CliRunner().invoke(
        app,
        [
            "report",
            str(folder),
            "-o",
            str(out),
            "--format",
            "json",
            "--by",
            "shop",
            "--over",
            "day",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "aspects shown" in done.stdout
    assert "not corrected" in done.stderr
    assert json.loads(out.read_text())["groups"]["column"] == "shop"


def test_the_form_is_that_of_the_name(tmp_path: Path) -> None:
    scored = write_rows(tmp_path / "scored", [row("soup:+.9"), row("staff:-.9")] * 3)
    page = "<!doctype html>"
    begins = {"r.csv": "aspect,", "r.json": "{", "r.HTML": page, "r": page}
    for name, begin in begins.items():
        report(scored, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)
    told = "'r.html' is named as html, but csv is asked for; name it 'r.csv'"
    with pytest.raises(ConfigError, match=told):
        report(scored, "r.html", form="csv")
    with pytest.raises(ConfigError, match="no form 'pdf'"):
        report(scored, "r.pdf", form="pdf")
    done = CliRunner().invoke(app, ["report", str(scored), "-o", str(tmp_path / "c.csv")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").startswith("aspect,")


def test_the_page_stays_small_whatever_reviews_hold(tmp_path: Path) -> None:
    """Sixty aspects in twelve shops, sentences as long as they are shown, every sign escaped."""
    long = "<" * 380
    rows = [
        row(
            f"thing{n}x:{sign}",
            f"{long} thing{n}x {shop}",
            shop=f"shop {shop}",
            day=f"20{20 + shop}-01-01",
        )
        for n in range(60)
        for sign in "+o-"
        for shop in range(12)
        for _ in range(2)
    ]
    path = tmp_path / "r.html"
    content = report(write_rows(tmp_path / "s", rows), path, ReportOptions(by="shop", over="day"))
    assert path.stat().st_size < 5_000_000
    assert len(content["aspects"]) == 60
    assert all(
        {one["polarity"] for one in few} == {"positive", "neutral", "negative"}
        for few in content["sentences"]
    )

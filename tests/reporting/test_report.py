"""Reports on scored folders: counts, batches, dates, formats and errors."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scored_rows import row, write_rows
from typer.testing import CliRunner

import capsar
from capsar.bulk.job import ScoreOptions
from capsar.bundle import TOKENIZER, write_bundle
from capsar.cli import app
from capsar.errors import ArtifactError, ConfigError, DataError, MissingExtraError
from capsar.reporting import query
from capsar.reporting.options import ReportOptions
from capsar.reporting.phrases import phrase_key
from capsar.reporting.render import COLUMNS, render_csv
from capsar.reporting.run import report


def make_rows(number: int = 300) -> list[dict]:
    generator = random.Random(3)
    rows = []
    for index in range(number):
        names = generator.choices(
            ("soup", "Soups", "staff", "bill"), k=generator.choice((0, 1, 1, 2, 3))
        )
        notes = " ".join(
            f"{name}:{generator.choice('+o-')}{generator.choice(('', '.3', '.9|cold', '|so_bad'))}"
            for name in names
        )
        month = generator.choice(
            ("2026-01-05", "2026-02-28", "2026-03-01T23:59:59", "2026-04-17", "soon")
        )
        shop = generator.choice(("north", "south", "west", None))
        error = "too long: 9" if generator.random() < 0.05 else None
        rows.append(row(notes, error=error, shop=shop, day=month, id=index))
    return rows


def test_phrases_are_counted_and_merged(tmp_path: Path) -> None:
    notes = (
        "soup:-|cold", "soup:-|very_cold|bland", "soup:+|cold", "soup:-|So_COLD", "soup:-|not_cold",
        "Soups:-|crashes", "soup:-|crashed", "staff:+|kind", "soup:o",
    )  # fmt: skip
    content = report(write_rows(tmp_path / "scored", [row(one) for one in notes], files=3))
    soup, staff = (aspect["phrases"] for aspect in content["aspects"])
    assert [(one["text"], one["mentions"]) for one in soup["negative"]] == [
        ("cold", 3), ("crashed", 2), ("bland", 1), ("not cold", 1),
    ]  # fmt: skip
    assert sorted(soup["negative"][0]["variants"]) == ["cold", "so cold", "very cold"]
    assert [one["text"] for one in soup["positive"]] == ["cold"]
    assert staff == {
        "negative": [],
        "positive": [{"text": "kind", "mentions": 1, "variants": ["kind"]}],
    }
    for sentence in content["aspects"][0]["sentences"]:
        phrases = [soup[sentence["polarity"]][number]["text"] for number in sentence["phrases"]]
        written = [sentence["text"][start:end].casefold() for start, end in sentence["opinions"]]
        assert len(phrases) == len(written)
        assert all(
            one.split()[-1][:5] == other.split()[-1][:5]
            for one, other in zip(sorted(phrases), sorted(written), strict=True)
        )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("very kind", "kind", True), ("so pretty", "pretty", True), ("not much", "not", False),
        ("not pretty", "not kind", False), ("kind of odd", "odd", True), ("a bit odd", "odd", True),
        ("far from clean", "clean", False), ("👎", "🤢", False), ("breaks", "broke", False),
        ("Works great!", "worked great", True), ("kind and helpful", "helpful", False),
    ],
)  # fmt: skip
def test_phrases_that_say_the_same(one: str, other: str, same: bool) -> None:
    assert (phrase_key(one) == phrase_key(other)) is same


def test_phrases_without_a_confident_mention_have_no_sentence(tmp_path: Path) -> None:
    rows = [row("soup:-.9|cold"), row("soup:-.2|bland"), row("soup:-.2|bland")]
    content = report(write_rows(tmp_path / "scored", rows))
    assert [one["text"] for one in content["aspects"][0]["phrases"]["negative"]] == [
        "bland",
        "cold",
    ]
    assert [one["phrases"] for one in content["aspects"][0]["sentences"]] == [[1]]


def test_every_phrase_has_a_sentence(tmp_path: Path) -> None:
    rows = [row(f"soup:-|cold_{index % 40}", id=index) for index in range(400)]
    rows += [row("soup:-|bland", id=401)] * 2
    rows += [row("soup:-|stale_and_grey", id=500)] * 30
    content = report(write_rows(tmp_path / "scored", rows, files=4))
    (aspect,) = content["aspects"]
    phrases, sentences = aspect["phrases"], aspect["sentences"]
    assert phrases["negative"][0] == {
        "text": "stale and grey",
        "mentions": 30,
        "variants": ["stale and grey"],
    }
    shown = {number for sentence in sentences for number in sentence["phrases"]}
    assert shown == set(range(len(phrases["negative"])))


def test_files_without_opinions_have_no_phrases(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "scored", [row("soup:-")]) / "part-0000.parquet"
    table = pq.read_table(path)
    fields = [
        one
        for one in table.schema.field("aspects").type.value_type
        if one.name not in ("opinions", "theme", "theme_confidence", "implicit")
    ]
    older = pa.array(
        [[{"text": "soup", "start": 4, "end": 8, "polarity": "negative"}]],
        pa.list_(pa.struct(fields)),
    )
    pq.write_table(table.set_column(table.column_names.index("aspects"), "aspects", older), path)
    content = report(path)
    assert content["themes"] == []
    assert content["aspects"][0]["phrases"] == {"negative": [], "positive": []}
    assert content["aspects"][0]["sentences"][0]["opinions"] == []


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return make_rows()


@pytest.fixture(scope="module")
def folder(rows: list[dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("made") / "scored", rows, files=5, job={})


OPTIONS = ReportOptions(by="shop", over="day", every="month", threads=1)


def counted(rows: list[dict], **where: str) -> Counter:
    """Count mentions by aspect and polarity in a plain loop."""
    found: Counter = Counter()
    for one in rows:
        if one["error"] is None and all((one[k] or "").startswith(v) for k, v in where.items()):
            for mention in one["aspects"]:
                name = (
                    mention["text"].casefold().removesuffix("s")
                    if "oup" in mention["text"]
                    else mention["text"]
                )
                found[name, mention["polarity"]] += 1
    return found


def by_polarity(cell: dict) -> dict[str, int]:
    return dict(zip(("negative", "neutral", "positive"), cell["counts"], strict=True))


def test_counts_match_a_plain_loop(rows: list[dict], folder: Path) -> None:
    content = report(folder, None, OPTIONS, format="json")
    assert {a["name"].casefold() for a in content["aspects"]} >= {"staff", "bill"}
    assert content["groups"]["names"] == ["north", "south", "west"]
    assert content["periods"]["starts"] == ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]
    for aspect in content["aspects"]:
        name = aspect["name"].casefold().removesuffix("s")
        name = name if name == "soup" else aspect["name"]
        for polarity, mentions in by_polarity(aspect).items():
            assert mentions == counted(rows)[name, polarity]
        for group, cell in zip(content["groups"]["names"], aspect["by_group"], strict=True):
            assert by_polarity(cell)["positive"] == counted(rows, shop=group)[name, "positive"]
        for start, cell in zip(content["periods"]["starts"], aspect["by_period"], strict=True):
            assert by_polarity(cell)["neutral"] == counted(rows, day=start[:7])[name, "neutral"]
        cell = aspect["by_group_and_period"][1][2]
        assert (
            by_polarity(cell)["negative"]
            == counted(rows, shop="south", day="2026-03")[name, "negative"]
        )
    totals = content["totals"]
    assert totals["rows"] == 300
    assert totals["errors"] == sum(one["error"] is not None for one in rows)
    assert content["errors"] == [{"kind": "too long", "rows": totals["errors"]}]
    assert totals["mentions"] == counted(rows).total() == sum(content["overall"]["counts"])
    confidences = [m["confidence"] for r in rows if not r["error"] for m in r["aspects"]]
    assert totals["low_confidence"] == sum(one is not None and one < 0.5 for one in confidences)
    assert content["confidence"]["unknown"] == sum(one is None for one in confidences)
    assert content["periods"]["undated"] == sum(one["day"] == "soon" for one in rows)


def test_result_does_not_depend_on_batches_and_files(
    rows: list[dict], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = report(folder, None, OPTIONS, format="json")
    monkeypatch.setattr(query, "_ROWS_AT_ONCE", 1)
    parts = report(folder, None, OPTIONS, format="json")
    assert parts == whole
    other = report(write_rows(tmp_path / "one", rows), None, OPTIONS, format="json")
    for name in ("overall", "differences", "changes"):
        assert other[name] == whole[name]
    for one, two in zip(other["aspects"], whole["aspects"], strict=True):
        assert one | {"sentences": []} == two | {"sentences": []}  # samples depend on positions


def test_sentences_have_exact_marks(tmp_path: Path) -> None:
    text = "🍜🍜 Nice place. The soup was 𝕏 cold, the staff fine! Bye."
    folder = write_rows(
        tmp_path, [row("soup:-.9 staff:+.8", text)] * 2 + [row("soup:-.2", "Dull soup.")]
    )
    content = report(folder, None)
    soup = next(aspect for aspect in content["aspects"] if aspect["name"] == "soup")
    (sentence,) = soup["sentences"]  # neither duplicates nor low confidence
    assert sentence["text"] == "The soup was 𝕏 cold, the staff fine!"
    assert [sentence["text"][a:b] for a, b, _ in sentence["marks"]] == ["soup", "staff"]
    assert [polarity for _, _, polarity in sentence["marks"]] == ["negative", "positive"]
    assert sentence["chosen"] == 0
    assert sentence["polarity"] == "negative"


def test_report_on_the_output_of_score(tmp_path: Path) -> None:
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
        "name": "", "files": 1, "is_complete": True, "text_column": "text",
    }  # fmt: skip
    assert any("Irony" in limit for limit in content["model"]["limits"])
    assert {"food", "service"} <= {aspect["name"] for aspect in content["aspects"]}
    with pytest.raises(ArtifactError, match="no such folder"):
        report(tmp_path / "scored", None, ReportOptions(model="absent"))


def test_date_formats(tmp_path: Path) -> None:
    rows = [
        row("soup:+", day=f"{day:02d}.03.2026", at=1772323200 + 86400 * day) for day in range(1, 21)
    ]
    write_rows(tmp_path, rows)
    with pytest.raises(DataError, match=r"Only 0 of 20 dates in 'day'.*--date-format"):
        report(tmp_path, None, ReportOptions(over="day"))
    for form in ("%d.%m.%y", "%Y-%m-%d"):
        message = rf"Only 0 of 20 dates in 'day' have the format '{form}', got '01.03.2026'"
        with pytest.raises(DataError, match=message):
            report(tmp_path, None, ReportOptions(over="day", date_format=form))
    german = report(tmp_path, None, ReportOptions(over="day", date_format="%d.%m.%Y"))
    seconds = report(tmp_path, None, ReportOptions(over="at"))
    assert german["periods"]["unit"] == seconds["periods"]["unit"] == "day"
    assert len(german["periods"]["starts"]) == len(seconds["periods"]["starts"]) == 20


@pytest.mark.parametrize(
    "numbers", [range(1, 6), range(2019, 2027), range(20260301, 20260320)], ids=str
)
@pytest.mark.parametrize("kind", [int, float, str])
def test_numbers_that_are_not_dates_are_rejected(
    tmp_path: Path, numbers: range, kind: Callable[[int], object]
) -> None:
    write_rows(tmp_path, [row("soup:+", stars=kind(number)) for number in numbers])
    message = (
        f"Only 0 of {len(numbers)} dates in 'stars' .* got '{kind(numbers[0])}'.*column of dates"
    )
    with pytest.raises(DataError, match=message):
        report(tmp_path, None, ReportOptions(over="stars"))


def test_dates_before_1980(tmp_path: Path) -> None:
    rows = [row("soup:+", day=f"19{year}-03-01", year=1900 + year) for year in range(60, 75)]
    write_rows(tmp_path, rows)
    written = report(tmp_path, None, ReportOptions(over="day", every="year"))
    years = report(tmp_path, None, ReportOptions(over="year", every="year", date_format="%Y"))
    assert written["periods"]["starts"][0] == years["periods"]["starts"][0] == "1960-01-01"


def test_too_many_periods_are_refused_and_blank_dates_are_no_example(tmp_path: Path) -> None:
    rows = [
        row("soup:+", day=f"20{year}-0{month}-01") for year in range(20, 26) for month in (1, 7)
    ]
    write_rows(tmp_path, [*rows, row("soup:+", day=" ")])
    with pytest.raises(
        DataError, match=r"--every day gives 2,009 periods, more than 80; .* quarter"
    ):
        report(tmp_path, None, ReportOptions(over="day", every="day"))
    with pytest.raises(DataError, match=r"got '2020-01-01'"):
        report(tmp_path, None, ReportOptions(over="day", date_format="%d.%m.%Y"))


def test_two_groups_are_compared_once(tmp_path: Path) -> None:
    rows = [row("soup:+", shop="a")] * 40 + [row("soup:-", shop="b")] * 40
    content = report(write_rows(tmp_path, rows), None, ReportOptions(by="shop"))
    (difference,) = content["differences"]
    assert (difference["group"], difference["here"]["counts"], difference["rest"]["counts"]) == (
        0, [0, 0, 40], [40, 0, 0],
    )  # fmt: skip
    assert difference["q"] < 1e-6


def test_rare_groups_count_only_among_all_others(tmp_path: Path) -> None:
    rows = [row("soup:+", shop=f"shop {n}") for n in range(5) for _ in range(30 - n)]
    content = report(write_rows(tmp_path, rows), None, ReportOptions(by="shop", groups=2))
    assert content["groups"]["names"] == ["shop 0", "shop 1"]
    assert content["groups"]["total"] >= 4
    rest = {row["group"]: row["rest"]["mentions"] for row in content["differences"]}
    assert rest == {0: len(rows) - 30, 1: len(rows) - 29}


def test_every_csv_column_is_documented(root: Path) -> None:
    page = (root / "docs" / "guide" / "report.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## CSV columns")
    named = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    for column in COLUMNS:
        assert re.sub("^(neutral|positive)_", "negative_", column) in named


def test_csv_has_every_share_and_no_formula(tmp_path: Path, folder: Path) -> None:
    rows = [
        row("=cmd():+", shop="@x", day="2026-01-01"),
        row("soup:-", shop="y", day="2026-02-01"),
    ] * 9
    options = ReportOptions(by="shop", over="day", every="month")
    content = report(write_rows(tmp_path, rows), tmp_path / "r.csv", options, format="csv")
    lines = list(csv.DictReader(StringIO((tmp_path / "r.csv").read_text())))
    assert render_csv(content) == (tmp_path / "r.csv").read_text()
    assert {line["aspect"] for line in lines} == {"", "'=cmd()", "soup"}
    assert {line["group"] for line in lines} == {"", "'@x", "y"}
    finest = [line for line in lines if line["aspect"] and line["group"] and line["period"]]
    assert [
        (line["mentions"], line["positive_count"]) for line in finest if line["group"] == "y"
    ] == [("9", "0")]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"by": "maker"}, DataError, "--by: there is no column 'maker'.*--keep .*maker"),
        (
            {"by": "SHOP"},
            DataError,
            r"no column 'SHOP'; did you mean 'shop'\? The kept columns are",
        ),
        ({"by": "shops"}, DataError, r"no column 'shops'; did you mean 'shop'\?"),
        ({"over": "when"}, DataError, "--over: there is no column 'when'"),
        ({"text_column": "body"}, DataError, "--text-column: there is no column 'body'"),
        ({"by": "aspects"}, DataError, "there is no column 'aspects'"),
        ({"every": "month"}, ConfigError, "every needs a column of dates"),
        ({"over": "day", "every": "moon"}, ConfigError, "every must be one of day, week"),
        ({"min_confidence": 1.5}, ConfigError, "from 0 to 1"),
        ({"aspects": 0}, ConfigError, "aspects must be 1 or more"),
    ],
)
def test_invalid_options_are_rejected(
    folder: Path, options: dict, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        report(folder, None, ReportOptions(**options))


def test_folders_that_were_not_scored_are_rejected(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = r"first run `capsar score .*`, then `capsar report scored`"
    with pytest.raises(DataError, match=rf"has no Parquet files.*{first}"):
        report(tmp_path, None)
    with pytest.raises(DataError, match=r"There is no .*nowhere'\. Pass the folder"):
        report(tmp_path / "nowhere", None)
    raw = tmp_path / "raw.csv"
    raw.write_text("text\nThe soup was cold.\n")
    with pytest.raises(DataError, match=rf"raw\.csv' is not a Parquet file.*{first}"):
        report(raw, None)
    with pytest.raises(DataError, match="copy the scored folder here"):
        report("s3://bucket/scored", None)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "raw.parquet")
    with pytest.raises(DataError, match=rf"has the columns \['text'\]; expected 'asp.*{first}"):
        report(tmp_path, None)
    (tmp_path / "raw.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match="cannot be read"):
        report(tmp_path, None)
    with pytest.raises(ConfigError, match="Unknown format 'pdf'"):
        report(tmp_path, None, format="pdf")


@pytest.mark.parametrize(
    "rows", [[], [row("", error="empty")], [row("", "Fine.")]], ids=["none", "error", "bare"]
)
def test_corpus_without_mentions(tmp_path: Path, rows: list[dict]) -> None:
    folder = write_rows(tmp_path / "scored", rows or [row("", "x")])
    for name in ("html", "json", "csv", "xlsx"):
        content = report(folder, tmp_path / "out", format=name)
        assert content["aspects"] == []
        assert (tmp_path / "out").stat().st_size


def test_unfinished_jobs_are_marked(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, [row("soup:+")], job={"options": {"text_column": "review"}})
    (folder / "_SUCCESS").unlink()
    content = report(folder, None)
    assert content["source"]["is_complete"] is False
    assert content["source"]["text_column"] is None
    assert content["quality"] is None
    assert content["aspects"][0]["sentences"] == []


def test_model_info_comes_from_the_model(folder: Path, tmp_path: Path) -> None:
    assert report(folder, None)["model"]["name"] == "an unknown model"
    config = {
        "validation": {"validation_accuracy": 0.8},
        "validation_intervals": {"accuracy": [0.75, 0.85]},
        "trained_on": {"train": "mams:train/one, mams:train/two, mine.csv"},
    }
    card = b"# A model\n\n## Limits\n\n- Knows `soup`\n  only.\n\n## Use\n\n- Eat.\n"
    write_bundle(tmp_path / "model", config, {TOKENIZER: b"{}", "README.md": card})
    model = report(folder, None, ReportOptions(model=tmp_path / "model"))["model"]
    assert model["name"] == str(tmp_path / "model")
    assert model["limits"] == ["Knows soup only."]
    assert model["metrics"] == [
        ("Accuracy, aspects given, validation set", "0.800 (0.750 to 0.850)"),
        ("Trained on", "mams, mine.csv"),
    ]


def test_a_model_that_did_not_score_is_rejected(tmp_path: Path) -> None:
    scored = write_rows(tmp_path, [row("soup:+")], job={"model_sha256": "a" * 64})
    with pytest.raises(ArtifactError, match=r"scored by a model other than 'fast'"):
        report(scored, None, ReportOptions(model="fast"))


def test_kept_columns_may_have_any_name(tmp_path: Path) -> None:
    names = "kind value aspect part period polarity confidence draw name review filename one text "
    names += "theme topic found mentions rating source capsar_review"
    kept = {
        name: f"{name} 1"
        for name in [*names.replace("text ", "").split(), '\'; DROP TABLE "drawn"; --']
    }
    rows = [row("soup:+.9", "The soup.", **kept)] * 30 + [row("", error="bad", **kept)]
    write_rows(tmp_path, rows)
    for by in kept:
        content = report(tmp_path, None, ReportOptions(by=by, threads=1))
        assert content["groups"]["names"] == [f"{by} 1"]
        assert content["errors"] == [{"kind": "bad", "rows": 1}]
        assert [one["text"] for one in content["aspects"][0]["sentences"]] == ["The soup."]
    write_rows(tmp_path / "reserved", [row("soup:+", file_row_number=1)])
    with pytest.raises(DataError, match="has a column 'file_row_number', which a report uses"):
        report(tmp_path / "reserved")


def test_missing_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsar.reporting.run.find_spec", lambda name: name != "duckdb" or None)
    with pytest.raises(MissingExtraError, match=r"pip install 'capsar\[report\]'"):
        capsar.report(folder)


def test_damaged_job_manifest(tmp_path: Path) -> None:
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
    assert json.loads(out.read_text())["groups"]["column"] == "shop"


def test_format_follows_the_suffix(tmp_path: Path) -> None:
    scored = write_rows(tmp_path / "scored", [row("soup:+.9"), row("staff:-.9")] * 3)
    page = "<!doctype html>"
    begins = {"r.csv": "parent,theme,aspect,", "r.json": "{", "r.HTML": page, "r": page}
    for name, begin in begins.items():
        report(scored, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)
    message = "'r.html' has the suffix of html, but the format is csv; name it 'r.csv'"
    with pytest.raises(ConfigError, match=message):
        report(scored, "r.html", format="csv")
    with pytest.raises(ConfigError, match="Unknown format 'pdf'"):
        report(scored, "r.pdf", format="pdf")
    with pytest.raises(ConfigError, match="written as html, json, csv, xlsx, not as pdf"):
        report(scored, tmp_path / "r.pdf")
    with pytest.raises(ConfigError, match=r"There is no folder .*nowhere' to write to"):
        report(scored, tmp_path / "nowhere" / "r.html")
    done = CliRunner().invoke(app, ["report", str(scored), "-o", str(tmp_path / "c.csv")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").startswith("parent,theme,aspect,")


def test_page_size_is_bounded(tmp_path: Path) -> None:
    """Sixty aspects in twelve shops, sentences of maximum length, every character escaped."""
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
        {one["polarity"] for one in aspect["sentences"]} == {"positive", "neutral", "negative"}
        for aspect in content["aspects"]
    )

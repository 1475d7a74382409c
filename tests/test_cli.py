"""The command line: help, text and JSON output, exit codes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import samples
import typer.testing
from synthetic_reviews import write_reviews

import capsar.cli as capsar_cli
from capsar.bundle import (
    CAPSULES,
    CONFIG,
    ENCODER,
    FILES,
    MANIFEST,
    OPINIONS,
    SPANS,
    THEMES,
    TOKENIZER,
    WEIGHTS,
    write_bundle,
)
from capsar.cli.train import _Progress
from capsar.evaluation.metrics import PolarityMetrics
from capsar.training.loop import StepInfo
from capsar.training.validation import ValidationMetrics


def capsar(
    *arguments: object, data: object = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "capsar", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=cwd,
        env=os.environ | {"CAPSAR_DATA": str(data), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
    )


def test_help_and_version() -> None:
    from capsar import __version__

    done = capsar("--help")
    assert done.returncode == 0
    assert "data" in done.stdout
    assert capsar("--version").stdout.strip() == __version__
    assert "capsar data check reviews.csv" in capsar("data", "check", "--help").stdout


def commands(group: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of all commands of a group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name)


def test_help_of_every_command_has_an_example() -> None:
    app = typer.main.get_command(capsar_cli.app)
    found = list(commands(app))
    assert len(found) >= 7
    runner = typer.testing.CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    for names in found:
        done = runner.invoke(capsar_cli.app, [*names, "--help"])
        assert done.exit_code == 0
        lines = [line.strip(" │`") for line in done.output.splitlines()]
        assert any(line.startswith(" ".join(("capsar", *names, ""))) for line in lines), names


def test_data_list_names_the_source_of_missing_files(tmp_path: Path) -> None:
    done = capsar("data", "list", data=tmp_path)
    assert done.returncode == 0
    assert "mams" in done.stdout
    assert (
        "get data/mams/MAMS-ATSA/train.xml: data/MAMS-ATSA/raw/train.xml of https://" in done.stdout
    )
    assert "CAPSAR_DATA is not set" in capsar("data", "list").stderr
    entries = json.loads(capsar("data", "list", "--json", data=tmp_path).stdout)
    assert {"name", "license", "files", "present"} <= set(entries[0])


@pytest.mark.data
def test_data_list_marks_missing_files(shared: Path) -> None:
    listed = capsar("data", "list", data=shared).stdout
    assert listed.count("(missing)") == 2  # vectors of the bundled models
    assert "glove.6B.50d" in listed
    assert "glove.6B.100d.wink" in listed


def test_data_check_names_every_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("review,aspect,polarity\nCold soup.,soup,negative\nCold soup.,stew,negative\n")
    done = capsar("data", "check", path, "--text-column", "review")
    assert done.returncode == 1
    assert "BAD line 3: Aspect 'stew' does not occur" in done.stdout
    assert "labels: 2 negative" in done.stdout


def test_data_check_of_excel_finds_the_same_as_of_csv(tmp_path: Path) -> None:
    found = {}
    for name, content in (("a.csv", samples.CSV), ("a.xlsx", samples.XLSX)):
        (tmp_path / name).write_bytes(content)
        done = capsar("data", "check", name, "--json", cwd=tmp_path)
        (found[name],) = json.loads(done.stdout)["files"]
        found[name]["bad"] = [error["reason"] for error in found[name]["bad"]]
    assert found["a.xlsx"] == found["a.csv"] | {"path": "a.xlsx", "format": "xlsx"}


def test_data_check_json(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("text,aspect,polarity\nCold soup.,soup,negative\n")
    done = capsar("data", "check", tmp_path, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [file["labels"] for file in document["files"]] == [{"negative": 1}] * 2
    assert document["overlaps"][0]["exact"] == 1
    done = capsar("data", "check", tmp_path)
    assert "1 sentences equal and 0 nearly equal" in done.stdout


def test_unprintable_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "x", "aspect": "\\ud800\\u202e", "polarity": "neutral"}\n')
    done = capsar("data", "check", path)
    assert done.returncode == 1
    assert r"\ud800" in done.stdout


@pytest.mark.parametrize("arguments", [["absent.csv"], ["."], ["mams"], []])
def test_bad_input_exits_with_code_2(tmp_path: Path, arguments: list[str]) -> None:
    done = capsar("data", "check", *arguments, data=tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run, trained from the command line."""
    folder = tmp_path_factory.mktemp("train")
    write_reviews(folder / "reviews.csv", 150)
    done = capsar(
        "train", "--data", "reviews.csv", "--out", "run", "--set", "train.max_epochs=2",
        "--set", "data.word_dim=16", "--set", "model.units=8", "--json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bundle"] == "run/bundle"
    assert "epoch 2: validation accuracy" in done.stderr
    return folder


def test_evaluate(trained: Path) -> None:
    write_reviews(trained / "held-out.csv", 60, seed=3)
    done = capsar("evaluate", "run/bundle", "--data", "held-out.csv", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "60 examples, 0 excluded" in done.stdout
    assert "95 % interval" in done.stdout
    assert done.stdout.count("positive") == 3
    done = capsar("evaluate", "run/bundle", "--data", "held-out.csv", "--json", cwd=trained)
    document = json.loads(done.stdout)
    assert document["metrics"]["num_examples"] == 60
    assert document["warnings"] == []
    manifest = (trained / "run" / "bundle" / MANIFEST).read_bytes()
    assert document["model_sha256"] == hashlib.sha256(manifest).hexdigest()
    assert sum(map(sum, document["metrics"]["confusion"])) == 60


def test_evaluate_spans(trained: Path) -> None:
    text = "text,aspect,polarity\nThe soup was cold.,soup,negative\nWe came back.,,\n"
    (trained / "some.csv").write_text(text)
    arguments = ("evaluate", "run/bundle", "--data", "some.csv", "--spans")
    done = capsar(*arguments, cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "aspects per 100 of the 1 sentences without any" in done.stdout
    spans = json.loads(capsar(*arguments, "--json", cwd=trained).stdout)["found"]["capsules"]
    assert (spans["num_sentences"], spans["num_without"], spans["spans"]["gold"]) == (2, 1, 1)
    assert spans["false_per_100"] >= 100  # capsules always yield a word


def test_analyze_shows_a_review_by_sentence(trained: Path) -> None:
    review = "The soup was great.<br/>Awful staff!! The <b>room</b> was plain."
    done = capsar("analyze", review, "--model", "run/bundle", "--html", "page.html", cwd=trained)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    sentences = [line for line in lines if not line.startswith("  ")]
    assert sentences == ["The soup was great.", "Awful staff!!", "The <b>room</b> was plain."]
    assert all(": " in line for line in lines if line.startswith("  "))
    assert "Awful" in (trained / "page.html").read_text(encoding="utf-8")
    done = capsar("analyze", review, "--model", "run/bundle", "--json", cwd=trained)
    found = json.loads(done.stdout)
    assert [review[start:end] for start, end in found["sentences"]] == sentences


@pytest.mark.data
@pytest.mark.parametrize("dataset", ["semeval14-restaurants", "semeval14-laptops"])
def test_evaluate_robustness(trained: Path, shared: Path, dataset: str) -> None:
    arguments = ("evaluate", "run/bundle", "--dataset", dataset, "--robustness")
    done = capsar(*arguments, cwd=trained, data=shared)
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("ARTS")[2]
    names = [line.split()[0] for line in table.splitlines()[1:]]
    assert names == ["original", "adv1", "adv2", "adv3", "ars", "mixed"]
    done = capsar(*arguments, "--json", cwd=trained, data=shared)
    document = json.loads(done.stdout)
    original = document["robustness"]["variants"]["original"]
    assert original["num_examples"] == document["metrics"]["num_examples"]
    assert original["accuracy"] == pytest.approx(document["metrics"]["accuracy"], abs=0.01)
    assert document["robustness"]["ars"] <= original["accuracy"]
    assert 0 < document["mixed_polarity"]["num_examples"] < original["num_examples"]


def test_min_confidence_and_evaluate_confidence(small_bundle: Path, tmp_path: Path) -> None:
    command = ("analyze", "The soup was cold.", "--model", small_bundle, "--aspect", "soup")
    assert "soup: uncertain" in capsar(*command, "--min-confidence", 1).stdout
    (aspect,) = json.loads(capsar(*command, "--min-confidence", 1, "--json").stdout)["aspects"]
    assert aspect["abstained"] is True
    assert 0 < aspect["confidence"] < 1
    assert aspect["aspect_confidence"] is None
    assert "soup: uncertain" not in capsar(*command).stdout
    refused = capsar(*command, "--min-confidence", 2)
    assert (refused.returncode, "from 0 to 1" in refused.stderr) == (2, True)
    refused = capsar(*command[:4], "--mode", "words")
    assert (refused.returncode, "spans, capsules" in refused.stderr) == (2, True)
    found = json.loads(capsar(*command[:4], "--mode", "capsules", "--json").stdout)
    assert found["aspects"]

    data = write_reviews(tmp_path / "held-out.csv", 40, seed=3)
    arguments = ("evaluate", small_bundle, "--data", data, "--confidence", "--spans")
    done = capsar(*arguments)
    assert done.returncode == 0, done.stderr
    for name in ("found by spans", "found by capsules", "ece_bound", "uncalibrated"):
        assert name in done.stdout
    document = json.loads(capsar(*arguments, "--json").stdout)
    assert set(document["confidence"]) == {"calibrated", "uncalibrated"}
    assert document["confidence"]["calibrated"]["num_examples"] == 40


def test_analyze_json(trained: Path) -> None:
    (trained / "texts.txt").write_text("The soup was great.\n\nAwful staff!\n", encoding="utf-8")
    done = capsar("analyze", "texts.txt", "--model", "run/bundle", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [d["text"] for d in documents] == ["The soup was great.", "", "Awful staff!"]
    for found in documents:
        assert found["schema_version"] == 1
        for aspect in found["aspects"]:
            assert found["text"][aspect["start"] : aspect["end"]] == aspect["text"]
    done = capsar(
        "analyze", "Cold soup.", "--aspect", "soup", "--model", "run/bundle", "--json", cwd=trained
    )
    (aspect,) = json.loads(done.stdout)["aspects"]
    assert (aspect["text"], aspect["start"], aspect["end"]) == ("soup", 5, 9)
    assert set(aspect["scores"]) == {"negative", "neutral", "positive"}


def test_analyze_colored_output(trained: Path) -> None:
    text = "The [bold]soup[/bold] was <b>great</b> \u202e\U0001f600."
    done = capsar(
        "analyze", text, "--aspect", "soup", "--model", "run/bundle", "--html", "page.html",
        cwd=trained,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sentence, aspect = done.stdout.splitlines()
    assert sentence == text
    assert aspect.startswith("  soup: ")
    page = (trained / "page.html").read_text(encoding="utf-8")
    assert "<b>" not in page  # markup is escaped
    colors = re.findall(r"background-color: ([^;}\s]+)", page)
    assert colors
    assert all(re.fullmatch(r"#[0-9a-f]{6}", color) for color in colors)
    assert "great" in page


def test_analyze_shows_given_aspects_in_the_order_of_the_text(small_bundle: Path) -> None:
    command = ("analyze", "Cold soup, warm tea. Fine.", "--model", small_bundle)
    aspects = ("tea", "warm tea", "soup")
    done = capsar(*command, *(word for aspect in aspects for word in ("--aspect", aspect)))
    first, *found, last = done.stdout.splitlines()
    assert (first, last) == ("Cold soup, warm tea.", "Fine.")
    assert [line.partition(":")[0] for line in found] == ["  soup", "  warm tea", "  tea"]


def test_analyze_shows_given_aspects_outside_every_sentence(small_bundle: Path) -> None:
    command = ("analyze", "Good soup. <br>", "--aspect", "br", "--model", small_bundle)
    assert capsar(*command).stdout.splitlines()[1].startswith("  br: ")


def test_analyze_says_that_no_aspect_was_found() -> None:
    lines = capsar("analyze", "We came back on Monday.", "--model", "fast").stdout.splitlines()
    assert lines == ["We came back on Monday.", "  (no aspect found)"]


def test_analyze_reads_the_text_column_of_tables(small_bundle: Path, tmp_path: Path) -> None:
    """Rows may span several lines, and invalid labels are ignored."""
    review = '7,"Cold ""soup"",\nwarm tea.",stew,0\n8,,,\n9,Café,,\n'
    (tmp_path / "r.csv").write_text(f"id,review,aspect,polarity\n{review}", encoding="latin-1")
    rows = csv.reader(io.StringIO(f"id,review\n{review}"))
    (tmp_path / "r.xlsx").write_bytes(samples.xlsx(*rows))
    (tmp_path / "r.tsv").write_text("review\tstart\nFine, staff\t3\n")
    (tmp_path / "r.jsonl").write_text('{"review": "Cold soup.", "polarity": 9}\n{"review": null}\n')
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress((tmp_path / "r.csv").read_bytes()))
    (tmp_path / "r.txt.gz").write_bytes(gzip.compress("Café\n".encode("latin-1")))
    (tmp_path / "r.parquet").write_bytes(samples.parquet(review=["Cold soup.", None, "Café"]))
    options = (
        "--text-column",
        "review",
        "--encoding",
        "latin-1",
        "--json",
        "--model",
        small_bundle,
    )
    for name, texts in (
        ("r.csv", ['Cold "soup",\nwarm tea.', "", "Café"]),
        ("r.tsv", ["Fine, staff"]),
        ("r.jsonl", ["Cold soup.", ""]),
        ("r.xlsx", ['Cold "soup",\nwarm tea.', "", "Café"]),
        ("r.csv.gz", ['Cold "soup",\nwarm tea.', "", "Café"]),
        ("r.txt.gz", ["Café"]),
        ("r.parquet", ["Cold soup.", "", "Café"]),
    ):
        done = capsar("analyze", name, *options, "--model", small_bundle, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == texts


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "r.csv",
            b"id,review\n1,Cold soup.\n",
            "found ['id', 'review']; choose the text column with",
        ),
        ("r.csv", b"text,id\nCold soup.\n", "line 2: not CSV: expected 2 fields"),
        ("r.csv", b"text\ncaf\xe9\n", "--encoding cp1252"),
        ("r.jsonl", b'{"review": "Cold soup."}\n', "no field 'text'; found ['review']"),
        ("r.jsonl", b'{"text": 7}\n', "must hold text, got int"),
        ("r.jsonl", b"Cold soup.\n", "line 1: not JSON"),
        (
            "r.json",
            b'[\n{"text": "Cold soup."}]',
            "The file is a JSON array. Write one object per line",
        ),
        ("r.parquet", b"PAR1", "r.parquet: the file: cannot be read: Parquet"),
        ("r.parquet", samples.parquet(review=["Cold soup."]), "no column 'text'; found ['review']"),
        ("r.csv.gz", gzip.compress(b"text\nCold soup.\n")[:-9], "cannot be read: Truncated"),
        ("r.parquet.gz", b"", "expected CSV, TSV"),
        ("r.xml", b"<a/>", "(.xlsx), Parquet or JSON Lines, or one text per line"),
        ("r.xls", b"", "expected CSV, TSV, Excel (.xlsx)"),
        ("r.xlsx", samples.xlsx(["review"]), "row 1 (the header): no column 'text'; found"),
        ("r.xlsx", samples.XLSX[:900], "r.xlsx: the file: not a readable workbook"),
    ],
)
def test_analyze_rejects_unsupported_files(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = capsar("analyze", name, "--model", "fast", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_inspect(small_bundle: Path) -> None:
    done = capsar("inspect", small_bundle)
    assert done.returncode == 0, done.stderr
    assert "all files match the manifest" in done.stdout
    for name in ({*FILES} - {SPANS, OPINIONS, THEMES}) | {"total"}:
        assert (f"  {name} " in done.stdout) == (name != MANIFEST)
    for pattern in (
        r"^schema           1$",
        r"^written by       capsar \d",
        r"^classes          negative, neutral, positive$",
        r"^network          units 8, ",
        r"^training data    train reviews\.csv, train_examples \d+, words \d+$",
        r"^vectors          random$",
        r"^validation data  validation_examples \d+, shared_sentences_dropped 0$",
        r"^validation       accuracy 0\.\d+ \(95 % interval 0\.\d+ to [01]\.\d+\), macro_f1 ",
    ):
        assert re.search(pattern, done.stdout, re.MULTILINE), (pattern, done.stdout)
    document = json.loads(capsar("inspect", small_bundle, "--json").stdout)
    assert document["schema_version"] == 1
    assert document["files"][ENCODER] == (small_bundle / ENCODER).stat().st_size
    assert document["config"]["model"]["units"] == 8


def test_models_lists_the_bundled_models() -> None:
    from capsar.bundle import DEFAULT_MODEL, bundled_models

    found = json.loads(capsar("models", "--json").stdout)
    assert [model["name"] for model in found] == bundled_models()
    assert [model["name"] for model in found if model["default"]] == [DEFAULT_MODEL]
    output = capsar("models").stdout
    for model in found:
        assert re.search(rf"^{model['name']}( \(default\))?$", output, re.MULTILINE)
        assert f"  size           {model['mb']} MB" in output
        assert f"  sha256         {model['sha256']}" in output
        assert model["license"]
        assert Path(model["folder"], "README.md").is_file()


def test_fine_tuning(small_bundle: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path / "mine.csv", 60, seed=1)
    command = ["train", "--init-from", small_bundle, "--data", "mine.csv", "--json"]
    command += ["--set", "data.validation_ratio=.2"]  # TOML would require 0.2
    done = capsar(*command, "--partial-labels", "--set", "train.max_epochs=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^run before fine-tuning: validation accuracy \.?\d", done.stderr, re.MULTILINE
    )
    assert re.search(r"^epoch 1: validation .* \*$", done.stderr, re.MULTILINE)
    bundle = tmp_path / json.loads(done.stdout)["bundle"]
    config = json.loads((bundle / CONFIG).read_bytes())
    assert config["model"]["class_dim"] == 10
    assert config["trained_on"]["init_from"] == "run"
    still = capsar(*command, "--out", "still", "--folds", "2", "--set", "train.max_epochs=1",
                   "--set", "train.learning_rate=1e-12", cwd=tmp_path)  # fmt: skip
    assert "The validation score is not better than before fine-tuning" in still.stderr
    bundle = tmp_path / json.loads(still.stdout)["bundle"]
    assert json.loads((bundle / CONFIG).read_bytes())["trained_on"]["folds"] == 2
    refused = capsar(*command, "--vectors", "glove.txt", cwd=tmp_path)
    assert (refused.returncode, "keeps a model's network and vectors" in refused.stderr) == (
        2,
        True,
    )


def test_inspect_with_a_minimal_config(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {"model": 3}, {TOKENIZER: b"{}"})
    done = capsar("inspect", tmp_path / "b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "written by       capsar (unknown)"


def test_export_writes_the_same_graphs(small_bundle: Path, tmp_path: Path) -> None:
    """From the folder of a run, or in place if graphs are missing."""
    done = capsar("export", small_bundle.parent, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'out'}\n"
    for path in small_bundle.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    files = {name: (small_bundle / name).read_bytes() for name in (TOKENIZER, WEIGHTS)}
    config = json.loads((small_bundle / CONFIG).read_text())
    write_bundle(tmp_path / "old", config, files)
    assert capsar("export", tmp_path / "old", tmp_path / "old").returncode == 0
    for name in (ENCODER, CAPSULES):
        assert (tmp_path / "old" / name).read_bytes() == (small_bundle / name).read_bytes()
    command = ("analyze", "Cold soup.", "--aspect", "soup", "--json", "--model")
    assert capsar(*command, tmp_path / "old").stdout == capsar(*command, small_bundle).stdout


def test_export_errors(small_bundle: Path, tmp_path: Path) -> None:
    config = json.loads((small_bundle / CONFIG).read_text())
    tokenizer = {TOKENIZER: (small_bundle / TOKENIZER).read_bytes()}
    weights = (small_bundle / WEIGHTS).read_bytes()
    for number, (settings, files, message) in enumerate(
        [
            (config, tokenizer, f"has no {WEIGHTS}"),
            (config, tokenizer | {WEIGHTS: b"none"}, f"{WEIGHTS}' does not hold the weights"),
            (config | {"model": {}}, tokenizer | {WEIGHTS: weights}, "does not hold the weights"),
            ({}, tokenizer | {WEIGHTS: weights}, "needs a table of settings, got None"),
        ]
    ):
        write_bundle(tmp_path / str(number), settings, files)
        done = capsar("export", tmp_path / str(number), tmp_path / "out")
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "MODEL", "out"], "pip install 'capsar[train]'"),
        (["train", "--data", "x.csv"], "pip install 'capsar[train]'"),
        (["train", "--data", "x.csv", "--init-from", "MODEL"], "pip install 'capsar[train]'"),
        (["train", "--data", "x.csv", "--set", "model.unit=3"], "has no ['unit']"),
    ],
)
def test_without_torch_bad_settings_are_reported_before_the_missing_extra(
    arguments: list[str], message: str, small_bundle: Path, tmp_path: Path
) -> None:
    arguments = [str(small_bundle) if one == "MODEL" else one for one in arguments]
    code = f"""
import sys
sys.modules["torch"] = None
sys.argv = ["capsar", *{arguments!r}]
from capsar.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_finished_run_is_not_trained_again(trained: Path) -> None:
    done = capsar(
        "train", "--data", "reviews.csv", "--out", "run", "--set", "train.max_epochs=2",
        "--set", "data.word_dim=16", "--set", "model.units=8", cwd=trained,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("run/bundle: epoch ")
    assert "epoch 1" not in done.stderr  # already finished


@pytest.mark.parametrize(
    ("marks_best", "shown"), [(True, "macro-F1 0.5000 *\n"), (False, "0.5000\n")]
)
def test_selected_epoch_is_marked(
    marks_best: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    validation = ValidationMetrics(PolarityMetrics(2, 0.5, 0.5, {}, ()))
    with _Progress(marks_best=marks_best) as progress:
        progress.show(StepInfo(1, 0, 0.7, 1, ends_epoch=True, validation=validation, is_best=True))
    assert capsys.readouterr().err.endswith(shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "either --data, as in `capsar train --init-from base --data reviews.csv --out"),
        (["train", "reviews.csv"], "to train on it, use --data"),
        (
            ["score", "reviews.csv"],
            "Expected an input and an output folder: capsar score reviews.csv",
        ),
        (["score"], "Expected an input and an output folder"),
        (["train", "--data", "x.csv", "--set", "units=3"], "is not SECTION.NAME=VALUE"),
        (["train", "--data", "x.csv", "--set", "model.unit=3"], "has no ['unit']"),
        (["train", "--data", "absent.csv"], "cannot be read"),
        (["train", "absent.toml"], "Cannot read the configuration"),
        (["evaluate", "run"], "either --data FILE or --dataset NAME"),
        (
            ["evaluate", "run/bundle", "--dataset", "twitter", "--robustness"],
            "robustness is measured on: semeval14-restaurants",
        ),
        (["analyze", "Cold soup.", "--model", "absent"], "is not a bundle"),
        (["analyze", "Cold tea.", "--aspect", "soup", "--model", "run/bundle"], "does not occur"),
        (
            ["analyze", "Cold tea.", "--aspect", "Tea", "--model", "run/bundle"],
            "write it as in the text, here 'tea'.",
        ),
        (["evaluate", "absent", "--data", "reviews.csv"], "is not a bundle"),
        (["inspect", "absent"], "no such folder"),
        (["inspect", "."], "has no manifest.json"),
        (["export", "absent", "x"], "is not a bundle"),
        (["export", "run", "."], "something else than a bundle; name another folder"),
        (["train", "--data", "mams:test"], "only for evaluation"),
        (["train", "--data", "reviews.csv", "--out", "reviews.csv"], "as a run's folder"),
        (["train", "--data", "reviews.csv", "--out", "x", "--threads", "-1"], "--threads must be"),
    ],
)
def test_errors_name_the_next_step(trained: Path, arguments: list[str], message: str) -> None:
    done = capsar(*arguments, cwd=trained)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_data_suggests_data_check_and_leaves_no_folder(trained: Path) -> None:
    (trained / "bad.csv").write_text("text,aspect,polarity\nCold soup.,stew,negative\n")
    for command in (("train", "--out", "refused/run"), ("evaluate", "run/bundle")):
        done = capsar(*command, "--data", "bad.csv", cwd=trained)
        assert done.returncode == 2
        assert "bad.csv: line 2: Aspect 'stew' does not occur" in done.stderr
        assert done.stderr.endswith(". Run `capsar data check bad.csv` to list all bad records\n")
    assert not (trained / "refused").exists()


def test_train_and_evaluate_with_another_encoding(trained: Path) -> None:
    write_reviews(trained / "utf-8.csv", 60)
    text = (trained / "utf-8.csv").read_text(encoding="utf-8").replace("soup", "café")
    (trained / "latin.csv").write_text(text, encoding="latin-1")
    assert "café" in text
    command = ("train", "--data", "latin.csv", "--out", "latin", "--set", "train.max_epochs=1",
             "--set", "data.word_dim=8", "--set", "model.units=4")  # fmt: skip
    refused = capsar(*command, cwd=trained)
    assert (refused.returncode, "--encoding cp1252" in refused.stderr) == (2, True)
    done = capsar(*command, "--encoding", "latin-1", cwd=trained)
    assert done.returncode == 0, done.stderr
    evaluate = ("evaluate", "latin", "--data", "latin.csv")
    assert capsar(*evaluate, cwd=trained).returncode == 2
    done = capsar(*evaluate, "--encoding", "latin-1", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "60 examples, 0 excluded" in done.stdout


def test_evaluation_on_training_data_warns(trained: Path) -> None:
    (trained / "copy.csv").write_bytes((trained / "reviews.csv").read_bytes())
    for name in ("reviews.csv", "copy.csv"):
        done = capsar("evaluate", "run", "--data", name, "--json", cwd=trained)
        assert done.returncode == 0
        assert json.loads(done.stdout)["metrics"]["num_examples"] == 150
        assert "trained on this very file" in json.loads(done.stdout)["warnings"][0]
        assert f"trained on this very file, '{name}'" in done.stderr
    write_reviews(trained / "others.csv", 20, seed=4)
    assert capsar("evaluate", "run", "--data", "others.csv", cwd=trained).stderr == ""


@pytest.mark.data
def test_data_check_of_all_published_files(shared: Path) -> None:
    done = capsar("data", "check", shared / "data", data=shared)
    assert done.returncode == 1  # some published records are bad, and named
    assert done.stdout.count("(as published)") == 36
    assert "NOT as published" not in done.stdout
    assert "10 sentences equal and 6 nearly equal" in done.stdout
    assert "not a published file" not in done.stdout


def run_capsar(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "capsar", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_missing_file_is_not_analyzed_as_text(tmp_path: Path) -> None:
    for wrong in ("missing.txt", str(tmp_path / "reviews"), str(tmp_path)):
        code, out, message = run_capsar("analyze", wrong)
        assert (code, out) == (2, "")
        assert wrong in message
        assert "--text" in message
    code, _, message = run_capsar("analyze", "good reviews", "--text-column", "review")
    assert (code, "There is no file 'good reviews'" in message) == (2, True)
    code, _, message = run_capsar("analyze", " ")
    assert (code, "The text is empty" in message) == (2, True)
    assert run_capsar("analyze", "missing.txt", "--text", "--json")[0] == 0
    assert run_capsar("analyze", "good/bad food, who knows", "--json")[0] == 0


def test_lines_without_the_aspect_are_counted(tmp_path: Path) -> None:
    lines = b"\xef\xbb\xbfGreat food\nFood: lovely\nAwful food and staff\n"
    code, out, message = run_capsar("analyze", "-", "--aspect", "food", "--json", stdin=lines)
    assert code == 0
    documents = [json.loads(line) for line in out.splitlines()]
    assert documents[0]["text"] == "Great food"  # without the byte order mark
    assert [[a["text"] for a in document["aspects"]] for document in documents] == [
        ["food"],
        [],
        ["food"],
    ]
    assert "1 of 3 texts mention none of the given aspects; 1 of them have one in anot" in message
    code, _, message = run_capsar("analyze", "Lovely staff", "--aspect", "food")
    assert code == 2
    assert "'food' does not occur" in message


def test_input_and_output_errors_have_no_traceback(tmp_path: Path) -> None:
    code, _, message = run_capsar("analyze", "-", stdin="café".encode("latin-1"))
    assert code == 2
    assert "standard input: line 1" in message
    page = str(tmp_path / "page.html")
    code, _, message = run_capsar("analyze", "Great food", "--json", "--html", page)
    assert (code, "--html" in message) == (2, True)
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "capsar", "analyze", "Great food", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr

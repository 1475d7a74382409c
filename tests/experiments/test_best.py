"""Nothing that searches, selects or teaches can open a test part, or trains on its sentences."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import render_best
import runs
from capsar.data.catalog import find_file
from capsar.data.catalog import test_examples as read_test_part
from capsar.data.overlap import SentenceIndex
from capsar.training.parts import read_parts
from entries import Entries
from summarize import summarize
from teach import SOURCES, sentences_for

STEPS = {
    "search": ("import search", "search.train", "sys.argv[1:] = ['--trials', '1']; search.main()"),
    "teach": ("import teach", "teach.load", "teach.main('restaurant')"),
    "trial": (
        "import best_trials",
        "best_trials.train",
        "best_trials._part = lambda *_: (Path('rest'), Path('kept')); best_trials.main('laptop')",
    ),
    "train": ("import perform", "perform.train", "perform.main('capsar-bert-best-laptop-0')"),
}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("step", STEPS)
def test_no_step_can_open_a_test_part(step: str, root: Path, tmp_path: Path) -> None:
    """Each real step, with what it would call next replaced by an attempt to read one."""
    imports, called, run = STEPS[step]
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, "experiments")
import runs
runs.WORK = Path({str(tmp_path)!r})
{imports}
def peep(*arguments, **options):
    print("came to its work")
    return Path({str(find_file("semeval14-restaurants", "test"))!r}).read_text()
{called} = peep
if {step!r} == "search":
    search.STUDY = Path({str(tmp_path / "study.jsonl")!r})
{run}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert "came to its work" in done.stdout
    assert done.returncode
    assert "ClosedError" in done.stderr


@cache
def held_by_tests() -> SentenceIndex:
    index = SentenceIndex()
    for name in (*runs.DATASETS.values(), "arts-restaurants", "arts-laptops"):
        index.add(name, dict.fromkeys(example.text for example in read_test_part(name)))
    return index


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    "run", [r for r in runs.planned(runs.BEST) if r.seed == 0], ids=lambda run: str(run.name)
)
def test_no_sentence_of_a_test_part_is_trained_on(
    run: runs.Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    settings = run.config().data
    told = [source for source in settings.polarity_only if source.startswith("runs/")]
    kept = tuple(source for source in settings.polarity_only if source not in told)
    parts = read_parts(dataclasses.replace(settings, polarity_only=kept))
    index = held_by_tests()
    examples = (*parts.train, *parts.dev, *parts.polarity_only)
    texts = {e.text for e in examples} | {s.text for s in parts.train_sentences}
    assert len(texts) > 1000
    assert parts.held_by_test_sets > 0
    assert [text for text in texts if index.find(text)] == []


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dataset", SOURCES)
def test_no_sentence_of_a_test_part_is_told(dataset: str) -> None:
    index = held_by_tests()
    sentences = list(sentences_for(dataset))
    assert len(sentences) > 5000
    assert [sentence for sentence in sentences if index.find(sentence)] == []


@pytest.mark.parametrize("source", runs.BEST_PARTS)
def test_an_ablation_leaves_out_changes_of_one_kind(source: str) -> None:
    whole = {run.seed: run for run in runs.planned(("capsar-best",)) if run.dataset == "restaurant"}
    for run in runs.planned((source,)):
        assert run.row == source
        assert run.dataset == "restaurant"
        full, part = (dict(_flat(one.shown_config())) for one in (whole[run.seed], run))
        changed = {name for name in full if full[name] != part[name]}
        assert changed
        given = {"data.polarity_only", "train.teacher", "train.imitate_epochs"}
        mean = {"train.average"}
        assert changed <= given or changed == mean or not changed & (given | mean)
        assert not any(name.startswith("data.") for name in changed - given)


def _flat(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, settings in config.items():
        for name, value in settings.items():
            yield f"{section}.{name}", value


def test_best_rows_stand_beside_the_paper_and_say_what_they_were_given() -> None:
    """Run files of the faithful row, under the names of the best one: it stays below by as much."""
    made = []
    for run in runs.planned(("capsar-best", "capsar-best-wo-told")):
        faithful = next(
            one
            for one in runs.planned(("capsar",))
            if (one.dataset, one.seed) == (run.dataset, run.seed)
        ).read()
        assert faithful is not None
        facts = {"source": run.source, "row": run.row, "config": run.shown_config()}
        made.append(faithful | facts)
    found = Entries(summarize([*runs.finished(("capsar",)), *made]))
    page = render_best.section(found)
    assert "| Restaurant | CAPSAR, Bi-GRU | 5 | .7796 ± .0073 | .8286 | −.0490 |" in page
    assert "+.0000 [+.0000, +.0000]" in page
    assert "reviews told by capsar-bert-best-restaurant-0" in page
    assert "| reviews that a teacher told of | 2 |" in page
    (told,) = render_best.in_short(found)
    assert "stays below it in Restaurant accuracy by .0490" in told
    assert not render_best.section(Entries(summarize(runs.finished(("capsar",)))))

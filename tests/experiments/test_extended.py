"""The extended rows: no step can open a test set, none is trained on, and gaps are intervals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import run as runs
from capsar.data.catalog import find_file
from capsar.data.catalog import test_examples as read_test_set
from capsar.data.splits import SentenceIndex
from capsar.training.dataset import read_splits
from pages import extended
from summarize import Results, summarize

STEPS = {
    "trial": (
        "from studies import extended_trials",
        "extended_trials.train",
        "extended_trials.main('laptop', 'fast')",
    ),
    "train": (
        "import capsar",
        "capsar.train",
        "run.train_only(run.find_run('capsar-bert-extended-laptop-0'))",
    ),
}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("step", STEPS)
def test_no_step_can_open_a_test_set(step: str, root: Path, tmp_path: Path) -> None:
    """Run each real step, with the function that it calls next replaced by a file reader."""
    imports, called, start = STEPS[step]
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, "experiments")
import run
run.WORK = Path({str(tmp_path)!r})
{imports}
def read_test_file(*arguments, **options):
    print("reached the step")
    return Path({str(find_file("semeval14-restaurants", "test"))!r}).read_text()
{called} = read_test_file
{start}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert "reached the step" in done.stdout, done.stderr
    assert done.returncode
    assert "ClosedError" in done.stderr


@cache
def sentence_index() -> SentenceIndex:
    index = SentenceIndex()
    for name in (*runs.DATASETS.values(), "arts-restaurants", "arts-laptops"):
        index.add(name, dict.fromkeys(example.text for example in read_test_set(name)))
    return index


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    "run", [r for r in runs.planned(runs.EXTENDED) if r.seed == 0], ids=lambda run: str(run.name)
)
def test_no_test_sentence_is_trained_on(
    run: runs.Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    splits = read_splits(run.config().data)
    index = sentence_index()
    examples = (*splits.train, *splits.validation, *splits.partially_annotated)
    texts = {e.text for e in examples} | {s.text for s in splits.train_sentences}
    assert len(texts) > 1000
    assert splits.excluded > 0
    assert [text for text in texts if index.find(text)] == []


@pytest.mark.parametrize("source", runs.EXTENDED_ABLATIONS)
def test_an_ablation_changes_one_thing(source: str) -> None:
    whole = {
        run.seed: run for run in runs.planned(("capsar-extended",)) if run.dataset == "restaurant"
    }
    for run in runs.planned((source,)):
        assert run.row == source
        assert run.dataset == "restaurant"
        full, part = (dict(_flat(one.shown_config())) for one in (whole[run.seed], run))
        changed = {name for name in full if full[name] != part[name]}
        assert changed in ({"train.teacher"}, {"train.init_from", "data.vectors"})


def _flat(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, settings in config.items():
        for name, value in settings.items():
            yield f"{section}.{name}", value


def test_extended_rows_are_compared_with_the_paper_and_list_their_data() -> None:
    """Use run files of `capsar` under the names of the extended row: the gaps must be the same."""
    made = []
    for run in runs.planned(("capsar-extended", "capsar-extended-wo-teacher")):
        own = next(
            one
            for one in runs.planned(("capsar",))
            if (one.dataset, one.seed) == (run.dataset, run.seed)
        ).read()
        assert own is not None
        facts = {"source": run.source, "row": run.row, "config": run.shown_config()}
        made.append(own | facts)
    results = Results(summarize([*runs.finished(("capsar",)), *made]), made)
    accuracy = extended.accuracy(results)
    assert "| Restaurant | CAPSAR, Bi-GRU | 5 | .7796 ± .0073 | .8286 | −.0490 [" in accuracy
    assert "+.0000 [+.0000, +.0000]" in accuracy
    extra_data = " ".join(extended.extra_data(results).split())
    assert "fine-tuned from capsar-general-all-0, distilled from capsar-bert-extended" in extra_data
    assert "| the teacher | 3 |" in extended.ablation(results)
    shown = " ".join(extended.overview(results).split())
    assert "lower: CAPSAR on Restaurant, accuracy (−.0490 [" in shown


def entry_of(mean: float, sd: float, dataset: str = "restaurant") -> dict[str, Any]:
    return {
        "table": "table2", "row": "capsar-extended", "encoder": "bigru", "dataset": dataset,
        "protocol": "ours", "gold": None, "metric": "accuracy", "mean": mean, "sd": sd, "n": 5,
        "paper": 0.8286,
    }  # fmt: skip


def test_a_gap_to_the_paper_is_significant_only_if_its_interval_excludes_zero() -> None:
    small, large = entry_of(0.8318, 0.0029), entry_of(0.84, 0.0029, "laptop")
    entries = [entry | {"metric": m} for entry in (small, large) for m in ("accuracy", "macro_f1")]
    shown = " ".join(extended.overview(Results(entries, [])).split())
    assert "higher: CAPSAR on Laptop, accuracy (+.0114 [+.0078, +.0150])" in shown
    _, _, undecided = shown.partition("not significantly different: ")
    assert "CAPSAR on Restaurant, accuracy (+.0032 [−.0004, +.0068])" in undecided

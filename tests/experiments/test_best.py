"""Search, selection and labelling cannot open a test set, and none is trained on."""

from __future__ import annotations

import dataclasses
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
from pages import best
from pseudo_labels import SOURCES, sentences_for
from summarize import Results, summarize

STEPS = {
    "search": (
        "from studies import search",
        "search.train",
        "sys.argv[1:] = ['--trials', '1']; search.main()",
    ),
    "label": (
        "import pseudo_labels",
        "pseudo_labels.load",
        "pseudo_labels.label_dataset('restaurant')",
    ),
    "trial": (
        "from studies import best_trials",
        "best_trials.train",
        "best_trials._split = lambda *_: (Path('rest'), Path('kept')); best_trials.main('laptop')",
    ),
    "train": (
        "import capsar",
        "capsar.train",
        "run.train_only(run.find_run('capsar-bert-best-laptop-0'))",
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
if {step!r} == "search":
    search.STUDY = Path({str(tmp_path / "study.jsonl")!r})
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
    "run", [r for r in runs.planned(runs.BEST) if r.seed == 0], ids=lambda run: str(run.name)
)
def test_no_test_sentence_is_trained_on(
    run: runs.Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    data = run.config().data
    kept = tuple(s for s in data.partially_annotated if s not in run.generated_files())
    splits = read_splits(dataclasses.replace(data, partially_annotated=kept))
    index = sentence_index()
    examples = (*splits.train, *splits.validation, *splits.partially_annotated)
    texts = {e.text for e in examples} | {s.text for s in splits.train_sentences}
    assert len(texts) > 1000
    assert splits.excluded > 0
    assert [text for text in texts if index.find(text)] == []


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dataset", SOURCES)
def test_no_test_sentence_is_pseudo_labelled(dataset: str) -> None:
    index = sentence_index()
    sentences = list(sentences_for(dataset))
    assert len(sentences) > 5000
    assert [sentence for sentence in sentences if index.find(sentence)] == []


@pytest.mark.parametrize("source", runs.BEST_ABLATIONS)
def test_an_ablation_changes_settings_of_one_kind(source: str) -> None:
    whole = {run.seed: run for run in runs.planned(("capsar-best",)) if run.dataset == "restaurant"}
    for run in runs.planned((source,)):
        assert run.row == source
        assert run.dataset == "restaurant"
        full, part = (dict(_flat(one.shown_config())) for one in (whole[run.seed], run))
        changed = {name for name in full if full[name] != part[name]}
        assert changed
        data = {"data.partially_annotated", "train.teacher", "train.feature_distill_epochs"}
        ema = {"train.ema_decay"}
        assert changed <= data or changed == ema or not changed & (data | ema)
        assert not any(name.startswith("data.") for name in changed - data)


def _flat(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, settings in config.items():
        for name, value in settings.items():
            yield f"{section}.{name}", value


def test_best_rows_are_compared_with_the_paper_and_list_their_data() -> None:
    """Use run files of `capsar` under the names of the best row: the gaps must be the same."""
    made = []
    for run in runs.planned(("capsar-best", "capsar-best-wo-distillation")):
        own = next(
            one
            for one in runs.planned(("capsar",))
            if (one.dataset, one.seed) == (run.dataset, run.seed)
        ).read()
        assert own is not None
        facts = {"source": run.source, "row": run.row, "config": run.shown_config()}
        made.append(own | facts)
    results = Results(summarize([*runs.finished(("capsar",)), *made]), made)
    accuracy = best.accuracy(results)
    assert "| Restaurant | CAPSAR, Bi-GRU | 5 | .7796 ± .0073 | .8286 | −.0490 [" in accuracy
    assert "+.0000 [+.0000, +.0000]" in accuracy
    extra_data = " ".join(best.extra_data(results).split())
    assert "reviews pseudo-labelled by capsar-bert-best-restaurant-0" in extra_data
    assert "| pseudo-labelled reviews | 2 |" in best.ablation(results)
    assert "lower: Restaurant accuracy (−.0490 [" in " ".join(best.overview(results).split())


def entry_of(mean: float, sd: float, dataset: str = "restaurant") -> dict[str, Any]:
    return {
        "table": "table2", "row": "capsar-best", "encoder": "bigru", "dataset": dataset,
        "protocol": "ours", "gold": None, "metric": "accuracy", "mean": mean, "sd": sd, "n": 5,
        "paper": 0.8286,
    }  # fmt: skip


def test_a_gap_to_the_paper_is_significant_only_if_its_interval_excludes_zero() -> None:
    small, large = entry_of(0.8318, 0.0029), entry_of(0.84, 0.0029, "laptop")
    entries = [entry | {"metric": m} for entry in (small, large) for m in ("accuracy", "macro_f1")]
    shown = " ".join(best.overview(Results(entries, [])).split())
    assert "higher: Laptop accuracy (+.0114 [+.0078, +.0150])" in shown
    assert "not significantly different: Restaurant accuracy (+.0032 [−.0004, +.0068])" in shown


def test_committed_claims_are_those_of_the_intervals() -> None:
    shown = " ".join(best.overview(Results()).split())
    _, _, undecided = shown.partition("not significantly different: ")
    for name in ("Restaurant accuracy", "Laptop accuracy", "Laptop R@5"):
        assert name in undecided


def test_generations_and_validation_of_feature_distillation_are_shown() -> None:
    results = Results()
    exposure = best.exposure(results)
    rows = exposure.splitlines()[2:]
    counts = {
        name: sum(f"| {name} |" in row for row in rows)
        for name in ("Restaurant", "Laptop", "Twitter")
    }
    assert counts == {"Restaurant": 2, "Laptop": 4, "Twitter": 3}
    assert ".8096" in exposure
    assert ".8318" in exposure
    rows = best.feature_distillation(results).splitlines()[2:]
    values = [[float(cell) for cell in row.strip("| ").split("|")] for row in rows]
    assert [seed for seed, *_ in values] == [0, 1, 2]
    assert all(without > with_it for _, with_it, without in values)

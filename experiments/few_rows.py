"""How far do 200 labelled rows of one's own go? `python experiments/few_rows.py`.

Five times, 200 rows of SemEval-14 Laptop's training part are drawn as a user would bring them, in a
file, and `capsar train --from base` goes on with it: a fifth of them chooses the epoch. The test
part is read once a model. So is what is left of the training part, which chooses nothing either,
and tells what rows of the very same source bring. Figures go to
`experiments/results/few-rows.json`.
"""

from __future__ import annotations

import json
import os
import platform
import random
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from capsar import evaluate, load, train
from capsar.config import run_config
from capsar.data.catalog import test_examples, training_examples
from capsar.data.splits import drop_shared
from capsar.evaluation.evaluate import judgeable
from capsar.evaluation.extraction import judge_extraction, term_sentences
from capsar.training.start import further
from judge import rounded
from perform import commit_of_code, machine_class
from reproduce import refresh
from runs import EXPERIMENTS, ROOT, WORK, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsar.analyze import Analyzer
    from capsar.data.example import Example

RESULT = EXPERIMENTS / "results" / "few-rows.json"
DATASET = "semeval14-laptops"
ROWS = 200
SEEDS = range(5)
DEV_SHARE = 0.2


def main() -> None:
    torch.set_num_threads(1)
    os.chdir(ROOT)
    test = test_examples(DATASET)
    pool = drop_shared(training_examples(DATASET), {example.text for example in test}).kept
    base = load("base")
    runs = []
    for seed in SEEDS:
        folder = WORK / f"few-rows-{seed}"
        rows = draw(pool, seed)
        data = write_rows(folder / "rows.jsonl", rows)
        sections = further("base")
        sections["data"] = {"train": str(data), "dev_share": DEV_SHARE, "dev_seed": seed}
        sections["train"]["seed"] = seed
        result = train(run_config(sections), folder)
        drawn = {example.text for example in rows}
        rest = [example for example in pool if example.text not in drawn]
        facts = {"seed": seed, "rows": len(judgeable(rows)), "best_epoch": result.best_epoch}
        own = load(result.bundle)
        runs.append(
            facts
            | judge(own, test)
            | {"rest": judge(own, rest), "rest_untouched": judge(base, rest)}
        )
        print(runs[-1], flush=True)
    document = {
        "name": "few-rows",
        "command": "python experiments/few_rows.py",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "onnxruntime")},
        "machine": machine_class(),
        "untouched": judge(base, test),
        "runs": runs,
    }
    write_json(RESULT, rounded(document))
    refresh()


def judge(analyzer: Analyzer, test: Sequence[Example]) -> dict[str, float]:
    """Return how a model does with the aspects given, and with nothing given."""
    figures = evaluate(analyzer, test).figures
    sentences = term_sentences(test)
    told = analyzer.analyze([sentence.text for sentence in sentences])
    found = judge_extraction(sentences, told)
    return {
        "accuracy": figures.accuracy, "macro_f1": figures.macro_f1,
        "span_f1": found.spans.f1, "joint_f1": found.joint.f1,
    }  # fmt: skip


def draw(pool: Sequence[Example], seed: int) -> list[Example]:
    """Return all examples of as many sentences as make up the rows: those without terms as well."""
    by_text: dict[str, list[Example]] = {}
    for example in pool:
        by_text.setdefault(example.text, []).append(example)
    texts = sorted(by_text)
    random.Random(f"few-rows:{seed}").shuffle(texts)
    drawn: list[Example] = []
    for text in texts:
        if len(judgeable(drawn)) + len(judgeable(by_text[text])) <= ROWS:
            drawn += by_text[text]
        if len(judgeable(drawn)) == ROWS:
            break
    return drawn


def write_rows(path: Path, examples: Sequence[Example]) -> Path:
    """Write examples as a user's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for example in examples:
            row: dict[str, object] = {"text": example.text}
            if example.spans and example.polarity:
                (span,) = example.spans
                row |= {"aspect": example.aspect, "start": span.start, "end": span.end}
                row["polarity"] = str(example.polarity)
            stream.write(json.dumps(row) + "\n")
    return path


if __name__ == "__main__":
    main()

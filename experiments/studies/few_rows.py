"""Fine-tune `base` on 200 labeled rows: `python experiments/studies/few_rows.py`.

Five times, 200 rows of SemEval-14 Laptop's training set are drawn into a file, as a user would
bring them, and `base` is fine-tuned on it; a fifth of the rows selects the epoch. Each model is
evaluated once on the test set, and on the training rows that were not drawn. Writes
`results/few-rows.json`; a stopped study resumes.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import evaluate, load, train
from capsar.config import run_config
from capsar.data.catalog import test_examples, training_examples
from capsar.data.splits import decontaminate
from capsar.evaluation.evaluate import labeled
from capsar.evaluation.spans import evaluate_spans, term_sentences
from capsar.training.initialize import fine_tune_settings
from evaluate import rounded
from run import RESULTS, WORK, describe_study, prepare_process, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example

DATASET = "semeval14-laptops"
ROWS = 200
SEEDS = range(5)
VALIDATION_RATIO = 0.2


def main() -> None:
    prepare_process()
    test = test_examples(DATASET)
    pool = decontaminate(training_examples(DATASET), {example.text for example in test}).kept
    base = load("base")
    runs = []
    for seed in SEEDS:
        folder = WORK / f"few-rows-{seed}"
        measured = folder / "measured.json"
        if measured.is_file():
            runs.append(read_json(measured))
            continue
        rows = draw(pool, seed)
        sections = fine_tune_settings("base")
        sections["data"] = {
            "train": str(write_rows(folder / "rows.jsonl", rows)),
            "validation_ratio": VALIDATION_RATIO,
            "validation_seed": seed,
        }
        sections["train"]["seed"] = seed
        result = train(run_config(sections), folder)
        drawn = {example.text for example in rows}
        rest = [example for example in pool if example.text not in drawn]
        facts = {"seed": seed, "rows": len(labeled(rows)), "best_epoch": result.best_epoch}
        own = load(result.bundle)
        found = {"rest": measure(own, rest), "rest_untouched": measure(base, rest)}
        runs.append(facts | measure(own, test) | found)
        write_json(measured, runs[-1])
    about = describe_study("few-rows", "studies/few_rows.py", "torch", "numpy", "onnxruntime")
    document = about | {"untouched": measure(base, test), "runs": runs}
    write_json(RESULTS / "few-rows.json", rounded(document))


def measure(analyzer: Analyzer, examples: Sequence[Example]) -> dict[str, float]:
    """Return polarity metrics with the aspects given, and span metrics without."""
    metrics = evaluate(analyzer, examples).metrics
    sentences = term_sentences(examples)
    predicted = analyzer.analyze([sentence.text for sentence in sentences])
    found = evaluate_spans(sentences, predicted)
    return {
        "accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1,
        "span_f1": found.spans.f1, "joint_f1": found.joint.f1,
    }  # fmt: skip


def draw(pool: Sequence[Example], seed: int) -> list[Example]:
    """Return all examples of random sentences, with and without terms, until there are enough."""
    by_text: dict[str, list[Example]] = {}
    for example in pool:
        by_text.setdefault(example.text, []).append(example)
    texts = sorted(by_text)
    random.Random(f"few-rows:{seed}").shuffle(texts)
    drawn: list[Example] = []
    for text in texts:
        if len(labeled(drawn)) + len(labeled(by_text[text])) <= ROWS:
            drawn += by_text[text]
        if len(labeled(drawn)) == ROWS:
            break
    return drawn


def write_rows(path: Path, examples: Sequence[Example]) -> Path:
    """Write examples as JSON Lines."""
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

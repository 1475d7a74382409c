"""Evaluate attributions on the test sets: `python experiments/studies/faithfulness.py [RUNS]`.

Compares the attributions of CAPSAR (five seeds) and CAPSAR-BERT on MiniLM (three) on Restaurant and
Laptop with random words and gradients; bundles are below `runs/` or RUNS. Test labels are not used
and nothing is chosen. Writes `results/faithfulness.json`; results that it holds are kept.

`… faithfulness.py bundled` compares what the bundled models show, the importance of words and
opinion phrases, with the same rankings: `results/faithfulness-bundled.json`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.data.catalog import test_examples
from capsar.tokenizer import tokenize_words, words_within
from evaluate import rounded
from metrics.faithfulness import evaluate_faithfulness
from metrics.gradients import GradientRanker
from pretrained.sets import BUNDLED, MODELS
from run import (
    DATASETS,
    RESULTS,
    WORK,
    describe_study,
    planned,
    prepare_process,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example
    from metrics.faithfulness import Ranker

RESULT = RESULTS / "faithfulness.json"
EVALUATED = ("restaurant", "laptop")
SEEDS = {"capsar": 5, "capsar-bert-minilm": 3, "capsar-bert-minilm-others": 3}


def faithfulness_of(bundle: Path, dataset: str) -> dict[str, Any]:
    """Evaluate one bundle on the test set of its dataset."""
    rankers = {
        "gradient": GradientRanker.load(bundle),
        "gradient_norm": GradientRanker.load(bundle, by_norm=True),
    }
    examples = test_examples(DATASETS[dataset])
    found = evaluate_faithfulness(load(bundle), examples, rankers={**rankers})
    metrics: dict[str, Any] = rounded(found.as_dict())
    return metrics


def rank_by_importance(analyzer: Analyzer) -> Ranker:
    """Return a ranking of words by how much shorter the capsule is without the word."""

    def rank(examples: Sequence[Example], classes: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        full = analyzer.predict_lengths(examples)
        ranked = []
        for example, lengths, own in zip(examples, full, classes, strict=True):
            num_words = len(tokenize_words(example.text))
            kept = [[j for j in range(num_words) if j != i] for i in range(num_words)]
            without = analyzer.predict_words([example] * num_words, kept)
            ranked.append(lengths[own] - without[:, own])
        return ranked

    return rank


def rank_by_opinions(analyzer: Analyzer) -> Ranker:
    """Return a ranking with the words of opinion phrases first, and otherwise at random."""

    def rank(examples: Sequence[Example], _: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        generator = np.random.default_rng(0)
        texts, spans = [one.text for one in examples], [[one.spans[0]] for one in examples]
        ranked = []
        for text, (found,) in zip(texts, analyzer.classify(texts, spans), strict=True):
            words = tokenize_words(text)
            scores = generator.random(len(words), dtype=np.float32)
            for opinion in found.opinions or ():
                scores[list(words_within(words, opinion.start, opinion.end))] += 1
            ranked.append(scores)
        return ranked

    return rank


def evaluate_bundled() -> None:
    """Evaluate the bundled models."""
    prepare_process()
    models: dict[str, Any] = {}
    for name in BUNDLED:
        analyzer = load(name)
        rankers: dict[str, Ranker] = {
            "importance": rank_by_importance(analyzer),
            "opinions": rank_by_opinions(analyzer),
            "gradient": GradientRanker.load(MODELS / name),
            "gradient_norm": GradientRanker.load(MODELS / name, by_norm=True),
        }
        for dataset in EVALUATED:
            examples = test_examples(DATASETS[dataset])
            found = evaluate_faithfulness(
                analyzer, examples, rankers=rankers, reference="importance"
            )
            models.setdefault(name, {})[dataset] = rounded(found.as_dict())
            print(name, dataset, found, flush=True)
    about = describe_study(
        "faithfulness-bundled", "studies/faithfulness.py bundled", "torch", "numpy", "onnxruntime"
    )
    write_json(RESULTS / "faithfulness-bundled.json", about | {"models": models})


def main() -> None:
    prepare_process()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else WORK
    runs: dict[str, Any] = {run["name"]: run for run in read_json(RESULT).get("runs", ())}
    for run in planned(tuple(SEEDS)):
        known = runs.get(run.name, {}).get("config_hash") == run.config_hash
        if known or run.dataset not in EVALUATED or run.seed >= SEEDS[run.source]:
            continue
        about = describe_study(
            "faithfulness", "studies/faithfulness.py", "torch", "numpy", "onnxruntime"
        )
        facts = ("name", "row", "encoder", "vectors", "dataset", "protocol", "seed", "config_hash")
        runs[run.name] = {name: getattr(run, name) for name in facts} | {
            "evaluated_at": about["commit"],
            "faithfulness": faithfulness_of(folder / run.folder.name / "bundle", run.dataset),
        }
        write_json(RESULT, about | {"runs": list(runs.values())})
        print(run.name, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["bundled"]:
        evaluate_bundled()
    else:
        main()

"""The models that ship, judged on sets that they never met: `python experiments/unseen.py [NAME]`.

Each set is read once, nothing is chosen on it, and no sentence of it was trained on
(`shared_sentences.py`). Figures go to `experiments/results/unseen.json`, and from there
into the summary and `docs/results.md`. With a name, those of the other one are kept.
"""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from capsar import evaluate, load
from capsar.bundle import open_bundle
from capsar.data.catalog import test_examples
from capsar.evaluation.calibration import judge_confidence
from capsar.evaluation.evaluate import judgeable
from capsar.evaluation.extraction import judge_extraction, term_sentences
from capsar.evaluation.robustness import ARTS_OF, arts_examples, judge_robustness
from capsar.labels import CLASSES
from judge import rounded
from perform import commit_of_code, machine_class
from reproduce import refresh
from runs import DATASETS, EXPERIMENTS, write_json
from shipped import MODELS, SEEN, SHIPPED, UNSEEN, WITHOUT_SPANS

if TYPE_CHECKING:
    from capsar.analyze import Analyzer
    from capsar.data.example import Example

RESULT = EXPERIMENTS / "results" / "unseen.json"


def main(*names: str) -> None:
    before = json.loads(RESULT.read_text(encoding="utf-8"))["models"] if names else {}
    found = {
        name: judge_model(name) if name in (names or SHIPPED) else before[name] for name in SHIPPED
    }
    document = {
        "name": "unseen",
        "command": "python experiments/unseen.py",
        "commit": "that of each model",
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", "onnxruntime")},
        "machine": machine_class(),
        "majority": {name: majority(read(name)) for name in (*SEEN, *UNSEEN)},
        "models": found,
    }
    write_json(RESULT, rounded(document))
    refresh()


def read(name: str) -> list[Example]:
    """Return the test part of a set."""
    return test_examples(DATASETS.get(name, name))


def judge_model(name: str) -> dict[str, Any]:
    """Judge a model that ships on every set."""
    folder = MODELS / name
    analyzer = load(folder)
    config = open_bundle(folder).config
    return {
        "commit": commit_of_code(),
        "bundle_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "dev": config["dev"],
        "sets": {name: judge_set(analyzer, name) for name in (*SEEN, *UNSEEN)},
    }


def judge_set(analyzer: Analyzer, name: str) -> dict[str, Any]:
    """Judge a model on one set: polarity, confidence, and spans and robustness where they are."""
    examples = read(name)
    judged = evaluate(analyzer, examples).as_dict()
    confidence = judge_confidence(analyzer, examples)
    judged["confidence"] = {kind: figures.as_dict() for kind, figures in confidence.items()}
    if name not in WITHOUT_SPANS and analyzer.modes[0] == "spans":
        sentences = term_sentences(examples)
        told = analyzer.analyze([sentence.text for sentence in sentences])
        judged["spans"] = judge_extraction(sentences, told).as_dict()
    if DATASETS.get(name, name) in ARTS_OF:
        arts = judge_robustness(analyzer, arts_examples(DATASETS[name]))
        judged["arts"] = asdict(arts)
    return judged


def majority(examples: list[Example]) -> dict[str, Any]:
    """Return the figures of whoever always gives a set's most frequent answer."""
    counts = Counter(example.polarity for example in judgeable(examples))
    most, number = counts.most_common(1)[0]
    share = number / counts.total()
    return {
        "polarity": str(most),
        "accuracy": share,
        "macro_f1": 2 * share / (1 + share) / len(CLASSES),
        "num_examples": counts.total(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])

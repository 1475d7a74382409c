"""Evaluate the bundled models out of domain: `… pretrained/out_of_domain.py [NAME]`.

Each test set is read once, nothing is chosen on it, and no sentence of it was trained on
(`studies/overlap.py`). Writes `results/out-of-domain.json`; with a name, the results of the other
model are kept. Then run `summarize.py` and `pages/render.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import evaluate, load
from capsar.bundle import open_bundle
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import labeled
from capsar.evaluation.robustness import ARTS_OF, arts_examples, evaluate_robustness
from capsar.evaluation.spans import evaluate_spans, term_sentences
from capsar.schema import CLASSES
from evaluate import confidence, rounded
from pretrained.sets import BUNDLED, IN_DOMAIN, MODELS, OUT_OF_DOMAIN, WITHOUT_SPANS
from run import DATASETS, RESULTS, commit_of_code, describe_study, read_json, write_json

if TYPE_CHECKING:
    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example

RESULT = RESULTS / "out-of-domain.json"


def main(*names: str) -> None:
    before = read_json(RESULT)["models"] if names else {}
    sets = {name: test_examples(DATASETS.get(name, name)) for name in (*IN_DOMAIN, *OUT_OF_DOMAIN)}
    about = describe_study(
        "out-of-domain", "pretrained/out_of_domain.py", "numpy", "onnxruntime"
    ) | {"commit": "that of each model"}
    document = about | {
        "majority": {name: majority(examples) for name, examples in sets.items()},
        "models": {
            name: evaluate_model(name, sets) if name in (names or BUNDLED) else before[name]
            for name in BUNDLED
        },
    }
    write_json(RESULT, rounded(document))


def evaluate_model(name: str, sets: dict[str, list[Example]]) -> dict[str, Any]:
    """Evaluate a bundled model on every set."""
    folder = MODELS / name
    analyzer = load(folder)
    return {
        "commit": commit_of_code(),
        "bundle_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "validation": open_bundle(folder).config["validation"],
        "sets": {key: evaluate_set(analyzer, key, examples) for key, examples in sets.items()},
    }


def evaluate_set(analyzer: Analyzer, name: str, examples: list[Example]) -> dict[str, Any]:
    """Evaluate polarity and confidence, and spans and robustness where a set allows it."""
    found = evaluate(analyzer, examples).as_dict()
    found["confidence"] = confidence(analyzer, examples)
    if name not in WITHOUT_SPANS and analyzer.modes[0] == "spans":
        sentences = term_sentences(examples)
        predicted = analyzer.analyze([sentence.text for sentence in sentences])
        found["spans"] = evaluate_spans(sentences, predicted).as_dict()
    if DATASETS.get(name, name) in ARTS_OF:
        found["arts"] = asdict(evaluate_robustness(analyzer, arts_examples(DATASETS[name])))
    return found


def majority(examples: list[Example]) -> dict[str, Any]:
    """Return the metrics of always predicting the most frequent class of a set."""
    counts = Counter(example.polarity for example in labeled(examples))
    polarity, number = counts.most_common(1)[0]
    share = number / counts.total()
    return {
        "polarity": str(polarity),
        "accuracy": share,
        "macro_f1": 2 * share / (1 + share) / len(CLASSES),
        "num_examples": counts.total(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])

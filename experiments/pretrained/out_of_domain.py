"""Evaluate the bundled models on every test set: `… pretrained/out_of_domain.py [NAME]`.

Writes `results/out-of-domain.json`: the bundled models, those of the previous release, VADER and
the majority class on public sets, on the corpus' test part and on the behavioral suite, with paired
differences. Each test set is read once, nothing is chosen on it, and no sentence of it was trained
on (`studies/overlap.py`). With the name of a model, the results of the others are kept. Then run
`summarize.py`, `pages/render.py` and `corpus/quality.py`.
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
from capsar.data.catalog import dataset
from capsar.evaluation.behavior import SUITE_SHA256, evaluate_behavior
from capsar.evaluation.evaluate import labeled
from capsar.evaluation.robustness import ARTS_OF, arts_examples, evaluate_robustness
from capsar.evaluation.spans import evaluate_spans, term_sentences
from capsar.inference.analyzer import Analyzer
from capsar.schema import CLASSES, Polarity
from evaluate import confidence, rounded
from pretrained.baselines import (
    PREVIOUS_RELEASE,
    Majority,
    Remembered,
    Vader,
    is_right,
    paired_difference,
    previous_bundle,
)
from pretrained.sets import (
    BUNDLED,
    CORPUS,
    IN_DOMAIN,
    MODELS,
    OUT_OF_DOMAIN,
    VADER,
    WITHOUT_SPANS,
    read_test_set,
)
from run import DATASETS, RESULTS, commit_of_code, describe_study, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from capsar.evaluation.evaluate import Predictor
    from capsar.schema import Example

RESULT = RESULTS / "out-of-domain.json"
BASELINES: dict[str, Callable[[], Vader]] = {
    VADER: lambda: Vader(by_clause=False),
    "VADER, clause": lambda: Vader(by_clause=True),
    "positive": lambda: Majority(Polarity.POSITIVE),
}


def main(*names: str) -> None:
    before = read_json(RESULT).get("models", {}) if names else {}
    sets = {name: read_test_set(name) for name in (*OUT_OF_DOMAIN, *IN_DOMAIN)}
    vader = {key: is_right(BASELINES[VADER](), examples) for key, examples in sets.items()}
    about = describe_study(
        "out-of-domain", "pretrained/out_of_domain.py", "numpy", "onnxruntime", "vaderSentiment"
    ) | {"commit": "that of each model"}
    models = {
        name: evaluate_model(name, sets, vader) if name in (names or BUNDLED) else before[name]
        for name in BUNDLED
    }
    baselines = {
        name: {"commit": commit_of_code(), **evaluate_sets(build(), sets, vader)[0]}
        for name, build in BASELINES.items()
    }
    document = about | {
        "suite_sha256": SUITE_SHA256,
        "test_sha256": dataset(CORPUS).file("test").sha256,
        "majority": {name: majority(examples) for name, examples in sets.items()},
        "models": models,
        "baselines": baselines,
    }
    write_json(RESULT, rounded(document))


def evaluate_model(
    name: str, sets: dict[str, list[Example]], vader: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Evaluate a bundled model on every set, beside its previous release."""
    folder = MODELS / name
    found, right = evaluate_sets(load(folder), sets, vader)
    before, right_before = evaluate_sets(load(previous_bundle(name)), sets, vader)
    for key, examples in sets.items():
        difference = paired_difference(right[key], right_before[key], examples)
        found["sets"][key]["minus_previous"] = difference
    return {
        "commit": commit_of_code(),
        "bundle_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "validation": open_bundle(folder).config["validation"],
        **found,
        "previous": {"release": PREVIOUS_RELEASE, **before},
    }


def evaluate_sets(
    model: Analyzer | Vader, sets: dict[str, list[Example]], vader: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Evaluate a model or a baseline on every set and on the suite, and say what it has right."""
    found, right = {}, {}
    for key, examples in sets.items():
        remembered = Remembered(model)
        right[key] = is_right(remembered, examples)
        found[key] = evaluate_polarity(remembered, key, examples)
        found[key]["minus_vader"] = paired_difference(right[key], vader[key], examples)
        if DATASETS.get(key, key) in ARTS_OF:
            found[key]["arts"] = asdict(evaluate_robustness(model, arts_examples(DATASETS[key])))
        if isinstance(model, Analyzer):
            found[key] |= evaluate_analyzer(model, key, examples)
    return {"sets": found, "behavior": evaluate_behavior(model).as_dict()}, right


def evaluate_polarity(model: Predictor, name: str, examples: list[Example]) -> dict[str, Any]:
    """Evaluate polarity with the aspects given, on the corpus also by source."""
    found = evaluate(model, examples).as_dict()
    if name == CORPUS:
        found["by_source"] = {
            source: evaluate(model, own).as_dict()["metrics"]
            for source, own in by_source(examples).items()
        }
    return found


def evaluate_analyzer(model: Analyzer, name: str, examples: list[Example]) -> dict[str, Any]:
    """Evaluate confidences and, where every aspect is marked, spans."""
    found: dict[str, Any] = {"confidence": confidence(model, examples)}
    if name not in WITHOUT_SPANS:
        sentences = term_sentences(examples)
        predicted = model.analyze([sentence.text for sentence in sentences])
        found["spans"] = evaluate_spans(sentences, predicted).as_dict()
        found["recall"] = recall_by_polarity(sentences, predicted)
    return found


def recall_by_polarity(sentences: Any, predicted: Any) -> dict[str, float]:  # noqa: ANN401
    """Return the share of each polarity's terms whose span is found, whatever its polarity."""
    gold, right = Counter[str](), Counter[str]()
    for sentence, aspects in zip(sentences, predicted, strict=True):
        spans = {(aspect.start, aspect.end) for aspect in aspects}
        for offsets, polarity in sentence.terms.items():
            gold[str(polarity)] += 1
            right[str(polarity)] += offsets in spans
    return {str(polarity): right[polarity] / max(1, gold[polarity]) for polarity in CLASSES}


def by_source(examples: list[Example]) -> dict[str, list[Example]]:
    """Split the corpus' test set into authored sentences and those of real reviews, by ids."""
    real = [example for example in examples if example.id.startswith("test-reviews")]
    authored = [example for example in examples if not example.id.startswith("test-reviews")]
    return {"authored": authored, "real": real}


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

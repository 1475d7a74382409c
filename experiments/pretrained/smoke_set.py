"""Evaluate the bundled models on the smoke set: `python experiments/pretrained/smoke_set.py`.

Reads fifty sentences of ten domains (`tests/regression/smoke_set.json`), written before any model
was run on them, and writes `experiments/results/smoke-set.json`: how many polarities are right with
the aspect given, and how many sentences are entirely right, aspects and polarities, without.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from pretrained.sets import BUNDLED
from run import RESULTS, ROOT, describe_study, write_json

if TYPE_CHECKING:
    from capsar.inference.analyzer import Analyzer

SENTENCES = ROOT / "tests" / "regression" / "smoke_set.json"
RESULT = RESULTS / "smoke-set.json"


def main() -> None:
    sentences = json.loads(SENTENCES.read_text(encoding="utf-8"))
    about = describe_study("smoke-set", "pretrained/smoke_set.py", "numpy", "onnxruntime")
    models = {name: evaluate_sentences(load(name), sentences) for name in BUNDLED}
    write_json(RESULT, about | {"models": models})
    for name, found in models.items():
        print(name, {key: value for key, value in found.items() if key != "wrong"})


def evaluate_sentences(analyzer: Analyzer, sentences: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many polarities and sentences are right, and which sentences are wrong."""
    texts = [sentence["text"] for sentence in sentences]
    gold = [
        {one["aspect"]: one["polarity"] for one in sentence["aspects"]} for sentence in sentences
    ]
    given = analyzer.classify(texts, [list(aspects) for aspects in gold])
    polarities = [
        str(one.polarity) == expected
        for aspects, polarities in zip(given, gold, strict=True)
        for one, expected in zip(aspects, polarities.values(), strict=True)
    ]
    predicted = [
        {aspect.text: str(aspect.polarity) for aspect in aspects}
        for aspects in analyzer.analyze(texts)
    ]
    pairs = list(zip(texts, predicted, gold, strict=True))
    return {
        "polarities": len(polarities),
        "polarities_right": sum(polarities),
        "sentences": len(texts),
        "sentences_right": sum(own == right for _, own, right in pairs),
        "aspects_predicted": sum(len(own) for _, own, _ in pairs),
        "aspects_right": sum(name in right for _, own, right in pairs for name in own),
        "wrong": [text for text, own, right in pairs if own != right],
    }


if __name__ == "__main__":
    main()

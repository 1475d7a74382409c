"""Fifty sentences of our own, of ten domains: what do the models that ship say of them?

`python experiments/fifty.py` reads `tests/regression/fifty.json`, written before any model had
answered, and writes `experiments/results/fifty.json`: how many polarities are right with the aspect
given, and how many sentences are told exactly right, aspects and polarities, with nothing given.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from capsar import load
from perform import commit_of_code, machine_class
from runs import EXPERIMENTS, ROOT, write_json
from shipped import SHIPPED

if TYPE_CHECKING:
    from capsar.analyze import Analyzer

SENTENCES = ROOT / "tests" / "regression" / "fifty.json"
RESULT = EXPERIMENTS / "results" / "fifty.json"


def main() -> None:
    sentences = json.loads(SENTENCES.read_text(encoding="utf-8"))
    document: dict[str, Any] = {
        "name": "fifty",
        "command": "python experiments/fifty.py",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", "onnxruntime")},
        "machine": machine_class(),
        "models": {name: answer(load(name), sentences) for name in SHIPPED},
    }
    write_json(RESULT, document)
    for name, figures in document["models"].items():
        print(name, {key: value for key, value in figures.items() if key != "wrong"})


def answer(analyzer: Analyzer, sentences: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often a model says what a person would, and where it does not."""
    texts = [sentence["text"] for sentence in sentences]
    expected = [
        {one["aspect"]: one["polarity"] for one in sentence["aspects"]} for sentence in sentences
    ]
    given = analyzer.classify(texts, [list(some) for some in expected])
    told = [
        {aspect.text: str(aspect.polarity) for aspect in some} for some in analyzer.analyze(texts)
    ]
    polarities = [
        (text, str(one.polarity), wanted)
        for text, some, right in zip(texts, given, expected, strict=True)
        for one, wanted in zip(some, right.values(), strict=True)
    ]
    found = [(text, some, right) for text, some, right in zip(texts, told, expected, strict=True)]
    return {
        "polarities": len(polarities),
        "polarities_right": sum(own == wanted for _, own, wanted in polarities),
        "sentences": len(texts),
        "sentences_right": sum(own == right for _, own, right in found),
        "aspects_told": sum(len(own) for _, own, _ in found),
        "aspects_right": sum(name in right for _, own, right in found for name in own),
        "wrong": [text for text, own, right in found if own != right],
    }


if __name__ == "__main__":
    main()

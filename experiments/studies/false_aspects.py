"""Aspects found where a test set marks none: `python experiments/studies/false_aspects.py list`.

SemEval-14 has sentences without a term, in which the bundled models find aspects. `list` writes 50
of those that `base` finds in each set, chosen by a hash, to `runs/false-aspects/SET.txt`. A reader
who knows our guideline replaces `?` by `yes` or `no`: is it a term? `count` then writes
`results/false-aspects.json`, which holds no text.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.evaluation.spans import term_sentences
from pretrained.sets import read_test_set
from run import RESULTS, WORK, describe_study, write_json, write_text

RESULT = RESULTS / "false-aspects.json"
SETS = ("restaurant", "laptop")
NUM_READ = 50


def list_found() -> None:
    """Write the aspects for a reader."""
    analyzer = load("base")
    for name in SETS:
        texts = [s.text for s in term_sentences(read_test_set(name)) if not s.terms]
        rows = [
            f"?\t{text[: aspect.start]}[{aspect.text}]{text[aspect.end :]}"
            for text, aspects in zip(texts, analyzer.analyze(texts), strict=True)
            for aspect in aspects
        ]
        rows.sort(key=lambda row: sha256(row.encode()).hexdigest())
        write_text(_path(name), "\n".join(rows[:NUM_READ]) + "\n")


def count() -> None:
    """Count what the reader called terms."""
    read: dict[str, Any] = {}
    for name in SETS:
        verdicts = [line.partition("\t")[0] for line in _path(name).read_text().splitlines()]
        if not set(verdicts) <= {"yes", "no"}:
            raise SystemExit(f"{_path(name)} must begin each line with yes or no")
        read[name] = {"read": len(verdicts), "terms": verdicts.count("yes")}
    about = describe_study("false-aspects", "studies/false_aspects.py count", "onnxruntime")
    write_json(RESULT, about | {"model": "base", "sets": read})


def _path(name: str) -> Path:
    return WORK / "false-aspects" / f"{name}.txt"


if __name__ == "__main__":
    {"list": list_found, "count": count}[sys.argv[1]]()

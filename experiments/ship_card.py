"""The card of a model that ships: what its run says, and how it does where it never was."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from capsar.bundle import CARD, CONFIG, MANIFEST, open_bundle, write_bundle
from cells import number, paragraph, table
from runs import ROOT
from shipped import MODELS, SEEN, UNSEEN

if TYPE_CHECKING:
    from pathlib import Path

LICENCE = "Apache-2.0 and CC BY 4.0; see models/NOTICE.md"
VECTORS = {"base": "Apache-2.0", "fast": "PDDL"}
"""Licences of what gives each its word vectors: the encoder, GloVe 6B."""
FOR = {
    "base": "most uses: the better answers",
    "fast": "huge corpora, small machines: many times the speed",
}
NETWORKS = {
    "base": "CAPSAR on all-MiniLM-L6-v2, with an extraction head; weights stored in 8 bits",
    "fast": "CAPSAR on a Bi-GRU and GloVe 6B (100 dimensions), with an extraction head",
}
_FAILURES = 12
LISTED = ("restaurant", "laptop")
_FRONT = """---
license: other
license_name: apache-2.0-and-cc-by-4.0
language:
- en
library_name: capsar
pipeline_tag: text-classification
tags:
- aspect-based-sentiment-analysis
- sentiment
- capsule-network
- onnx
datasets:
- "mams"
- "bing-liu"
---
"""
_USE = """Reviews and feedback in English, read by the thousand: what is felt about what, with as
many errors as the tables say. Not for decisions about single people, nor as the only ground for any
decision."""
_LESSONS = """`neutral-mentions.jsonl` and `pros-cons.jsonl` were drawn from Bing Liu's files
(`experiments/lessons.py`): features in sentences in which nothing was judged, and features beside a
polar word in lines of pros and cons. They taught polarity only. Judged features that do not stand
in their sentence were no aspects to find. The dev part holds three products that were not trained
on."""
_TOLD = """`told-by-base.jsonl` is what `base` finds in lines of pros and cons and is sure of, where
the side of the line does not contradict it."""


def set_card(name: str, card: str) -> None:
    """Write a model's card and what `capsar models` lists into its bundle, and nothing else."""
    folder = MODELS / name
    bundle = open_bundle(folder)
    files = {
        file: bundle.path(file).read_bytes()
        for file in bundle.files
        if file not in (CONFIG, MANIFEST)
    }
    files[CARD] = card.encode()
    write_bundle(folder, bundle.config | {"shipped": facts(name)}, files)


def facts(name: str) -> dict[str, Any]:
    """Return what `capsar models` lists, as far as it has been measured."""
    sets = _read("experiments/results/unseen.json").get("models", {}).get(name, {}).get("sets", {})
    speeds = _read("benchmarks/results/models.json").get("metrics", {})
    return {
        "for": FOR[name],
        "network": NETWORKS[name],
        "licence": LICENCE,
        "sentences_per_s": speeds.get(f"{name}_sentences_per_s"),
        "unseen": {
            UNSEEN[key]: {m: sets[key]["figures"][m] for m in ("accuracy", "macro_f1")}
            for key in LISTED
            if key in sets
        },
    }


def render_card(name: str, of_run: str) -> str:
    """Return the card, from that of the run and from what has been measured since."""
    body = of_run.partition("---\n")[2].partition("---\n")[2].strip()
    for old, new in (
        ("# A CAPSAR model", f"# CAPSAR `{name}`"),
        ("path/to/this/folder", name),
        (r"\| licence of that data \| .*", f"| licence of that data | {LICENCE} |"),
        (r"\| licence of the vectors \| .*", f"| licence of the vectors | {VECTORS[name]} |"),
    ):
        body, times = re.subn(old, new, body)
        if times != 1:
            raise SystemExit(f"the card of the run says {old!r} {times} times, not once")
    lessons = paragraph(f"{_LESSONS} {_TOLD if name == 'fast' else ''}")
    parts = [
        body, f"## Lessons\n\n{lessons}", _unseen(name), _fifty(name),
        f"## Intended use\n\n{paragraph(_USE)}", _attribution(),
    ]  # fmt: skip
    return _FRONT + "\n" + "\n\n".join(part.strip() for part in parts if part) + "\n"


def _unseen(name: str) -> str:
    found = _read("experiments/results/unseen.json")
    sets = found.get("models", {}).get(name, {}).get("sets", {})
    if not sets:
        return ""
    rows = []
    for key, shown in (UNSEEN | SEEN).items():
        judged = sets[key]
        low, high = judged["intervals"]["accuracy"]
        spans = judged.get("spans")
        rows.append([
            f"{shown} (trained on)" if key in SEEN else shown,
            number(judged["figures"]["accuracy"]), f"{number(low)} to {number(high)}",
            number(judged["figures"]["macro_f1"]), number(found["majority"][key]["accuracy"]),
            number(judged["confidence"]["calibrated"]["ece"]),
            number(spans["spans"]["f1"]) if spans else "",
        ])  # fmt: skip
    header = ["set", "accuracy", "95 % interval", "macro-F1", "most frequent", "ECE", "span F1"]
    said = paragraph(
        """Test parts, read once; no sentence of them was trained on. *Most frequent*: the accuracy
        of whoever always gives the set's most frequent answer. The intervals are those of other
        examples; another seed would move the figures as well."""
    )
    return f"## On sets it never met\n\n{table(header, rows)}\n\n{said}"


def _fifty(name: str) -> str:
    found = _read("experiments/results/fifty.json").get("models", {}).get(name)
    if not found:
        return ""
    said = paragraph(
        f"""Fifty sentences of ten domains, written by us before any model had answered
        (`tests/regression/fifty.json`): {found["polarities_right"]} of {found["polarities"]}
        polarities are right with the aspect given, {found["sentences_right"]} of
        {found["sentences"]} sentences exactly right, aspects and polarities, with nothing given.
        Not right, among others:"""
    )
    wrong = "\n".join(f"- {text}" for text in found["wrong"][:_FAILURES])
    return f"## Known failures\n\n{said}\n\n{wrong}"


def _attribution() -> str:
    notice = (MODELS / "NOTICE.md").read_text(encoding="utf-8")
    return notice.replace("# What the models in this folder are made of", "## Attribution", 1)


def _read(path: str) -> dict[str, Any]:
    file: Path = ROOT / path
    content: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    return content

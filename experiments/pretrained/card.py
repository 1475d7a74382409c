"""The card of a bundled model: that of its run, and its out-of-domain results."""

from __future__ import annotations

import re
from typing import Any

from capsar.bundle import CARD, CONFIG, MANIFEST, open_bundle, write_bundle
from pages.formatting import number, paragraph, table
from pretrained.sets import IN_DOMAIN, MODELS, OUT_OF_DOMAIN, THEME_SETS, VADER, opinion_set_name
from run import RESULTS, ROOT, read_json

LICENSE = "Apache-2.0 and CC BY 4.0; see models/NOTICE.md"
VECTORS_LICENSE = {"base": "Apache-2.0", "fast": "PDDL"}
"""Licenses of the encoder and of GloVe 6B."""
PURPOSES = {
    "base": "most uses: the more accurate model",
    "fast": "large corpora and small machines: many times faster",
}
NETWORKS = {
    "base": "CAPSAR on all-MiniLM-L6-v2, with an extraction head and an opinion head",
    "fast": "CAPSAR on a Bi-GRU and GloVe 6B (100 dimensions), with the same two heads",
}
LISTED = ("restaurant", "laptop")
"""Sets that `capsar models` lists."""
_MAX_FAILURES = 12
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
- "capsar-corpus"
---
"""
_USE = """Aggregated analysis of English reviews and feedback, with the error rates of the tables
above. Not for decisions about individual people, and not as the only basis of any decision."""
_TRAINING = """MAMS and the project's corpus, most of whose sentences were written by a language
model; no person checked its labels (`corpus/README.md`). No sentence of an evaluation set was
trained on."""


def set_card(name: str, card: str) -> None:
    """Write a model's card, and what `capsar models` lists, into its bundle."""
    folder = MODELS / name
    bundle = open_bundle(folder)
    files = {
        file: bundle.path(file).read_bytes()
        for file in bundle.files
        if file not in (CONFIG, MANIFEST)
    }
    files[CARD] = card.encode()
    write_bundle(folder, bundle.config | {"bundled": facts(name)}, files)


def facts(name: str) -> dict[str, Any]:
    """Return what `capsar models` lists, as far as it has been measured."""
    sets = _sets(name)
    speeds = read_json(ROOT / "benchmarks" / "results" / "models.json").get("metrics", {})
    return {
        "purpose": PURPOSES[name],
        "network": NETWORKS[name],
        "license": LICENSE,
        "sentences_per_s": speeds.get(f"{name}_sentences_per_s"),
        "out_of_domain": {
            OUT_OF_DOMAIN[key]: {m: sets[key]["metrics"][m] for m in ("accuracy", "macro_f1")}
            for key in LISTED
            if key in sets
        },
    }


def _sets(name: str) -> dict[str, Any]:
    models = read_json(RESULTS / "out-of-domain.json").get("models", {})
    sets: dict[str, Any] = models.get(name, {}).get("sets", {})
    return sets


def render_card(name: str, of_run: str) -> str:
    """Return the card, from that of the run and from what has been measured since."""
    body = of_run.partition("---\n")[2].partition("---\n")[2].strip()
    for old, new in (
        ("# A CAPSAR model", f"# CAPSAR `{name}`"),
        ("path/to/this/folder", name),
        (r"\| license of that data \| .*", f"| license of that data | {LICENSE} |"),
        (
            r"\| license of the vectors \| .*",
            f"| license of the vectors | {VECTORS_LICENSE[name]} |",
        ),
    ):
        body, times = re.subn(old, new, body)
        if times != 1:
            raise SystemExit(
                f"The card of the run must contain {old!r} once; it does {times} times"
            )
    training = paragraph(_TRAINING)
    notice = (MODELS / "NOTICE.md").read_text(encoding="utf-8")
    parts = [
        body, f"## Training data\n\n{training}", _out_of_domain(name), _opinions(name),
        _themes(name),
        _failures(name),
        f"## Intended use\n\n{paragraph(_USE)}", re.sub("^# .*", "## Attribution", notice),
    ]  # fmt: skip
    return _FRONT + "\n" + "\n\n".join(part.strip() for part in parts if part) + "\n"


def _out_of_domain(name: str) -> str:
    sets = _sets(name)
    if not sets:
        return ""
    document = read_json(RESULTS / "out-of-domain.json")
    majority, vader = document["majority"], document["baselines"][VADER]["sets"]
    rows = []
    for key, shown in (OUT_OF_DOMAIN | IN_DOMAIN).items():
        found = sets[key]
        low, high = found["intervals"]["accuracy"]
        spans = found.get("spans")
        rows.append([
            f"{shown} (its training set was used)" if key in IN_DOMAIN else shown,
            number(found["metrics"]["accuracy"]), f"{number(low)} to {number(high)}",
            number(found["metrics"]["macro_f1"]), number(vader[key]["metrics"]["accuracy"]),
            number(majority[key]["accuracy"]),
            number(found["confidence"]["calibrated"]["ece"]),
            number(spans["spans"]["f1"]) if spans else "",
        ])  # fmt: skip
    header = [
        "set", "accuracy", "95 % interval", "macro-F1", "VADER: accuracy",
        "majority class: accuracy", "ECE", "span F1",
    ]  # fmt: skip
    said = paragraph(
        """Test sets, evaluated once; no sentence of them is in the training data. *Majority class*:
        the accuracy of always predicting the most frequent class. Intervals are bootstrap intervals
        over examples; another training seed would change the values as well."""
    )
    return f"## Out-of-domain evaluation\n\n{table(header, rows)}\n\n{said}"


def _opinions(name: str) -> str:
    sets = read_json(RESULTS / "opinions.json").get("sets", {})
    rows = [
        [opinion_set_name(key), *(number(systems[name][one]) for one in ("f1", "overlap_f1"))]
        for key, systems in sets.items()
    ]
    if not rows:
        return ""
    said = paragraph(
        """Phrases that carry the sentiment toward given aspects: F1 by exact match, and by any
        common word. The head was trained on the opinion layer of this project's corpus."""
    )
    return f"## Opinion phrases\n\n{said}\n\n{table(['set', 'exact', 'overlapping'], rows)}"


def _themes(name: str) -> str:
    sets = read_json(RESULTS / "themes.json").get("sets", {})
    rows = [
        [
            shown,
            number(sets[key][name]["explicit"]["f1"]),
            number(sets[key][name]["implicit"]["precision"]),
            number(sets[key][name]["implicit"]["recall"]),
        ]
        for key, shown in THEME_SETS.items()
        if key in sets
    ]
    if not rows:
        return ""
    said = paragraph(
        """Mentions sorted into themes that were described from their names alone: F1 over pairs of
        a sentence and a theme, and precision and recall of implicit mentions. The head was trained
        on the theme layer of this project's corpus, not on these sets."""
    )
    header = ["set", "explicit F1", "implicit precision", "implicit recall"]
    return f"## Themes\n\n{said}\n\n{table(header, rows)}"


def _failures(name: str) -> str:
    found = read_json(RESULTS / "smoke-set.json").get("models", {}).get(name)
    if not found:
        return ""
    said = paragraph(
        f"""Our smoke set has fifty sentences of ten domains, written before any model was run on
        them (`tests/regression/smoke_set.json`): {found["polarities_right"]} of
        {found["polarities"]} polarities are right with the aspect given, and
        {found["sentences_right"]} of {found["sentences"]} sentences are entirely right, aspects and
        polarities, without. Some of the wrong ones:"""
    )
    wrong = "\n".join(f"- {text}" for text in found["wrong"][:_MAX_FAILURES])
    return f"## Known failures\n\n{said}\n\n{wrong}"

"""The model card of a bundle, written from the run itself, in the form that hubs show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from json import dumps
from typing import TYPE_CHECKING, Any

from capsar.config import list_sources
from capsar.training.card_confidence import render_confidence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capsar.config import RunConfig
    from capsar.evaluation.calibration import CalibrationFigures
    from capsar.evaluation.evaluate import Evaluation
    from capsar.evaluation.extraction import Extraction

RANDOM = "random"
"""The name of vectors that were not pre-trained."""
_HUB_LICENCES = {"Apache-2.0": "apache-2.0", "CC BY 4.0, (C) Bing Liu": "cc-by-4.0"}
"""Licences of data under which a model may be passed on as it is, as hubs spell them."""


@dataclass(frozen=True, slots=True)
class DevReport:
    """How a model does on its dev part; nothing of what was not measured."""

    evaluation: Evaluation | None = None
    span_f1: float | None = None
    """Of the aspects that opened capsules name."""
    extraction: Extraction | None = None
    """Of the aspects that the extraction head finds."""
    calibration: CalibrationFigures | None = None


def render_card(
    run_config: RunConfig,
    facts: Mapping[str, Any],
    *,
    epoch: int,
    num_epochs: int,
    report: DevReport,
) -> str:
    """Return the card: what it is, on what it was trained, how well it does, where it will not.

    Args:
        run_config: Of the run.
        facts: What preparing the data found (`Prepared.facts`).
        epoch: Whose weights were kept, from 0.
        num_epochs: How many were trained.
        report: How the model does on the dev part, if one was held back.
    """
    return "\n".join(
        [
            _front_matter(facts),
            _TITLE,
            _provenance(run_config, facts, epoch, num_epochs),
            _figures(report, facts.get("folds", 0), run_config.train.keep),
            render_confidence(report.calibration),
            _USE,
            _limits(report),
            _settings(run_config),
        ]
    )


_TITLE = """# A CAPSAR model

Aspect-based sentiment with a capsule network (arXiv 1912.10785): negative, neutral or positive,
about a given aspect of an English sentence, or about the words that its capsules name.
"""

_USE = """## Use

```python
import capsar

analyzer = capsar.load("path/to/this/folder")
text = "The soup was cold but the staff were lovely."
print(analyzer.classify([text], [["soup", "staff"]]))  # what is felt about these
print(analyzer.analyze([text]))                        # what is felt, and about what
print(analyzer.explain(text).about)                    # word by word
```

`pip install capsar` is enough; torch is not needed. With `capsar[hub]`, `capsar.load("owner/name")`
loads a model from a hub. Every file is verified against `manifest.json` first.
"""


def _front_matter(facts: Mapping[str, Any]) -> str:
    """What hubs read, as YAML; its strings are written as JSON, which YAML includes."""
    licence = _HUB_LICENCES.get(facts["licence"], "other")
    lines = ["---", f"license: {licence}"]
    if licence == "other":
        lines.append("license_name: that-of-the-training-data")
    lines += [
        "language:\n- en",
        "library_name: capsar",
        "pipeline_tag: text-classification",
        "tags:\n- aspect-based-sentiment-analysis\n- sentiment\n- capsule-network\n- onnx",
    ]
    if facts["dataset"]:
        names = facts["dataset"].split(", ")
        lines += ["datasets:", *(f"- {dumps(name)}" for name in names)]
    return "\n".join([*lines, "---", ""])


def _provenance(
    run_config: RunConfig, facts: Mapping[str, Any], epoch: int, num_epochs: int
) -> str:
    chosen = "the last one; no dev part was held back"
    dropped = "0"
    if facts["dev"]:
        chosen = f"{facts['dev_examples']} dev examples of {facts['dev']}"
        kinds = ", ".join(f"{count} {kind}" for kind, count in facts["shared_by_kind"].items())
        dropped = f"{facts['shared_sentences_dropped']} ({kinds})"
    elif facts["dev_examples"]:
        chosen = f"{facts['dev_examples']} dev examples, cut from the training data by sentence"
    elif "folds" in facts:
        chosen = f"all examples, cross-validated in {facts['folds']} parts by sentence"
    if run_config.train.keep == "last" and (facts["dev_examples"] or "folds" in facts):
        chosen = "the last one, whatever dev says"
    owner = "that of its owner; the catalog does not know it"
    vectors_licence = facts["vectors_licence"] or owner
    if facts["vectors"] == RANDOM:
        vectors_licence = "none needed"
    more: dict[str, object] = {}
    if "polarity_only" in facts:
        number = facts["polarity_only_examples"]
        more["learnt polarity only from"] = f"{facts['polarity_only']}, {number} examples"
    if "started_from" in facts:
        before = f"trained on {facts['start_trained_on'] or 'data it does not name'}"
        licence = facts["start_licence"] or owner
        more["went on from"] = f"{facts['started_from']}, {before}; licence of that data: {licence}"
    if run_config.train.teacher:
        more["taught by"] = ", ".join(list_sources(run_config.train.teacher))
    return _table(
        ("", ""),
        {
            "trained on": f"{facts['train']}, {facts['train_examples']} examples",
            **more,
            "licence of that data": facts["licence"] or owner,
            "word vectors": f"{facts['vectors']}; {facts['words']} words",
            "licence of the vectors": vectors_licence,
            "epoch chosen on": chosen,
            "epoch": f"{epoch + 1} of {num_epochs}",
            "training sentences dropped because dev holds them": dropped,
            "sentences dropped because a test set holds them": facts["test_sentences_dropped"],
            "seed": run_config.train.seed,
        },
    )


def _figures(report: DevReport, folds: int, keep: str) -> str:
    dev = report.evaluation
    if dev is None:
        return "## Figures\n\nNone: no dev part was held back. `capsar evaluate` gives them.\n"
    figures, intervals = dev.figures, dev.intervals
    rows = {
        name: f"{getattr(figures, key):.4f} | {low:.4f} to {high:.4f}"
        for name, key, (low, high) in (
            ("dev accuracy", "accuracy", intervals.accuracy),
            ("dev macro-F1", "macro_f1", intervals.macro_f1),
        )
    }
    if report.extraction is not None:
        found = report.extraction
        rows["dev F1 of aspects it finds by itself, exact spans"] = f"{found.spans.f1:.4f} |"
        rows["the same with their polarity"] = f"{found.joint.f1:.4f} |"
        if found.false_per_100 is not None:
            false = f"{found.false_per_100:.1f} |"
            rows["aspects told per 100 dev sentences without any"] = false
    if report.span_f1 is not None:
        name = "dev F1 of aspects that opened capsules name, exact spans"
        rows[name] = f"{report.span_f1:.4f} |"
    table = _table(("", "", "95 % interval"), rows, escape=False)
    who = ""
    if folds:
        who = (
            f"Each example was answered by one of {folds} networks like this one, which learnt\n"
            "from the others; this one learnt from all.\n"
        )
    chose = "Dev figures chose the epoch, so they flatter"
    if keep == "last":
        chose = "Dev chose no epoch, but thresholds and confidences are fitted on it"
    return f"""## Figures

{table}
{who}One run with one seed on {figures.num_examples} examples. The intervals are those of other
examples (bootstrap); another seed moves the figures as well. {chose}:
`capsar evaluate` gives figures on data the model has never met.
"""


def _limits(report: DevReport) -> str:
    told = "was not measured"
    if report.span_f1 is not None:
        told = f"has an F1 of {report.span_f1:.4f} on dev"
    lengths = "Capsule lengths (`scores`) are from 0 to 1, not probabilities"
    lengths += "; `confidence` is one." if report.calibration else "."
    return f"""## Limits

- English only, and one kind of text: it does worse on others than on what it was trained on.
- {lengths}
- Finding aspects by opening capsules {told}; given aspects are told far better.
- Irony, comparisons and what lies outside the sentence are not understood.
- Do not decide about people by it alone.
"""


def _settings(run_config: RunConfig) -> str:
    settings = {
        f"`{section}.{key}`": value
        for section, values in (("model", run_config.model), ("train", run_config.train))
        for key, value in asdict(values).items()
    }
    return "## Settings\n\n" + _table(("setting", "value"), settings)


def _table(heads: tuple[str, ...], rows: Mapping[str, object], *, escape: bool = True) -> str:
    lines = [" | ".join(heads), "|".join("---" for _ in heads)]
    for name, value in rows.items():
        cell = " ".join(str(value).split())  # a file may have any name
        lines.append(f"{name} | {cell.replace('|', chr(92) + '|') if escape else cell}")
    return "".join(f"| {line} |\n" for line in lines)

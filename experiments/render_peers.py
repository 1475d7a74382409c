"""`peers.json` and `summary.json` -> `docs/peers.md`: `python experiments/render_peers.py`.

A pure function, so that a test can repeat it. No figure and no judgement is written by hand; every
figure names where it comes from, so that `tests/test_docs.py` compares it once more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cells import listed, paragraph, table
from entries import Entries
from runs import ROOT, write_text
from shipped import SHIPPED
from summarize import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from summary_values import Entry

PEERS = ROOT / "benchmarks" / "results" / "peers.json"
PEERS_PAGE = ROOT / "docs" / "peers.md"
ENCODER = "all-MiniLM-L6-v2"
OURS = {"base": "`base`", "fast": "`fast`", "restaurant": "CAPSAR-BERT"}
THEIRS = {"setfit": "SetFit-ABSA", "bert": "BERT pair"}
SYSTEMS = OURS | THEIRS
STEPS = ("prepare", "quality", "speed")
WANTED = {"fast": 50, "base": 4}
"""How many times as fast as SetFit-ABSA we want to be, aspects found."""
_NO_HEAD = "without an extraction head, so that its opened capsules name aspects"
_SPACE = "\N{SYMBOL FOR SPACE}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    metric: str
    label: str
    digits: int
    more_is_better: bool = True
    cannot: tuple[str, ...] = ()
    """Systems that have no such thing."""


ROWS = (
    Row("accuracy", "accuracy, aspects given", 4),
    Row("macro_f1", "macro-F1, aspects given", 4),
    Row("span_f1", "aspects found: exact-span F1", 4, cannot=("bert",)),
    Row("joint_f1", "aspects found, and polarity right: F1", 4, cannot=("bert",)),
    Row("sentences_per_s", "sentences/s, aspects found", 0, cannot=("bert",)),
    Row("given_sentences_per_s", "sentences/s, aspects given", 0),
    Row("peak_mb", "peak memory, MB", 0, more_is_better=False),
    Row("install_mb", "install, MB", 0, more_is_better=False),
    Row("model_mb", "models beside the install, MB", 0, more_is_better=False),
    Row("cold_start_s", "process start to first answer, s", 1, more_is_better=False),
    Row("lines", "lines a user writes", 0, more_is_better=False),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and where it is committed."""

    value: float
    source: str

    def shown(self, digits: int) -> str:
        """Write it with what a test needs to find it again."""
        text = f"{self.value:,.{digits}f}"
        return f"{text.removeprefix('0') if digits > 1 else text}<!-- {self.source} -->"


class Figures:
    """Every figure at hand: ours over seeds from the summary, all others from `peers.json`."""

    def __init__(self, result: dict[str, Any], summary: Sequence[Entry]) -> None:
        self._metrics: dict[str, float] = result["metrics"]
        self._trained: str = result["restaurant"]
        self._entries = Entries(summary)

    def of(self, system: str, metric: str) -> Figure | None:
        """Return a figure of a system, if it is there."""
        return self.plain(f"{system}_{metric}") or self._summarized(system, metric)

    def plain(self, name: str) -> Figure | None:
        """Return a figure by its name in `peers.json`."""
        value = self._metrics.get(name)
        return None if value is None else Figure(value, f"peers.json: {name}")

    def seeds(self, system: str) -> int:
        """Return over how many seeds a system was judged."""
        entry = self._entry(system, "accuracy")
        return int(entry["n"]) if entry else 0

    def _summarized(self, system: str, metric: str) -> Figure | None:
        entry = self._entry(system, metric)
        if entry is None:
            return None
        row = f"{entry['row']}@{entry['encoder']}" if entry["encoder"] else entry["row"]
        names = (entry["table"], row, entry["dataset"], entry["protocol"], entry["metric"], "mean")
        return Figure(entry["mean"], f"summary.json: {'/'.join(filter(None, names))}")

    def _entry(self, system: str, metric: str) -> Entry | None:
        """Find the entry of a model that ships, or of our runs on this set."""
        if system in SHIPPED:
            places = [("unseen", metric)]
            facts = {"row": system, "dataset": "restaurant"}
        else:
            rows = {"restaurant": self._trained, "bert": "bert"}
            places = [("table2", metric), ("spans", metric), ("spans", f"{metric}_capsules")]
            facts = {"row": rows.get(system, ""), "encoder": ENCODER, "dataset": "restaurant"}
        found = (self._entries.one(table, metric=name, **facts) for table, name in places)
        return next((entry for entry in found if entry and entry["n"]), None)


def render(result: dict[str, Any], summary: Sequence[Entry]) -> str:
    """Return the page that the figures at hand give."""
    figures = Figures(result, summary)
    parts = [
        "# Beside the peers",
        _fold(
            """The same machine, one core and one thread for each, every peer in an environment of
            its own; the test part of SemEval-14 Restaurant. This page is rendered from
            `benchmarks/results/peers.json` and `experiments/results/summary.json`: nothing in it is
            written by hand. The last column says where we lose; – is not measured yet."""
        ),
        _table(figures),
        _ratios(figures),
        _what_they_are(figures, result),
        _absent(result),
        _repeat(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(figures: Figures) -> str:
    rows = []
    for row in ROWS:
        found = {system: figures.of(system, row.metric) for system in SYSTEMS}
        if any(found.values()):
            cells = [
                figure.shown(row.digits) if figure else "none" if system in row.cannot else "–"
                for system, figure in found.items()
            ]
            rows.append([row.label, *cells, _lost(row, found)])
    return table(["", *SYSTEMS.values(), "where we lose"], rows)


def _lost(row: Row, found: dict[str, Figure | None]) -> str:
    """Say which of ours are behind which peers, as far as the digits that are shown tell."""
    sign = 1 if row.more_is_better else -1
    values = {name: sign * round(f.value, row.digits) for name, f in found.items() if f}
    behind: dict[str, list[str]] = {}
    for own in OURS.keys() & values.keys():
        better = [
            label for peer, label in THEIRS.items() if values.get(peer, values[own]) > values[own]
        ]
        if better:
            behind.setdefault(listed(better), []).append(own)
    return "; ".join(
        f"{listed([OURS[own] for own in OURS if own in lost])} to {theirs}"
        for theirs, lost in sorted(behind.items())
    )


def _ratios(figures: Figures) -> str:
    lines = []
    for name, wanted in WANTED.items():
        ratio = figures.plain(f"{name}_over_setfit")
        if ratio:
            told = "reached" if ratio.value >= wanted else "**not reached**"
            lines.append(f"| {OURS[name]} | {ratio.shown(1)} | {wanted} | {told} |")
    if not lines:
        return ""
    head = "| times the sentences/s of SetFit-ABSA, aspects found | | wanted | |\n|---|---|---|---|"
    return "\n".join([head, *lines])


def _what_they_are(figures: Figures, result: dict[str, Any]) -> str:
    heads = {"capsar-bert-spans": "with an extraction head", "capsar-bert": _NO_HEAD}
    head = heads[result["restaurant"]]
    said = [
        """**`base` and `fast`** ship with the package and never saw a sentence of SemEval: the
        others were trained on this very set, so accuracy is not like with like.""",
        f"""**CAPSAR-BERT** is ours on {ENCODER}, trained on Restaurant, {head}; quality is the
        mean over {figures.seeds("restaurant")} seeds, speed that of one.""",
        _setfit(figures),
        f"""**BERT pair** is our baseline on the same encoder and data, quality the mean over
        {figures.seeds("bert")} seeds; for speed its weights run as a plain program of transformers.
        It must be given the aspects.""",
        """*Install* is the packages alone, without the interpreter and pip; ours holds `base` and
        `fast`. Speed is the median of turns in which every system reads all test sentences, batched
        as its own library does; memory is the peak of that process.""",
    ]
    return "\n".join(_fold(f"- {text}", "  ") for text in said if text)


def _setfit(figures: Figures) -> str:
    names = ("steps", "batch", "rows", "aspect_examples", "polarity_examples", "cpu_minutes")
    found = [figures.plain(f"setfit_{name}") for name in names]
    if not all(found):
        return ""
    steps, batch, rows, aspects, polarities, minutes = (f.shown(0) for f in found if f)
    return f"""**SetFit-ABSA** has the same encoder as body in both of its models, and spaCy's
        `en_core_web_md`. It was trained once, on the terms of our training part ({rows}; the dev
        part left out, as in ours): {steps} steps of contrastive learning on {batch} pairs each for
        either model, then its heads on all examples ({aspects} candidates for aspects, {polarities}
        for polarity); all else as the library has it. That took {minutes} minutes of one core, and
        more steps may give more. Its form of data has no sentence without a term. Aspects that end
        inside a token of spaCy take the whole token."""


def _absent(result: dict[str, Any]) -> str:
    told = [f"**{name}** is not in the table. {why}" for name, why in result["absent"].items()]
    return "\n\n".join(map(_fold, told))


def _repeat(result: dict[str, Any]) -> str:
    commands = "\n".join(f"python benchmarks/peers.py {step}" for step in STEPS)
    versions = "; ".join(
        f"*{name}*: " + ", ".join(f"{package} {version}" for package, version in own.items())
        for name, own in result["environments"].items()
    )
    said = _fold(f"{result['machine']}. {versions}.")
    why = "<!-- not run: needs datasets that may not be passed on, and environments of peers -->"
    return f"## Repeat it\n\n{why}\n```sh\n{commands}\n```\n\n{said}"


def _fold(text: str, indent: str = "") -> str:
    """Fold a text, but never inside the comment that names a figure's source."""
    whole = text.replace("<!-- ", f"<!--{_SPACE}").replace(" -->", f"{_SPACE}-->")
    whole = whole.replace(".json: ", f".json:{_SPACE}")
    return paragraph(whole, indent).replace(_SPACE, " ")


def main() -> None:
    result = json.loads(PEERS.read_text(encoding="utf-8"))
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    write_text(PEERS_PAGE, render(result, summary))


if __name__ == "__main__":
    main()

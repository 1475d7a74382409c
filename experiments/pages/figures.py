"""The figures of the docs, drawn from the run files and `results/heatmaps.json`.

`python experiments/pages/figures.py` draws all figures whose data is available. `python
experiments/pages/figures.py score BUNDLE` first scores two sentences with a model and stores the
numbers, so that the heat maps can be drawn again without it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from run import RESULTS, ROOT, commit_of_code, finished, machine_class, write_json
from summarize import chosen_score

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from summarize import RunFile

FOLDER = ROOT / "docs" / "figures"
HEATMAPS = RESULTS / "heatmaps.json"
SENTENCES = {
    "one-active": ("The grilled fish and the wine list were both superb.", (1, 2, 5, 6)),
    "two-active": ("The pizza was wonderful; however, the service was terrible.", (1, 8)),
}
"""Sentences in which one and two capsules are active, as in the paper's figures, and the positions
of their aspects' words."""
_CLASSES = ("negative", "neutral", "positive")
_COLORS = {"negative": "#b2182b", "neutral": "#8c8c8c", "positive": "#2166ac"}
_MAPS = {"negative": "Reds", "neutral": "Greys", "positive": "Blues"}
_BLUE, _ORANGE, _GREEN = "#2166ac", "#d6604d", "#4d9221"
_ACTIVE = 0.5
_STYLE: Any = {
    "svg.hashsalt": "capsar",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def draw_all(folder: Path = FOLDER, suffix: str = "svg") -> list[Path]:
    """Draw every figure whose data is available."""
    runs = finished()
    figures: dict[str, Callable[[], Figure | None]] = {
        "training": lambda: draw_training(runs),
        "length": lambda: draw_lengths(runs),
        "routing": lambda: draw_sweep(runs, "sweep-routing", "routing iterations"),
        "lambda": lambda: draw_sweep(runs, "sweep-lambda", "λ, the weight of reconstruction"),
        "train-ratio": lambda: draw_sweep(runs, "sweep-train-ratio", "training examples"),
        "coverage": lambda: draw_sweep(
            runs, "sweep-vector-ratio", "test words with a pre-trained vector, %"
        ),
    }
    if HEATMAPS.is_file():
        opened = json.loads(HEATMAPS.read_text(encoding="utf-8"))["sentences"]
        for name, sentence in opened.items():
            figures[name] = lambda sentence=sentence: draw_heatmap(  # type: ignore[misc]
                sentence, chosen_score(runs)
            )
    drawn = []
    with mpl.rc_context(_STYLE):
        for name, draw in figures.items():
            figure = draw()
            if figure is not None:
                drawn.append(_save(figure, folder / f"{name}.{suffix}"))
    return drawn


def score_heatmaps(bundle: Path) -> None:
    """Score the sentences with a model; store lengths, cosines and norms of word vectors."""
    from safetensors.numpy import load_file

    from capsar import load
    from capsar.bundle import TOKENIZER, WEIGHTS, open_bundle
    from capsar.tokenizer import WordTokenizer, tokenize_words

    opened = open_bundle(bundle)
    vectors = load_file(opened.path(WEIGHTS))["word_vectors"]
    tokenizer = WordTokenizer.load(opened.path(TOKENIZER))
    sentences = {}
    for name, (text, aspects) in SENTENCES.items():
        (found,) = load(bundle).score_sentences([text])
        words = [text[start:end] for start, end in tokenize_words(text)]
        norms = (vectors[tokenizer.word_ids([words])[0]] ** 2).sum(-1) ** 0.5
        sentences[name] = {
            "words": words,
            "aspects": list(aspects),
            "lengths": [round(float(length), 4) for length in found.lengths],
            "cosine": [
                [round(float(score), 4) for score in row]
                for row in found.scores / norms.clip(1e-12)
            ],
            "norms": [round(float(norm), 4) for norm in norms],
        }
    content = {
        "command": "python experiments/pages/figures.py score BUNDLE",
        "commit": commit_of_code(),
        "machine": machine_class(),
        "model": bundle.parent.name,
        "sentences": sentences,
    }
    write_json(HEATMAPS, content)


def draw_heatmap(sentence: dict[str, Any], score: str) -> Figure:
    """Draw capsule lengths, and the aspect scores of each word for each active capsule."""
    words, lengths = sentence["words"], sentence["lengths"]
    scores = [
        [c * (n if score == "dot" else 1) for c, n in zip(row, sentence["norms"], strict=True)]
        for row in sentence["cosine"]
    ]
    active = [i for i, length in enumerate(lengths) if length > _ACTIVE]
    figure = Figure(figsize=(8.2, 1.3 + 0.45 * len(active)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 3.4])
    bars = left.bar(_CLASSES, lengths, color=[_COLORS[name] for name in _CLASSES], width=0.6)
    left.bar_label(bars, fmt="%.2f", padding=1, fontsize=8)
    left.axhline(_ACTIVE, color="black", linewidth=0.8, linestyle=":")
    left.set(ylim=(0, 1.15), ylabel="length of capsule", title="(a)")
    left.tick_params(axis="x", labelsize=8)
    widths = [max(4, len(word) + 1.5) for word in words]
    starts = [sum(widths[:index]) for index in range(len(words))]
    for line, capsule in enumerate(active):
        shades = mpl.colormaps[_MAPS[_CLASSES[capsule]]]
        low, high = min(scores[capsule]), max(scores[capsule])
        for index, (word, value) in enumerate(zip(words, scores[capsule], strict=True)):
            shade = (value - low) / (high - low)
            start, width = starts[index], widths[index]
            right.add_patch(
                Rectangle((start, -line), width - 0.15, 0.93, color=shades(0.05 + 0.75 * shade))
            )
            ink = "white" if shade > 0.6 else "black"
            middle = start + width / 2
            weight = "bold" if index in sentence["aspects"] else "normal"
            right.text(middle, -line + 0.62, word, ha="center", va="center", color=ink,
                       fontsize=9, fontweight=weight)  # fmt: skip
            right.text(middle, -line + 0.24, f"{value:.2f}", ha="center", va="center", color=ink,
                       fontsize=7)  # fmt: skip
    right.set(xlim=(0, sum(widths)), ylim=(1.02 - len(active), 1.02), xticks=[])
    right.set_title(f"(b) aspect scores of the active capsules ({score})")
    right.set_yticks([0.46 - line for line in range(len(active))],
                     [_CLASSES[capsule] for capsule in active])  # fmt: skip
    right.tick_params(axis="y", length=0)
    for spine in right.spines.values():
        spine.set_visible(False)
    return figure


def draw_training(runs: list[RunFile]) -> Figure | None:
    """Draw loss and validation macro-F1 by epoch: one line per seed, a dot at the chosen epoch."""
    some = [run for run in runs if run["source"] == "capsar"]
    if not some:
        return None
    datasets = list(dict.fromkeys(run["dataset"] for run in some))
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    axes = figure.subplots(2, len(datasets), sharex="col", squeeze=False)
    for column, dataset in enumerate(datasets):
        for run in (run for run in some if run["dataset"] == dataset):
            shade = mpl.colormaps["viridis"](run["seed"] / 5)
            epochs = [entry["epoch"] + 1 for entry in run["history"]]
            for line, name in enumerate(("loss", "validation_macro_f1")):
                values = [entry[name] for entry in run["history"]]
                axis = axes[line][column]
                axis.plot(epochs, values, color=shade, linewidth=1.2, label=f"seed {run['seed']}")
                best = run["best_epoch"]
                axis.plot(epochs[best], values[best], "o", color=shade, markersize=4)
        axes[0][column].set(title=dataset.capitalize(), ylim=(0, None))
        axes[1][column].set(xlabel="epoch", ylim=(None, None))
        axes[1][column].xaxis.get_major_locator().set_params(integer=True)
    axes[0][0].set_ylabel("training loss")
    axes[1][0].set_ylabel("validation macro-F1")
    axes[1][0].legend(fontsize=7, loc="lower right")
    return figure


def draw_lengths(runs: list[RunFile]) -> Figure | None:
    """Draw the share that is right against the length, in bins of length."""
    some = [run for run in runs if run["source"] == "capsar"]
    if not some:
        return None
    datasets = list(dict.fromkeys(run["dataset"] for run in some))
    figure = Figure(figsize=(8.2, 3.1), layout="constrained")
    axes = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    kinds = {
        "every": ("any capsule: its class is the true one", _BLUE, "o-"),
        "longest": ("longest capsule: prediction right", _ORANGE, "s-"),
        "true": ("true capsule: prediction right", _GREEN, "^:"),
    }
    for axis, dataset in zip(axes, datasets, strict=True):
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle="--")
        for kind, (label, color, marks) in kinds.items():
            points = _pooled([r for r in some if r["dataset"] == dataset], kind)
            axis.plot(*zip(*points, strict=True), marks, color=color, markersize=4, label=label)
        axis.set(
            title=dataset.capitalize(), xlabel="length of capsule", xlim=(0, 1), aspect="equal"
        )
    axes[0].set_ylabel("share")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _pooled(runs: list[RunFile], kind: str) -> list[tuple[float, float]]:
    """Return mean length and share right of each bin with at least ten examples, over all seeds."""
    points = []
    for bins in zip(*(run["calibration"][kind] for run in runs), strict=True):
        full = [row for row in bins if row["count"]]
        count = sum(row["count"] for row in full)
        if count >= 10:
            length = sum(row["mean_length"] * row["count"] for row in full) / count
            points.append((length, sum(row["right"] for row in full) / count))
    return points


def draw_sweep(runs: list[RunFile], source: str, label: str) -> Figure | None:
    """Draw test accuracy, macro-F1 and detection on Restaurant against one setting."""
    some = sorted(
        (run for run in runs if (run["source"], run["dataset"]) == (source, "restaurant")),
        key=lambda run: float(run["point"][1]),
    )
    if not some:
        return None
    positions, ticks = _positions(some, source)
    score = chosen_score(runs)
    lines: dict[str, tuple[str, Callable[[RunFile], float | None]]] = {
        "accuracy": (_BLUE, lambda run: run["test"]["metrics"]["accuracy"]),
        "macro-F1": (_ORANGE, lambda run: run["test"]["metrics"]["macro_f1"]),
        f"detection mAP ({score})": (
            _GREEN,
            lambda run: (
                run["detection"] and run["detection"]["test"]["capsules"][score]["all"]["map"]
            ),
        ),
    }
    figure = Figure(figsize=(4.6, 3), layout="constrained")
    axis = figure.subplots()
    for name, (color, read) in lines.items():
        points = [(x, y) for x, run in zip(positions, some, strict=True) if (y := read(run))]
        axis.plot(*zip(*points, strict=True), "o-", color=color, markersize=4, label=name)
    _finish(axis, positions, ticks, label)
    return figure


def _positions(runs: list[RunFile], source: str) -> tuple[list[float], list[str]]:
    """Return the positions of the points and their tick labels."""
    if source == "sweep-train-ratio":
        return [run["train_examples"] for run in runs], [f"{r['train_examples']}" for r in runs]
    if source == "sweep-vector-ratio":
        shares = [100 * run["coverage"]["test"] for run in runs]
        return shares, [f"{share:.0f}" for share in shares]
    # Settings such as lambda start at 0 and span orders of magnitude: space them evenly.
    return list(range(len(runs))), [f"{run['point'][1]:g}" for run in runs]


def _finish(axis: Axes, positions: list[float], ticks: list[str], label: str) -> None:
    axis.set_xticks(positions, ticks)
    axis.set(xlabel=label, ylabel="test")
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.figure.legend(loc="outside upper center", ncols=3, fontsize=8)


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}")
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(scratch, format=path.suffix[1:], dpi=150, metadata=metadata)
    scratch.replace(path)
    return path


if __name__ == "__main__":
    if sys.argv[1:2] == ["score"]:
        score_heatmaps(Path(sys.argv[2]))
    draw_all()

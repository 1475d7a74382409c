"""The models that ship: how large, and how fast on one thread: `python benchmarks/models.py`.

Both read the same sentences in turn in one process, with the aspects given and with nothing given:
a ratio of speeds is of one run. `wheel_mb` is the wheel as `python -m build` makes it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capsar import load
from capsar.hub import SHIPPED_MODELS, shipped_models
from measure import in_turn, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
TURNS = 7
TIMES = 8
"""How often the fifty sentences are read in one turn."""


def main() -> None:
    sentences = json.loads((ROOT / "tests" / "regression" / "fifty.json").read_bytes())
    texts = [sentence["text"] for sentence in sentences] * TIMES
    aspects = [[one["aspect"] for one in s["aspects"]] for s in sentences] * TIMES
    names = shipped_models()
    calls: dict[str, Callable[[], object]] = {}
    for name in names:
        analyzer = load(name, threads=1)
        calls[f"{name}_sentences_per_s"] = partial(analyzer.analyze, texts)
        calls[f"{name}_given_sentences_per_s"] = partial(analyzer.classify, texts, aspects)
    seconds = in_turn(calls, TURNS)
    metrics = {name: len(texts) / statistics.median(some) for name, some in seconds.items()}
    for suffix in ("sentences_per_s", "given_sentences_per_s"):
        pairs = zip(seconds[f"base_{suffix}"], seconds[f"fast_{suffix}"], strict=True)
        key = f"fast_over_base_{suffix.removesuffix('sentences_per_s')}".rstrip("_")
        metrics[key] = statistics.median(base / fast for base, fast in pairs)
    for name in names:
        files = (SHIPPED_MODELS / name).iterdir()
        metrics[f"{name}_mb"] = sum(file.stat().st_size for file in files) / 1e6
    metrics["wheel_mb"] = wheel_mb()
    write_result("models", metrics, ("onnxruntime",))


def wheel_mb() -> float:
    """Build the wheel, and return its size."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.stat().st_size / 1e6


if __name__ == "__main__":
    main()

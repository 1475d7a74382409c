"""Long reviews: time per character and memory at a megabyte, against ten kilobytes.

`CAPSAR_DATA=… python benchmarks/reviews.py` writes `results/reviews.json`. The long review is made
of real ones (the unlabelled part of the data), one paragraph each; the short ones are cut from it
at even distances, so that both hold the same kind of text. Both are timed in turn, with one thread.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsar import load
from capsar.sentences import split_sentences
from measure import in_turn, peak_memory_mb, ratio, resident_memory_mb, run_fresh, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

LONG, SHORT = 1_000_000, 10_000
NUM_SHORT = 25
TURNS = 5


def long_review(size: int) -> str:
    folder = Path(os.environ["CAPSAR_DATA"]) / "data" / "unlabelled" / "fdu-mtl"
    texts = (
        line
        for path in sorted(folder.iterdir())
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n")
    )
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(next(texts))
        length += len(parts[-1]) + 2
    return "\n\n".join(parts)[:size]


def measure_time() -> dict[str, float]:
    analyzer = load()
    text = long_review(LONG)
    step = LONG // NUM_SHORT
    pieces = [text[start : start + SHORT] for start in range(0, LONG, step)]
    calls: dict[str, Callable[[], object]] = {
        "long": lambda: analyzer.analyze([text]),
        "short": lambda: [analyzer.analyze([piece]) for piece in pieces],
        "split": lambda: split_sentences(text),
    }
    seconds = in_turn(calls, TURNS)
    characters = sum(map(len, pieces))
    return {
        "review_scaling": ratio(seconds["long"], seconds["short"]) * characters / LONG,
        "split_share": ratio(seconds["split"], seconds["long"]),
        "long_s": statistics.median(seconds["long"]),
        "sentences": len(split_sentences(text)),
    }


def measure_memory(size: int) -> dict[str, float]:
    """Return the peak of answering one review of this size, above what text and model take."""
    analyzer = load()
    analyzer.analyze([long_review(SHORT)])
    text = long_review(size)
    before = resident_memory_mb()
    answers = analyzer.analyze([text])[0]
    return {"peak_mb": peak_memory_mb(), "above_mb": peak_memory_mb() - before, "n": len(answers)}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure_memory(int(sys.argv[1]))))
        return
    metrics = measure_time()
    long, half = (run_fresh(__file__, size) for size in (LONG, LONG // 2))
    metrics |= {
        "peak_mb": long["peak_mb"],
        "peak_mb_half": half["peak_mb"],
        "above_mb": long["above_mb"],
        "above_mb_half": half["above_mb"],
        "aspects": long["n"],
    }
    write_result("reviews", metrics, ("onnxruntime",))


if __name__ == "__main__":
    main()

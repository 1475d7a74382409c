"""Factored routing relative to textbook routing: `python benchmarks/routing.py`.

At the sizes of the paper, on one thread. Textbook routing is that of the tests: it builds the
prediction vectors once, by one matrix product. Writes `results/routing.json`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import torch

from capsar.model.capsules import RoutedCapsules
from measure import ROOT, peak_memory_mb, resident_memory_mb, run_fresh, write_result

sys.path.insert(0, str(ROOT / "tests" / "model"))
from textbook_routing import route_textbook  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 64
LAYERS = {"intermediate": (450, 50, 30, 150), "sentiment": (30, 150, 3, 300)}
"""Number and size of children, number and size of parents."""
KINDS = ("book", "factored")


def make_calls(kind: str) -> dict[str, Callable[[], None]]:
    """Return a training step and inference of the intermediate layer."""
    torch.manual_seed(0)
    num_children, child_dim, num_parents, parent_dim = LAYERS["intermediate"]
    children = torch.randn(BATCH, num_children, child_dim, requires_grad=True)
    gradient = torch.randn(BATCH, num_parents, parent_dim)
    layer = RoutedCapsules(num_capsules=num_parents, capsule_dim=parent_dim, child_dim=child_dim)

    def forward() -> torch.Tensor:
        if kind == "book":
            parents: torch.Tensor = route_textbook(children, layer.weight)[0]
            return parents
        output: torch.Tensor = layer(children)
        return output

    def train() -> None:
        children.grad = layer.weight.grad = None
        forward().backward(gradient)  # type: ignore[no-untyped-call]

    @torch.inference_mode()
    def infer() -> None:
        forward()

    return {"train": train, "infer": infer}


def best_seconds(call: Callable[[], None], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def training_memory(kind: str) -> dict[str, float]:
    """Return the peak resident size of training steps, above that before the first."""
    train = make_calls(kind)["train"]
    before = resident_memory_mb()
    for _ in range(3):
        train()
    return {"mb": peak_memory_mb() - before}


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["memory"]:
        print(json.dumps(training_memory(sys.argv[2])))
        return
    seconds = {
        (kind, use): best_seconds(call, 3 if kind == "book" else 20)
        for kind in KINDS
        for use, call in make_calls(kind).items()
    }
    book_mb, factored_mb = (run_fresh(__file__, "memory", kind)["mb"] for kind in KINDS)
    saved = {
        f"parameters_saved_{name}": (m - 1) * n * d * e for name, (m, d, n, e) in LAYERS.items()
    }
    metrics = {
        "speedup_train": seconds["book", "train"] / seconds["factored", "train"],
        "speedup_infer": seconds["book", "infer"] / seconds["factored", "infer"],
        "memory_ratio": factored_mb / book_mb,
        "factored_train_ms": seconds["factored", "train"] * 1e3,
        "factored_infer_ms": seconds["factored", "infer"] * 1e3,
        "book_memory_mb": book_mb,
        "factored_memory_mb": factored_mb,
        **saved,
        "parameters_saved": sum(saved.values()),
    }
    write_result("routing", metrics, ("torch",))


if __name__ == "__main__":
    main()

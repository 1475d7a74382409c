"""Factored routing beside routing by the book, at the sizes of the paper, on one thread.

`python benchmarks/routing.py` writes `results/routing.json`. The twin is the one of the tests: it
forms the prediction vectors once, by one matrix product.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from measure import peak_memory_mb, resident_memory_mb, run_fresh, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "model"))
from twin import route_by_the_book  # type: ignore[import-not-found]

from capsar.model.routing import route
from capsar.model.routing_gradient import route_in_training

BATCH, CHILDREN, CHILD_DIM, PARENTS, PARENT_DIM = 64, 450, 50, 30, 150
LAYERS = {"intermediate": (450, 50, 30, 150), "sentiment": (30, 150, 3, 300)}


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    children = torch.randn(BATCH, CHILDREN, CHILD_DIM, requires_grad=True)
    weight = (torch.randn(PARENTS, PARENT_DIM, CHILD_DIM) * 0.03).requires_grad_()
    return children, weight, torch.randn(BATCH, PARENTS, PARENT_DIM)


def train_step(kind: str, children: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor) -> None:
    children.grad = weight.grad = None
    if kind == "book":
        parents, _ = route_by_the_book(children, weight)
    else:
        parents = route_in_training(children, weight, 3)
    parents.backward(grad)


@torch.inference_mode()
def infer(kind: str, children: torch.Tensor, weight: torch.Tensor) -> None:
    if kind == "book":
        route_by_the_book(children, weight)
    else:
        route(children, weight)


def best_seconds(call: Callable[[], None], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def memory(kind: str) -> dict[str, float]:
    """Peak resident size of training steps, over that just before the first."""
    arguments = tensors()
    before = resident_memory_mb()
    for _ in range(3):
        train_step(kind, *arguments)
    return {"mb": peak_memory_mb() - before}


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["memory"]:
        print(json.dumps(memory(sys.argv[2])))
        return
    children, weight, grad = tensors()
    seconds = {
        (kind, use): best_seconds(call, 3 if kind == "book" else 20)
        for kind in ("book", "factored")
        for use, call in (
            ("train", lambda kind=kind: train_step(kind, children, weight, grad)),
            ("infer", lambda kind=kind: infer(kind, children, weight)),
        )
    }
    megabytes = {kind: run_fresh(__file__, "memory", kind)["mb"] for kind in ("book", "factored")}
    metrics = {
        "speedup_train": seconds["book", "train"] / seconds["factored", "train"],
        "speedup_infer": seconds["book", "infer"] / seconds["factored", "infer"],
        "memory_ratio": megabytes["factored"] / megabytes["book"],
        "factored_train_ms": seconds["factored", "train"] * 1e3,
        "factored_infer_ms": seconds["factored", "infer"] * 1e3,
        "book_memory_mb": megabytes["book"],
        "factored_memory_mb": megabytes["factored"],
    }
    saved = {
        f"parameters_saved_{name}": (m - 1) * n * d * e for name, (m, d, n, e) in LAYERS.items()
    }
    metrics |= saved | {"parameters_saved": sum(saved.values())}
    write_result("routing", metrics, ("torch",))


if __name__ == "__main__":
    main()

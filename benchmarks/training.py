"""A full training step beside the Bi-GRU's own forward and backward, on one thread, in one run.

`python benchmarks/training.py` writes `results/training.json`. A batch of 64 sentences of 24 words,
150 units a direction, kernel 3, a vocabulary of 9,000 words of which 4,300 are trained: about what
Restaurants has. The encoder is measured as it is used here, and as torch's own bidirectional GRU.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn

from capsar.config import ModelConfig
from capsar.model.batch import Batch
from capsar.model.network import Capsar
from measure import write_result

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, WORDS, WORD_DIM, VOCABULARY, TRAINED = 64, 24, 300, 9000, 4300
ROUNDS = 40


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Capsar(ModelConfig(), torch.randn(VOCABULARY, WORD_DIM) * 0.4, num_trained=TRAINED)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    aspect = torch.zeros(BATCH, WORDS, dtype=torch.bool)
    aspect[:, 3:5] = True
    batch = Batch(
        ids=torch.randint(2, VOCABULARY, (BATCH, WORDS)),
        mask=torch.ones(BATCH, WORDS, dtype=torch.bool),
        words=torch.arange(WORDS).expand(BATCH, -1),
        attention=torch.ones(BATCH, WORDS, dtype=torch.bool),
        segments=torch.zeros(BATCH, WORDS, dtype=torch.long),
        first_words=torch.full((BATCH, 1), 3),
        aspect_mask=aspect,
        polarity=torch.randint(0, 3, (BATCH,)),
    )
    vectors = torch.randn(BATCH, WORDS, WORD_DIM, requires_grad=True)
    upstream = torch.randn(BATCH, WORDS, 2 * ModelConfig().units)
    plain = nn.GRU(WORD_DIM, ModelConfig().units, batch_first=True, bidirectional=True)

    def step(*, lower: bool = False) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lower):
            output = model(batch)
        loss: torch.Tensor = model.loss(batch, output).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def encoder() -> None:
        vectors.grad = None
        model.encoder.zero_grad(set_to_none=True)
        model.encoder(vectors, batch.mask).backward(upstream)

    def torch_gru() -> None:
        vectors.grad = None
        plain.zero_grad(set_to_none=True)
        plain(vectors)[0].backward(upstream)

    windows = torch.randn(BATCH * WORDS, 3 * upstream.shape[-1])
    kernel = model.primary.projection.weight.detach()
    features = torch.randn(BATCH * WORDS, len(kernel))

    def convolution() -> None:
        """The matrix products of the convolution, forward and backward, and nothing else."""
        torch.mm(windows, kernel.T)
        torch.mm(features, kernel)
        torch.mm(features.T, windows)

    calls: dict[str, Callable[[], None]] = {
        "step": step,
        "step_bf16": lambda: step(lower=True),
        "encoder": encoder,
        "torch_gru": torch_gru,
        "convolution": convolution,
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 5):  # interleaved, so that a busy moment hits all of them
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number >= 5:
                seconds[name].append(time.perf_counter() - start)
    middle = {name: median(times) for name, times in seconds.items()}
    metrics = {
        "step_over_encoder": middle["step"] / middle["encoder"],
        "step_over_torch_gru": middle["step"] / middle["torch_gru"],
        "convolution_over_encoder": middle["convolution"] / middle["encoder"],
        "bf16_step_over_encoder": middle["step_bf16"] / middle["encoder"],
    } | {f"{name}_ms": value * 1e3 for name, value in middle.items()}
    write_result("training", metrics, ("torch",))


if __name__ == "__main__":
    main()

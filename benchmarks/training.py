"""One training step relative to the Bi-GRU's forward and backward: `python benchmarks/training.py`.

One thread; a batch of 64 sentences of 24 words, 150 units per direction, kernel 3, and 9,000 words
of which 4,300 are trained, about as in Restaurants. The encoder is measured as used here, and as
torch's own bidirectional GRU. Writes `results/training.json`.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn

from capsar.config import ModelConfig
from capsar.model.network import Batch, Capsar
from measure import time_in_turn, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, WORDS, WORD_DIM, VOCABULARY, TRAINED = 64, 24, 300, 9000, 4300
TURNS = 44


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
    gru = nn.GRU(WORD_DIM, ModelConfig().units, batch_first=True, bidirectional=True)
    windows = torch.randn(BATCH * WORDS, 3 * upstream.shape[-1])
    kernel = model.primary.projection.weight.detach()
    features = torch.randn(BATCH * WORDS, len(kernel))

    def step(*, is_bf16: bool = False) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
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
        gru.zero_grad(set_to_none=True)
        gru(vectors)[0].backward(upstream)

    def convolution() -> None:
        """Run only the matrix products of the convolution, forward and backward."""
        torch.mm(windows, kernel.T)
        torch.mm(features, kernel)
        torch.mm(features.T, windows)

    calls: dict[str, Callable[[], object]] = {
        "step": step,
        "step_bf16": lambda: step(is_bf16=True),
        "encoder": encoder,
        "torch_gru": torch_gru,
        "convolution": convolution,
    }
    middle = {name: median(times[4:]) for name, times in time_in_turn(calls, TURNS).items()}
    metrics = {
        "step_over_encoder": middle["step"] / middle["encoder"],
        "step_over_torch_gru": middle["step"] / middle["torch_gru"],
        "convolution_over_encoder": middle["convolution"] / middle["encoder"],
        "bf16_step_over_encoder": middle["step_bf16"] / middle["encoder"],
    } | {f"{name}_ms": value * 1e3 for name, value in middle.items()}
    write_result("training", metrics, ("torch",))


if __name__ == "__main__":
    main()

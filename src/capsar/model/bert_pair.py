"""The paper's BERT baseline (§ 4.2): a sentence pair classified from its first token.

Encoders that were trained with mean pooling may need the mean state of all tokens instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional

from capsar.model.encoders import Transformer
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from capsar.config import ModelConfig
    from capsar.model.network import Batch


@dataclass(frozen=True, slots=True)
class PairOutput:
    """The predictions of the classifier for a batch."""

    logits: Tensor
    """(B, C)."""
    lengths: Tensor
    """Probabilities (B, C); named like capsule lengths, which take their place in `Capsar`."""


class BertPairClassifier(nn.Module):
    """A transformer that reads sentence and aspect as a pair, dropout, and a linear layer.

    It has no capsules, so it cannot find aspects and is not exported.
    """

    def __init__(self, model_config: ModelConfig, transformer: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.model_config = model_config
        self.encoder = Transformer(transformer)
        self.dropout = nn.Dropout(getattr(transformer.config, "hidden_dropout_prob", 0.1))
        self.layer = nn.Linear(self.encoder.hidden_dim, len(CLASSES))
        nn.init.normal_(self.layer.weight, std=0.02)
        nn.init.zeros_(self.layer.bias)

    @property
    def frozen_key(self) -> str:
        """The name in the state dict of the weights that are not trained."""
        return f"encoder.{self.encoder.table_name}"

    def forward(self, batch: Batch) -> PairOutput:
        """Classify a batch; a sentence longer than one window is classified from the first."""
        window = self.encoder.window
        inputs = (batch.ids, batch.attention, batch.segments)  # 3 x (B, T)
        states = self.encoder(*(tensor[:, :window] for tensor in inputs))  # (B, window, H)
        pooled = states[:, 0]
        if self.model_config.head == "bert-pair-mean":
            real = batch.attention[:, :window, None].to(states)  # (B, window, 1)
            pooled = (states * real).sum(1) / real.sum(1)
        logits = self.layer(self.dropout(pooled)).float()  # (B, C)
        return PairOutput(logits, logits.softmax(-1))

    def loss(self, batch: Batch, output: PairOutput) -> Tensor:
        """Return the cross-entropy of each example of a batch (B)."""
        loss = functional.cross_entropy(output.logits, batch.polarity, reduction="none")
        return loss if batch.weights is None else loss * batch.weights

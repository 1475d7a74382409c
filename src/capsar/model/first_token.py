"""The paper's BERT baseline: sentence and aspect as a pair, judged from the first token alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional

from capsar.labels import CLASSES
from capsar.model.transformer import Transformer

if TYPE_CHECKING:
    from capsar.config import ModelConfig
    from capsar.model.batch import Batch


@dataclass(frozen=True, slots=True)
class Judged:
    """What the classifier says of a batch."""

    logits: Tensor
    """(B, C)."""
    lengths: Tensor
    """Probabilities (B, C), by the name of capsules' lengths: the largest is the class."""


class FirstToken(nn.Module):
    """A transformer, dropout and a linear layer; trained by cross-entropy.

    It has no capsules, so that it says nothing about words, and it is not exported.
    """

    def __init__(self, model_config: ModelConfig, transformer: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.model_config = model_config
        self.encoder = Transformer(transformer, frozen=model_config.freeze_embeddings)
        self.dropout = nn.Dropout(getattr(transformer.config, "hidden_dropout_prob", 0.1))
        self.layer = nn.Linear(self.encoder.hidden_dim, len(CLASSES))
        nn.init.normal_(self.layer.weight, std=0.02)
        nn.init.zeros_(self.layer.bias)

    @property
    def given(self) -> str:
        """The name of the weights that are not trained, and that the encoder gives again."""
        frozen = self.model_config.freeze_embeddings
        return self.encoder.table_name("encoder.") if frozen else ""

    def forward(self, batch: Batch) -> Judged:
        """Judge a batch; of a sentence of several windows, by the first."""
        window = self.encoder.window
        parts = (batch.ids[:, :window], batch.attention[:, :window], batch.segments[:, :window])
        states = self.encoder(*parts)  # (B, T, H)
        logits = self.layer(self.dropout(states[:, 0])).float()  # (B, C)
        return Judged(logits, logits.softmax(-1))

    def loss(self, batch: Batch, output: Judged) -> Tensor:
        """Return the loss of each example of a batch (B)."""
        loss = functional.cross_entropy(output.logits, batch.polarity, reduction="none")
        return loss if batch.weights is None else loss * batch.weights

"""Sequence encoders (eq. 1): words -> hidden states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class BiRecurrent(nn.Module):
    """A bidirectional GRU or LSTM that cannot see padding.

    The backward half reads each sentence reversed *within its length*, so that in both halves all
    padding comes after the last word, where it cannot change the state of any word. That is exact,
    and faster here than packed sequences.

    Args:
        input_dim: Size of the word vectors (E).
        units: Size of the state of each direction; the hidden state has twice as many (H).
        cell: `"gru"` or `"lstm"`.
        input_dropout: Share of input features dropped, one mask for all words of a sentence.
        state_dropout: Share of features dropped from the states, one mask for all words too.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        units: int,
        cell: str = "gru",
        input_dropout: float = 0.5,
        state_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        recurrent = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        self.forward_cell = recurrent(input_dim, units, batch_first=True)
        self.backward_cell = recurrent(input_dim, units, batch_first=True)
        self.cell = cell
        self.input_dropout = input_dropout
        self.state_dropout = state_dropout
        self.hidden_dim = 2 * units
        self._initialise()

    def _initialise(self) -> None:
        """Glorot for inputs, orthogonal for each gate, zero biases (an LSTM's forget gate: one)."""
        for name, parameter in self.named_parameters():
            if "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            elif "weight_hh" in name:
                for gate in parameter.data.chunk(parameter.shape[0] // parameter.shape[1]):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.zeros_(parameter)
                if self.cell == "lstm" and "bias_ih" in name:
                    nn.init.ones_(parameter.data.chunk(4)[1])

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states of word vectors (B, T, E) as (B, T, H); anything on padding."""
        if self.training and self.input_dropout:
            vectors = _drop(vectors, self.input_dropout)  # (B, T, E)
        reverse = _reversal(mask)  # (B * T)
        forward_states, _ = self.forward_cell(vectors)  # (B, T, H / 2)
        backward_states, _ = self.backward_cell(_reorder(vectors, reverse))  # (B, T, H / 2)
        states = torch.cat([forward_states, _reorder(backward_states, reverse)], -1)  # (B, T, H)
        return _drop(states, self.state_dropout) if self.training and self.state_dropout else states


def _drop(values: Tensor, share: float) -> Tensor:
    """Drop a share of the features of values (B, T, F), the same for all words of a sentence."""
    kept = torch.empty_like(values[:, :1]).bernoulli_(1 - share)  # (B, 1, F)
    return values * (kept / (1 - share))


def _reversal(mask: Tensor) -> Tensor:
    """Return, for each position of a batch, the one it trades places with (B * T).

    The words of a sentence turn round; turning round twice changes nothing.
    """
    batch, num_words = mask.shape
    positions = torch.arange(num_words, device=mask.device)  # (T)
    turned = torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)  # (B, T)
    first = torch.arange(batch, device=mask.device).unsqueeze(1) * num_words  # (B, 1)
    return (turned + first).flatten()


class _TradePlaces(torch.autograd.Function):
    """Rows in another order, where the order is its own inverse: the gradient goes the same way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(order)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return grad.index_select(0, ctx.saved_tensors[0]), None


def _reorder(vectors: Tensor, order: Tensor) -> Tensor:
    """Put the words of vectors (B, T, E) in another order (B * T)."""
    rows: Tensor = _TradePlaces.apply(vectors.flatten(0, 1), order)  # type: ignore[no-untyped-call]
    return rows.view_as(vectors)

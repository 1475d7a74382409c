"""Sequence encoders (eq. 1): a bidirectional GRU, or a pre-trained transformer (§ 3.6)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.errors import ArtifactError, ConfigError, MissingExtraError
from capsar.tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

ENCODERS = "CAPSAR_ENCODERS"
"""The environment variable that names a folder of pre-trained encoders."""
_MAX_BATCH_SUBWORDS = 8192
"""Subwords per forward pass when long sentences are read window by window."""


class BiGRU(nn.Module):
    """A bidirectional GRU whose states do not depend on padding (eq. 1).

    The backward GRU reads each sentence reversed within its own length. In both directions all
    padding then comes after the last word, where it cannot change the state of any word. This gives
    the same states as packed sequences, and is faster here.

    Args:
        input_dim: Size of the word vectors (E).
        units: Size of the state of each direction; the hidden state has twice as many (H).
        input_dropout: Dropout rate of the inputs, with one mask for all words of a sentence.
        state_dropout: Dropout rate of the states, with one mask for all words of a sentence.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        units: int,
        input_dropout: float = 0.5,
        state_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.forward_cell = nn.GRU(input_dim, units, batch_first=True)
        self.backward_cell = nn.GRU(input_dim, units, batch_first=True)
        self.input_dropout = input_dropout
        self.state_dropout = state_dropout
        self.hidden_dim = 2 * units
        for name, parameter in self.named_parameters():
            if "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            elif "weight_hh" in name:
                for gate in parameter.data.chunk(3):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.zeros_(parameter)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the states (B, T, H) of word vectors (B, T, E); undefined on padding."""
        vectors = self._drop(vectors, self.input_dropout)  # (B, T, E)
        order = _reversed_order(mask)  # (B * T)
        forward_states, _ = self.forward_cell(vectors)  # (B, T, H / 2)
        backward_states, _ = self.backward_cell(_reorder(vectors, order))  # (B, T, H / 2)
        states = torch.cat([forward_states, _reorder(backward_states, order)], -1)  # (B, T, H)
        return self._drop(states, self.state_dropout)

    def _drop(self, values: Tensor, rate: float) -> Tensor:
        """Drop features of values (B, T, F), the same ones for all words of a sentence."""
        if not self.training or not rate:
            return values
        kept = torch.empty_like(values[:, :1]).bernoulli_(1 - rate)  # (B, 1, F)
        return values * (kept / (1 - rate))


def _reversed_order(mask: Tensor) -> Tensor:
    """Return the row order (B * T) that reverses the words of each sentence, and is its inverse."""
    batch, num_words = mask.shape
    positions = torch.arange(num_words, device=mask.device)  # (T)
    order = torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)  # (B, T)
    first = torch.arange(batch, device=mask.device).unsqueeze(1) * num_words  # (B, 1)
    return (order + first).flatten()


def _reorder(vectors: Tensor, order: Tensor) -> Tensor:
    """Return the vectors (B, T, E) with their B * T rows in another order."""
    return vectors.flatten(0, 1).index_select(0, order).view_as(vectors)


class Transformer(nn.Module):
    """A pre-trained transformer that reads sentences of any length, window by window.

    Its input embeddings are frozen: they are also the targets of reconstruction (eq. 7).

    Args:
        model: A model of `transformers` that returns `last_hidden_state`.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # unused, so it would have no gradient
        self.model = model
        self.hidden_dim = int(model.config.hidden_size)
        self.window = _window_size(model)
        self.padding = int(getattr(model.config, "pad_token_id", None) or 0)
        self.has_segments = getattr(model.config, "type_vocab_size", 0) > 1
        self.table.requires_grad = False

    @property
    def table(self) -> Tensor:
        """The input embedding of every subword (V, E), before positions and segments are added."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    @property
    def table_name(self) -> str:
        """The name of that table in the state dict."""
        return next(name for name, value in self.named_parameters() if value is self.table)

    def forward(self, ids: Tensor, attention: Tensor, segments: Tensor) -> Tensor:
        """Return the states (B, T, H) of subwords (B, T); undefined where attention is off.

        A sentence longer than a window is encoded as whole windows, one after the other.
        """
        batch, size = ids.shape
        if size <= self.window:
            return self.read_window(ids, attention, segments)
        missing = -size % self.window
        windows = [
            functional.pad(tensor, (0, missing)).view(-1, self.window)
            for tensor in (ids, attention, segments)
        ]  # 3 x (B * windows, window)
        used = windows[1].any(1).nonzero().squeeze(1)  # windows of padding alone are skipped
        states = torch.cat(
            [
                self.read_window(*(tensor[some] for tensor in windows))
                for some in torch.split(used, max(1, _MAX_BATCH_SUBWORDS // self.window))
            ]
        )  # (used, window, H)
        joined = states.new_zeros(len(windows[0]), self.window, self.hidden_dim)
        joined = joined.index_copy(0, used, states)  # (B * windows, window, H)
        return joined.view(batch, -1, self.hidden_dim)[:, :size]

    def read_window(self, ids: Tensor, attention: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the states (B, T, H) of sentences no longer than one window."""
        more = {"token_type_ids": segments} if self.has_segments and segments is not None else {}
        ids = ids.masked_fill(~attention, self.padding)  # some models derive positions from it
        states: Tensor = self.model(
            input_ids=ids, attention_mask=attention.long(), **more
        ).last_hidden_state
        return states

    def layers(self) -> Iterator[list[nn.Parameter]]:
        """Yield the trainable parameters of each layer, from the embeddings upward."""
        lists = [module for module in self.model.modules() if isinstance(module, nn.ModuleList)]
        stack = max(lists, key=len, default=nn.ModuleList())  # the longest list is the layers
        in_stack = {id(parameter) for parameter in stack.parameters()}
        for parameters in (
            [p for p in self.model.parameters() if id(p) not in in_stack],
            *(layer.parameters() for layer in stack),
        ):
            yield [p for p in parameters if p.requires_grad]


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A pre-trained transformer and its tokenizer."""

    name: str
    """As it was requested, without the folders of this machine."""
    model: Any
    tokenizer: SubwordTokenizer

    @property
    def table(self) -> Tensor:
        """A copy of the input embedding of every subword (V, E)."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach().clone()


def load_pretrained(encoder: str, *, reads_aspect: bool) -> Pretrained:
    """Load a transformer and its tokenizer from a folder or the hub.

    Raises:
        ConfigError: If there is no such encoder, or it has no fast tokenizer.
        MissingExtraError: If `transformers` is not installed.
    """
    transformers = _import_transformers()
    source = find_encoder(encoder)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        model = transformers.AutoModel.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Cannot load the encoder {encoder!r}: {error}. Pass a folder, a hub id, or the name "
            f"of a folder below ${ENCODERS}."
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"The encoder {encoder!r} has no fast tokenizer (tokenizer.json); choose another one"
        )
    subwords = SubwordTokenizer(
        tokenizer.backend_tokenizer, window=_window_size(model), reads_aspect=reads_aspect
    )
    name = Path(encoder).name if Path(encoder).is_dir() else encoder
    return Pretrained(name, model, subwords)


def find_encoder(encoder: str) -> str:
    """Return the path of an encoder below `CAPSAR_ENCODERS`, or else its name: a path or hub id."""
    folder = os.environ.get(ENCODERS)
    if folder and (Path(folder) / encoder).is_dir():
        return str(Path(folder) / encoder)
    return encoder


def make_transformer(description: dict[str, Any]) -> Any:  # noqa: ANN401
    """Make a transformer with random weights from the output of `describe`.

    Raises:
        ArtifactError: If the description is not valid.
    """
    transformers = _import_transformers()
    try:
        config = transformers.AutoConfig.for_model(**description)
        return transformers.AutoModel.from_config(config)
    except (TypeError, ValueError, KeyError) as error:
        raise ArtifactError(f"Not the description of a transformer: {error!r}") from error


def describe(model: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the architecture of a transformer as JSON-compatible values."""
    described: dict[str, Any] = model.config.to_diff_dict()
    return described | {"model_type": model.config.model_type}


def _window_size(model: Any) -> int:  # noqa: ANN401
    """Return how many subwords a transformer can read at once."""
    limit = int(getattr(model.config, "max_position_embeddings", 512))
    positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return limit if padding is None else limit - padding - 1  # RoBERTa's positions start after it


def _import_transformers() -> Any:  # noqa: ANN401
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("bert", "A pre-trained encoder") from error
    transformers.utils.logging.disable_progress_bar()
    return transformers

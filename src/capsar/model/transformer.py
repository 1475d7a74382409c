"""Pre-trained transformers as encoders: word pieces -> hidden states."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.errors import ArtifactError, ConfigError, MissingExtraError
from capsar.pieces import PieceTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

ENCODERS = "CAPSAR_ENCODERS"
"""The environment variable that names a folder of encoders."""
_PIECES_AT_ONCE = 8192


class Transformer(nn.Module):
    """A pre-trained transformer that reads sentences of any length, window by window.

    Args:
        model: A model of `transformers` that returns `last_hidden_state`.
        frozen: Whether its input vectors stay as they are.
    """

    def __init__(self, model: Any, *, frozen: bool) -> None:  # noqa: ANN401
        super().__init__()
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # nobody reads it, so nothing would train it
        self.model = model
        self.hidden_dim = int(model.config.hidden_size)
        self.window = window_of(model)
        self.table.requires_grad_(not frozen)
        self.padding = int(getattr(model.config, "pad_token_id", None) or 0)
        self.has_segments = getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def table(self) -> Tensor:
        """The vector of every piece (V, E), before positions and segments are added."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    def table_name(self, prefix: str) -> str:
        """Return the name of that table in a state."""
        names = (name for name, value in self.named_parameters() if value is self.table)
        return prefix + next(names)

    def forward(self, ids: Tensor, attention: Tensor, segments: Tensor) -> Tensor:
        """Return the hidden states of pieces (B, T) as (B, T, H); anything where none are read.

        Sentences longer than a window have been laid out as whole windows, one after the other.
        """
        batch, size = ids.shape
        if size <= self.window:
            return self.read(ids, attention, segments)
        missing = -size % self.window
        parts = [
            functional.pad(tensor, (0, missing)).view(-1, self.window)
            for tensor in (ids, attention, segments)
        ]  # 3 x (B * windows, window)
        read = parts[1].any(1).nonzero().squeeze(1)  # no window of padding alone is read
        states = torch.cat(
            [
                self.read(*(part[some] for part in parts))
                for some in torch.split(read, max(1, _PIECES_AT_ONCE // self.window))
            ]
        )
        joined = states.new_zeros(len(parts[0]), self.window, self.hidden_dim)
        joined = joined.index_copy(0, read, states)
        return joined.view(batch, -1, self.hidden_dim)[:, :size]

    def read(self, ids: Tensor, attention: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the hidden states of one window of each sentence (B, T, H)."""
        more = {"token_type_ids": segments} if self.has_segments and segments is not None else {}
        known = ids.masked_fill(~attention, self.padding)  # some count positions by it
        states: Tensor = self.model(
            input_ids=known, attention_mask=attention.long(), **more
        ).last_hidden_state
        return states

    def layers(self) -> Iterator[list[nn.Parameter]]:
        """Yield the trainable parameters of each layer, the lowest (the embeddings) first."""
        stack = _stack(self.model)
        own = {id(p) for layer in stack for p in layer.parameters()}
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        yield [p for p in trainable if id(p) not in own]
        for layer in stack:
            yield [p for p in layer.parameters() if p.requires_grad]


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A transformer as its makers published it."""

    name: str
    """As it was asked for, without the folders of this machine."""
    model: Any
    tokenizer: PieceTokenizer

    @property
    def table(self) -> Tensor:
        """The vector of every piece (V, E)."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach().clone()


def load_pretrained(encoder: str, *, reads_aspect: bool) -> Pretrained:
    """Load a transformer and its tokenizer, from a folder or the hub.

    Raises:
        ConfigError: If there is none of that name, or it has no fast tokenizer.
        MissingExtraError: If `transformers` is not installed.
    """
    transformers = _transformers()
    source = find_encoder(encoder)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        model = transformers.AutoModel.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Cannot load the encoder {encoder!r}: {error}. Give a folder, a hub id, or a name "
            f"below the folder that {ENCODERS} names."
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"The encoder {encoder!r} has no fast tokenizer (tokenizer.json)")
    pieces = PieceTokenizer(
        tokenizer.backend_tokenizer, window=window_of(model), reads_aspect=reads_aspect
    )
    name = Path(encoder).name if Path(encoder).is_dir() else encoder
    return Pretrained(name, model, pieces)


def find_encoder(encoder: str) -> str:
    """Return where an encoder is: below `CAPSAR_ENCODERS`, in a folder, or else on the hub."""
    folder = os.environ.get(ENCODERS)
    if folder and (Path(folder) / encoder).is_dir():
        return str(Path(folder) / encoder)
    return encoder


def make_transformer(description: dict[str, Any]) -> Any:  # noqa: ANN401
    """Make a transformer of random weights from what `describe` returned.

    Raises:
        ArtifactError: If it describes none.
    """
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.for_model(**description)
        return transformers.AutoModel.from_config(config)
    except (TypeError, ValueError, KeyError) as error:
        raise ArtifactError(f"This describes no transformer: {error!r}") from error


def describe(model: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a transformer's sizes and choices as JSON holds them."""
    described: dict[str, Any] = model.config.to_diff_dict()
    return described | {"model_type": model.config.model_type}


def window_of(model: Any) -> int:  # noqa: ANN401
    """Return how many pieces a transformer can read at once."""
    limit = int(getattr(model.config, "max_position_embeddings", 512))
    positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return limit if padding is None else limit - padding - 1  # some count from their padding on


def _stack(model: nn.Module) -> nn.ModuleList:
    """The layers of a transformer: its longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def _transformers() -> Any:  # noqa: ANN401
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("bert", "A pre-trained encoder") from error
    transformers.utils.logging.disable_progress_bar()
    return transformers

"""A transformer's encoder graph, traced by torch: its family may be any."""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import torch
from onnx import checker
from torch import Tensor, nn

from capsar.errors import MissingExtraError
from capsar.model.transformer import Transformer
from capsar.training.graph import IR_VERSION, OPSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto

    from capsar.model.network import Capsar

_NEWER_IR_VERSION = 11
_SIZES = (3, 7)
"""Sentences and pieces of the example that is traced; both may be any number afterwards."""


class _Encoder(nn.Module):
    """What the graph computes: one window of each sentence -> states and fixed vectors."""

    def __init__(self, model: Capsar) -> None:
        super().__init__()
        self.model = model
        if not isinstance(model.encoder, Transformer):
            raise TypeError("only a transformer is traced")
        self.encoder = model.encoder

    def forward(
        self, ids: Tensor, mask: Tensor, segments: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the states (S, T, H) and fixed vectors (S, T, E) of pieces (S, T)."""
        return self.encoder.read(ids, mask, segments), self.model.fixed(ids)


def export_transformer(model: Capsar, *, opset: int = OPSET) -> bytes:
    """Return the graph from piece ids to hidden states.

    In: `ids`, `mask` and, if the aspect is a second segment, `segments`, all (S, T). Out: `states`
    (S, T, H), `word_vectors` (S, T, E).

    Args:
        model: A network with a transformer.
        opset: Of the graph; from 23 on, attention is one operation.

    Raises:
        MissingExtraError: If `onnxscript`, which tracing needs, is not installed.
    """
    names = ["ids", "mask", "segments"][: 3 if model.model_config.aspect_entry == "pair" else 2]
    ids = torch.ones(_SIZES, dtype=torch.long)
    examples = {"ids": ids, "mask": torch.ones(_SIZES, dtype=torch.bool), "segments": ids * 0}
    sizes = {0: torch.export.Dim("S", min=1), 1: torch.export.Dim("T", min=1)}
    was_training = model.training
    try:
        with _quietly(), torch.no_grad():
            program = torch.onnx.export(
                _Encoder(model.eval()),
                tuple(examples[name] for name in names),
                dynamo=True,
                opset_version=opset,
                input_names=names,
                output_names=["states", "word_vectors"],
                dynamic_shapes=dict.fromkeys(names, sizes),
                verbose=False,
            )
    except ImportError as error:
        raise MissingExtraError("bert", "Exporting a transformer") from error
    finally:
        model.train(was_training)
    return _finished(program, IR_VERSION if opset == OPSET else _NEWER_IR_VERSION)


def _finished(program: Any, ir_version: int) -> bytes:  # noqa: ANN401  (torch names its type only with onnxscript)
    """The traced graph, checked, without the notes on our source that tracing leaves in it."""
    proto: ModelProto = program.model_proto
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    proto.producer_name, proto.ir_version = "capsar", ir_version
    checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    return content


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what tracing says about itself from whoever exports."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

"""Run the graphs of a bundle on ONNX Runtime or, for the encoder, on OpenVINO."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime

from capsar.bundle import CAPSULES, ENCODER, OPINIONS, SPANS
from capsar.errors import ArtifactError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from capsar.bundle import Bundle

BACKENDS = ("onnxruntime", "openvino")
CPU = ("CPUExecutionProvider",)
STATES = ["states", "word_vectors"]
"""The outputs of the encoder."""
_MAX_THREADS = 512
_GRAPHS = {
    ENCODER: ({"ids", "mask", "segments"}, {*STATES}),
    CAPSULES: (
        {"states", "word_vectors", "mask", "words", "sentence", "first_words", "want_similarity",
         "want_attributions"},
        {"lengths", "similarity", "attributions"},
    ),
    SPANS: ({"states", "first_subwords", "word_mask", "similarity", "lengths"}, {"tags"}),
    OPINIONS: (
        {"states", "first_subwords", "positions", "mask", "aspect_words",
         "aspect_weights", "distances", "attributions"},
        {"tags"},
    ),
}  # fmt: skip
"""The possible inputs and the outputs of each graph."""

_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""The folder of a graph's external data: none. The default is the working directory."""
_FOLD_WEIGHTS = "session.disable_quant_qdq"
"""Dequantize weights stored as int8 once, when loading, and not in every run."""


def num_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Graph(Protocol):
    """A graph that threads may share."""

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs as ONNX Runtime values; unknown feeds are ignored."""
        ...


class _Session:
    """A graph on ONNX Runtime."""

    def __init__(
        self, bundle: Bundle, name: str, options: onnxruntime.SessionOptions, providers: list[str]
    ) -> None:
        self._name = name
        # From memory, not from the file: the graph then has no folder to read other files from.
        content = bundle.path(name).read_bytes()
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=providers)
        except Exception as error:
            raise ArtifactError(
                f"{name} of the bundle {str(bundle.folder)!r} cannot be loaded: {error}. "
                "Export the model again."
            ) from error
        self.inputs = [value.name for value in self._session.get_inputs()]
        outputs = {value.name for value in self._session.get_outputs()}
        known_inputs, known_outputs = _GRAPHS[name]
        if not set(self.inputs) <= known_inputs or outputs != known_outputs:
            raise ArtifactError(
                f"{name} of the bundle {str(bundle.folder)!r} has the inputs {self.inputs} and "
                f"outputs {sorted(outputs)}, expected {sorted(known_inputs)} and "
                f"{sorted(known_outputs)}. Export the model again: `capsar export`."
            )

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs; feeds are arrays or outputs of other graphs."""
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(feed)
            if isinstance(feed := feeds[name], np.ndarray)
            else feed
            for name in self.inputs
        }
        try:
            found: list[Any] = self._session.run_with_ort_values(names, values)
        except Exception as error:  # ONNX Runtime has many exception types
            raise _run_error(self._name, error) from error
        return found


class _OpenVinoEncoder:
    """The encoder on OpenVINO, in bf16 if the CPU supports it."""

    def __init__(self, bundle: Bundle, inputs: list[str], threads: int) -> None:
        if "subwords" not in bundle.config:
            raise ConfigError(
                "The backend 'openvino' is for transformers: in bf16, predictions of a recurrent "
                "encoder would depend on the batch. Omit `backend`."
            )
        try:
            import openvino
        except ImportError as error:
            raise MissingExtraError("openvino", "The backend 'openvino'") from error
        core = openvino.Core()
        has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if has_bf16 else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        try:
            graph = core.read_model(_dequantized_encoder(bundle))
            self._compiled = core.compile_model(graph, "CPU", settings)
        except RuntimeError as error:
            raise ArtifactError(
                f"OpenVINO cannot load {ENCODER} of {str(bundle.folder)!r}: {error}. "
                "Omit `backend` to use ONNX Runtime."
            ) from error
        self._inputs = inputs
        self._thread = threading.local()

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs."""
        request = getattr(self._thread, "request", None)
        if request is None:
            request = self._thread.request = self._compiled.create_infer_request()
        try:
            found = request.infer({name: feeds[name] for name in self._inputs})
        except RuntimeError as error:
            raise _run_error(ENCODER, error) from error
        # The request reuses its buffers, so outputs are copied.
        return [onnxruntime.OrtValue.ortvalue_from_numpy(np.array(found[name])) for name in names]


def _session_options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, so they need not be printed
    options.add_session_config_entry(_EXTERNAL_DATA, os.devnull)
    options.add_session_config_entry(_FOLD_WEIGHTS, "1")
    return options


def _dequantized_encoder(bundle: Bundle) -> bytes:
    """Return the encoder with float weights.

    OpenVINO would compute with int8 weights directly, and with bf16 it has crashed the process.
    """
    content = bundle.path(ENCODER).read_bytes()
    if bundle.config.get("store") != "int8":
        return content
    options = _session_options(1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ENCODER
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(content, options, providers=list(CPU))
        return path.read_bytes()


def _run_error(name: str, error: Exception) -> ArtifactError:
    return ArtifactError(
        f"{name} could not be run: {error}. If memory was short, pass shorter texts; otherwise "
        "export the model again: `capsar export`."
    )


def open_graphs(
    bundle: Bundle, *, threads: int, providers: Sequence[str], backend: str
) -> dict[str, Graph]:
    """Return the graphs of a bundle by file name.

    Raises:
        ConfigError: If an option is invalid.
        ArtifactError: If a graph cannot be loaded.
    """
    if type(threads) is not int or not 1 <= threads <= _MAX_THREADS:
        raise ConfigError(f"threads must be from 1 to {_MAX_THREADS}, got {threads!r}")
    if backend not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    chosen = [providers] if isinstance(providers, str) else list(providers)
    available = onnxruntime.get_available_providers()
    unknown = set(chosen) - set(available)
    if unknown:
        raise ConfigError(
            f"Providers {sorted(unknown)} are not available; available: {', '.join(available)}"
        )
    options = _session_options(threads)
    # ONNX Runtime opens the encoder in any case, because it refuses external data.
    encoder = _Session(bundle, ENCODER, options, chosen)
    graphs: dict[str, Graph] = {ENCODER: encoder}
    if backend == "openvino":
        graphs[ENCODER] = _OpenVinoEncoder(bundle, encoder.inputs, threads)
    for name in (CAPSULES, SPANS, OPINIONS):
        if name == CAPSULES or name in bundle.files:
            graphs[name] = _Session(bundle, name, options, chosen)
    return graphs

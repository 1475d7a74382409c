"""Graphs of a bundle, opened by an engine: ONNX Runtime, or for the encoder OpenVINO."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime

from capsar.bundle import CAPSULES, ENCODER, SPANS
from capsar.errors import ArtifactError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from capsar.bundle import Bundle

BACKENDS = ("onnxruntime", "openvino")
CPU = ("CPUExecutionProvider",)
_MOST_THREADS = 512
_STATES = ["states", "word_vectors"]
_OUTPUTS = {
    ENCODER: [set(_STATES)],
    CAPSULES: [{"lengths", "about", "because"}],
    SPANS: [{"tags"}],
}
_INPUTS = {
    ENCODER: ({"ids", "mask"}, {"ids", "mask", "segments"}),
    CAPSULES: (
        {
            "states", "word_vectors", "mask", "words", "sentence", "first_words",
            "want_about", "want_because",
        },
    ),
    SPANS: ({"states", "places", "known", "about", "lengths"},),
}  # fmt: skip
_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""Where a graph may keep data outside itself: nowhere. The default is the working folder."""

_FOLD_STORED = "session.disable_quant_qdq"
"""Weights that are only stored in 8 bits are turned back once, at load, and not in every run."""


class EncoderSession(Protocol):
    """An encoder, ready to read."""

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Return states and word vectors, as values of ONNX Runtime."""
        ...


class Session:
    """A graph on ONNX Runtime. Threads may share it."""

    def __init__(
        self, bundle: Bundle, name: str, options: onnxruntime.SessionOptions, providers: list[str]
    ) -> None:
        self._name = name
        # From memory, not from the file: a graph then finds no data beside itself.
        content = bundle.path(name).read_bytes()
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=providers)
        except Exception as error:
            raise ArtifactError(
                f"{name} of the bundle {str(bundle.folder)!r} cannot be loaded: {error}. "
                "Export the model again."
            ) from error
        self.inputs = [value.name for value in self._session.get_inputs()]
        gives = {value.name for value in self._session.get_outputs()}
        for what, found, expected in (
            ("takes", set(self.inputs), _INPUTS[name]),
            ("gives", gives, _OUTPUTS[name]),
        ):
            if found not in expected:
                raise ArtifactError(
                    f"{name} of the bundle {str(bundle.folder)!r} {what} {sorted(found)}, not "
                    f"{sorted(expected[0])}. Export the model again: `capsar export`."
                )

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Run the graph; feeds are arrays or what a graph gave."""
        values = {name: as_value(feed) for name, feed in feeds.items()}
        try:
            found: list[Any] = self._session.run_with_ort_values(names, values)
        except Exception as error:  # the engine has many kinds, none of which says what to do
            raise _cannot_run(self._name, error) from error
        return found

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Encode."""
        return self.run(_STATES, {name: arrays[name] for name in self.inputs})


class OpenVinoEncoder:
    """The encoder on OpenVINO, in bf16 where the CPU has it. Threads may share it."""

    def __init__(self, bundle: Bundle, inputs: list[str], threads: int) -> None:
        if "pieces" not in bundle.config:
            raise ConfigError(
                "The backend 'openvino' is for transformers: in bf16 the answers of a recurrent "
                "encoder would depend on their neighbours. Leave `backend` out."
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
            graph = core.read_model(_turned_back(bundle))
            self._compiled = core.compile_model(graph, "CPU", settings)
        except RuntimeError as error:
            raise ArtifactError(
                f"OpenVINO cannot load {ENCODER} of {str(bundle.folder)!r}: {error}. "
                "Leave `backend` out to use ONNX Runtime."
            ) from error
        self._inputs = inputs
        self._of_thread = threading.local()

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Encode."""
        request = getattr(self._of_thread, "request", None)
        if request is None:
            request = self._of_thread.request = self._compiled.create_infer_request()
        try:
            found = request.infer({name: arrays[name] for name in self._inputs})
        except RuntimeError as error:
            raise _cannot_run(ENCODER, error) from error
        return [as_value(np.array(found[name])) for name in _STATES]  # the request keeps its own


class Sessions:
    """The graphs of a bundle.

    Args:
        bundle: A verified bundle.
        threads: Of each graph.
        providers: Where ONNX Runtime runs, in order of preference, as it names them.
        backend: What runs the encoder; the rest runs on ONNX Runtime.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        providers: Sequence[str] = CPU,
        backend: str = "onnxruntime",
    ) -> None:
        if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
            raise ConfigError(f"threads must be from 1 to {_MOST_THREADS}, got {threads!r}")
        if backend not in BACKENDS:
            raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
        chosen = [providers] if isinstance(providers, str) else list(providers)
        unknown = set(chosen) - set(onnxruntime.get_available_providers())
        if unknown:
            known = ", ".join(onnxruntime.get_available_providers())
            raise ConfigError(f"Providers {sorted(unknown)} are not here; here are: {known}")
        options = _options(bundle, threads)
        # ONNX Runtime opens the encoder in any case: it refuses what no engine should read.
        encoder = Session(bundle, ENCODER, options, chosen)
        self.encoder: EncoderSession = encoder
        if backend == "openvino":
            self.encoder = OpenVinoEncoder(bundle, encoder.inputs, threads)
        self.capsules = Session(bundle, CAPSULES, options, chosen)
        self.spans = Session(bundle, SPANS, options, chosen) if SPANS in bundle.files else None


def as_value(feed: Any) -> Any:  # noqa: ANN401
    """An array as ONNX Runtime holds it; anything else as it is."""
    if isinstance(feed, np.ndarray):
        return onnxruntime.OrtValue.ortvalue_from_numpy(feed)
    return feed


def _options(bundle: Bundle, threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised, and need not be printed as well
    options.add_session_config_entry(_EXTERNAL_DATA, os.devnull)
    if bundle.config.get("store") == "int8":
        options.add_session_config_entry(_FOLD_STORED, "1")
    return options


def _turned_back(bundle: Bundle) -> bytes:
    """Return the encoder with weights as they are computed with, however they are stored.

    Given weights in 8 bits, OpenVINO multiplies by them as they are, in ways of its own: with bf16
    it has been seen to end the process.
    """
    content = bundle.path(ENCODER).read_bytes()
    if bundle.config.get("store") != "int8":
        return content
    options = _options(bundle, 1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / ENCODER
        options.optimized_model_filepath = str(written)
        onnxruntime.InferenceSession(content, options, providers=list(CPU))
        return written.read_bytes()


def _cannot_run(name: str, error: Exception) -> ArtifactError:
    return ArtifactError(
        f"{name} could not be run: {error}. If memory was short, give shorter texts; else "
        "export the model again: `capsar export`."
    )

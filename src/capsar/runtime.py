"""ONNX sessions: arrays -> arrays. Sessions may be shared by threads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from capsar.bundle import CAPSULES, ENCODER
from capsar.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.bundle import Bundle

CPU = ("CPUExecutionProvider",)
_MOST_THREADS = 512
_OUTPUTS = {ENCODER: {"states", "word_vectors"}, CAPSULES: {"lengths", "about", "because"}}
_INPUTS = {
    ENCODER: {"ids", "mask"},
    CAPSULES: {
        "states", "word_vectors", "mask", "words", "sentence", "first_words",
        "want_about", "want_because",
    },
}  # fmt: skip
_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""Where a graph may keep data outside itself: nowhere. The default is the working folder."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sentences, encoded once, ready to be routed for any number of aspects."""

    states: Any
    word_vectors: Any
    mask: NDArray[np.bool_]
    words: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the capsules say of each aspect."""

    lengths: NDArray[np.float32]
    """(A, C)."""
    about: NDArray[np.float32] | None = None
    """How much each capsule is about each word (A, C, T), where it was asked for."""
    because: NDArray[np.float32] | None = None
    """Each word's share in each capsule (A, C, T), where it was asked for."""


def join_answers(parts: Sequence[Answers]) -> Answers:
    """Put the answers about several runs of aspects together."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, NDArray[np.float32]] = {}
    for name in ("lengths", "about", "because"):
        some = [value for part in parts if (value := getattr(part, name)) is not None]
        if some:
            joined[name] = np.concatenate(some)
    return Answers(**joined)


class Runtime:
    """The two graphs of a bundle.

    Args:
        bundle: A verified bundle.
        threads: Of each graph; several threads or processes may each have a runtime of one.
        providers: Where the graphs run, in order of preference, as ONNX Runtime names them.
    """

    def __init__(self, bundle: Bundle, *, threads: int = 1, providers: Sequence[str] = CPU) -> None:
        if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
            raise ConfigError(f"threads must be from 1 to {_MOST_THREADS}, got {threads!r}")
        providers = [providers] if isinstance(providers, str) else providers
        unknown = set(providers) - set(onnxruntime.get_available_providers())
        if unknown:
            known = ", ".join(onnxruntime.get_available_providers())
            raise ConfigError(f"Providers {sorted(unknown)} are not here; here are: {known}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # failures are raised, and need not be printed as well
        options.add_session_config_entry(_EXTERNAL_DATA, os.devnull)
        self._encoder = _open(bundle, ENCODER, options, providers)
        self._capsules = _open(bundle, CAPSULES, options, providers)

    def encode(self, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> Encoded:
        """Encode sentences of word ids (S, T); the states stay with the engine."""
        feeds = {
            "ids": onnxruntime.OrtValue.ortvalue_from_numpy(ids),
            "mask": onnxruntime.OrtValue.ortvalue_from_numpy(mask),
        }
        names = ["states", "word_vectors"]
        states, word_vectors = _run(self._encoder, ENCODER, names, feeds)
        words = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        return Encoded(states, word_vectors, mask, np.ascontiguousarray(words))

    def route(
        self,
        encoded: Encoded,
        sentence: NDArray[np.int64],
        first_words: NDArray[np.int64],
        *,
        outputs: tuple[str, ...] = (),
    ) -> Answers:
        """Route sentences for aspects.

        Args:
            encoded: The sentences.
            sentence: Which of them each aspect is in (A).
            first_words: The first word of each mention (A, M), negative where there is none.
            outputs: Of `about` and `because`, what is wanted besides the lengths.
        """
        arrays = {"mask": encoded.mask, "words": encoded.words}
        arrays |= {"sentence": sentence, "first_words": first_words}
        arrays |= {f"want_{name}": np.array(name in outputs) for name in ("about", "because")}
        feeds = {"states": encoded.states, "word_vectors": encoded.word_vectors}
        feeds |= {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()
        }
        names = ["lengths", *outputs]
        values = _run(self._capsules, CAPSULES, names, feeds)
        return Answers(**{name: value.numpy() for name, value in zip(names, values, strict=True)})


def _open(
    bundle: Bundle, name: str, options: onnxruntime.SessionOptions, providers: Sequence[str]
) -> onnxruntime.InferenceSession:
    # From memory, not from the file: a graph then finds no data beside itself.
    content = bundle.path(name).read_bytes()
    try:
        session = onnxruntime.InferenceSession(content, options, providers=list(providers))
    except Exception as error:
        raise ArtifactError(
            f"{name} of the bundle {str(bundle.folder)!r} cannot be loaded: {error}. "
            "Export the model again."
        ) from error
    for what, values, expected in (
        ("takes", session.get_inputs(), _INPUTS[name]),
        ("gives", session.get_outputs(), _OUTPUTS[name]),
    ):
        found = {value.name for value in values}
        if found != expected:
            raise ArtifactError(
                f"{name} of the bundle {str(bundle.folder)!r} {what} {sorted(found)}, not "
                f"{sorted(expected)}. Export the model again: `capsar export`."
            )
    return session


def _run(
    session: onnxruntime.InferenceSession, name: str, names: list[str], feeds: dict[str, Any]
) -> list[Any]:
    try:
        values: list[Any] = session.run_with_ort_values(names, feeds)
    except Exception as error:  # the engine has many kinds, none of which says what to do
        raise ArtifactError(
            f"{name} could not be run: {error}. If memory was short, give shorter texts; else "
            "export the model again: `capsar export`."
        ) from error
    return values

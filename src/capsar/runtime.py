"""Arrays -> arrays, by the graphs of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.errors import ConfigError
from capsar.labels import CLASSES
from capsar.pieces import to_words, word_places
from capsar.sessions import as_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.sessions import Sessions
    from capsar.text import Layout

_IDS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Rows:
    """Sentences as an encoder reads them, padded to one length; all (S, T)."""

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    """Which ids are read."""
    words: NDArray[np.int64]
    """The word of each id; -1 for none: it does not vote."""
    segments: NDArray[np.int64]

    @classmethod
    def of(cls, layouts: Sequence[Layout], window: int = 0) -> Rows:
        """Pad sentences to one length, or where that is above a window, to whole windows."""
        width = max(1, *(len(layout.ids) for layout in layouts))
        if window and width > window:
            width += -width % window
        shape = (len(layouts), width)
        rows = cls(
            ids=np.zeros(shape, dtype=np.int64),
            mask=np.zeros(shape, dtype=bool),
            words=np.full(shape, -1, dtype=np.int64),
            segments=np.zeros(shape, dtype=np.int64),
        )
        for row, layout in enumerate(layouts):
            size = len(layout.ids)
            rows.ids[row, :size] = layout.ids
            rows.mask[row, :size] = True
            rows.words[row, :size] = layout.words
            rows.segments[row, :size] = layout.segments
        return rows


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sentences, encoded once, ready to be routed for any number of aspects."""

    states: Any
    word_vectors: Any
    mask: NDArray[np.bool_]
    """Which positions vote (S, T)."""
    words: NDArray[np.int64]
    """The word of each position (S, T); -1 for none."""


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
    if not parts:
        return Answers(np.zeros((0, len(CLASSES)), dtype=np.float32))
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, NDArray[np.float32]] = {}
    for name in ("lengths", "about", "because"):
        some = [value for part in parts if (value := getattr(part, name)) is not None]
        if some:
            joined[name] = np.concatenate(some)
    return Answers(**joined)


class Runtime:
    """What the graphs of a bundle say of arrays. Several threads may share one.

    Args:
        sessions: The graphs.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def has_spans(self) -> bool:
        """Whether the bundle has an extraction head."""
        return self._sessions.spans is not None

    def encode(self, rows: Rows, window: int = 0) -> Encoded:
        """Encode sentences; where none is longer than a window, the states stay with the engine.

        Args:
            rows: The sentences.
            window: How many ids the encoder can read at once; 0 for any number.
        """
        arrays = {"ids": rows.ids, "mask": rows.mask, "segments": rows.segments}
        long = window and rows.ids.shape[1] > window
        states, word_vectors = (
            self._read_windows(arrays, window) if long else self._sessions.encoder.read(arrays)
        )
        return Encoded(states, word_vectors, rows.words >= 0, rows.words)

    def _read_windows(self, arrays: dict[str, NDArray[Any]], window: int) -> list[Any]:
        """Encode long sentences window by window, a few at a time, and join what comes out."""
        shape = arrays["ids"].shape
        parts = {name: array.reshape(-1, window) for name, array in arrays.items()}
        read = np.flatnonzero(parts["mask"].any(1))  # no window of padding alone is read
        joined: list[NDArray[np.float32]] = []
        at_once = max(1, _IDS_AT_ONCE // window)
        for start in range(0, len(read), at_once):
            some = read[start : start + at_once]
            found = self._sessions.encoder.read({name: part[some] for name, part in parts.items()})
            for number, value in enumerate(found):
                rows = value.numpy()  # (some, window, H or E)
                if len(joined) <= number:
                    joined.append(np.zeros((len(parts["ids"]), *rows.shape[1:]), np.float32))
                joined[number][some] = rows
        return [as_value(array.reshape(*shape, -1)) for array in joined]

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
        feeds = {"states": encoded.states, "word_vectors": encoded.word_vectors}
        feeds |= {"mask": encoded.mask, "words": encoded.words}
        feeds |= {"sentence": sentence, "first_words": first_words}
        feeds |= {f"want_{name}": np.array(name in outputs) for name in ("about", "because")}
        names = ["lengths", *outputs]
        values = self._sessions.capsules.run(names, feeds)
        found = {name: value.numpy() for name, value in zip(names, values, strict=True)}
        words = encoded.words[sentence]  # (A, T)
        for name in outputs:
            found[name] = to_words(found[name], words, how=name)
        return Answers(**found)

    def tag(self, encoded: Encoded, opened: Answers) -> NDArray[np.float32]:
        """Tag the words of sentences: logits (S, W, 3), anything beyond a sentence's last word.

        Args:
            encoded: The sentences.
            opened: What their capsules are about, each routed once without an aspect.

        Raises:
            ConfigError: If the bundle has no extraction head, or *about* was not asked for.
        """
        if self._sessions.spans is None or opened.about is None:
            raise ConfigError("Tags need a model with an extraction head, and *about* scores")
        size = max(1, opened.about.shape[-1])
        known = np.arange(size) <= encoded.words.max(1, keepdims=True)  # (S, W)
        about = np.zeros((*opened.about.shape[:2], size), np.float32)
        about[:, :, : opened.about.shape[-1]] = opened.about
        feeds = {
            "states": encoded.states,
            "places": word_places(encoded.words, size),
            "known": known,
            "about": np.where(known[:, None], about, np.float32(0)),
            "lengths": opened.lengths,
        }
        tags: NDArray[np.float32] = self._sessions.spans.run(["tags"], feeds)[0].numpy()
        return tags

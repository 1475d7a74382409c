"""Words -> word pieces, as a pre-trained transformer reads them, and scores of pieces -> of words.

Words are cut as everywhere (`capsar.text.segment`); each is then turned into pieces on its own, so
that every piece belongs to exactly one word, and no word is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from capsar.errors import ArtifactError
from capsar.text import Layout, WordTokenizer, encodable, read_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_CACHED_WORDS = 100_000
_CACHED_LENGTH = 64
_UNKNOWN = ("[UNK]", "<unk>")
_ASPECT_SHARE = 4
"""An aspect takes at most one part in so many of what can be read at once."""


class SentenceTokenizer(Protocol):
    """What both families can do: sentences of words -> ids, and the word of each id."""

    window: int
    reads_aspect: bool

    def lay_out(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Layout]:
        """Return each sentence as the encoder reads it, its aspect beside it if it reads one."""

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word; at least one."""

    def content(self) -> bytes:
        """Return the `tokenizer.json`."""

    def vocabulary(self) -> list[str]:
        """Return what each id stands for, in their order."""

    def __len__(self) -> int: ...


class PieceTokenizer:
    """Words to the pieces of a pre-trained transformer, by its own `tokenizer.json`.

    Args:
        tokenizer: The transformer's own tokenizer.
        window: How many pieces the transformer can read at once, special ones included.
        reads_aspect: Whether the aspect stands as a second segment after the sentence.
    """

    def __init__(self, tokenizer: Tokenizer, *, window: int, reads_aspect: bool = False) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.window = window
        self.reads_aspect = reads_aspect
        self.unknown = _find(tokenizer, _UNKNOWN)
        self._cache: dict[str, list[int]] = {}
        self._single = _template(tokenizer, pair=False)
        self._pair = _template(tokenizer, pair=True) if reads_aspect else self._single

    @classmethod
    def load(cls, path: Path, *, window: int, reads_aspect: bool) -> Self:
        """Read the tokenizer of a bundle.

        Raises:
            ArtifactError: If the file is missing, damaged or not such a tokenizer.
        """
        return cls(read_tokenizer(path), window=window, reads_aspect=reads_aspect)

    def content(self) -> bytes:
        """Return the `tokenizer.json`."""
        return str(self._tokenizer.to_str(pretty=False)).encode()

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def vocabulary(self) -> list[str]:
        """Return the pieces in the order of their ids."""
        ids = self._tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word's pieces; of a word that leaves none, the unknown piece."""
        found = self._look_up(words)
        return [found[word] for word in words]

    def _look_up(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return the pieces of words; those of earlier calls are remembered, but of long words."""
        cache = self._cache  # threads share it: entries are added, and it is replaced, not emptied
        asked = dict.fromkeys(words)
        found = {word: ids for word in asked if (ids := cache.get(word)) is not None}
        new = [word for word in asked if word not in found]
        if not new:
            return found
        # The space is what byte-level vocabularies begin a word with; others drop it.
        spelled = [f" {encodable(word)}" for word in new]
        encodings = self._tokenizer.encode_batch_fast(spelled, add_special_tokens=False)
        fresh = {
            word: encoding.ids or [self.unknown]
            for word, encoding in zip(new, encodings, strict=True)
        }
        if len(cache) + len(fresh) > _CACHED_WORDS:
            cache = self._cache = {}
        cache.update({word: ids for word, ids in fresh.items() if len(word) <= _CACHED_LENGTH})
        return found | fresh

    def lay_out(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Layout]:
        """Return each sentence as the transformer reads it.

        A sentence longer than the transformer can read at once goes on in another window, each of
        them with special pieces (and the aspect) of its own: nothing is cut.

        Args:
            sentences: The words of each.
            aspects: The words of each sentence's aspect; none where there is none.
        """
        read = (*sentences, *aspects) if self.reads_aspect else sentences
        found = self._look_up(word for words in read for word in words)
        return [
            self._lay_out(
                [found[word] for word in words],
                [i for word in aspect for i in found[word]] if self.reads_aspect else [],
            )
            for words, aspect in zip(sentences, aspects, strict=True)
        ]

    def _lay_out(self, words: list[list[int]], aspect: list[int]) -> Layout:
        second = aspect[: self.window // _ASPECT_SHARE]
        before, between, after = self._pair if second else self._single
        marks = [(i, -1, segment) for i, segment in before]
        tail = [(i, -1, segment) for i, segment in between]
        if second:
            tail += [(i, -1, self._segment) for i in second]
            tail += [(i, -1, segment) for i, segment in after]
        room = self.window - len(marks) - len(tail)
        own = [(i, w, 0) for w, ids in enumerate(words) for i in ids]
        row: list[tuple[int, int, int]] = []
        for start in range(0, max(1, len(own)), room):
            row += [*marks, *own[start : start + room], *tail]
        ids, places, segments = zip(*row, strict=True)
        return Layout(ids, places, segments)

    @property
    def _segment(self) -> int:
        return self._pair[2][0][1]


Template = tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]
"""Special pieces before the sentence, after it, and after the aspect: each with its segment."""


def _template(tokenizer: Tokenizer, *, pair: bool) -> Template:
    """Read off an example where the special pieces stand."""
    encoding = tokenizer.encode(["a"], ["a"] if pair else None, is_pretokenized=True)
    parts: Template = ([], [], [])
    place = 0
    for i, segment, sequence in zip(
        encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
    ):
        if sequence is None:
            parts[place].append((i, segment))
        else:
            place = sequence + 1
    return parts


def _find(tokenizer: Tokenizer, names: tuple[str, ...]) -> int:
    for name in names:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise ArtifactError(f"The tokenizer has none of the pieces {', '.join(names)}")


def load_tokenizer(path: Path, config: dict[str, Any]) -> SentenceTokenizer:
    """Read the tokenizer of a bundle, of whichever family its configuration says.

    Raises:
        ArtifactError: If it is missing, damaged or not what the configuration says.
    """
    pieces = config.get("pieces")
    if pieces is None:
        return WordTokenizer.load(path)
    try:
        window, reads_aspect = int(pieces["window"]), bool(pieces["reads_aspect"])
    except (TypeError, KeyError, ValueError) as error:
        raise ArtifactError(f"config.json has no usable settings of pieces: {error!r}") from error
    return PieceTokenizer.load(path, window=window, reads_aspect=reads_aspect)


def to_words(
    scores: NDArray[np.float32], words: NDArray[np.int64], *, how: str
) -> NDArray[np.float32]:
    """Reduce the scores of pieces to those of words: *about* by the best, *because* by the sum.

    Args:
        scores: Of each capsule and piece (A, C, T).
        words: The word of each piece (A, T); -1 for none.
        how: `about` or `because`.

    Returns:
        Of each capsule and word (A, C, W); -1 or 0 where there is no word.

    >>> scores, words = np.array([[[0.5, 0.1, 0.3]]], np.float32), np.array([[-1, 0, 0]])
    >>> to_words(scores, words, how="about").tolist()
    [[[0.30000001192092896]]]
    """
    size = int(words.max(initial=-1)) + 1
    best = how == "about"
    shape = (*scores.shape[:2], size + 1)  # one more, for what is of no word
    reduced = np.full(shape, -1 if best else 0, dtype=scores.dtype)
    aspects = np.arange(scores.shape[0])[:, None, None]
    capsules = np.arange(scores.shape[1])[None, :, None]
    places = (aspects, capsules, np.where(words < 0, size, words)[:, None, :])
    (np.maximum if best else np.add).at(reduced, places, scores)
    return reduced[:, :, :size]


def word_places(words: NDArray[np.int64], num_words: int) -> NDArray[np.int64]:
    """Return where each word's first piece stands (S, W); 0 where there is no word.

    Args:
        words: The word of each piece (S, T); -1 for none.
        num_words: W, at least the number of words.

    >>> word_places(np.array([[-1, 0, 0, 1, -1]]), 3).tolist()
    [[1, 3, 0]]
    """
    size = words.shape[1]
    first = np.full((len(words), num_words + 1), size, dtype=np.int64)  # one more, for no word
    rows = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    places = np.broadcast_to(np.arange(size), words.shape)
    np.minimum.at(first, (rows, np.where(words < 0, num_words, words)), places)
    return np.where(first == size, 0, first)[:, :num_words]

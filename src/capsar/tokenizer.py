"""Text -> words with exact character offsets -> ids.

One regular expression defines words for every encoder and for all offsets that users see. The text
is never copied, stripped or normalized: a word is a pair of half-open character offsets. Only the
form that is looked up in a vocabulary is normalized. Subword tokenizers split each word on its own,
so every subword belongs to exactly one word.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers

from capsar.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Span = tuple[int, int]
"""Half-open offsets."""

SEGMENTATION = "treebank-1"
"""The name of this definition of words; a model requires the one that it was trained with."""

PADDING = "[PAD]"
UNKNOWN = "[UNK]"
_SUBWORD_UNKNOWN = ("[UNK]", "<unk>")
_CACHED_WORDS = 100_000
_CACHED_LENGTH = 64
_ASPECT_DIVISOR = 4
"""An aspect takes at most one fourth of a window."""

# Characters outside words: white space, control characters, invisible marks of direction and width.
# Every other character belongs to exactly one word.
_GAP = r"\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
# Punctuation and other symbols: one word each, except for runs of dots, hyphens and quotes.
_SYMBOL = (
    r"!-/:-@\[-`{-~\xa1-\xa9\xab\xac\xae-\xb1\xb4\xb6-\xb8\xbb-\xbf\xd7\xf7\u02c2-\u02c5"
    r"\u055a-\u055f\u0589\u058a\u05be\u05f3\u05f4\u060c\u061b\u061f\u066a-\u066d\u06d4\u0964\u0965"
    r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2100-\u25ff\u2900-\u2aff\u2e00-\u2e7f\u3001-\u303f"
    r"\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"
    r"\ufffc\ufffd\ud800-\udfff"
)
_EMOJI = r"\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_EMOJI_MARK = r"\u200d\u20e3\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
# Scripts written without spaces: each character is a word.
_SYLLABLE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Letters, digits and combining marks of any script are the remaining characters. Joiners and the
# soft hyphen are part of a word only between letters.
_LETTER = f"[^{_GAP}{_SYMBOL}{_EMOJI}{_SYLLABLE}]"
_LETTERS = rf"{_LETTER}(?:{_LETTER}|[\u200c\u200d\xad])*+"
_NOT = r"[nN]['’][tT](?!" + _LETTER + ")"

# Treebank tokenization, which the public GloVe vectors use too. The first alternative that matches
# wins. Possessive quantifiers (`++`, `*+`) never backtrack, so the time is linear in the length of
# any text.
_WORD = re.compile(
    "|".join(
        (
            _NOT,  # the second half of do|n't
            r"[hH][tT][tT][pP][sS]?://[^\s<>\"]*[^\W_]/?",
            r"[wW]{3}\.[^\s<>\"]*[^\W_]/?",
            r"[A-Za-z]\.(?:[A-Za-z]\.)++",  # U.S.
            r"\d++(?:[.,:/]\d++)++",  # 5.95, 10:30, 1,000
            rf"{_LETTERS}(?:-{_LETTERS})*+(?<![nN](?=['’][tT](?!{_LETTER})))",  # well-made
            rf"{_LETTER}(?:{_LETTER}|-(?={_LETTER}))*?(?=-?{_NOT})",  # the first half of do|n't
            rf"['’](?:[sSmMdD]|[lL][lL]|[rRvV][eE])(?!{_LETTER})",  # it|'s
            r"(?<!\w)[@#][^\W_]\w*+",
            rf"[:;=][-o'^]?[)(\]\[DPp/\\|}}{{*]++(?!{_LETTER})|<3(?!\d)",  # :-)
            rf"[\U0001f1e6-\U0001f1ff]{{2}}|[{_EMOJI}](?:[{_EMOJI_MARK}]|(?<=\u200d)[{_EMOJI}])*+",
            r"\.\.++|--++|''|``",
            rf"[{_SYMBOL}][{_EMOJI_MARK}]*+",
            rf"[{_SYLLABLE}]",
            _LETTERS,
        )
    )
)
_SYLLABLES = re.compile(f"[{_SYLLABLE}]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize_words(text: str) -> list[Span]:
    """Return the words of a text, in order, as half-open character offsets.

    Words do not overlap. Between them are only white space, control characters and other invisible
    marks. Any string is accepted, including lone surrogates.

    >>> text = "The battery isn't well-made..."
    >>> [text[start:end] for start, end in tokenize_words(text)]
    ['The', 'battery', 'is', "n't", 'well-made', '...']
    """
    return list(iterate_words(text))


def iterate_words(text: str) -> Iterator[Span]:
    """Yield the words of `tokenize_words` one by one."""
    return (match.span() for match in _WORD.finditer(text))


def words_within(words: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the words that overlap the characters `start` to `end`.

    A span that begins or ends inside a word, as in some annotations, covers the whole word.

    >>> words_within([(0, 3), (4, 11), (12, 14)], 4, 9)
    range(1, 2)
    """
    first = bisect_right(words, start, key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, end, key=lambda word: word[0])))


def cuts_word(text: str, position: int) -> bool:
    """Return whether `position` is between two letters or digits of one word.

    >>> cuts_word("menus", 4), cuts_word("the menu", 4)
    (True, False)
    """
    if not 0 < position < len(text):
        return False
    if not (text[position - 1].isalnum() and text[position].isalnum()):
        return False
    return not _SYLLABLES.search(text, position - 1, position + 1)


@cache
def _normalizer() -> normalizers.Normalizer:
    """Return the normalizer of vocabulary entries: NFC, straight quotes, "...", lower case."""
    return normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace("’", "'"),
            normalizers.Replace(Regex(r"^\.\.+$|^…$"), "..."),
            normalizers.Lowercase(),
        ]
    )


def spelling(word: str) -> str:
    """Return the form of a word that is looked up in a vocabulary.

    >>> spelling("Isn’t")
    "isn't"
    """
    return _normalizer().normalize_str(encodable(word))


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, one character by one."""
    return _SURROGATE.sub("\ufffd", text)


def build_vocabulary(training_texts: Iterable[str], known_words: Iterable[str] = ()) -> list[str]:
    """Return the vocabulary of a model: words of its training texts, then words with a vector.

    Training words come first, by frequency and then alphabetically; the words of pre-trained
    vectors follow in their own order. Evaluation texts must not be passed.

    Args:
        training_texts: The texts of the training split.
        known_words: Words that have a pre-trained vector, in the training texts or not.

    >>> build_vocabulary(["Good food, good price"], ["the", "food"])
    ['good', ',', 'food', 'price', 'the']
    """
    counts = Counter(
        text[start:end] for text in training_texts for start, end in tokenize_words(text)
    )  # surface forms first: far fewer strings are then normalized
    spelled: Counter[str] = Counter()
    for word, count in counts.items():
        spelled[spelling(word)] += count
    trained = sorted(spelled, key=lambda word: (-spelled[word], word))
    return list(dict.fromkeys([*trained, *map(spelling, known_words)]))


@dataclass(frozen=True, slots=True)
class Encoding:
    """A sentence as input of an encoder."""

    ids: tuple[int, ...]
    words: tuple[int, ...]
    """The word index of each id; -1 for special tokens and the aspect, which have no votes."""
    segments: tuple[int, ...]
    """The segment of each id: 0, or 1 for the aspect of a sentence pair."""


class TextTokenizer(Protocol):
    """The interface of both tokenizers: words -> ids, and the word of each id."""

    window: int
    """Maximum number of ids that the encoder processes at once; 0 for no limit."""
    reads_aspect: bool
    """Whether the aspect is a second segment of the input."""
    _tokenizer: Tokenizer

    def encode(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Encoding]:
        """Return the encoding of each sentence.

        Args:
            sentences: The words of each sentence.
            aspects: The words of each sentence's aspect, or none.
        """
        ...  # pragma: no cover

    def subwords(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word, at least one per word."""
        ...  # pragma: no cover

    def content(self) -> bytes:
        """Return the content of `tokenizer.json`."""
        return str(self._tokenizer.to_str(pretty=False)).encode()

    def vocabulary(self) -> list[str]:
        """Return the vocabulary in the order of its ids, special tokens included."""
        ids = self._tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())


class WordTokenizer(TextTokenizer):
    """A tokenizer with one id per word. Id 0 is padding, id 1 is any unknown word.

    >>> tokenizer = WordTokenizer.build(["good", "food"])
    >>> tokenizer.word_ids([["Good", "grub"]])
    [[2, 1]]
    """

    window = 0
    reads_aspect = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.token_to_id(PADDING) != 0 or tokenizer.token_to_id(UNKNOWN) != 1:
            raise ArtifactError(
                f"A word tokenizer needs {PADDING} as id 0 and {UNKNOWN} as id 1; this file has "
                "other ids. Export the model again."
            )
        # Any other component would split, pad or normalize words differently than in training.
        plain = str(tokenizer.normalizer) == str(_normalizer()) and not any(
            (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.padding,
             tokenizer.truncation, tokenizer.decoder)
        )  # fmt: skip
        if not plain:
            raise ArtifactError(
                f"The word tokenizer in tokenizer.json must only normalize words as "
                f"{SEGMENTATION!r} does; this file has other components. Export the model again."
            )
        self._tokenizer = tokenizer

    @classmethod
    def build(cls, vocabulary: Sequence[str]) -> Self:
        """Build a tokenizer from normalized words, in the order of their ids."""
        ids = {word: index for index, word in enumerate((PADDING, UNKNOWN, *vocabulary))}
        if len(ids) != len(vocabulary) + 2:
            raise ConfigError(
                "A vocabulary must not contain a word twice, nor the words [PAD] and [UNK]"
            )
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
        tokenizer.normalizer = _normalizer()
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer from a file with `content`.

        Raises:
            ArtifactError: If the file is missing, damaged or another tokenizer.
        """
        return cls(_read_tokenizer(path))

    def encode(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Encoding]:
        """Return the encoding of each sentence: one id per word, without the aspect."""
        del aspects
        return [
            Encoding(tuple(ids), tuple(range(len(ids))), (0,) * len(ids))
            for ids in self.word_ids(sentences)
        ]

    def subwords(self, words: Sequence[str]) -> list[list[int]]:
        """Return the id of each word, as lists of one."""
        return [[found] for found in self.word_ids([words])[0]]

    def word_ids(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the ids of the words of each sentence."""
        options = {"is_pretokenized": True, "add_special_tokens": False}
        try:
            encodings = self._tokenizer.encode_batch_fast(sentences, **options)
        except (UnicodeEncodeError, TypeError):  # lone surrogates
            cleaned = [[encodable(word) for word in words] for words in sentences]
            encodings = self._tokenizer.encode_batch_fast(cleaned, **options)
        return [encoding.ids for encoding in encodings]


class SubwordTokenizer(TextTokenizer):
    """The tokenizer of a pre-trained transformer, applied to one word at a time.

    Args:
        tokenizer: The transformer's own tokenizer.
        window: Maximum number of ids per forward pass, special tokens included.
        reads_aspect: Whether the aspect follows the sentence as a second segment.
    """

    def __init__(self, tokenizer: Tokenizer, *, window: int, reads_aspect: bool = False) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.window = window
        self.reads_aspect = reads_aspect
        unknown = [tokenizer.token_to_id(name) for name in _SUBWORD_UNKNOWN]
        found = [int(index) for index in unknown if index is not None]
        if not found:
            raise ArtifactError(f"The tokenizer has no unknown token ({_SUBWORD_UNKNOWN})")
        self.unknown = found[0]
        self._cache: dict[str, list[int]] = {}
        self._single = _special_tokens(tokenizer, pair=False)
        self._pair = _special_tokens(tokenizer, pair=True) if reads_aspect else self._single

    def subwords(self, words: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of each word; the unknown id if a word normalizes to nothing."""
        found = self._look_up(words)
        return [found[word] for word in words]

    def _look_up(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return the subwords of each distinct word, and cache those of short words."""
        cache = self._cache  # shared by threads: it is replaced, never cleared
        distinct = dict.fromkeys(words)
        found = {word: ids for word in distinct if (ids := cache.get(word)) is not None}
        new = [word for word in distinct if word not in found]
        if not new:
            return found
        # Byte-level vocabularies mark the start of a word by a space; others ignore it.
        spaced = [f" {encodable(word)}" for word in new]
        encodings = self._tokenizer.encode_batch_fast(spaced, add_special_tokens=False)
        fresh = {
            word: encoding.ids or [self.unknown]
            for word, encoding in zip(new, encodings, strict=True)
        }
        if len(cache) + len(fresh) > _CACHED_WORDS:
            cache = self._cache = {}
        cache.update({word: ids for word, ids in fresh.items() if len(word) <= _CACHED_LENGTH})
        return found | fresh

    def encode(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Encoding]:
        """Return the encoding of each sentence.

        A sentence longer than the window continues in further windows, each with its own special
        tokens (and aspect). Nothing is truncated.
        """
        used = (*sentences, *aspects) if self.reads_aspect else sentences
        found = self._look_up(word for words in used for word in words)
        return [
            self._encode_sentence(
                [found[word] for word in words],
                [i for word in aspect for i in found[word]] if self.reads_aspect else [],
            )
            for words, aspect in zip(sentences, aspects, strict=True)
        ]

    def _encode_sentence(self, words: list[list[int]], aspect: list[int]) -> Encoding:
        aspect = aspect[: self.window // _ASPECT_DIVISOR]
        before, between, after = self._pair if aspect else self._single
        head = [(i, -1, segment) for i, segment in before]
        tail = [(i, -1, segment) for i, segment in between]
        if aspect:
            tail += [(i, -1, after[0][1]) for i in aspect]
            tail += [(i, -1, segment) for i, segment in after]
        room = self.window - len(head) - len(tail)
        content = [(i, w, 0) for w, ids in enumerate(words) for i in ids]
        row: list[tuple[int, int, int]] = []
        for start in range(0, max(1, len(content)), room):
            row += [*head, *content[start : start + room], *tail]
        return Encoding(*zip(*row, strict=True))


_SpecialTokens = tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]
"""Special tokens (id, segment) before the sentence, after it, and after the aspect."""


def _special_tokens(tokenizer: Tokenizer, *, pair: bool) -> _SpecialTokens:
    """Return the special tokens that the tokenizer adds to an example."""
    encoding = tokenizer.encode(["a"], ["a"] if pair else None, is_pretokenized=True)
    parts: _SpecialTokens = ([], [], [])
    part = 0
    for i, segment, sequence in zip(
        encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
    ):
        if sequence is None:
            parts[part].append((i, segment))
        else:
            part = sequence + 1
    return parts


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"Cannot read the tokenizer {str(path)!r}: {error}") from error
    try:
        return Tokenizer.from_str(content)
    except Exception as error:  # the Rust side raises bare Exception for any malformed file
        raise ArtifactError(
            f"{str(path)!r} is not a tokenizer.json: {error}. Export the model again."
        ) from error


def load_tokenizer(path: Path, config: dict[str, Any]) -> TextTokenizer:
    """Read the tokenizer of a bundle, of the kind that its configuration names.

    Raises:
        ArtifactError: If the file is missing, damaged or does not match the configuration.
    """
    subwords = config.get("subwords")
    if subwords is None:
        return WordTokenizer.load(path)
    try:
        window, reads_aspect = int(subwords["window"]), bool(subwords["reads_aspect"])
    except (TypeError, KeyError, ValueError) as error:
        raise ArtifactError(
            f"config.json has no valid section `subwords`: {error!r}. Export the model again."
        ) from error
    return SubwordTokenizer(_read_tokenizer(path), window=window, reads_aspect=reads_aspect)


def pool_words(
    scores: NDArray[np.float32], words: NDArray[np.int64], *, how: str
) -> NDArray[np.float32]:
    """Reduce the scores of subwords to scores of words.

    Args:
        scores: Per capsule and subword (A, C, T).
        words: The word of each subword (A, T); -1 for none.
        how: `max` or `sum`.

    Returns:
        Per capsule and word (A, C, W); 0 where there is no word.

    >>> scores, words = np.array([[[0.5, 0.1, 0.3]]], np.float32), np.array([[-1, 0, 0]])
    >>> pool_words(scores, words, how="max").tolist()
    [[[0.30000001192092896]]]
    """
    size = int(words.max(initial=-1)) + 1
    shape = (*scores.shape[:2], size + 1)  # the last column collects subwords of no word
    pooled = np.full(shape, -np.inf if how == "max" else 0, dtype=scores.dtype)
    aspects = np.arange(scores.shape[0])[:, None, None]
    capsules = np.arange(scores.shape[1])[None, :, None]
    columns = (aspects, capsules, np.where(words < 0, size, words)[:, None, :])
    (np.maximum if how == "max" else np.add).at(pooled, columns, scores)
    return np.where(np.isneginf(pooled), 0, pooled)[:, :, :size]


def first_subwords(words: NDArray[np.int64], num_words: int) -> NDArray[np.int64]:
    """Return the position of the first subword of each word (S, W); 0 where there is no word.

    Args:
        words: The word of each subword (S, T); -1 for none.
        num_words: W, at least the number of words.

    >>> first_subwords(np.array([[-1, 0, 0, 1, -1]]), 3).tolist()
    [[1, 3, 0]]
    """
    first = np.zeros((len(words), num_words), dtype=np.int64)
    starts = words >= 0
    starts[:, 1:] &= words[:, 1:] != words[:, :-1]
    rows, positions = (index[::-1] for index in np.nonzero(starts))  # the first one wins
    first[rows, words[rows, positions]] = positions
    return first

"""Text -> words with exact character spans -> ids: one idea of a word, shared by every encoder.

Words are cut by one regular expression, so that a Bi-GRU, a BERT and the offsets users see agree on
what a word is. The untouched text is never copied, stripped or normalised: a word *is* a pair of
half-open character offsets into it. Only the spelling looked up in a vocabulary is normalised.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

from tokenizers import Regex, Tokenizer, models, normalizers

from capsar.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Span = tuple[int, int]
"""Half-open character offsets of one word."""

SEGMENTATION = "treebank-1"
"""The name of this idea of a word; a model only understands the one it was trained with."""

PADDING = "[PAD]"
UNKNOWN = "[UNK]"

# Characters that are nobody's word: white space, control characters, invisible marks of direction
# and width. Everything else belongs to exactly one word.
_GAP = r"\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
# Punctuation and other symbols: a word each, but for runs of dots, hyphens and quotes.
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
# Letters, digits and combining marks of any script are whatever is left; joiners and the soft
# hyphen are invisible inside a word and no word alone.
_LETTER = f"[^{_GAP}{_SYMBOL}{_EMOJI}{_SYLLABLE}]"
_LETTERS = rf"{_LETTER}(?:{_LETTER}|[\u200c\u200d\xad])*+"
_NOT = r"[nN]['’][tT](?!" + _LETTER + ")"

# Treebank's idea of a word, which is also that of the public GloVe vectors. The order matters: the
# first alternative that fits wins. Possessive quantifiers (`++`, `*+`) never give characters back,
# so that the time to cut a text is linear in its length, whatever the text is.
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


def segment(text: str) -> list[Span]:
    """Return the words of a text, in order, as half-open character offsets into it.

    Words do not overlap, and between them stand only white space, control characters and other
    invisible marks. Any string is accepted, lone surrogates included.

    >>> text = "The battery isn't well-made..."
    >>> [text[start:end] for start, end in segment(text)]
    ['The', 'battery', 'is', "n't", 'well-made', '...']
    """
    return list(iterate_words(text))


def iterate_words(text: str) -> Iterator[Span]:
    """Do as `segment`, one word after the other."""
    return (match.span() for match in _WORD.finditer(text))


def words_within(words: Sequence[Span], start: int, end: int) -> range:
    """Return the indices of the words that the characters `start` to `end` touch.

    A span may begin or end inside a word, as some annotated ones do: the whole word then counts.

    >>> words_within([(0, 3), (4, 11), (12, 14)], 4, 9)
    range(1, 2)
    """
    first = bisect_right(words, start, key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, end, key=lambda word: word[0])))


def cuts_word(text: str, position: int) -> bool:
    """Tell whether a boundary at `position` stands between two letters or digits of one word.

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
    """How a word is spelled in a vocabulary: composed, straight quotes, three dots, lower case."""
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
    """Replace lone surrogates, which UTF-8 (and so Rust) cannot hold, one character for one."""
    return _SURROGATE.sub("\ufffd", text)


def build_vocabulary(
    training_texts: Iterable[str], known_words: Iterable[str] = (), *, min_count: int = 1
) -> list[str]:
    """Return the spellings a model knows: those of its training texts, then those with a vector.

    Words of the training part come first, most frequent first, ties in alphabetical order; then the
    words of pre-trained vectors in their own order. Text that is evaluated on has no way in here.

    Args:
        training_texts: The texts of the training part.
        known_words: Words that have a pre-trained vector, whether they occur in training or not.
        min_count: How often a word without a vector must occur to be kept.

    >>> build_vocabulary(["Good food, good price"], ["the", "food"])
    ['good', ',', 'food', 'price', 'the']
    """
    counts = Counter(
        text[start:end] for text in training_texts for start, end in segment(text)
    )  # surface forms first: far fewer of them are normalised than words are read
    spelled: Counter[str] = Counter()
    for word, count in counts.items():
        spelled[spelling(word)] += count
    known = dict.fromkeys(spelling(word) for word in known_words)
    kept = [
        word
        for word, count in sorted(spelled.items(), key=lambda item: (-item[1], item[0]))
        if count >= min_count or word in known
    ]
    return list(dict.fromkeys([*kept, *known]))


@dataclass(frozen=True, slots=True)
class Layout:
    """A sentence as an encoder reads it: ids in order, and the word that each belongs to."""

    ids: tuple[int, ...]
    words: tuple[int, ...]
    """The word of each id; -1 where an id is of no word of the sentence: it is read, but does not
    vote."""
    segments: tuple[int, ...]
    """0, or 1 in a second segment."""


class WordTokenizer:
    """Words to ids, by the Rust `tokenizers` library; saved whole as one `tokenizer.json`.

    Id 0 is padding and id 1 any unknown word.

    >>> tokenizer = WordTokenizer.build(["good", "food"])
    >>> tokenizer.encode([["Good", "grub"]])
    [[2, 1]]
    """

    window = 0
    """How many ids can be read at once; 0 for any number."""
    reads_aspect = False
    """Whether the aspect is read beside the sentence."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.token_to_id(PADDING) != 0 or tokenizer.token_to_id(UNKNOWN) != 1:
            raise ArtifactError(
                f"A word tokenizer has {PADDING} as id 0 and {UNKNOWN} as id 1; this one does not. "
                "Was it saved by WordTokenizer.save?"
            )
        # Anything else in the file would cut, pad or spell words otherwise than training did.
        whole = str(tokenizer.normalizer) == str(_normalizer()) and not any(
            (tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.padding,
             tokenizer.truncation, tokenizer.decoder)
        )  # fmt: skip
        if not whole:
            raise ArtifactError(
                f"A word tokenizer in tokenizer.json spells words as {SEGMENTATION!r} does, and "
                "nothing else; this one does more. Export the model again."
            )
        self._tokenizer = tokenizer

    @classmethod
    def build(cls, vocabulary: Sequence[str]) -> Self:
        """Make a tokenizer from spellings, in the order of their ids."""
        ids = {word: index for index, word in enumerate((PADDING, UNKNOWN, *vocabulary))}
        if len(ids) != len(vocabulary) + 2:
            raise ConfigError("A vocabulary must not name a word twice, nor the words [PAD], [UNK]")
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
        tokenizer.normalizer = _normalizer()
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer that `save` wrote.

        Raises:
            ArtifactError: If the file is missing, damaged or not such a tokenizer.
        """
        return cls(read_tokenizer(path))

    def save(self, path: Path) -> None:
        """Write the tokenizer to one JSON file."""
        path.write_bytes(self.content())

    def content(self) -> bytes:
        """Return what `save` writes."""
        return str(self._tokenizer.to_str(pretty=False)).encode()

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def vocabulary(self) -> list[str]:
        """Return the spellings in the order of their ids, padding and unknown included."""
        ids = self._tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def lay_out(
        self, sentences: Sequence[Sequence[str]], aspects: Sequence[Sequence[str]]
    ) -> list[Layout]:
        """Return each sentence as the encoder reads it: one id a word, and no aspect."""
        del aspects
        return [
            Layout(tuple(ids), tuple(range(len(ids))), (0,) * len(ids))
            for ids in self.encode(sentences)
        ]

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word: one."""
        return [[found] for found in self.encode([words])[0]]

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the ids of each sentence's words, one id a word."""
        try:
            encodings = self._encode(sentences)
        except (UnicodeEncodeError, TypeError):
            cleaned = [[encodable(word) for word in words] for words in sentences]
            encodings = self._encode(cleaned)
        return encodings

    def _encode(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(
            sentences, is_pretokenized=True, add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`.

    Raises:
        ArtifactError: If the file is missing or damaged.
    """
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

"""Merge the spellings of an aspect term, and never those of two aspects.

Names are merged that differ only in case, accents, articles or hyphens; a plural with its singular
if both occur; *wifi* with *wi-fi*; and a misspelled word with the correct one. A word counts as
misspelled only if no dictionary has it, one edit makes it a word that is far more frequent in the
corpus, and there is only one such word. So *stuff* is never merged with *staff*, nor *desert* with
*dessert*.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PUNCTUATION = " \t\r\n\"'“”‘’«»`.,;:!?()[]{}<>*_~…–—-"
_ARTICLE = re.compile(r"^(?:the|a|an) (?=\S)")
_WHITESPACE = re.compile(r"[\s\u00a0]+")
_HYPHENS = str.maketrans(dict.fromkeys("‐‑‒–—−", "-") | {"’": "'", "‘": "'", "ʼ": "'"})
_INVISIBLE = frozenset(("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"
_LISTS: dict[str, Any] = tomllib.loads(
    (files("capsar.reporting") / "aspect_names.toml").read_text(encoding="utf-8")
)
_ACCENTED = frozenset(_LISTS["accented"].split())
_NOT_PLURALS = frozenset(_LISTS["not_plurals"].split())
_SPELLINGS: dict[str, str] = _LISTS["spellings"]
_IRREGULAR: dict[str, str] = _LISTS["irregular_plurals"]
_MIN_MISSPELLED_LENGTH = 6
_TIMES_RARER = 20
_MAX_VARIANTS = 12
_MAX_NAME_LENGTH = 80


def normalize_name(name: str) -> str:
    """Return the form in which names are compared.

    Ignores case, accents, kinds of hyphens and quotes, spaces, a leading article and surrounding
    punctuation; a hyphen between words becomes a space.

    >>> normalize_name("The  Crème-Brûlée,")
    'creme brulee'
    """
    form = _normalize_once(strip_invisible(name))
    while (simpler := _normalize_once(form)) != form:  # one step may expose work for the next
        form = simpler
    return form


def _normalize_once(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate(_HYPHENS)
    text = _WHITESPACE.sub(" ", text).strip(_PUNCTUATION)
    text = _ARTICLE.sub("", text)
    words = text.replace("-", " ").split()
    return " ".join(map(_standard_spelling, map(_strip_accents, words)))


def join_hyphens(name: str) -> str | None:
    """Return a hyphenated name as one word, or None if it is not hyphenated.

    >>> join_hyphens("Wi-Fi"), join_hyphens("re-cover"), join_hyphens("wi fi")
    ('wifi', None, None)
    """
    text = unicodedata.normalize("NFKC", strip_invisible(name)).casefold().translate(_HYPHENS)
    parts = text.strip(_PUNCTUATION).split("-")
    is_hyphenated = len(parts) > 1 and all(part.isalpha() for part in parts)
    # After these prefixes the hyphen makes a different word: re-cover, co-op, un-ionized.
    if not is_hyphenated or parts[0] in ("re", "co", "un", "de", "pre"):
        return None
    return "".join(parts)


def singular_forms(name: str) -> list[str]:
    """Return the possible singulars of a normalized name, by its last word.

    >>> singular_forms("battery packs"), singular_forms("dishes"), singular_forms("news")
    (['battery pack'], ['dish', 'dishe'], [])
    """
    before, space, word = name.rpartition(" ")
    return [f"{before}{space}{one}" for one in _singular_words(word)]


def _singular_words(word: str) -> list[str]:
    if word in _IRREGULAR:
        return [_IRREGULAR[word]]
    if word in _NOT_PLURALS or len(word) < 4 or not word.endswith("s"):  # noqa: PLR2004
        return []
    if word.endswith(("ss", "us", "is")) or not word.isalpha():
        return []
    if word.endswith("ies") and len(word) > 4:  # noqa: PLR2004
        return [word[:-3] + "y", word[:-1]]
    if word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        return [word[:-2], word[:-1]]
    return [word[:-1]]


def strip_invisible(text: str) -> str:
    """Remove invisible characters, such as those that change the direction of a page's text."""
    return "".join(
        one for one in text if one in _JOINERS or unicodedata.category(one) not in _INVISIBLE
    )


def _standard_spelling(word: str) -> str:
    if word.endswith("s") and word[:-1] in _SPELLINGS:
        return _SPELLINGS[word[:-1]] + "s"
    return _SPELLINGS.get(word, word)


def _strip_accents(word: str) -> str:
    if word.isascii() or word in _ACCENTED:
        return word
    kept: list[str] = []
    for one in unicodedata.normalize("NFD", word):
        # Only accents of Latin letters: in other scripts marks make different letters.
        if unicodedata.category(one) == "Mn" and kept and kept[-1].isascii():
            continue
        kept.append(one)
    return unicodedata.normalize("NFC", "".join(kept))


@dataclass(frozen=True, slots=True)
class MergedAspect:
    """An aspect with all its spellings."""

    name: str
    """The most frequent spelling."""
    mentions: int
    spellings: dict[str, int]
    """Every spelling with its count, most frequent first."""

    @property
    def variants(self) -> list[tuple[str, int]]:
        """Spellings that differ by more than case, with their counts."""
        counts: Counter[str] = Counter()
        first: dict[str, str] = {}
        for spelling, number in self.spellings.items():
            form = _fold_case(spelling)
            first.setdefault(form, _display(spelling))
            counts[form] += number
        return [(first[form], number) for form, number in counts.most_common(_MAX_VARIANTS)]


def merge_names(names: Mapping[str, int]) -> list[MergedAspect]:
    """Group names with their counts into aspects, most mentioned first.

    >>> names = {"Batteries": 2, "battery": 5, "staff": 4, "stuff": 1}
    >>> [aspect.name for aspect in merge_names(names)]
    ['battery', 'staff', 'stuff']
    """
    forms: Counter[str] = Counter()
    for name, number in names.items():
        forms[normalize_name(name)] += number
    sets = _DisjointSets(forms)
    _join_hyphenated(sets, names, forms)
    _join_misspelled(sets, forms)
    _join_plurals(sets, forms)
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for name, number in sorted(names.items(), key=lambda item: (-item[1], item[0])):
        if form := normalize_name(name):
            groups[sets.find(form)][name] = number
    aspects = [_make_aspect(spellings) for spellings in groups.values()]
    return sorted(aspects, key=lambda aspect: (-aspect.mentions, aspect.name))


def _make_aspect(spellings: dict[str, int]) -> MergedAspect:
    counts: Counter[str] = Counter()
    for spelling, number in spellings.items():
        counts[_fold_case(spelling)] += number
    best = counts.most_common(1)[0][0]
    name = next(spelling for spelling in spellings if _fold_case(spelling) == best)
    return MergedAspect(_display(name), sum(spellings.values()), spellings)


def _fold_case(name: str) -> str:
    return strip_invisible(name).casefold().strip()


def _display(name: str) -> str:
    return strip_invisible(name).strip()[:_MAX_NAME_LENGTH]


class _DisjointSets:
    """Union-find over normalized names."""

    def __init__(self, forms: Iterable[str]) -> None:
        self._parent = {form: form for form in forms}

    def find(self, form: str) -> str:
        """Return the representative of a form."""
        while self._parent[form] != form:
            form = self._parent[form]
        return form

    def join(self, form: str, other: str) -> None:
        self._parent[self.find(form)] = self.find(other)


def _join_hyphenated(sets: _DisjointSets, names: Iterable[str], forms: Mapping[str, int]) -> None:
    for name in names:
        joined = join_hyphens(name)
        if joined is not None and joined in forms:
            sets.join(joined, normalize_name(name))


def _join_plurals(sets: _DisjointSets, forms: Mapping[str, int]) -> None:
    for form in forms:
        singular = next((one for one in singular_forms(form) if one in forms), None)
        if singular is not None:
            sets.join(form, singular)


def _join_misspelled(sets: _DisjointSets, forms: Mapping[str, int]) -> None:
    """Join each name with its correction, if that is far more frequent."""
    words: Counter[str] = Counter()
    for form, number in forms.items():
        for word in form.split():
            words[word] += number
    corrections = _find_corrections(words)
    for form in forms:
        corrected = " ".join(corrections.get(word, word) for word in form.split())
        if corrected != form and forms.get(corrected, 0) >= _TIMES_RARER * forms[form]:
            sets.join(form, corrected)


def _find_corrections(words: Mapping[str, int]) -> dict[str, str]:
    """Return the correction of each misspelled word that has exactly one."""
    plain = {word for word in words if word.isascii() and word.isalpha()}
    known = {word for word in plain if _is_word(word)}
    by_deletion: dict[str, set[str]] = defaultdict(set)
    for word in known:
        for deletion in _deletions(word):
            by_deletion[deletion].add(word)
    corrections = {}
    for word in plain - known:
        if len(word) < _MIN_MISSPELLED_LENGTH:
            continue
        close = {
            other
            for deletion in _deletions(word)
            for other in by_deletion[deletion]
            if words[other] >= _TIMES_RARER * words[word] and _is_one_edit(word, other)
        }
        if len(close) == 1:
            corrections[word] = close.pop()
    return corrections


def _is_word(word: str) -> bool:
    words = dictionary()
    return word in words or any(singular in words for singular in singular_forms(word))


def _deletions(word: str) -> set[str]:
    """Return a word, and the word without each of its letters: words one edit apart share one."""
    return {word, *(word[:index] + word[index + 1 :] for index in range(len(word)))}


def _is_one_edit(word: str, correct: str) -> bool:
    """Return whether one letter is missing, added or changed, or two neighbors are swapped.

    Misspellings seldom affect the first letter, where different words differ. A letter added or
    missing at the end is often inflection, so it does not count either.
    """
    if word[0] != correct[0] or word[:-1] == correct or correct[:-1] == word:
        return False
    begin = 0
    while begin < min(len(word), len(correct)) and word[begin] == correct[begin]:
        begin += 1
    rest, wanted = word[begin:], correct[begin:]
    if rest[1:] == wanted or rest == wanted[1:]:
        return True
    if len(rest) != len(wanted):
        return False
    return rest[1:] == wanted[1:] or (rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:])


@lru_cache(maxsize=1)
def dictionary() -> frozenset[str]:
    """Return about 80,000 correctly spelled English words."""
    path = files("symspellpy") / "frequency_dictionary_en_82_765.txt"
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return frozenset(line.partition(" ")[0] for line in lines)

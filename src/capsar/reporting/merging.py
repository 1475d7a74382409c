"""Names of one aspect -> one aspect, and never names of two.

Joined are names that are the same but for case, accents, articles and hyphens; a plural with its
singular, if both are there; *wifi* with *wi-fi*; and a misspelt word with the right one. A word is
misspelt only if no dictionary has it, one letter makes it a word that is far more frequent here,
and there is just one such word. So *stuff* is never taken for *staff*, nor *desert* for *dessert*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from capsar.reporting.names import hyphenated, plain, shown, singulars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHORTEST_MISSPELT = 6
_TIMES_RARER = 20
_VARIANTS_SHOWN = 12
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Aspect:
    """Something that is spoken of, under all the names that people write."""

    name: str
    """The most frequent one."""
    mentions: int
    surfaces: dict[str, int]
    """Every name as it is written, with how often; the most frequent first."""

    @property
    def variants(self) -> list[tuple[str, int]]:
        """The names that differ by more than case, with how often each is written."""
        by_form: Counter[str] = Counter()
        first: dict[str, str] = {}
        for surface, number in self.surfaces.items():
            form = shown(surface).casefold().strip()
            first.setdefault(form, shown(surface).strip()[:_LONGEST_NAME])
            by_form[form] += number
        return [(first[form], number) for form, number in by_form.most_common(_VARIANTS_SHOWN)]


def merge(surfaces: Mapping[str, int]) -> list[Aspect]:
    """Group names with their counts into aspects, the most mentioned first.

    >>> [aspect.name for aspect in merge({"Batteries": 2, "battery": 5, "staff": 4, "stuff": 1})]
    ['battery', 'staff', 'stuff']
    """
    forms: Counter[str] = Counter()
    for surface, number in surfaces.items():
        forms[plain(surface)] += number
    joined = _Joined(forms)
    _join_hyphenated(joined, surfaces, forms)
    _join_misspelt(joined, forms)
    _join_plurals(joined, forms)
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for surface, number in sorted(surfaces.items(), key=lambda item: (-item[1], item[0])):
        if form := plain(surface):
            groups[joined.root(form)][surface] = number
    aspects = [_aspect(names) for names in groups.values()]
    return sorted(aspects, key=lambda aspect: (-aspect.mentions, aspect.name))


def _aspect(names: dict[str, int]) -> Aspect:
    by_case: Counter[str] = Counter()
    for surface, number in names.items():
        by_case[shown(surface).casefold().strip()] += number
    best = by_case.most_common(1)[0][0]
    written = next(name for name in names if shown(name).casefold().strip() == best)
    return Aspect(shown(written).strip()[:_LONGEST_NAME], sum(names.values()), names)


class _Joined:
    """Forms, and which of them are one: each points to a more frequent one, or to itself."""

    def __init__(self, forms: Iterable[str]) -> None:
        self._to = {form: form for form in forms}

    def root(self, form: str) -> str:
        while self._to[form] != form:
            form = self._to[form]
        return form

    def join(self, form: str, other: str) -> None:
        self._to[self.root(form)] = self.root(other)


def _join_hyphenated(joined: _Joined, surfaces: Iterable[str], forms: Mapping[str, int]) -> None:
    for surface in surfaces:
        whole = hyphenated(surface)
        if whole is not None and whole in forms:
            joined.join(whole, plain(surface))


def _join_plurals(joined: _Joined, forms: Mapping[str, int]) -> None:
    for form in forms:
        for single in singulars(form):
            if single in forms:
                joined.join(form, single)
                break


def _join_misspelt(joined: _Joined, forms: Mapping[str, int]) -> None:
    """Join a name with the one that it is when its one misspelt word is mended."""
    words: Counter[str] = Counter()
    for form, number in forms.items():
        for word in form.split():
            words[word] += number
    strange = {word for word in words if _may_be_misspelt(word)}
    mended = _mend(strange, words)
    for form in forms:
        parts = form.split()
        if any(word in mended for word in parts):
            right = " ".join(mended.get(word, word) for word in parts)
            if forms.get(right, 0) >= _TIMES_RARER * forms[form]:
                joined.join(form, right)


def _may_be_misspelt(word: str) -> bool:
    plausible = len(word) >= _SHORTEST_MISSPELT and word.isascii() and word.isalpha()
    return plausible and not _is_word(word)


def _is_word(word: str) -> bool:
    known = dictionary()
    return word in known or any(single in known for single in singulars(word))


def _mend(strange: set[str], words: Mapping[str, int]) -> dict[str, str]:
    """Return for each strange word the one word that it is misspelt from, if there is just one."""
    by_part: dict[str, set[str]] = defaultdict(set)
    for word in words:
        if word.isascii() and word.isalpha() and word not in strange and _is_word(word):
            for part in _parts(word):
                by_part[part].add(word)
    mended = {}
    for word in strange:
        near = {other for part in _parts(word) for other in by_part[part] if _is_slip(word, other)}
        near = {other for other in near if words[other] >= _TIMES_RARER * words[word]}
        if len(near) == 1:
            mended[word] = near.pop()
    return mended


def _parts(word: str) -> set[str]:
    """Return a word, and the word without each of its letters: words one slip apart share one."""
    return {word, *(word[:place] + word[place + 1 :] for place in range(len(word)))}


def _is_slip(word: str, right: str) -> bool:
    """Tell whether one letter is missing, doubled, added, changed, or two are swapped.

    The first letter stays: who misspells seldom errs there, and other words differ there. So do
    words of which one is the other with a letter at its end: that is grammar.
    """
    if word[0] != right[0] or word[:-1] == right or right[:-1] == word:
        return False
    begin = 0
    while begin < min(len(word), len(right)) and word[begin] == right[begin]:
        begin += 1
    rest, wanted = word[begin:], right[begin:]
    if rest[1:] == wanted or rest == wanted[1:]:
        return True
    if len(rest) != len(wanted):
        return False
    return rest[1:] == wanted[1:] or (rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:])


@lru_cache(maxsize=1)
def dictionary() -> frozenset[str]:
    """Return the words that are known to be right: some 80,000, of those that books use."""
    path = files("symspellpy") / "frequency_dictionary_en_82_765.txt"
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return frozenset(line.partition(" ")[0] for line in lines)

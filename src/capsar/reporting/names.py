"""An aspect as it is written -> the form in which names are compared, and its singulars.

Nothing here knows a corpus. What is done is safe on every text; what is safe only with other names
in sight is in `merging.py`.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from importlib.resources import files
from typing import Any

_EDGES = " \t\r\n\"'“”‘’«»`.,;:!?()[]{}<>*_~…–—-"
_ARTICLE = re.compile(r"^(?:the|a|an) (?=\S)")
_GAP = re.compile(r"[\s\u00a0]+")
_HYPHENS = str.maketrans(dict.fromkeys("‐‑‒–—−", "-") | {"’": "'", "‘": "'", "ʼ": "'"})
_INVISIBLE = frozenset(("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"
_WORDS: dict[str, Any] = tomllib.loads(
    (files("capsar.reporting") / "names.toml").read_text(encoding="utf-8")
)
_ACCENTS_COUNT = frozenset(_WORDS["accents_count"].split())
_NO_PLURALS = frozenset(_WORDS["no_plurals"].split())
_SPELLINGS: dict[str, str] = _WORDS["spellings"]
_IRREGULAR: dict[str, str] = _WORDS["irregular_plurals"]


def plain(surface: str) -> str:
    """Return the form in which names are compared.

    Case, accents, kinds of hyphens and quotes, spaces, an article before and marks around the name
    do not count; between words, a hyphen counts as a space.

    >>> plain("The  Crème-Brûlée,")
    'creme brulee'
    """
    form = _plainer(shown(surface))
    while (plainer := _plainer(form)) != form:  # what one step lays bare, the next one meets
        form = plainer
    return form


def _plainer(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate(_HYPHENS)
    text = _GAP.sub(" ", text).strip(_EDGES)
    text = _ARTICLE.sub("", text)
    words = text.replace("-", " ").split()
    return " ".join(map(_one_spelling, map(_without_accents, words)))


def hyphenated(surface: str) -> str | None:
    """Return a name of hyphenated parts as one word, as *wi-fi* is written too; nothing if none.

    >>> hyphenated("Wi-Fi"), hyphenated("re-cover"), hyphenated("wi fi")
    ('wifi', None, None)
    """
    text = unicodedata.normalize("NFKC", shown(surface)).casefold().translate(_HYPHENS)
    parts = text.strip(_EDGES).split("-")
    whole = len(parts) > 1 and all(part.isalpha() for part in parts)
    # With these prefixes the hyphen makes another word: re-cover, co-op, un-ionised.
    if not whole or parts[0] in ("re", "co", "un", "de", "pre"):
        return None
    return "".join(parts)


def singulars(name: str) -> list[str]:
    """Return what a plain name may be the plural of; the last word counts.

    >>> singulars("battery packs"), singulars("dishes"), singulars("news")
    (['battery pack'], ['dish', 'dishe'], [])
    """
    before, space, word = name.rpartition(" ")
    return [f"{before}{space}{one}" for one in _singular_words(word)]


def _singular_words(word: str) -> list[str]:
    if word in _IRREGULAR:
        return [_IRREGULAR[word]]
    if word in _NO_PLURALS or len(word) < 4 or not word.endswith("s"):  # noqa: PLR2004
        return []
    if word.endswith(("ss", "us", "is")) or not word.isalpha():
        return []
    if word.endswith("ies") and len(word) > 4:  # noqa: PLR2004
        return [word[:-3] + "y", word[:-1]]
    if word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        return [word[:-2], word[:-1]]
    return [word[:-1]]


def shown(text: str) -> str:
    """Return a text without what cannot be seen, so that no name can turn the page around it."""
    return "".join(
        one for one in text if one in _JOINERS or unicodedata.category(one) not in _INVISIBLE
    )


def _one_spelling(word: str) -> str:
    if word.endswith("s") and word[:-1] in _SPELLINGS:
        return _SPELLINGS[word[:-1]] + "s"
    return _SPELLINGS.get(word, word)


def _without_accents(word: str) -> str:
    if word.isascii() or word in _ACCENTS_COUNT:
        return word
    kept: list[str] = []
    for one in unicodedata.normalize("NFD", word):
        # Accents of Latin letters alone: in other scripts marks make other letters.
        if unicodedata.category(one) == "Mn" and kept and kept[-1].isascii():
            continue
        kept.append(one)
    return unicodedata.normalize("NFC", "".join(kept))

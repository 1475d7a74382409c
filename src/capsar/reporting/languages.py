"""Identify the language of a review, and call it English if in doubt."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING
from unicodedata import name as name_of

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

ENGLISH = "en"
UNKNOWN = "und"
"""The code of a language that is not known: its script is none of those below."""
_LATIN = "en de fr es it pt nl pl sv da no fi cs sk hu ro hr sl et lv lt tr id vi tl ca".split()  # noqa: SIM905
"""The languages that are distinguished by words."""
_SCRIPTS = {
    "CYRILLIC": "ru", "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko",
    "ARABIC": "ar", "DEVANAGARI": "hi", "GREEK": "el", "HEBREW": "he", "THAI": "th",
    "BENGALI": "bn", "TAMIL": "ta", "TELUGU": "te", "GEORGIAN": "ka", "ARMENIAN": "hy",
}  # fmt: skip
"""The most frequent language of other scripts."""
_WITH_LATIN = ("LATIN", "MODIFIER", "FEMININE", "MASCULINE", "FULLWIDTH", "MATHEMATICAL", "MICRO")
_MARGIN = 7.0
"""By how much the log-likelihood of another language must exceed that of English."""
_MIN_WORDS = 3
_MAX_CHARS = 400


def identify_language(text: str) -> str:
    """Return the ISO 639 code of the language of a text.

    >>> identify_language("Leider kam die Lieferung erst nach drei Wochen.")
    'de'
    >>> identify_language("Super!")
    'en'
    """
    text = text[:_MAX_CHARS]
    letters = "" if text.isascii() else filter(str.isalpha, text)
    scripts = Counter(_script_language(one) for one in letters)
    # A Han character is a word, so a third of the letters is enough.
    if scripts.pop(None, 0) < 2 * scripts.total():
        return "ja" if scripts["ja"] else str(scripts.most_common(1)[0][0])
    if len(text.split()) < _MIN_WORDS:
        return ENGLISH
    scores: dict[str, float] = dict(_identifier().rank(text))
    scores[ENGLISH] += _MARGIN
    return max(scores, key=scores.__getitem__)


def _script_language(letter: str) -> str | None:
    """Return the most frequent language of a letter's script, or None for Latin."""
    script = name_of(letter, "LATIN").partition(" ")[0]
    return None if script in _WITH_LATIN else _SCRIPTS.get(script, UNKNOWN)


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(_LATIN)
    return identifier

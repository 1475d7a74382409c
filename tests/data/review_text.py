"""Review-like random texts, and properties of the sentences of any text."""

from __future__ import annotations

import re

from hostile_text import HOSTILE
from hypothesis import strategies as st

from capsar.sentences import split_sentences

# What may be between sentences: white space, invisible characters, tags, bullets, item numbers.
GAP = re.compile(
    r"(?:[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|</?[a-z]+\d?\b[^<>]*>|&nbsp;|[•●▪◦‣■►*+>–—-]|\d{1,2}[.)])*",
    re.IGNORECASE,
)
REVIEW_LIKE = st.lists(
    st.sampled_from(
        [*HOSTILE, ". ", "! ", "? ", "\n", "\n\n", "<br />", "<b>", "</b>", "&amp;", "&nbsp;", "- ",
         "1. ", "• ", ":) ", "😀 ", "Dr. ", "etc. ", "Soup ", "was cold", "very " * 12, '"', "."]
    )
).map("".join)  # fmt: skip


def check_sentences(text: str) -> None:
    """Check that every character is in a sentence or a gap, and that sentences do not split."""
    position = 0
    for start, end in split_sentences(text):
        assert position <= start < end <= len(text)
        assert GAP.fullmatch(text[position:start]), "a word stands between sentences"
        assert split_sentences(text[start:end]) == [(0, end - start)]
        position = end
    assert GAP.fullmatch(text[position:])

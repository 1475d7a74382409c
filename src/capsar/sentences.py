"""Review -> sentences with exact character offsets.

A sentence is a pair of half-open offsets into the unmodified review. Between sentences are only
white space, invisible marks, HTML markup and bullets. Whether a sentence ends depends on nothing
before its first character, so splitting a sentence again returns that sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capsar.tokenizer import iterate_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.tokenizer import Span

MAX_SENTENCE_WORDS = 256
"""Longer sentences are processed in windows of at most this many words."""

_LINE = r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]"
_INVISIBLE = r"\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_TAG_REST = r"(?:\s{0,9}/?>|\s[^<>=]{0,99}=[^<>]{0,500}>)"
_BLOCK = (
    r"</?(?:br|p|div|li|ul|ol|dl|dt|dd|h[1-6]|hr|tr|td|th|table|tbody|blockquote|pre|section)"
    + _TAG_REST
)
_INLINE = (
    r"</?(?:a|b|i|u|s|em|strong|span|font|small|big|sup|sub|img|strike|del|ins|mark|code|tt|q)"
    + _TAG_REST
)
_ENTITY = r"&(?:[a-z]{2,8}|\#\d{1,7}|\#x[0-9a-f]{1,6});"
_BULLET = r"[•●▪◦‣■►]"
_EMOJI = r"[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
_EMOJIS = rf"(?:{_EMOJI}[\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+)++"
_FACE = r"[:;=][-o'^]?[)(\]\[DPp]++(?!\w)|<3(?!\w)"
_CLOSERS = r"[\"'”’)\]»]*+"

# Characters before a sentence that are not part of it.
_BEFORE = re.compile(
    rf"(?:[{_INVISIBLE}]|{_BLOCK}|{_INLINE}|&nbsp;|{_BULLET}|[-*+–—>](?=\s)|\d{{1,2}}[.)](?=\s))*+",
    re.IGNORECASE,
)
_MARKUP = re.compile(f"{_BLOCK}|{_INLINE}|{_ENTITY}", re.IGNORECASE)
# Possible ends of a sentence. A run of end marks includes the closing quotes and brackets and the
# emoticons that follow.
_MAY_END = re.compile(
    rf"(?P<block>{_BLOCK})|(?P<line>{_LINE})|(?P<bullet>{_BULLET})"
    rf"|(?P<stop>(?:[.!?…‼⁇⁈⁉。！？｡]++(?: (?=[.!?…]))?)++{_CLOSERS})"
    rf"(?:[ \t]*+(?:{_EMOJIS}|{_FACE}))*+"
    rf"|(?P<face>{_EMOJIS}|{_FACE})",
    re.IGNORECASE,
)
_BLANK = re.compile(rf"[^\S\n\r\x0b\x0c\x85\u2028\u2029]*+(?:{_LINE}|\Z)")
_NEXT = re.compile(rf"(?P<gap>[{_INVISIBLE}]*+)[\"'“‘(\[«¿¡*_]*+(?P<first>\w?)(?P<second>\w?)")
_LAST_WORD = re.compile(r"([^\s\"'“”‘’()\[\]«»,;:!?]*)\s*\Z")
_LAST_WORD_LENGTH = 40
_WRAPPED_LINE = 50
"""A line of at least this length before a lower-case letter is treated as wrapped."""

_NEVER_LAST = re.compile(
    r"mr|mrs|ms|dr|prof|st|mt|sgt|capt|lt|col|gen|sen|rep|rev|hon|messrs|vs|e\.g|i\.e|eg|cf|viz"
)
_SELDOM_LAST = re.compile(
    r"etc|approx|incl|inc|ltd|co|corp|dept|est|max|min|no|nos|fig|vol|oz|lbs?|hrs?|mins|secs?|ft|tel"
    r"|ext|apt|ave|blvd|rd|jr|sr|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tue|wed|thu"
    r"|thurs?|fri|a\.m|p\.m|am|pm|pts?|pg|pp|ed|avg|misc|temp|resp"
)
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]\Z")
_ALWAYS = "。！？｡"
_GAP = re.compile(f"[{_INVISIBLE}]")
_BREAKS = {",", ";", ":", "-", "--", "–", "—", "...", "…", "/", "|"}
"""Words after which a window may end."""


def split_sentences(text: str) -> list[Span]:
    """Return the sentences of a review, in order, as half-open character offsets.

    Any string is accepted; the time is linear in its length.

    >>> text = "Dr. Lee was kind!!! <br />- the wait:  2.5 hours... Never again :("
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['Dr. Lee was kind!!!', 'the wait:  2.5 hours...', 'Never again :(']
    """
    return list(iterate_sentences(text))


def iterate_sentences(text: str) -> Iterator[Span]:
    """Yield the sentences of `split_sentences` one by one."""
    start = line = position = _skip_gap(text, 0)
    while mark := _MAY_END.search(text, position):
        position = mark.end()
        if mark["line"]:
            ends = _line_ends(text, line, mark)
            line = mark.end()
        else:
            ends = bool(mark["block"] or mark["bullet"]) or _mark_ends(text, start, mark)
        if not ends:
            continue
        end = mark.end() if mark["stop"] or mark["face"] else mark.start()
        yield from _trimmed(text, start, end)
        # The search restarts at the next sentence, as if that sentence were the whole text.
        start = line = position = _skip_gap(text, end)
    yield from _trimmed(text, start, len(text))


def _skip_gap(text: str, position: int) -> int:
    found = _BEFORE.match(text, position)
    return found.end() if found else position


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the sentence without trailing white space, if it is not empty."""
    while end > start and _GAP.match(text, end - 1):
        end -= 1
    if end > start:
        yield start, end


def _line_ends(text: str, line: int, mark: re.Match[str]) -> bool:
    """Return whether a line break ends a sentence: not if a long line continues."""
    after = _NEXT.match(text, mark.end())
    if _BLANK.match(text, mark.end()) or after is None:
        return True
    return mark.start() - line < _WRAPPED_LINE or not after["first"].islower()


def _mark_ends(text: str, start: int, mark: re.Match[str]) -> bool:
    """Return whether end marks, or an emoticon, end a sentence."""
    after = _NEXT.match(text, mark.end())
    if after is None or mark.end() == len(text):
        return True
    first, gap = after["first"], bool(after["gap"])
    stop = mark["stop"]
    if stop is None:
        return gap and first.isupper() and (after["second"].islower() or not after["second"])
    if any(end in stop for end in _ALWAYS):
        return True
    before = text[max(start, mark.start() - _LAST_WORD_LENGTH) : mark.start()]
    found = _LAST_WORD.search(before)
    word = found[1] if found else ""
    if not gap:
        return first.isupper() and len(word) > 1 and word.isalpha() and not word.isupper()
    marks = stop.rstrip("\"'”’)]»")
    if any(end in marks for end in "!?‼⁇⁈⁉"):
        return not (first.islower() and marks != stop)
    if len(marks) > 1 or marks == "…":
        return not first.islower()
    return _full_stop_ends(word, first)


def _full_stop_ends(word: str, first: str) -> bool:
    """Return whether a full stop after a word and before white space ends a sentence."""
    small = word.lower()
    if _NEVER_LAST.fullmatch(small):
        return False
    if _SELDOM_LAST.fullmatch(small):
        return first.isupper()
    if len(word) == 1 and word.isalpha():
        return word == "I" or not first.isalpha()
    if _ACRONYM.match(word):
        return not first.isalnum()
    return True


def iterate_windows(text: str, sentence: Span) -> Iterator[tuple[list[Span], bool]]:
    """Yield the words of a sentence, in windows if it is longer than `MAX_SENTENCE_WORDS`.

    A window ends after a comma or similar in its second half, or else when it is full. HTML markup
    is skipped.

    Returns:
        The words of each window, as offsets into the text, and whether there are several windows.
    """
    start, end = sentence
    own = text[start:end]  # words do not depend on the text around a sentence
    markup = _MARKUP.finditer(own)
    tag = next(markup, None)
    words: list[Span] = []
    windowed = False
    for first, last in iterate_words(own):
        while tag is not None and tag.end() <= first:
            tag = next(markup, None)
        if tag is not None and last > tag.start():
            continue
        if len(words) == MAX_SENTENCE_WORDS:
            cut = _window_end(text, words)
            windowed = True
            yield words[:cut], True
            words = words[cut:]
        words.append((first + start, last + start))
    if words:
        yield words, windowed


def _window_end(text: str, words: list[Span]) -> int:
    for size in range(len(words), len(words) // 2, -1):
        start, end = words[size - 1]
        if text[start:end] in _BREAKS:
            return size
    return len(words)

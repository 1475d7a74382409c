"""Weak labels from Bing Liu's files, for the bundled models (`pretrained/build.py`).

MAMS has only sentences about restaurants, with two or more aspects of different polarity. Bing
Liu's reviews add products and sentences with one aspect or none, but no neutral labels. Two more
sets of labels are extracted from his files. Neither marks every aspect, so both train the polarity
only (`data.partially_annotated`):

- *neutral mentions*: a feature that is labelled elsewhere, in a sentence without labels and without
  polar words;
- *pros and cons*: a feature in a line of pros (or cons), next to a polar word of that side and none
  of the other.

Polar words are those that occur far more often in pros than in cons, or vice versa. No validation
product and no evaluation set is read.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from capsar.config import list_sources, read_config
from capsar.data.catalog import find_file, training_examples
from capsar.schema import Polarity
from capsar.tokenizer import Span, tokenize_words
from run import WORK, write_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from capsar.schema import Example

FOLDER = WORK / "weak-labels"
PROS_CONS = "bing-liu-pros-cons"
_SIDES = {Polarity.POSITIVE: "IntegratedPros.txt", Polarity.NEGATIVE: "IntegratedCons.txt"}
_TAG = re.compile(r"</?(?:Pros|Cons)>")
_POLAR = 1.5
"""The least absolute log odds (pros against cons) of a polar word."""
_MIN_LINES = 10
_MIN_WORDS = 5
_MAX_NAME_WORDS = 4
_BREAKS = frozenset({
    ",", ".", ";", ":", "/", "&", "+", "!", "?", "-", "--", "...", "(", ")", "and", "but",
})  # fmt: skip
_EVALUATIVE = frozenset({
    "not", "n't", "no", "never", "none", "love", "loved", "like", "liked", "hate", "recommend",
    "happy", "problem", "problems", "good", "great", "bad", "better", "best", "worse", "worst",
})  # fmt: skip
"""Evaluative words, whatever their log odds."""
_ACTIONS = frozenset({
    "use", "look", "looks", "work", "works", "working", "play", "plays", "read", "small", "open",
    "install", "transfer", "scroll",
})  # fmt: skip
"""Words that annotators marked as features but that often are not."""
_MAX_PER_NAME = 40

WeakLabel = dict[str, str | int]


def read_pros_cons(path: Path) -> dict[Polarity, list[str]]:
    """Return the distinct lines of pros and of cons, without tags."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for side, name in _SIDES.items():
            text = archive.read(f"pros_cons/{name}").decode("latin-1")
            lines = (_TAG.sub("", line).strip() for line in text.splitlines())
            # A few lines hold HTML entities.
            found[side] = list(dict.fromkeys(line for line in lines if line and "&" not in line))
    return found


def side_odds(lines: dict[Polarity, list[str]]) -> dict[str, float]:
    """Return the log odds of each frequent word: positive if it is more frequent in pros."""
    counts = {
        side: Counter(word for line in some for word in set(lowercase_words(line)))
        for side, some in lines.items()
    }
    pros, cons = counts[Polarity.POSITIVE], counts[Polarity.NEGATIVE]
    share = math.log(len(lines[Polarity.NEGATIVE]) / len(lines[Polarity.POSITIVE]))
    return {
        word: math.log((pros[word] + 1) / (cons[word] + 1)) + share
        for word in pros | cons
        if pros[word] + cons[word] >= _MIN_LINES
    }


def lowercase_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [text[start:end].lower() for start, end in tokenize_words(text)]


def feature_names(examples: Iterable[Example], odds: dict[str, float]) -> set[str]:
    """Return the aspects that are labelled at least twice, except actions and polar words."""
    counts = Counter(
        " ".join(lowercase_words(e.aspect)) for e in examples if e.aspect and e.polarity
    )
    return {
        name
        for name, count in counts.items()
        if count > 1 and name not in _ACTIONS and abs(odds.get(name, 0)) < _POLAR
    }


def find_names(words: Sequence[str], names: Collection[str]) -> Iterator[range]:
    """Yield the positions of names among words, preferring longer names."""
    start = 0
    while start < len(words):
        for size in range(min(_MAX_NAME_WORDS, len(words) - start), 0, -1):
            if " ".join(words[start : start + size]) in names:
                yield range(start, start + size)
                start += size
                break
        else:
            start += 1


def neutral_mentions(
    examples: Sequence[Example], names: Collection[str], odds: dict[str, float]
) -> Iterator[WeakLabel]:
    """Yield features in sentences without labels and without polar words."""
    labeled = {example.text for example in examples if example.polarity}
    for text in dict.fromkeys(e.text for e in examples if e.text not in labeled):
        words = lowercase_words(text)
        polar = any(word in _EVALUATIVE or abs(odds.get(word, 0)) >= _POLAR for word in words)
        if len(words) >= _MIN_WORDS and not polar:
            for span in find_names(words, names):
                yield weak_label(text, tokenize_words(text), span, Polarity.NEUTRAL)


def sided_mentions(
    lines: dict[Polarity, list[str]], names: Collection[str], odds: dict[str, float]
) -> Iterator[WeakLabel]:
    """Yield features of pros and cons next to polar words of that side only."""
    for side, some in lines.items():
        sign = 1 if side is Polarity.POSITIVE else -1
        for line in some:
            words = lowercase_words(line)
            for span in find_names(words, names):
                nearby = [sign * odds.get(word, 0) for word in _clause(words, span)]
                if max(nearby, default=0) >= _POLAR and min(nearby) > -_POLAR:
                    yield weak_label(line, tokenize_words(line), span, side)


def _clause(words: Sequence[str], span: range) -> list[str]:
    """Return the words of the clause around a name, without the name."""
    first, end = span.start, span.stop
    while first and words[first - 1] not in _BREAKS:
        first -= 1
    while end < len(words) and words[end] not in _BREAKS:
        end += 1
    return [*words[first : span.start], *words[span.stop : end]]


def weak_label(text: str, words: Sequence[Span], span: range, polarity: Polarity) -> WeakLabel:
    """Return one row of a file of weak labels."""
    start, end = words[span.start][0], words[span.stop - 1][1]
    return {
        "text": text, "aspect": text[start:end], "start": start, "end": end, "polarity": polarity
    }  # fmt: skip


def subsample(labels: Iterable[WeakLabel], limit: int) -> list[WeakLabel]:
    """Return at most `limit` labels, one per text and few per name, chosen by a hash."""

    def rank(one: WeakLabel) -> str:
        return sha256(f"{one['text']}:{one['start']}".encode()).hexdigest()

    kept: dict[object, WeakLabel] = {}
    names: Counter[tuple[str, object]] = Counter()
    for one in sorted(labels, key=rank):
        name = (str(one["aspect"]).lower(), one["polarity"])
        if len(kept) < limit and one["text"] not in kept and names[name] < _MAX_PER_NAME:
            kept[one["text"]] = one
            names[name] += 1
    return list(kept.values())


def write_weak_labels(config: Path, limit: int) -> dict[str, int]:
    """Write the weak labels of a configuration's training products; return their numbers."""
    sources = (source.partition(":") for source in list_sources(read_config(config).data.train))
    products = [
        example
        for name, _, part in sources
        if name == "bing-liu"
        for example in training_examples(name, part)
    ]
    lines = read_pros_cons(find_file(PROS_CONS, "text"))
    odds = side_odds(lines)
    names = feature_names(products, odds)
    found = {
        "neutral-mentions": list(neutral_mentions(products, names, odds)),
        "pros-cons": subsample(sided_mentions(lines, names, odds), limit),
    }
    for name, labels in found.items():
        content = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in labels)
        write_text(FOLDER / f"{name}.jsonl", content)
    return {name: len(labels) for name, labels in found.items()}

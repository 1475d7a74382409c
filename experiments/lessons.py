"""What reviews of products teach beyond their labels (`python experiments/ship.py base`).

MAMS has only sentences about restaurants, with two or more aspects of different polarity. Bing
Liu's reviews add products and sentences with one aspect or none, but no neutral label: a model
would learn that only food can be talked of without feeling. Two more lessons are drawn from his
files, both of polarity only (`data.polarity_only`), since not every aspect in them is marked:

- *neutral mentions*: a feature that is judged elsewhere, in a sentence in which the annotators
  judged nothing and no polar word stands;
- *pros and cons*: a feature in a line of pros (or cons), beside a polar word of that side and none
  of the other.

Polar words are those that stand far more often in pros than in cons, or the other way round.
Nothing here reads a dev product or a set that models are judged on.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.config import list_sources, read_config
from capsar.data.catalog import find_file, training_examples
from capsar.labels import Polarity
from capsar.text import Span, segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from capsar.data.example import Example

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "runs" / "lessons"
PROS_CONS = "bing-liu-pros-cons"
_SIDES = {Polarity.POSITIVE: "IntegratedPros.txt", Polarity.NEGATIVE: "IntegratedCons.txt"}
_TAG = re.compile(r"</?(?:Pros|Cons)>")
_POLAR = 1.5
"""How far a word's log odds of standing in pros or cons must be from even."""
_FEWEST_LINES = 10
_FEWEST_WORDS = 5
_LONGEST_NAME = 4
_BREAKS = frozenset({
    ",", ".", ";", ":", "/", "&", "+", "!", "?", "-", "--", "...", "(", ")", "and", "but",
})  # fmt: skip
_JUDGING = frozenset({
    "not", "n't", "no", "never", "none", "love", "loved", "like", "liked", "hate", "recommend",
    "happy", "problem", "problems", "good", "great", "bad", "better", "best", "worse", "worst",
})  # fmt: skip
"""Words that judge, however often they stand on either side."""
_ACTIONS = frozenset({
    "use", "look", "looks", "work", "works", "working", "play", "plays", "read", "small", "open",
    "install", "transfer", "scroll",
})  # fmt: skip
"""What annotators named as features, and what often is none."""
_MOST_PER_NAME = 40

Lesson = dict[str, str | int]


def read_pros_cons(path: Path) -> dict[Polarity, list[str]]:
    """Return the distinct lines of each side, without their tags."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for side, name in _SIDES.items():
            text = archive.read(f"pros_cons/{name}").decode("latin-1")
            lines = (_TAG.sub("", line).strip() for line in text.splitlines())
            # A few lines hold what a browser would have shown as another character.
            found[side] = list(dict.fromkeys(line for line in lines if line and "&" not in line))
    return found


def side_odds(lines: dict[Polarity, list[str]]) -> dict[str, float]:
    """Return the log odds of each word that is not rare: above 0 it stands more often in pros."""
    counts = {
        side: Counter(word for line in some for word in set(spelled(line)))
        for side, some in lines.items()
    }
    pros, cons = counts[Polarity.POSITIVE], counts[Polarity.NEGATIVE]
    share = math.log(len(lines[Polarity.NEGATIVE]) / len(lines[Polarity.POSITIVE]))
    return {
        word: math.log((pros[word] + 1) / (cons[word] + 1)) + share
        for word in pros | cons
        if pros[word] + cons[word] >= _FEWEST_LINES
    }


def spelled(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [text[start:end].lower() for start, end in segment(text)]


def feature_names(examples: Iterable[Example], odds: dict[str, float]) -> set[str]:
    """Return what was judged twice or more, by name, but for actions and polar words."""
    counts = Counter(" ".join(spelled(e.aspect)) for e in examples if e.aspect and e.polarity)
    return {
        name
        for name, count in counts.items()
        if count > 1 and name not in _ACTIONS and abs(odds.get(name, 0)) < _POLAR
    }


def find_names(words: Sequence[str], names: Collection[str]) -> Iterator[range]:
    """Yield where names stand among words, the longest first at each place."""
    place = 0
    while place < len(words):
        for size in range(min(_LONGEST_NAME, len(words) - place), 0, -1):
            if " ".join(words[place : place + size]) in names:
                yield range(place, place + size)
                place += size
                break
        else:
            place += 1


def neutral_mentions(
    examples: Sequence[Example], names: Collection[str], odds: dict[str, float]
) -> Iterator[Lesson]:
    """Yield features in sentences in which nothing was judged and no polar word stands."""
    judged = {example.text for example in examples if example.polarity}
    for text in dict.fromkeys(e.text for e in examples if e.text not in judged):
        words = spelled(text)
        polar = any(word in _JUDGING or abs(odds.get(word, 0)) >= _POLAR for word in words)
        if len(words) >= _FEWEST_WORDS and not polar:
            for place in find_names(words, names):
                yield lesson(text, segment(text), place, Polarity.NEUTRAL)


def sided_mentions(
    lines: dict[Polarity, list[str]], names: Collection[str], odds: dict[str, float]
) -> Iterator[Lesson]:
    """Yield features of pros and cons that stand beside a polar word of that side alone."""
    for side, some in lines.items():
        sign = 1 if side is Polarity.POSITIVE else -1
        for line in some:
            words = spelled(line)
            for place in find_names(words, names):
                beside = [sign * odds.get(word, 0) for word in _clause(words, place)]
                if max(beside, default=0) >= _POLAR and min(beside) > -_POLAR:
                    yield lesson(line, segment(line), place, side)


def _clause(words: Sequence[str], place: range) -> list[str]:
    """The words between the same breaks as a name, without the name."""
    first, end = place.start, place.stop
    while first and words[first - 1] not in _BREAKS:
        first -= 1
    while end < len(words) and words[end] not in _BREAKS:
        end += 1
    return [*words[first : place.start], *words[place.stop : end]]


def lesson(text: str, spans: Sequence[Span], place: range, polarity: Polarity) -> Lesson:
    """Return one line of a file of lessons."""
    start, end = spans[place.start][0], spans[place.stop - 1][1]
    return {
        "text": text, "aspect": text[start:end], "start": start, "end": end, "polarity": polarity
    }  # fmt: skip


def thinned(lessons: Iterable[Lesson], most: int) -> list[Lesson]:
    """Return at most so many lessons, one a text and no name too often; which, is hashed."""

    def rank(one: Lesson) -> str:
        return sha256(f"{one['text']}:{one['start']}".encode()).hexdigest()

    kept: dict[object, Lesson] = {}
    names: Counter[tuple[str, object]] = Counter()
    for one in sorted(lessons, key=rank):
        name = (str(one["aspect"]).lower(), one["polarity"])
        if len(kept) < most and one["text"] not in kept and names[name] < _MOST_PER_NAME:
            kept[one["text"]] = one
            names[name] += 1
    return list(kept.values())


def write_lessons(config: Path, most: int) -> dict[str, int]:
    """Write the lessons of a configuration's training products; return how many there are."""
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
    drawn = {
        "neutral-mentions": list(neutral_mentions(products, names, odds)),
        "pros-cons": thinned(sided_mentions(lines, names, odds), most),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, lessons in drawn.items():
        content = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lessons)
        (FOLDER / f"{name}.jsonl").write_text(content, encoding="utf-8")
    return {name: len(lessons) for name, lessons in drawn.items()}

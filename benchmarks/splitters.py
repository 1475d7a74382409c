"""Which splitter of sentences: quality, exact offsets, hostile text, speed; each as it comes.

`pip install livekit-blingfire syntok pysbd uniseg`, then `CAPSAR_DATA=… python
benchmarks/splitters.py` writes `results/splitters.json`. Quality is the share of our own small
cases that are cut exactly right, and the F1 of sentence ends in reviews of the SemEval-2016
*training* files, whose sentences others have cut, joined by a space; as they are, and in small
letters. All splitters are judged on the same reviews. Our rules were written before any figure on
these was known, and not changed to suit them; our cases are no fair judge (`sentence_cases.py`).
"""

from __future__ import annotations

import os
import re
import statistics
from functools import partial
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pysbd
from defusedxml import ElementTree
from livekit import blingfire
from syntok import segmenter
from uniseg.sentencebreak import sentence_boundaries

from capsar.sentences import split_sentences
from capsar.text import encodable
from measure import in_turn, ratio, write_result
from sentence_cases import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

Spans = list[tuple[int, int]]
PACKAGES = {
    "blingfire": "livekit-blingfire",
    "syntok": "syntok",
    "pysbd": "pysbd",
    "uniseg": "uniseg",
}
LANGUAGES = ("english", "spanish", "dutch", "russian")
TIMED_REVIEWS = 20
TURNS = 5
# What ends a sentence whatever a library thinks: every one of them is given it.
BREAK = re.compile(
    r"</?(?:br|p|li|ul)\s*/?>|\r?\n\s*\n|\r?\n(?=\s*(?:[-*•]|\d+\.)\s)", re.IGNORECASE
)


def by_blingfire(text: str) -> Spans:
    spans: Spans = blingfire.text_to_sentences_with_offsets(encodable(text))[1]
    return spans


def by_syntok(text: str) -> Spans:
    return [
        (tokens[0].offset, tokens[-1].offset + len(tokens[-1].value))
        for part in segmenter.analyze(text)
        for tokens in map(list, part)
    ]


def by_pysbd(text: str) -> Spans:
    cutter = pysbd.Segmenter(language="en", clean=False, char_span=True)
    return [(span.start, span.end) for span in cutter.segment(text)]


def by_uniseg(text: str) -> Spans:
    places = list(sentence_boundaries(text))
    return list(pairwise(places))


SPLITTERS: dict[str, Callable[[str], Spans]] = {
    "blingfire": by_blingfire,
    "syntok": by_syntok,
    "pysbd": by_pysbd,
    "uniseg": by_uniseg,
}


def with_breaks(split: Callable[[str], Spans], text: str) -> Spans:
    """Split what stands between breaks."""
    found, start = [], 0
    for end, after in [*(match.span() for match in BREAK.finditer(text)), (len(text), len(text))]:
        found += [(start + a, start + b) for a, b in split(text[start:end])]
        start = after
    return found


def splitter(name: str) -> Callable[[str], Spans]:
    if name == "ours":
        return split_sentences
    return lambda text: with_breaks(SPLITTERS[name], text)


def spelled(text: str, spans: Spans) -> list[str]:
    """Return sentences without what is around them: space, bullets, remnants of tags."""
    plain = (re.sub(r"^(?:[-*•\s]|\d\.\s)+|</?\w+\s*/?>", "", text[a:b]) for a, b in spans)
    return [sentence.strip() for sentence in plain if sentence.strip()]


def judge_cases(split: Callable[[str], Spans]) -> dict[str, float]:
    right: dict[str, list[bool]] = {}
    for kind, cases in CASES.items():
        for case in cases:
            parts, text = case.split("|"), case.replace("|", "")
            expected = [s for part in parts for s in spelled(part, [(0, len(part))])]
            right.setdefault(kind, []).append(spelled(text, split(text)) == expected)
    shares = {f"cases_{kind}": statistics.mean(found) for kind, found in right.items()}
    return {"cases": statistics.mean(one for found in right.values() for one in found)} | shares


def read_reviews(language: str) -> list[list[str]]:
    folder = Path(os.environ["CAPSAR_DATA"]) / "data" / "semeval16"
    tree = ElementTree.parse(folder / f"restaurants_train_{language}.xml")
    reviews = [
        [t.strip() for s in r.iter("sentence") if (t := s.findtext("text"))]
        for r in tree.iter("Review")
    ]
    return [review for review in reviews if review]


def judge_reviews(split: Callable[[str], Spans], reviews: list[list[str]]) -> float:
    """Return the F1 of ends of sentences inside reviews; a place is how many letters are before."""
    right = told = gold = 0
    for sentences in reviews:
        text = " ".join(sentences)
        ends = {_letters(" ".join(sentences[: i + 1])) for i in range(len(sentences) - 1)}
        found = {_letters(text[:end]) for _, end in split(text)} - {_letters(text)}
        right, told, gold = right + len(ends & found), told + len(found), gold + len(ends)
    return 2 * right / (told + gold)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def offsets_hold(split: Callable[[str], Spans], texts: list[str]) -> float:
    """Return the share of texts without overlap, and with every letter in some sentence."""
    held = []
    for text in texts:
        try:
            spans = split(text)
        except Exception as error:  # noqa: BLE001  (whatever a library raises is what is counted)
            print(f"{error!r:.120}")
            held.append(False)
            continue
        edges = [0, *(place for span in spans for place in span), len(text)]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        ordered = edges == sorted(edges)
        held.append(ordered and not any(map(str.isalnum, "".join(text[a:b] for a, b in gaps))))
    return statistics.mean(held)


def hostile_texts() -> list[str]:
    parts = [
        "é",
        "e\u0301",
        "😀",
        "👍🏽",
        "\0",
        "\ud800",
        "\u202e",
        "\xa0",
        "!",
        ". ",
        "A",
        "\n",
        "…",
        "“",
    ]
    return [
        "".join(parts[(i * 7 + j * (i + 3)) % len(parts)] for j in range(40)) for i in range(50)
    ]


def growth(split: Callable[[str], Spans], size: int) -> float:
    """Return time per character at ten times a size / at the size, of plain sentences."""
    small = "This is a fine soup. " * (size // 21)
    calls: dict[str, Callable[[], object]] = {
        "small": lambda: split(small),
        "large": lambda: split(small * 10),
    }
    seconds = in_turn(calls, TURNS)
    return ratio(seconds["large"], seconds["small"]) / 10


def compare_speed(text: str) -> dict[str, float]:
    """Return the time of each on the same text / that of ours, in turn."""
    names = ("ours", *SPLITTERS)
    calls: dict[str, Callable[[], object]] = {name: partial(splitter(name), text) for name in names}
    seconds = in_turn(calls, TURNS)
    return {f"{name}_time_over_ours": ratio(seconds[name], seconds["ours"]) for name in names}


def installed_mb(package: str) -> float:
    files = distribution(package).files or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 2**20


def main() -> None:
    metrics: dict[str, float] = {"num_cases": sum(map(len, CASES.values()))}
    reviews = {language: read_reviews(language) for language in LANGUAGES}
    reviews["english_small"] = [[s.lower() for s in review] for review in reviews["english"]]
    text = " ".join(s for review in reviews["english"][:TIMED_REVIEWS] for s in review)
    for name in ("ours", *SPLITTERS):
        split = splitter(name)
        slow = name in ("pysbd", "uniseg")
        found = judge_cases(split)
        for language, texts in reviews.items():
            found[f"f1_{language}"] = judge_reviews(split, texts)
        found["offsets"] = offsets_hold(split, hostile_texts())
        found["growth"] = growth(split, 2_000 if slow else 100_000)
        if name in PACKAGES:
            found["installed_mb"] = installed_mb(PACKAGES[name])
        metrics |= {f"{name}_{key}": value for key, value in found.items()}
        print(name, {key: round(value, 3) for key, value in found.items()}, flush=True)
    metrics |= compare_speed(text)
    write_result("splitters", metrics, tuple(PACKAGES.values()))


if __name__ == "__main__":
    main()

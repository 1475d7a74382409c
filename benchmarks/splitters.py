"""Compare sentence splitters: quality, exact offsets, hostile text, speed.

`pip install livekit-blingfire syntok pysbd uniseg`, then `CAPSAR_DATA=… python
benchmarks/splitters.py` writes `results/splitters.json`. Quality is the share of our short cases
that are split exactly right, and the F1 of sentence ends in reviews of the SemEval-2016 *training*
files, split by their annotators and joined by a space; in original and in lower case. Our rules
were written before any of these results were known, and not changed afterwards. Our own cases favor
our splitter (`sentence_cases.toml`).
"""

from __future__ import annotations

import os
import re
import statistics
import tomllib
from functools import partial
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from defusedxml import ElementTree

from capsar.sentences import split_sentences
from capsar.tokenizer import encodable
from measure import median_ratio, time_in_turn, write_result

if TYPE_CHECKING:
    from collections.abc import Callable

Spans = list[tuple[int, int]]
CASES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("sentence_cases.toml").read_text(encoding="utf-8")
)
LANGUAGES = ("english", "spanish", "dutch", "russian")
TIMED_REVIEWS = 20
TURNS = 5
# These always end a sentence; every library receives the text between them.
BREAK = re.compile(
    r"</?(?:br|p|li|ul)\s*/?>|\r?\n\s*\n|\r?\n(?=\s*(?:[-*•]|\d+\.)\s)", re.IGNORECASE
)
HOSTILE = (
    *("é", "e\u0301", "😀", "👍🏽", "\0", "\ud800", "\u202e"),
    *("\xa0", "!", ". ", "A", "\n", "…", "“"),
)


def split_blingfire(text: str) -> Spans:
    from livekit import blingfire

    spans: Spans = blingfire.text_to_sentences_with_offsets(encodable(text))[1]
    return spans


def split_syntok(text: str) -> Spans:
    from syntok import segmenter

    return [
        (tokens[0].offset, tokens[-1].offset + len(tokens[-1].value))
        for part in segmenter.analyze(text)
        for tokens in map(list, part)
    ]


def split_pysbd(text: str) -> Spans:
    import pysbd

    segmenter = pysbd.Segmenter(language="en", clean=False, char_span=True)
    return [(span.start, span.end) for span in segmenter.segment(text)]


def split_uniseg(text: str) -> Spans:
    from uniseg.sentencebreak import sentence_boundaries

    return list(pairwise(sentence_boundaries(text)))


LIBRARIES: dict[str, tuple[str, Callable[[str], Spans]]] = {
    "blingfire": ("livekit-blingfire", split_blingfire),
    "syntok": ("syntok", split_syntok),
    "pysbd": ("pysbd", split_pysbd),
    "uniseg": ("uniseg", split_uniseg),
}
"""The package and the function of each."""


def split_between_breaks(split: Callable[[str], Spans], text: str) -> Spans:
    found, start = [], 0
    for end, after in [*(match.span() for match in BREAK.finditer(text)), (len(text), len(text))]:
        found += [(start + a, start + b) for a, b in split(text[start:end])]
        start = after
    return found


SPLITTERS: dict[str, Callable[[str], Spans]] = {
    "ours": split_sentences,
    **{name: partial(split_between_breaks, split) for name, (_, split) in LIBRARIES.items()},
}


def trimmed(text: str, spans: Spans) -> list[str]:
    """Return sentences without surrounding spaces, bullets and parts of tags."""
    plain = (re.sub(r"^(?:[-*•\s]|\d\.\s)+|</?\w+\s*/?>", "", text[a:b]) for a, b in spans)
    return [sentence.strip() for sentence in plain if sentence.strip()]


def evaluate_cases(split: Callable[[str], Spans]) -> dict[str, float]:
    correct: dict[str, list[bool]] = {}
    for kind, cases in CASES.items():
        for case in cases:
            parts, text = case.split("|"), case.replace("|", "")
            expected = [s for part in parts for s in trimmed(part, [(0, len(part))])]
            correct.setdefault(kind, []).append(trimmed(text, split(text)) == expected)
    shares = {f"cases_{kind}": statistics.mean(found) for kind, found in correct.items()}
    return {"cases": statistics.mean(one for found in correct.values() for one in found)} | shares


def read_reviews(language: str) -> list[list[str]]:
    folder = Path(os.environ["CAPSAR_DATA"]) / "data" / "semeval16"
    tree = ElementTree.parse(folder / f"restaurants_train_{language}.xml")
    reviews = [
        [t.strip() for s in r.iter("sentence") if (t := s.findtext("text"))]
        for r in tree.iter("Review")
    ]
    return [review for review in reviews if review]


def evaluate_reviews(split: Callable[[str], Spans], reviews: list[list[str]]) -> float:
    """Return the F1 of sentence ends inside reviews, located by the letters before them."""
    correct = predicted = gold = 0
    for sentences in reviews:
        text = " ".join(sentences)
        ends = {_letters(" ".join(sentences[: i + 1])) for i in range(len(sentences) - 1)}
        found = {_letters(text[:end]) for _, end in split(text)} - {_letters(text)}
        correct += len(ends & found)
        predicted += len(found)
        gold += len(ends)
    return 2 * correct / (predicted + gold)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def evaluate_offsets(split: Callable[[str], Spans]) -> float:
    """Return the share of hostile texts without overlap and with every letter in a sentence."""
    valid = []
    for i in range(50):
        text = "".join(HOSTILE[(i * 7 + j * (i + 3)) % len(HOSTILE)] for j in range(40))
        try:
            spans = split(text)
        except Exception as error:  # noqa: BLE001  (failures of libraries are counted)
            print(f"{error!r:.120}")
            valid.append(False)
            continue
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        is_sorted = edges == sorted(edges)
        valid.append(is_sorted and not any(map(str.isalnum, "".join(text[a:b] for a, b in gaps))))
    return statistics.mean(valid)


def growth(split: Callable[[str], Spans], size: int) -> float:
    """Return the time per character at ten times a size, relative to the size."""
    small = "This is a fine soup. " * (size // 21)
    calls: dict[str, Callable[[], object]] = {
        "small": lambda: split(small),
        "large": lambda: split(small * 10),
    }
    seconds = time_in_turn(calls, TURNS)
    return median_ratio(seconds["large"], seconds["small"]) / 10


def installed_mb(package: str) -> float:
    files = distribution(package).files or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 2**20


def main() -> None:
    metrics: dict[str, float] = {"num_cases": sum(map(len, CASES.values()))}
    reviews = {language: read_reviews(language) for language in LANGUAGES}
    reviews["english_small"] = [[s.lower() for s in review] for review in reviews["english"]]
    for name, split in SPLITTERS.items():
        found = evaluate_cases(split)
        for language, texts in reviews.items():
            found[f"f1_{language}"] = evaluate_reviews(split, texts)
        found["offsets"] = evaluate_offsets(split)
        found["growth"] = growth(split, 2_000 if name in ("pysbd", "uniseg") else 100_000)
        if name in LIBRARIES:
            found["installed_mb"] = installed_mb(LIBRARIES[name][0])
        metrics |= {f"{name}_{key}": value for key, value in found.items()}
        print(name, {key: round(value, 3) for key, value in found.items()}, flush=True)
    text = " ".join(s for review in reviews["english"][:TIMED_REVIEWS] for s in review)
    seconds = time_in_turn({name: partial(s, text) for name, s in SPLITTERS.items()}, TURNS)
    for name, times in seconds.items():
        metrics[f"{name}_time_over_ours"] = median_ratio(times, seconds["ours"])
    write_result("splitters", metrics, tuple(package for package, _ in LIBRARIES.values()))


if __name__ == "__main__":
    main()

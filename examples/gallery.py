"""Build the gallery: three reports over sentences that were written for this project.

`python examples/gallery.py OUTPUT [NAME …]` writes the reviews as CSV, scores them and reports on
them. The sentences are those of `corpus/train.jsonl` (CC BY 4.0). Hotels, restaurants, laptops,
dates and stars are invented: one product gets more of the sentences that criticize something, and
stars follow the labels of the sentences.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import capsar

CORPUS = Path(__file__).parent.parent / "corpus" / "train.jsonl"
FIRST_DAY = date(2026, 1, 1)
NUM_DAYS = 240
COLUMNS = ("id", "date", "product", "stars", "review")


@dataclass(frozen=True)
class Gallery:
    """A corpus of reviews with invented products."""

    domains: tuple[str, ...]
    products: tuple[str, ...]
    themes: str
    weak: tuple[str, ...]
    """Aspects that the first product is criticized for, and everyone in the later half."""


PLACES = (
    "Alder", "Birch", "Cedar", "Dune", "Elm", "Fjord", "Grove", "Harbour", "Iris", "Juniper",
    "Kestrel", "Lake", "Maple", "North", "Oak", "Pine", "Quay", "River", "Sage", "Thistle",
    "Union", "Valley", "Willow", "Yarrow", "Abbey", "Bridge", "Canal", "Depot", "Ember", "Forge",
)  # fmt: skip
GALLERY = {
    "laptops": Gallery(
        ("laptops",), ("Lumo 13", "Lumo 15", "Trek Pro"), "electronics", ("battery", "fan")
    ),
    "hotels": Gallery(
        ("hotels",),
        tuple(f"Hotel {name}" for name in PLACES[:10]),
        "hotels",
        ("breakfast", "room"),
    ),
    "restaurants": Gallery(
        ("restaurants", "cafes", "bars"),
        tuple(f"{name} Kitchen" for name in PLACES),
        "restaurants",
        ("service", "staff", "waiter"),
    ),
}


def make_reviews(gallery: Gallery, seed: int = 0) -> list[dict[str, Any]]:
    """Return reviews of one to three sentences each, with invented products, dates and stars."""
    generator = random.Random(seed)  # noqa: S311
    sentences = [
        sentence
        for sentence in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
        if sentence["domain"] in gallery.domains and sentence["source"] == "authored"
    ]
    generator.shuffle(sentences)
    reviews: list[dict[str, Any]] = []
    while sentences:
        number = min(len(sentences), generator.choice((1, 1, 2, 2, 3)))
        chosen = [sentences.pop() for _ in range(number)]
        marks = [aspect for one in chosen for aspect in one["aspects"]]
        is_weak = any(
            mark["polarity"] == "negative" and any(word in mark["aspect"] for word in gallery.weak)
            for mark in marks
        )
        product = generator.choice(gallery.products)
        if is_weak and generator.random() < 0.4:
            product = gallery.products[0]
        day = generator.randrange(NUM_DAYS)
        if is_weak and generator.random() < 0.5:
            day = generator.randrange(NUM_DAYS // 2, NUM_DAYS)
        balance = sum({"positive": 1, "negative": -1}.get(one["polarity"], 0) for one in marks)
        stars = 3.4 + 0.9 * max(-2, min(2, balance)) + generator.gauss(0, 0.8)
        reviews.append(
            {
                "id": len(reviews) + 1,
                "date": FIRST_DAY + timedelta(days=day),
                "product": product,
                "stars": max(1, min(5, round(stars))),
                "review": " ".join(one["text"] for one in chosen),
            }
        )
    return reviews


def build(name: str, folder: Path, model: str = "base") -> Path:
    """Write the reviews of a gallery, score them and report on them; return the page."""
    gallery = GALLERY[name]
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{name}.csv"
    with source.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(make_reviews(gallery))
    scored, page = folder / name, folder / f"{name}.html"
    options = capsar.ScoreOptions(
        model=model, text_column="review", keep=COLUMNS, themes=gallery.themes
    )
    capsar.score(source, scored, options)
    capsar.report(
        scored,
        page,
        capsar.ReportOptions(
            by="product",
            over="date",
            rating="stars",
            title=f"{name.capitalize()} (invented products, dates and stars)",
        ),
    )
    return page


if __name__ == "__main__":
    for wanted in sys.argv[2:] or GALLERY:
        print(build(wanted, Path(sys.argv[1])))  # noqa: T201

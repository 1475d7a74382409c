"""Synthetic labeled reviews that a small network learns in seconds."""

from __future__ import annotations

import csv
import random
from pathlib import Path

_ASPECTS = ["soup", "staff", "screen", "battery life", "room", "price", "pool", "course"]
_OPINIONS = {
    "positive": ["great", "lovely", "superb", "perfect"],
    "negative": ["awful", "cold", "broken", "terrible"],
    "neutral": ["plain", "average", "usual", "typical"],
}


def write_reviews(path: Path, number: int, seed: int = 0) -> Path:
    """Write sentences with two aspects each, one of them labeled."""
    generator = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "aspect", "polarity"])
        for _ in range(number):
            first, second = generator.sample(_ASPECTS, 2)
            polarity, other = generator.choices(list(_OPINIONS), k=2)
            text = (
                f"The {first} was {generator.choice(_OPINIONS[polarity])} on day "
                f"{generator.randrange(99)}, but I found the {second} rather "
                f"{generator.choice(_OPINIONS[other])}."
            )
            writer.writerow([text, first, polarity])
    return path

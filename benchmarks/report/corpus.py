"""A synthetic scored corpus with known shares by product and month.

Reviews have several mentions, which are correlated within a review. Predictions follow a confusion
matrix. Aspects have several spellings, and there is a long tail of rare names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

CONFUSION = np.array([[0.86, 0.07, 0.07], [0.17, 0.63, 0.20], [0.04, 0.06, 0.90]])
"""The rates of predicted classes for each true class."""
NAMES = (
    "battery life|Battery life|battery Life|batery life",
    "screen|Screen|screens|screeen",
    "keyboard|Keyboard|keyboards|keybord",
    "price|Price|prices|pricee",
    "customer service|Customer Service|costumer service",
    "delivery|Delivery|deliveries",
    "camera|cameras|Camera",
    "speakers|speaker|Speakers",
    "wi-fi|wifi|Wi-Fi|WiFi",
    "fan noise|Fan noise",
    "touchpad|Touchpad|touch-pad",
    "design|Design|designs",
    "performance|Performance|performence",
    "charger|chargers|Charger",
    "packaging|Packaging",
    "hinge|hinges",
    "color|colour|colors|Colours",
    "setup|set-up|Setup",
    "weight|Weight",
    "warranty|Warranty|warrenty",
    "software|Software",
    "microphone|microphones",
    "ports|port|Ports",
    "storage|Storage",
)
PRODUCTS = ("Aster 13", "Birch 14", "Cedar 15", "Dune 16")
_OPINIONS = {
    "negative": (
        "a real letdown",
        "worse than I had expected",
        "far too weak, sadly",
        "simply bad",
    ),
    "neutral": ("about what you would expect", "described in the manual", "the same as last year"),
    "positive": ("excellent", "better than on my old one", "what I like most", "a joy every day"),
}
_OPENINGS = ("The {} is ", "For me the {} is ", "After a month, the {} is ", "I find the {} ")


@dataclass(frozen=True)
class World:
    """The true shares and their correlations."""

    num_products: int = len(PRODUCTS)
    num_months: int = 12
    rho: float = 0.4
    """How often a later mention in a review repeats the polarity of the first."""
    seed: int = 0
    product_spread: float = 0.35
    """How much products differ; 0 for not at all."""
    tail: int = 2000
    """The number of rare names."""
    shares: NDArray[np.float64] = field(init=False)
    """(A, G, P, C): aspects, products, months, classes."""

    def __post_init__(self) -> None:
        chance = np.random.default_rng(self.seed)
        size = (len(NAMES), self.num_products, self.num_months)
        base = chance.normal((0.1, -0.9, 0.7), (0.8, 0.3, 0.8), (len(NAMES), 1, 1, 3))
        product = chance.normal(0, 1, (len(NAMES), self.num_products, 1, 3)) * self.product_spread
        months = np.linspace(-1, 1, self.num_months)[:, None]
        trend = months * chance.normal(0, 0.35, (len(NAMES), 1, 1, 3))
        score = np.exp(np.broadcast_to(base + product + trend, (*size, 3)))
        object.__setattr__(self, "shares", score / score.sum(-1, keepdims=True))

    @property
    def predicted_shares(self) -> NDArray[np.float64]:
        """The expected shares of predictions (A, G, P, C)."""
        predicted: NDArray[np.float64] = self.shares @ CONFUSION
        return predicted

    @property
    def months(self) -> list[date]:
        """The first day of each month."""
        return [date(2025 + number // 12, number % 12 + 1, 1) for number in range(self.num_months)]


def write_scored(
    folder: Path, world: World, rows: int, *, rows_per_file: int = 50_000, seed: int = 0
) -> Path:
    """Write a corpus in the layout of `capsar score`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, rows_per_file)):
        chance = np.random.default_rng([seed, number])
        table = scored_table(world, min(rows_per_file, rows - first), chance, first)
        path = folder / f"part-{number:06d}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 15)
    options = {"text_column": "text", "keep": ["id", "product", "date", "text"]}
    (folder / "_job").mkdir(exist_ok=True)
    (folder / "_job" / "job.json").write_text(json.dumps({"options": options}))
    (folder / "_SUCCESS").touch()
    return folder


def add_ratings(
    file: Path, effects: Mapping[str, NDArray[np.float64]], chance: np.random.Generator
) -> None:
    """Add a column of stars whose mean is linear in what a review criticizes and praises.

    Args:
        file: A scored Parquet file.
        effects: By aspect, of a negative mention and of a positive one; at most .4 each.
        chance: The random numbers.
    """
    table = pq.read_table(file)
    names = {way: name.split("|")[0] for name in NAMES for way in name.split("|")}
    signs = {"negative": 0, "positive": 1}
    means = []
    for mentions in table["aspects"].to_pylist():
        found = {(names.get(one["text"], ""), one["polarity"]) for one in mentions or ()}
        means.append(
            3 + sum(effects[name][signs[sign]] for name, sign in found
                    if name in effects and sign in signs)
        )  # fmt: skip
    # Whole stars with exactly that mean: rounded up or down at random, then moved either way.
    stars = np.floor(np.array(means) + chance.random(len(means)))
    moved = chance.choice((-1, 0, 1), len(means), p=(0.3, 0.4, 0.3))
    stars += np.where((stars > 1) & (stars < 5), moved, 0)
    pq.write_table(table.append_column("stars", pa.array(stars)), file)


def scored_table(world: World, rows: int, chance: np.random.Generator, first: int = 0) -> Any:  # noqa: ANN401
    """Return scored reviews as a table."""
    product = chance.integers(world.num_products, size=rows)
    month = chance.integers(world.num_months, size=rows)
    day = chance.integers(28, size=rows)
    starts = np.array([(one - date(1970, 1, 1)).days for one in world.months])
    dates = [str(date(1970, 1, 1) + timedelta(int(days))) for days in starts[month] + day]
    number = chance.choice(5, rows, p=[0.08, 0.37, 0.3, 0.15, 0.1])
    mentions = _mentions(world, product, month, number, chance)
    texts, starts_in_text = _texts(mentions, number)
    error = chance.random(rows) < 0.002
    offsets = np.concatenate([[0], np.cumsum(number)])
    aspects = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), _structs(mentions, starts_in_text, chance)
    )
    reasons = pc.if_else(pa.array(error), "longer than 100000 characters: 120345", None)
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + rows)),
            "product": pa.array(_product_names(world)).take(pa.array(product)),
            "date": pa.array(dates),
            "text": texts,
            "aspects": pc.if_else(pc.is_null(reasons), aspects, None),
            "error": reasons,
        }
    )


def _product_names(world: World) -> list[str]:
    return [
        PRODUCTS[number] if number < len(PRODUCTS) else f"Model {number + 1}"
        for number in range(world.num_products)
    ]


@dataclass(frozen=True)
class _Mentions:
    names: Any
    """Of each mention, as an Arrow array."""
    opening: NDArray[np.int64]
    opinion: Any
    predicted: NDArray[np.int64]
    is_correct: NDArray[np.bool_]


def _mentions(
    world: World,
    product: NDArray[np.int64],
    month: NDArray[np.int64],
    number: NDArray[np.int64],
    chance: np.random.Generator,
) -> _Mentions:
    review = np.repeat(np.arange(len(number)), number)
    weight = 1 / np.arange(2, len(NAMES) + 2)
    aspect = chance.choice(len(NAMES), len(review), p=weight / weight.sum())
    # Some reviews mention one aspect repeatedly.
    firsts = np.repeat(np.cumsum(number) - number, number)
    again = (chance.random(len(review)) < 0.25) & (np.arange(len(review)) > firsts)
    aspect = np.where(again, aspect[firsts], aspect)
    true = _draw(world.shares[aspect, product[review], month[review]], chance)
    repeats = again & (chance.random(len(review)) < world.rho)
    true = np.where(repeats, true[firsts], true)
    predicted = _draw(CONFUSION[true], chance)
    choices = [chance.integers(len(_OPINIONS[str(one)]), size=len(review)) for one in CLASSES]
    words = pa.array([text for one in CLASSES for text in _OPINIONS[str(one)]])
    base = np.cumsum([0, *(len(_OPINIONS[str(one)]) for one in CLASSES)])[:-1]
    which = base[true] + np.choose(true, choices)
    return _Mentions(
        _names(world, aspect, chance),
        chance.integers(len(_OPENINGS), size=len(review)),
        words.take(pa.array(which)),
        predicted,
        predicted == true,
    )


def _names(world: World, aspect: NDArray[np.int64], chance: np.random.Generator) -> Any:  # noqa: ANN401
    """Return a spelling of each aspect, mostly the first; some names are from the tail."""
    ways = [name.split("|") for name in NAMES]
    base = np.cumsum([0, *map(len, ways)])[:-1]
    sizes = np.array([len(way) for way in ways])
    rank = np.minimum(chance.geometric(0.75, len(aspect)) - 1, 30)
    # The last spelling of each is rare, often a typo.
    rank = np.where(rank >= sizes[aspect] - 1, 0, rank)
    is_rare = chance.random(len(aspect)) < 0.004
    which = base[aspect] + np.where(is_rare, sizes[aspect] - 1, rank)
    names = [name for way in ways for name in way]
    if world.tail:
        is_tail = chance.random(len(aspect)) < 0.15
        tail = np.minimum(chance.zipf(1.3, len(aspect)) - 1, world.tail - 1)
        which = np.where(is_tail, len(names) + tail, which)
        names += [f"part no. {number}" for number in range(world.tail)]
    return pa.array(names).take(pa.array(which))


def _texts(mentions: _Mentions, number: NDArray[np.int64]) -> tuple[Any, NDArray[Any]]:
    """Return the reviews, and the start of each mention."""
    openings = [text.split("{}") for text in _OPENINGS]
    before = pa.array([text[0] for text in openings]).take(pa.array(mentions.opening))
    after = pa.array([text[1] for text in openings]).take(pa.array(mentions.opening))
    sentences = pc.binary_join_element_wise(
        before, mentions.names, after, mentions.opinion, ".", ""
    )
    lengths = pc.utf8_length(sentences).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths + 1)
    firsts = np.repeat(np.cumsum(number) - number, number)
    start = (ends - lengths - 1) - (ends - lengths - 1)[firsts]
    joined = pc.binary_join(
        pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(number)]), pa.int32()), sentences
        ),
        " ",
    )
    empty = pa.array(np.where(number == 0, "Bought it as a present.", ""), pa.string())
    texts = pc.binary_join_element_wise(joined, empty, "")
    return texts, start + pc.utf8_length(before).to_numpy(zero_copy_only=False)


def _structs(mentions: _Mentions, start: NDArray[Any], chance: np.random.Generator) -> Any:  # noqa: ANN401
    size = pc.utf8_length(mentions.names).to_numpy(zero_copy_only=False)
    confidence = np.where(
        mentions.is_correct,
        chance.beta(6, 1.5, len(size)),
        chance.beta(3, 2.2, len(size)),
    ).astype(np.float32)
    scores = [
        np.where(mentions.predicted == k, confidence, (1 - confidence) / 2).astype(np.float32)
        for k in range(3)
    ]
    return pa.StructArray.from_arrays(
        [
            mentions.names,
            pa.array(start, pa.int32()),
            pa.array(start + size, pa.int32()),
            pa.array([str(one) for one in CLASSES]).take(pa.array(mentions.predicted)),
            pa.StructArray.from_arrays(
                [pa.array(score) for score in scores], [str(one) for one in CLASSES]
            ),
            pa.array(confidence),
            pa.array(chance.beta(9, 1.2, len(size)).astype(np.float32)),
        ],
        ["text", "start", "end", "polarity", "scores", "confidence", "aspect_confidence"],
    )


def _draw(shares: NDArray[np.float64], chance: np.random.Generator) -> NDArray[np.int64]:
    """Draw a class for each row of shares (N, C)."""
    level = chance.random(len(shares))[:, None]
    drawn: NDArray[np.int64] = (level > np.cumsum(shares, axis=1)[:, :-1]).sum(1)
    return drawn

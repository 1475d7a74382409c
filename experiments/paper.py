"""The results printed in the paper (arXiv 1912.10785), for comparison with ours."""

from __future__ import annotations

from dataclasses import dataclass

COUNTS = {
    ("restaurant", "train"): {"negative": 807, "neutral": 637, "positive": 2164},
    ("restaurant", "test"): {"negative": 196, "neutral": 196, "positive": 728},
    ("laptop", "train"): {"negative": 870, "neutral": 464, "positive": 994},
    ("laptop", "test"): {"negative": 128, "neutral": 169, "positive": 341},
    ("twitter", "train"): {"negative": 1562, "neutral": 3124, "positive": 1562},
    ("twitter", "test"): {"negative": 173, "neutral": 346, "positive": 173},
}
"""Table 1."""

_Row = tuple[float | None, ...]
_BASELINES: dict[str, _Row] = {
    "ATAE-LSTM": (0.7720, None, 0.6870, None, None, None),
    "TD-LSTM": (0.7560, None, 0.6810, None, 0.6662, 0.6401),
    "IAN": (0.7860, None, 0.7210, None, None, None),
    "MemNet(3)": (0.8032, None, 0.7237, None, 0.6850, 0.6691),
    "RAM(3)": (0.8023, 0.7080, 0.7449, 0.7135, 0.6936, 0.6730),
    "MGAN": (0.8125, 0.7194, 0.7539, 0.7247, 0.7254, 0.7081),
    "ANTM": (0.8143, 0.7120, 0.7491, 0.7142, 0.7011, 0.6814),
    "BERT": (0.8476, 0.7713, 0.7787, 0.7371, 0.7537, 0.7383),
    "CAPSAR-BERT": (0.8594, 0.7867, 0.7874, 0.7479, 0.7630, 0.7536),
}
_CAPSAR: dict[str, _Row] = {
    "capsar": (0.8286, 0.7432, 0.7593, 0.7221, 0.7368, 0.7231),
    "capsar-wo-r": (0.8185, 0.7216, 0.7484, 0.7039, 0.7255, 0.7067),
    "capsar-wo-h": (0.8188, 0.7226, 0.7461, 0.7054, 0.7298, 0.7080),
}

_BERT = {"bert": "BERT", "capsar-bert": "CAPSAR-BERT"}

Metrics = dict[tuple[str, str], float]
"""By dataset and metric."""


def _metrics(row: _Row) -> Metrics:
    names = [
        (dataset, metric)
        for dataset in ("restaurant", "laptop", "twitter")
        for metric in ("accuracy", "macro_f1")
    ]
    pairs = zip(names, row, strict=True)
    return {name: value for name, value in pairs if value is not None}


QUOTED = {row: _metrics(values) for row, values in _BASELINES.items()}
"""Table 2: rows that the paper prints and that are not run here."""
CLASSIFICATION = {row: _metrics(values) for row, values in _CAPSAR.items()}
CLASSIFICATION |= {row: QUOTED[printed] for row, printed in _BERT.items()}
"""Table 2: rows that are run here."""
DETECTION: Metrics = {
    ("restaurant", "p_at_1"): 0.8233,
    ("restaurant", "r_at_5"): 0.7884,
    ("restaurant", "map"): 0.7139,
    ("restaurant", "gold_words"): 2.76,
    ("restaurant", "sentence_words"): 16.25,
    ("laptop", "p_at_1"): 0.6408,
    ("laptop", "r_at_5"): 0.7557,
    ("laptop", "map"): 0.6173,
    ("laptop", "gold_words"): 2.54,
    ("laptop", "sentence_words"): 15.79,
}
"""Table 4."""


@dataclass(frozen=True, slots=True)
class Case:
    """One aspect of one case sentence, and what each model of the paper predicts."""

    name: str
    dataset: str
    sentence: str
    """The sentence's id in the published test file."""
    aspect: str
    polarity: str
    paper: dict[str, str]


def _each(*predicted: str) -> dict[str, str]:
    return dict(zip(("CAPSAR", "ANTM", "MGAN", "RAM"), predicted, strict=True))


_POS, _NEU, _NEG = "positive", "neutral", "negative"
CASES = (
    Case("1a", "restaurant", "33072753#1351349#0", "chocolate raspberry cake", _POS,
         _each(_POS, _POS, _NEG, _POS)),
    Case("1b", "restaurant", "33072753#1351349#0", "flavor", _POS, _each(_POS, _NEG, _POS, _NEG)),
    Case("2a", "restaurant", "15094232#1295193#2", "entrees", _NEU, _each(_NEU, _POS, _POS, _POS)),
    Case("2b", "restaurant", "15094232#1295193#2", "duck", _POS, _each(_POS, _POS, _POS, _POS)),
    Case("3", "laptop", "792:2", "baterry", _POS, _each(_POS, _NEG, _POS, _NEG)),
    Case("4", "laptop", "787:272", "Startup times", _NEG, _each(_NEG, _NEG, _POS, _POS)),
    Case("5", "laptop", "927:1", "shipping", _NEG, _each(_NEU, _NEU, _POS, _POS)),
)  # fmt: skip
LONG_PAIR = ("3", "4")
"""The target-sensitive pair: one adjective, positive for one aspect, negative for the other."""

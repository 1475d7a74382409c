"""The figures printed in the paper (arXiv 1912.10785), to stand beside ours."""

from __future__ import annotations

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

Figures = dict[tuple[str, str], float]
"""By dataset and metric."""


def _figures(row: _Row) -> Figures:
    names = [
        (dataset, metric)
        for dataset in ("restaurant", "laptop", "twitter")
        for metric in ("accuracy", "macro_f1")
    ]
    pairs = zip(names, row, strict=True)
    return {name: value for name, value in pairs if value is not None}


QUOTED = {row: _figures(values) for row, values in _BASELINES.items()}
"""Table 2: rows that the paper quotes or adds, and that are not run here."""
CLASSIFICATION = {row: _figures(values) for row, values in _CAPSAR.items()}
"""Table 2: rows that are."""
DETECTION: Figures = {
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

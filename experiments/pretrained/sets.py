"""The bundled models, and the sets on which they are evaluated."""

from __future__ import annotations

import json

from capsar.data.catalog import data_folder, test_examples
from capsar.schema import AspectSpan, Example, Polarity
from run import DATASETS, ROOT

MODELS = ROOT / "src" / "capsar" / "models"
BUNDLED = ("base", "fast")
CORPUS = "capsar-corpus"
IN_DOMAIN = {"mams": "MAMS", CORPUS: "this project's corpus"}
"""Their training set is trained on; their test set is not."""
OUT_OF_DOMAIN = {
    "restaurant": "SemEval-14 Restaurant",
    "laptop": "SemEval-14 Laptop",
    "semeval15-hotels": "SemEval-15 hotels",
    "semeval16-restaurants-english": "SemEval-16 restaurants",
    "television": "Television",
    "tshirt": "T-shirts",
    "yelp": "Yelp",
    "mooc": "MOOC",
    "twitter": "Twitter",
    "memd-books": "MEMD books",
    "memd-clothing": "MEMD clothing",
    "memd-hotel": "MEMD hotel",
    "memd-laptop": "MEMD laptop",
    "memd-restaurant": "MEMD restaurant",
}
VADER = "VADER"
WITHOUT_SPANS = ("twitter",)
"""Sets that mark one target per sentence, not every aspect."""
_MEMD = "memd-"
_SENTIMENTS = {
    "POS": Polarity.POSITIVE,
    "NEU": Polarity.NEUTRAL,
    "NEG": Polarity.NEGATIVE,
}

THEME_SETS = {
    "restaurants-15": "SemEval-15 restaurants",
    "restaurants-16": "SemEval-16 restaurants",
    "hotels-15": "SemEval-15 hotels",
    "memd-hotel": "MEMD hotel",
    "memd-laptop": "MEMD laptop",
    "memd-clothing": "MEMD clothing",
    "memd-books": "MEMD books",
}
"""Sets with labeled themes, by their names in `results/themes.json`."""


def opinion_set_name(key: str) -> str:
    """Return the shown name of a set with opinion phrases."""
    kind, _, domain = key.partition("-")
    return {"memd": f"MEMD {domain}", "aste": f"ASTE {domain}"}.get(kind) or IN_DOMAIN[key]


def read_test_set(name: str) -> list[Example]:
    """Return the examples of a test set."""
    if name.startswith(_MEMD):
        return read_memd(name.removeprefix(_MEMD), "test")
    return test_examples(DATASETS.get(name, name))


def read_memd(domain: str, part: str) -> list[Example]:
    """Return a part of MEMD: one example per explicit aspect, or one without if there is none.

    An aspect with different sentiments is a conflict.
    """
    path = data_folder() / "evaluation" / "memd" / domain / f"{part}.json"
    examples = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        text = row["raw_words"]
        starts, ends = token_offsets(text)
        sentiments: dict[AspectSpan, set[Polarity]] = {}
        for quadruple in row["quadruples"]:
            first, end = quadruple["aspect"]["from"], quadruple["aspect"]["to"]
            if first >= 0:
                span = AspectSpan(starts[first], ends[end - 1])
                sentiments.setdefault(span, set()).add(_SENTIMENTS[quadruple["sentiment"]])
        for span, found in sentiments.items():
            polarity = Polarity.CONFLICT if len(found) > 1 else next(iter(found))
            examples.append(Example(text, (span,), polarity))
        if not sentiments:
            examples.append(Example(text))
    return examples


def token_offsets(text: str) -> tuple[list[int], list[int]]:
    """Return where each blank-separated token begins and ends."""
    starts, ends, position = [], [], 0
    for token in text.split(" "):
        starts.append(position)
        ends.append(position + len(token))
        position = ends[-1] + 1
    return starts, ends

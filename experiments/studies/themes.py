"""Themes without training on a set: `python experiments/studies/themes.py test`.

Assigns themes that were written from category names alone (`configs/themes/`) on SemEval-15 and -16
restaurants, SemEval-15 hotels and the entities of MEMD's categories, beside three baselines with
the same extracted mentions: listed terms alone, the similarity of sentence and theme, and the
similarity of mention in sentence and theme, both by the encoder that `base` started from. Their
thresholds are chosen on the corpus' validation part. `dev` runs on MEMD's development parts and
prints; `test` writes `results/themes.json`, without text.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.data.catalog import data_folder
from capsar.data.readers import read_examples
from capsar.schema import Polarity
from capsar.themes.schema import Themes, read_themes
from evaluate import rounded
from pretrained.sets import BUNDLED
from pretrained.themes import read_annotation
from run import CONFIGS, RESULTS, describe_study, prepare_process, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.schema import AspectSentiment

RESULT = RESULTS / "themes.json"
RESAMPLES = 2000
VADER_BOUND = 0.05
RESTAURANT = {"FOOD": "food", "DRINKS": "drinks", "SERVICE": "service", "AMBIENCE": "ambience",
              "LOCATION": "location", "RESTAURANT": "overall"}  # fmt: skip
HOTEL = {"FOOD_DRINKS": "food", "SERVICE": "service", "LOCATION": "location", "ROOMS": "rooms",
         "ROOMS_AMENITIES": "rooms", "FACILITIES": "facilities", "HOTEL": "overall"}  # fmt: skip
MEMD = {
    "hotel": {"Hotel": "hotel", "Rooms": "rooms", "Room_Amenities": "room amenities",
              "Facilities": "facilities", "Service": "service", "Location": "location",
              "Food_Drinks": "food and drinks"},
    "laptop": {"LAPTOP": "laptop", "DISPLAY": "display", "KEYBOARD": "keyboard and mouse",
               "MOUSE": "keyboard and mouse", "BATTERY": "battery and power",
               "POWER_SUPPLY": "battery and power", "MEMORY": "memory and storage",
               "HARD_DISC": "memory and storage", "CPU": "processor and graphics",
               "GRAPHICS": "processor and graphics", "MOTHERBOARD": "processor and graphics",
               "PORTS": "ports", "MULTIMEDIA_DEVICES": "multimedia devices",
               "FANS&COOLING": "cooling", "HARDWARE": "hardware", "OS": "operating system",
               "SOFTWARE": "software", "SUPPORT": "support and warranty",
               "WARRANTY": "support and warranty", "SHIPPING": "shipping", "COMPANY": "company"},
    "clothing": {"Top": "tops", "Bottom": "bottoms", "Shoes": "shoes", "Socks": "socks",
                 "Clothing": "clothing", "Service": "service"},
    "books": {"Book": "book", "Content": "content", "Service": "service",
              "Derivatives": "derivatives"},
}  # fmt: skip


@dataclass
class Sentence:
    """A sentence with its labeled themes and their polarities."""

    text: str
    explicit: dict[str, set[str]]
    implicit: dict[str, set[str]]


def theme_of(category: str, entities: dict[str, str]) -> str | None:
    """Return the theme of a category such as FOOD#PRICES."""
    entity, _, attribute = category.partition("#")
    if entities is not RESTAURANT and entities is not HOTEL:
        return entities.get(entity)
    if attribute == "PRICES":
        return "price"
    if attribute == "COMFORT" and entities is HOTEL:
        return "comfort"
    return entities.get(entity)


def read_semeval(name: str, entities: dict[str, str]) -> list[Sentence]:
    """Read a set of SemEval-15 or -16."""
    sentences: dict[str, Sentence] = {}
    for example in read_examples(data_folder() / "data" / name):
        own = sentences.setdefault(example.group, Sentence(example.text, {}, {}))
        theme = theme_of(example.category, entities) if example.category else None
        if theme:
            found = own.explicit if example.spans else own.implicit
            found.setdefault(theme, set()).add(str(example.polarity))
    return list(sentences.values())


def read_memd(domain: str, part: str) -> list[Sentence]:
    """Read a domain of MEMD."""
    path = data_folder() / "evaluation" / "memd" / domain / f"{part}.json"
    names = {"POS": "positive", "NEG": "negative", "NEU": "neutral"}
    sentences = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        own = Sentence(row["raw_words"], {}, {})
        for quadruple in row["quadruples"]:
            theme = theme_of(quadruple["category"], MEMD[domain])
            if theme:
                found = own.implicit if quadruple["aspect"]["from"] < 0 else own.explicit
                found.setdefault(theme, set()).add(names[quadruple["sentiment"]])
        sentences.append(own)
    return sentences


def evaluate_themes(
    sentences: Sequence[Sentence], found: Sequence[Sequence[AspectSentiment]]
) -> dict[str, Any]:
    """Return micro-F1 of (sentence, theme), explicit and implicit, with intervals and per theme.

    The sets label opinions, so mentions that are predicted neutral are not counted.
    """
    result: dict[str, Any] = {}
    for kind in ("explicit", "implicit"):
        counts = np.zeros((len(sentences), 3))
        themes: dict[str, Counter[str]] = {}
        right_polarity = labeled_polarity = 0
        for row, (sentence, aspects) in enumerate(zip(sentences, found, strict=True)):
            gold = getattr(sentence, kind)
            own = {
                a.theme: str(a.polarity)
                for a in aspects
                if a.theme and a.implicit == (kind == "implicit")
                and (a.implicit or a.polarity != Polarity.NEUTRAL)
            }  # fmt: skip
            counts[row] = len(gold.keys() & own), len(own), len(gold)
            for theme in gold.keys() | own:
                one = themes.setdefault(theme, Counter())
                one["right"] += theme in gold and theme in own
                one["predicted"] += theme in own
                one["gold"] += theme in gold
                if theme in gold and theme in own and len(gold[theme]) == 1:
                    labeled_polarity += 1
                    right_polarity += own[theme] in gold[theme]
        result[kind] = _metrics(counts) | {
            "polarity_accuracy": right_polarity / max(1, labeled_polarity),
            "polarity_count": labeled_polarity,
            "themes": {name: _f1(*(themes[name][k] for k in ("right", "predicted", "gold")))
                       for name in sorted(themes)},
        }  # fmt: skip
    return result


def _f1(right: float, predicted: float, gold: float) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, predicted + gold),
        "precision": right / max(1, predicted),
        "recall": right / max(1, gold),
        "gold": gold,
    }


def _metrics(counts: np.ndarray[Any, Any]) -> dict[str, Any]:
    draws = np.random.default_rng(0).integers(0, len(counts), (RESAMPLES, len(counts)))
    right, predicted, gold = np.moveaxis(counts[draws].sum(1), -1, 0)
    low, high = np.quantile(2 * right / np.maximum(1, predicted + gold), (0.025, 0.975))
    return _f1(*counts.sum(0)) | {"low": float(low), "high": float(high)}


class UntunedEncoder:
    """Mean states of all-MiniLM-L6-v2."""

    def __init__(self) -> None:
        from transformers import AutoModel, AutoTokenizer

        from capsar.model.encoders import find_encoder

        path = find_encoder("all-MiniLM-L6-v2")
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._encoder = AutoModel.from_pretrained(path).eval()

    def encode(self, text: str, spans: Sequence[tuple[int, int]] = ()) -> np.ndarray[Any, Any]:
        """Return the vector of a text and those of its spans, scaled to length one (1 + A, H)."""
        import torch

        inputs = self._tokenizer(text, truncation=True, max_length=256, return_tensors="pt",
                                 return_offsets_mapping=True)  # fmt: skip
        offsets = inputs.pop("offset_mapping")[0].numpy()
        with torch.no_grad():
            states = self._encoder(**inputs).last_hidden_state[0].numpy()
        rows = [states.mean(0)]
        for start, end in spans:
            inside = (offsets[:, 0] < end) & (offsets[:, 1] > start)
            rows.append(states[inside].mean(0) if inside.any() else states.mean(0))
        vectors = np.stack(rows)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def encode_themes(self, themes: Themes) -> np.ndarray[Any, Any]:
        """Return the vectors of themes (K, H)."""
        texts = [f"{t.name}: {t.description} {', '.join(t.terms)}." for t in themes.themes]
        return np.concatenate([self.encode(text) for text in texts])


def assign_untuned(
    encoder: UntunedEncoder,
    themes: Themes,
    texts: Sequence[str],
    found: Sequence[Sequence[AspectSentiment]],
    thresholds: dict[str, float],
) -> dict[str, list[list[AspectSentiment]]]:
    """Return mentions with themes by similarity: of the sentence, or of the mention in it."""
    centers, names = encoder.encode_themes(themes), themes.names
    results: dict[str, list[list[AspectSentiment]]] = {"sentence": [], "mention": []}
    for text, aspects in zip(texts, found, strict=True):
        own = [a for a in aspects if not a.implicit]
        vectors = encoder.encode(text, [(a.start, a.end) for a in own])
        scores = vectors @ centers.T
        for kind, themed in results.items():
            rows = scores[1:] if kind == "mention" else np.repeat(scores[:1], len(own), 0)
            themed.append([
                replace(a, theme=names[row.argmax()] if row.max() >= thresholds[kind] else "")
                for a, row in zip(own, rows, strict=True)
            ])  # fmt: skip
    return results


def choose_thresholds(encoder: UntunedEncoder) -> dict[str, float]:
    """Return the thresholds of the baselines with the best F1 on the corpus' validation part."""
    scores: dict[str, list[tuple[float, bool, bool]]] = {"sentence": [], "mention": []}
    for part in read_annotation("validation").values():
        for one in part.sets:
            themes = Themes.from_dicts(
                {k: theme[k] for k in ("name", "description", "terms")} for theme in one.themes
            )
            centers = encoder.encode_themes(themes)
            for text, spans, labels in zip(part.texts, part.spans, part.themes, strict=True):
                if not spans:
                    continue
                similar = encoder.encode(text, [(s.start, s.end) for s in spans]) @ centers.T
                for row, label in zip(similar[1:], labels, strict=True):
                    gold = one.mapping.get(label or "", -1)
                    for kind, values in (("sentence", similar[0]), ("mention", row)):
                        best = int(values.argmax())
                        scores[kind].append((float(values[best]), best == gold, gold >= 0))
    chosen = {}
    for kind, rows in scores.items():
        rows.sort(reverse=True)
        right = np.cumsum([row[1] for row in rows])
        f1 = 2 * right / (np.arange(1, len(rows) + 1) + sum(row[2] for row in rows))
        chosen[kind] = rows[int(f1.argmax())][0]
    return chosen


def by_terms(
    found: Sequence[Sequence[AspectSentiment]],
) -> list[list[AspectSentiment]]:
    """Return mentions with themes by listed terms alone."""
    return [
        [replace(a, theme=a.theme if a.theme_confidence == 1 else "")
         for a in aspects if not a.implicit]
        for aspects in found
    ]  # fmt: skip


def vader_accuracy(sentences: Sequence[Sentence], found: Sequence[Sequence[AspectSentiment]]) -> (
    dict[str, Any]
):  # fmt: skip
    """Return the accuracy of VADER on the same (sentence, theme) pairs that the model found."""
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    vader = SentimentIntensityAnalyzer()
    result = {}
    for kind in ("explicit", "implicit"):
        right = count = 0
        for sentence, aspects in zip(sentences, found, strict=True):
            score = vader.polarity_scores(sentence.text)["compound"]
            bound = VADER_BOUND
            label = "positive" if score >= bound else "negative" if score <= -bound else "neutral"
            own = {
                a.theme for a in aspects
                if a.theme and a.implicit == (kind == "implicit")
                and (a.implicit or a.polarity != Polarity.NEUTRAL)
            }  # fmt: skip
            for theme, gold in getattr(sentence, kind).items():
                if theme in own and len(gold) == 1:
                    count += 1
                    right += label in gold
        result[kind] = right / max(1, count)
    return result


def read_sets(part: str) -> dict[str, tuple[Themes, list[Sentence]]]:
    """Return the themes and sentences of each set of a part."""
    folder = CONFIGS / "themes"
    sets = {
        f"memd-{domain}": (read_themes(folder / f"memd-{domain}.toml"), read_memd(domain, part))
        for domain in MEMD
    }
    if part == "test":
        restaurants = read_themes(folder / "semeval-restaurants.toml")
        hotels = read_themes(folder / "semeval-hotels.toml")
        files = {
            "restaurants-15": "semeval15/ABSA15_Restaurants_Test.xml",
            "restaurants-16": "semeval16/restaurants_test_english.xml",
        }
        for name, file in files.items():
            sets[name] = restaurants, read_semeval(file, RESTAURANT)
        sets["hotels-15"] = hotels, read_semeval("semeval15/ABSA15_Hotels_Test.xml", HOTEL)
    return sets


def main(part: str) -> None:
    prepare_process()
    encoder = UntunedEncoder()
    thresholds = choose_thresholds(encoder)
    results: dict[str, Any] = {}
    models = {name: load(name) for name in BUNDLED}
    for name, (themes, sentences) in read_sets(part).items():
        texts = [sentence.text for sentence in sentences]
        own: dict[str, Any] = {"sentences": len(sentences)}
        for model_name, model in models.items():
            found = model.analyze(texts, themes=themes)
            own[model_name] = evaluate_themes(sentences, found)
            own[model_name]["vader"] = vader_accuracy(sentences, found)
            if model_name == "base":
                own["terms"] = evaluate_themes(sentences, by_terms(found))
                others = assign_untuned(encoder, themes, texts, found, thresholds)
                for kind, themed in others.items():
                    own[f"untuned {kind}"] = evaluate_themes(sentences, themed)
        results[name] = own
        for system, values in own.items():
            if isinstance(values, dict):
                one, two = values["explicit"], values["implicit"]
                print(f"{name} {system}: explicit {one['f1']:.3f} P {one['precision']:.3f} "
                      f"R {one['recall']:.3f}; implicit P {two['precision']:.3f} "
                      f"R {two['recall']:.3f}", flush=True)  # fmt: skip
    if part == "test":
        about = describe_study("themes", "studies/themes.py test", "onnxruntime", "transformers")
        write_json(RESULT, rounded(about | {"thresholds": thresholds, "sets": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Opinion phrases by people and by our guideline: `python experiments/studies/opinions.py test`.

Evaluates the bundled models with given aspects on the corpus' opinion layer, and on the explicit
opinions of MEMD and ASTE, beside two baselines: the adjective nearest to the aspect (tagged by
HanTa), and the words with the highest attributions of `base`. `validation` prints the same on the
validation parts; `test` writes `results/opinions.json`, without text.
"""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.data.catalog import data_folder
from capsar.evaluation.opinions import count_matches, evaluate_opinions
from capsar.schema import AspectSpan, Example
from capsar.tokenizer import tokenize_words, words_within
from capsar.training.opinions import OpinionExample, read_opinions
from evaluate import rounded
from pretrained.sets import BUNDLED, CORPUS, token_offsets
from run import RESULTS, ROOT, describe_study, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from capsar.tokenizer import Span

RESULT = RESULTS / "opinions.json"
MEMD = ("books", "clothing", "hotel", "laptop", "restaurant")
ASTE = ("14res", "14lap", "15res", "16res")
TOP_WORDS = 4
"""Words with the highest attributions; of one to four the best on the corpus' validation part."""
_RESAMPLES = 2000


def read_set(name: str, part: str) -> list[OpinionExample]:
    """Return the aspects of a set with their explicit opinions."""
    kind, _, domain = name.partition("-")
    folder = data_folder() / "evaluation"
    public = {"validation": "dev"}.get(part, part)
    if kind == "memd":
        return list(_read_memd(folder / "memd" / domain / f"{public}.json"))
    if kind == "aste":
        return list(_read_aste(folder / "aste" / domain / f"{public}_triplets.txt"))
    return read_opinions(ROOT / "corpus" / "opinions" / f"{part}.jsonl")


def _read_memd(path: Path) -> Iterable[OpinionExample]:
    for row in json.loads(path.read_text(encoding="utf-8")):
        pairs = [
            [(one[side]["from"], one[side]["to"]) for side in ("aspect", "opinion")]
            for one in row["quadruples"]
        ]
        explicit = [pair for pair in pairs if all(first >= 0 for first, _ in pair)]
        yield from _group(row["raw_words"], explicit)


def _read_aste(path: Path) -> Iterable[OpinionExample]:
    for line in path.read_text(encoding="utf-8").splitlines():
        text, _, triplets = line.partition("####")
        pairs = [
            [(tokens[0], tokens[-1] + 1) for tokens in (aspect, opinion)]
            for aspect, opinion, _ in ast.literal_eval(triplets)
        ]
        yield from _group(text, pairs)


def _group(text: str, pairs: Iterable[Sequence[Span]]) -> Iterable[OpinionExample]:
    """Yield one example per aspect, with all its opinions."""
    starts, ends = token_offsets(text)
    opinions: dict[AspectSpan, set[AspectSpan]] = {}
    for spans in pairs:
        aspect, opinion = (AspectSpan(starts[first], ends[end - 1]) for first, end in spans)
        opinions.setdefault(aspect, set()).add(opinion)
    for aspect, found in opinions.items():
        yield OpinionExample(text, aspect, tuple(sorted(found)))


def find_by_model(name: str) -> Callable[[Sequence[OpinionExample]], list[list[Span]]]:
    """Return a function that finds phrases with a bundled model."""
    analyzer = load(name)

    def find(examples: Sequence[OpinionExample]) -> list[list[Span]]:
        texts, spans = [one.text for one in examples], [[one.span] for one in examples]
        found = analyzer.classify(texts, spans)
        return [[(one.start, one.end) for one in own.opinions or ()] for (own,) in found]

    return find


def find_adjectives(examples: Sequence[OpinionExample]) -> list[list[Span]]:
    """Return the adjective nearest to each aspect, if there is one."""
    from HanTa.HanoverTagger import HanoverTagger

    tagger = HanoverTagger("morphmodel_en.pgz")
    found = []
    for example in examples:
        words = tokenize_words(example.text)
        tags = tagger.tag_sent([example.text[start:end] for start, end in words])
        aspect = words_within(words, example.span.start, example.span.end)
        adjectives = [
            number
            for number, (_, _, tag) in enumerate(tags)
            if tag.startswith("AJ") and number not in aspect
        ]
        nearest = sorted(adjectives, key=lambda number: min(abs(number - one) for one in aspect))
        found.append([words[number] for number in nearest[:1]])
    return found


def find_attributed(
    examples: Sequence[OpinionExample], number: int = TOP_WORDS
) -> list[list[Span]]:
    """Return the words with the highest attributions of `base`; neighbors are one phrase."""
    scored = load("base").score_examples([Example(one.text, (one.span,)) for one in examples])
    found = []
    for example, own in zip(examples, scored, strict=True):
        words = tokenize_words(example.text)
        scores = own.scores[own.lengths.argmax()].copy()
        scores[list(words_within(words, example.span.start, example.span.end))] = -np.inf
        best = sorted(np.argsort(-scores, kind="stable")[:number].tolist())
        spans: list[Span] = []
        for row, one in enumerate(best):
            start, end = words[one]
            if row and best[row - 1] == one - 1:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        found.append(spans)
    return found


def measure(found: Sequence[Sequence[Span]], examples: Sequence[OpinionExample]) -> dict[str, Any]:
    """Return the metrics, with bootstrap intervals over aspects."""
    gold = [[(one.start, one.end) for one in example.phrases] for example in examples]
    counts = np.array([count_matches(*pair) for pair in zip(found, gold, strict=True)])
    rows = np.random.default_rng(0).integers(0, len(counts), (_RESAMPLES, len(counts)))
    drawn = counts[rows].sum(1).T  # (5, R)
    exact = 2 * drawn[2] / (drawn[0] + drawn[1])
    precision, recall = drawn[3] / np.maximum(drawn[0], 1), drawn[4] / drawn[1]
    near = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
    intervals = {
        "f1": np.percentile(exact, [2.5, 97.5]).tolist(),
        "overlap_f1": np.percentile(near, [2.5, 97.5]).tolist(),
    }
    return asdict(evaluate_opinions(found, gold)) | {"intervals": intervals}


def main(part: str) -> None:
    systems: dict[str, Callable[[Sequence[OpinionExample]], list[list[Span]]]] = {
        name: find_by_model(name) for name in BUNDLED
    }
    systems |= {"nearest adjective": find_adjectives, "attributions of base": find_attributed}
    names = [CORPUS, *(f"memd-{one}" for one in MEMD), *(f"aste-{one}" for one in ASTE)]
    sets: dict[str, Any] = {}
    for name in names:
        examples = read_set(name, part)
        sets[name] = {system: measure(find(examples), examples) for system, find in systems.items()}
        if name == CORPUS and part == "test":
            first, second = (
                read_opinions(ROOT / "corpus" / "checks" / f"opinions-{one}.jsonl")
                for one in ("first", "second")
            )
            spans = [[(one.start, one.end) for one in example.phrases] for example in second]
            sets[name]["second annotator"] = measure(spans, first)
        for system, found in sets[name].items():
            print(name, system, f"{found['f1']:.3f} / {found['overlap_f1']:.3f}", flush=True)
    if part == "test":
        about = describe_study("opinions", "studies/opinions.py test", "onnxruntime", "HanTa")
        write_json(RESULT, rounded(about | {"top_words": TOP_WORDS, "sets": sets}))


if __name__ == "__main__":
    main(sys.argv[1])

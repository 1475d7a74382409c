"""Find training sentences that also occur in a test set: `python experiments/studies/overlap.py`.

Reads the texts (no labels) of every test set, for the bundled models also of MEMD, ASTE and M-ABSA,
and writes the hashes of the training sentences that occur in one, exactly or nearly: for the
bundled models to `configs/shared-sentences.json`, for the extended rows to
`configs/held-sentences.json`. Training reads such a file (`data.exclude_hashes`) and so never opens
a test set. Also counts, for the three sets of the paper, the test examples whose sentence occurs in
the published training set: `results/overlap.json`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)
    sys.path.append(str(Path(__file__).parent.parent.parent / "corpus"))

from capsar.data.catalog import datasets, find_file, test_examples, training_examples
from capsar.data.splits import MatchKind, SentenceIndex, decontaminate, sentence_hash
from capsar.evaluation.evaluate import labeled
from leakage import CORPUS, public_sets
from pseudo_labels import HELD, PROS_CONS, read_pros_cons
from run import CONFIGS, DATASETS, RESULTS, describe_study, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

BUNDLED = {"mams": ("train", "dev"), "bing-liu": ("train", "train-2"), PROS_CONS: ("text",)}
LABELED = {
    "semeval14-restaurants": ("train",),
    "semeval14-laptops": ("train",),
    "twitter": ("train",),
    "mams": ("train", "dev"),
    "semeval15-restaurants": ("train",),
    "semeval16-restaurants-english": ("train",),
    "bing-liu": ("train", "train-2"),
}
SHARED = CONFIGS / "shared-sentences.json"
RESULT = RESULTS / "overlap.json"


def read_texts(name: str, part: str) -> Iterator[str]:
    """Yield the sentences of a part as training reads them."""
    if name == PROS_CONS:
        for lines in read_pros_cons(find_file(name, part)).values():
            yield from lines
    else:
        yield from (example.text for example in training_examples(name, part))


def write_hashes(
    path: Path, sources: dict[str, tuple[str, ...]], test_sets: dict[str, list[str]]
) -> None:
    """Write the hashes of all sentences of some training sources that test sets contain."""
    index = SentenceIndex()
    for name, texts in test_sets.items():
        index.add(name, texts)
    hashes: dict[str, None] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, parts in sources.items():
        for part in parts:
            matches: Counter[str] = Counter()
            for text in dict.fromkeys(read_texts(name, part)):
                found = index.find(text)
                matches.update(f"{match.kind} in {other}" for other, match in found.items())
                if found:
                    hashes[sentence_hash(text)] = None
            counts[f"{name}:{part}"] = dict(sorted(matches.items()))
    content = {
        "command": "python experiments/studies/overlap.py",
        "evaluated_on": list(test_sets),
        "counts": counts,
        "hashes": sorted(hashes),
    }
    write_json(path, content)
    print(json.dumps(counts, indent=1), len(hashes))


def count_shared(name: str) -> dict[str, int]:
    """Return the sentences that both published splits contain, and their test examples."""
    test = labeled(test_examples(name))
    found = decontaminate(test, {example.text for example in labeled(training_examples(name))})
    return {
        "exact": found.dropped[MatchKind.EXACT],
        "near": found.dropped[MatchKind.NEAR],
        "examples": len(test) - len(found.kept),
        "test_examples": len(test),
    }


def main() -> None:
    test_sets = dict(public_sets())
    published = {name: texts for name, texts in test_sets.items() if name in datasets()}
    corpus = {CORPUS: [example.text for example in test_examples(CORPUS)]}
    write_hashes(SHARED, BUNDLED, test_sets | corpus)
    write_hashes(HELD, LABELED, published)
    shared = {dataset: count_shared(name) for dataset, name in DATASETS.items()}
    write_json(RESULT, describe_study("overlap", "studies/overlap.py") | {"shared": shared})


if __name__ == "__main__":
    main()

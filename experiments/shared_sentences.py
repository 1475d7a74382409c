"""Which sentences of what we train on are held by a set we judge on.

`CAPSAR_DATA=… python experiments/shared_sentences.py` reads the texts of every test part (no label)
and writes the hashes of the training sentences they hold, exactly or nearly: of sets we may ship
models of to `experiments/configs/shared-sentences.json`, of all that `capsar-best` learns from to
`experiments/configs/held-sentences.json`. Training reads such a file (`data.without`), and so never
opens a test part.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.data.catalog import TEST, datasets, find_file, test_examples, training_examples
from capsar.data.overlap import SentenceIndex
from capsar.data.splits import sentence_hash
from lessons import PROS_CONS, read_pros_cons
from unlabelled import UNLABELLED, read_unlabelled

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = {"mams": ("train", "dev"), "bing-liu": ("train", "train-2"), PROS_CONS: ("text",)}
LABELLED = {
    "semeval14-restaurants": ("train",),
    "semeval14-laptops": ("train",),
    "twitter": ("train",),
    "mams": ("train", "dev"),
    "semeval15-restaurants": ("train",),
    "semeval16-restaurants-english": ("train",),
    "bing-liu": ("train", "train-2"),
}
CONFIGS = Path(__file__).parent / "configs"
PATH = CONFIGS / "shared-sentences.json"
HELD = CONFIGS / "held-sentences.json"


def read_texts(name: str, part: str) -> Iterator[str]:
    """Yield the sentences of a part as training reads them."""
    if name == PROS_CONS:
        for lines in read_pros_cons(find_file(name, part)).values():
            yield from lines
    elif name in UNLABELLED:
        yield from read_unlabelled(name, part)
    else:
        yield from (example.text for example in training_examples(name, part))


def main() -> None:
    index = SentenceIndex()
    judged_on = [
        dataset.name
        for dataset in datasets().values()
        if dataset.kind == "labelled" and any(file.part == TEST for file in dataset.files)
    ]
    for name in judged_on:
        index.add(name, dict.fromkeys(example.text for example in test_examples(name)))
    write_hashes(PATH, SHIPPED, judged_on, index)
    write_hashes(HELD, LABELLED | UNLABELLED, judged_on, index)


def write_hashes(
    path: Path, learnt_from: dict[str, tuple[str, ...]], judged_on: list[str], index: SentenceIndex
) -> None:
    """Write the hashes of all sentences of some parts that an index holds."""
    hashes: dict[str, None] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, parts in learnt_from.items():
        for part in parts:
            held: Counter[str] = Counter()
            texts = dict.fromkeys(read_texts(name, part))
            for text in texts:
                found = index.find(text)
                held.update(f"{match.sharing} in {other}" for other, match in found.items())
                if found:
                    hashes[sentence_hash(text)] = None
            counts[f"{name}:{part}"] = dict(sorted(held.items()))
    content = {
        "command": "python experiments/shared_sentences.py",
        "judged_on": judged_on,
        "counts": counts,
        "hashes": sorted(hashes),
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(counts, indent=1), len(hashes))


if __name__ == "__main__":
    main()

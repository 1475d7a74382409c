"""Which sentences of sets we may ship models of are held by a set we judge on.

`CAPSAR_DATA=… python experiments/shared_sentences.py` reads the texts of every test part (no label)
and writes the hashes of the training sentences they hold, exactly or nearly, to
`experiments/configs/shared-sentences.json`. Training reads that file (`data.without`), and so never
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

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = {"mams": ("train", "dev"), "bing-liu": ("train", "train-2"), PROS_CONS: ("text",)}
PATH = Path(__file__).parent / "configs" / "shared-sentences.json"


def read_texts(name: str, part: str) -> Iterator[str]:
    """Yield the sentences of a part as training reads them."""
    if name == PROS_CONS:
        for lines in read_pros_cons(find_file(name, part)).values():
            yield from lines
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
    hashes: dict[str, None] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, parts in SHIPPED.items():
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
    PATH.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(counts, indent=1), len(hashes))


if __name__ == "__main__":
    main()

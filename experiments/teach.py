"""What teachers find in reviews that nobody labelled: `python experiments/teach.py DATASET`.

The teachers are the runs of `capsar-bert-best` on the dataset. The first names the aspects of each
sentence; what is felt about each, all tell together: the longest of the mean capsule lengths. Their
lengths themselves are asked for again when the student is trained (`train.teacher`). Sentences that
a test part holds are left out by hash; no test part can be opened here.

Writes `runs/told/DATASET.jsonl`, one row an aspect.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

from capsar import AspectSpan, Example, load
from capsar.data.splits import sentence_hash
from capsar.labels import CLASSES
from closed import close_test_parts
from runs import TEACHERS, WORK, planned
from shared_sentences import HELD
from unlabelled import read_unlabelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar import Analyzer

SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "restaurant": {"yelp-sentences": ("restaurant",)},
    "laptop": {"amazon": ("electronics", "software")},
}
FOLDER = WORK / "told"
LEAST_ASPECT_CONFIDENCE = 0.5


def sentences_for(dataset: str) -> Iterator[str]:
    """Yield the unlabelled sentences that go with a dataset, but for those a test part holds."""
    held = set(json.loads(HELD.read_text(encoding="utf-8"))["hashes"])
    for name, parts in SOURCES[dataset].items():
        for part in parts:
            yield from (s for s in read_unlabelled(name, part) if sentence_hash(s) not in held)


def find_aspects(finder: Analyzer, sentences: Sequence[str]) -> list[Example]:
    """Return one example for each aspect that is found, without a polarity yet."""
    return [
        Example(sentence, (AspectSpan(aspect.start, aspect.end),))
        for sentence, found in zip(sentences, finder.analyze_stream(sentences), strict=True)
        for aspect in found
        if (aspect.aspect_confidence or 0) >= LEAST_ASPECT_CONFIDENCE
    ]


def main(dataset: str) -> None:
    close_test_parts()
    torch.set_num_threads(1)
    bundles = [run.folder / "bundle" for run in planned(TEACHERS) if run.dataset == dataset]
    teachers = [load(bundle) for bundle in bundles]
    asked = find_aspects(teachers[0], list(sentences_for(dataset)))
    told = np.mean([teacher.predict_lengths(asked) for teacher in teachers], axis=0).argmax(-1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{dataset}.jsonl").open("w", encoding="utf-8") as stream:
        for example, answer in zip(asked, told.tolist(), strict=True):
            (span,) = example.spans
            row = {
                "text": example.text,
                "aspect": example.aspect,
                "start": span.start,
                "end": span.end,
                "polarity": CLASSES[answer],
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    print({"aspects": len(asked)} | {str(p): int((told == i).sum()) for i, p in enumerate(CLASSES)})


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a teacher finds in sentences that nobody labelled: `python experiments/teach.py DATASET`.

The teacher is the first run of `capsar-bert-best` on the dataset. It names the aspects of reviews
and what is felt about each, and tells the same of training sentences some words of which are
changed. Its capsule lengths are asked for again when the student is trained (`train.teacher`).
Sentences that a test part holds are left out by hash, those of the dev part are not changed ones;
no test part can be opened here.

Writes `runs/told/DATASET.jsonl`, one row an aspect.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import torch

from capsar import AspectSpan, Example, load
from capsar.data.splits import sentence_hash
from capsar.labels import CLASSES
from capsar.training.parts import read_parts
from capsar.training.teaching import ask, keep_told
from closed import close_test_parts
from runs import ROOT, TEACHERS, WORK, planned
from shared_sentences import HELD
from unlabelled import read_unlabelled
from vary import vary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar.config import DataConfig

SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "restaurant": {"yelp-sentences": ("restaurant",)},
    "laptop": {"amazon": ("electronics", "software", "camera-photo")},
}
VARIANTS = {"restaurant": 0, "laptop": 2}
"""Of each training example; where reviews are of the same kind as the dataset, none."""
FOLDER = WORK / "told"
LEAST_ASPECT_CONFIDENCE = 0.5


def sentences_for(dataset: str) -> Iterator[str]:
    """Yield the unlabelled sentences that go with a dataset, but for those a test part holds."""
    held = set(json.loads(HELD.read_text(encoding="utf-8"))["hashes"])
    for name, parts in SOURCES[dataset].items():
        for part in parts:
            yield from (s for s in read_unlabelled(name, part) if sentence_hash(s) not in held)


def find_aspects(teacher: str, sentences: Sequence[str]) -> list[Example]:
    """Return one example for each aspect that a teacher finds, of the polarity that it tells."""
    found = [
        (Example(sentence, (AspectSpan(aspect.start, aspect.end),), aspect.polarity), aspect)
        for sentence, aspects in zip(
            sentences, load(teacher).analyze_stream(sentences), strict=True
        )
        for aspect in aspects
        if (aspect.aspect_confidence or 0) >= LEAST_ASPECT_CONFIDENCE
    ]
    examples = [example for example, _ in found]
    keep_told(teacher, examples, [[aspect.scores[p] for p in CLASSES] for _, aspect in found])
    return examples


def vary_training_part(data_config: DataConfig, times: int) -> list[Example]:
    """Return each training example so many times, each time with other words changed."""
    train = read_parts(data_config).train
    words = [word for text in dict.fromkeys(e.text for e in train) for word in text.split()]
    random = Random(0)
    return [vary(example, words, random) for _ in range(times) for example in train]


def main(dataset: str) -> None:
    close_test_parts()
    torch.set_num_threads(1)
    os.chdir(ROOT)
    run = next(run for run in planned(TEACHERS) if run.dataset == dataset)
    teacher = str(run.folder / "bundle")
    told = find_aspects(teacher, list(sentences_for(dataset)))
    varied = vary_training_part(run.config().data, VARIANTS[dataset])
    if varied:
        answers = ask(teacher, varied).argmax(-1).tolist()
        told += [replace(e, polarity=CLASSES[a]) for e, a in zip(varied, answers, strict=True)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{dataset}.jsonl").open("w", encoding="utf-8") as stream:
        for example in told:
            stream.write(json.dumps(_row(example), ensure_ascii=False) + "\n")
    counts = {str(p): sum(e.polarity is p for e in told) for p in CLASSES}
    print({"found": len(told) - len(varied), "varied": len(varied)} | counts)


def _row(example: Example) -> dict[str, object]:
    (span,) = example.spans
    place = {"start": span.start, "end": span.end}
    return {
        "text": example.text,
        "aspect": example.aspect,
        **place,
        "polarity": str(example.polarity),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])

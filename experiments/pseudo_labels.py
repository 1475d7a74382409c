"""Pseudo-labels: what a teacher predicts for unlabelled sentences, as training data of a student.

`python experiments/pseudo_labels.py DATASET` lets the first run of `capsar-bert-best` on a dataset
label reviews of the same domain and augmented training sentences, and writes
`runs/pseudo-labels/DATASET.jsonl`, one row per aspect, for `capsar-best`. The pseudo-labels of the
bundled models are written by `pretrained/teacher.py`.

Sentences that occur in a test set are excluded by hash, and validation sentences are not augmented.
The process cannot open a test set.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from dataclasses import replace
from html import unescape
from random import Random
from typing import TYPE_CHECKING, Any

from augmentation import augment
from capsar import AspectSpan, Example, load
from capsar.data.catalog import digest_file, find_file
from capsar.data.splits import sentence_hash
from capsar.schema import CLASSES, Polarity
from capsar.sentences import split_sentences
from capsar.training.dataset import read_splits
from capsar.training.teachers import cache_teacher_outputs, predict_teacher
from guard import close_test_sets
from run import (
    CONFIGS,
    TEACHERS,
    WORK,
    Run,
    planned,
    prepare_process,
    read_json,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from capsar.config import DataConfig

UNLABELED = {
    "yelp-sentences": ("restaurant",),
    "amazon": ("electronics", "camera-photo", "software", "kitchen-housewares"),
}
"""The unlabelled data sets that are read, and their parts."""
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "restaurant": {"yelp-sentences": ("restaurant",)},
    "laptop": {"amazon": ("electronics", "software", "camera-photo")},
}
"""The reviews that go with each dataset; there are none for Twitter."""
AUGMENTATIONS = {"restaurant": 0, "laptop": 2}
"""Per training example; none where the reviews are of the same kind as the dataset."""
PROS_CONS = "bing-liu-pros-cons"
_SIDES = {Polarity.POSITIVE: "IntegratedPros.txt", Polarity.NEGATIVE: "IntegratedCons.txt"}
_TAG = re.compile(r"</?(?:Pros|Cons)>")
HELD = CONFIGS / "held-sentences.json"
MIN_ASPECT_CONFIDENCE = 0.5
_MIN_CHARACTERS = 12
_MAX_CHARACTERS = 400


def labels_path(name: str) -> Path:
    """Return the file of pseudo-labels with this name."""
    return WORK / "pseudo-labels" / f"{name}.jsonl"


def teacher_of(dataset: str) -> Run:
    """Return the run whose bundle labels the reviews that go with a dataset."""
    return next(run for run in planned(TEACHERS) if run.dataset == dataset)


def is_labeled(dataset: str) -> bool:
    """Return whether the pseudo-labels of a dataset are complete and of its current teacher."""
    recorded = read_json(labels_path(dataset).with_suffix(".json"))
    return labels_path(dataset).is_file() and recorded.get("teacher") == (
        teacher_of(dataset).folder.name
    )


def label_dataset(dataset: str) -> None:
    """Write the pseudo-labels of a dataset, and which teacher they are of."""
    close_test_sets()
    prepare_process()
    run, path = teacher_of(dataset), labels_path(dataset)
    found = label_aspects(str(run.bundle), list(sentences_for(dataset)))
    augmented = augment_training_set(run.config().data, AUGMENTATIONS[dataset])
    if augmented:
        classes = predict_teacher(str(run.bundle), augmented).argmax(-1).tolist()
        pairs = zip(augmented, classes, strict=True)
        augmented = [replace(example, polarity=CLASSES[index]) for example, index in pairs]
    examples = [*found, *augmented]
    write_rows(path, map(row_of, examples))
    counts = {str(p): sum(e.polarity is p for e in examples) for p in CLASSES}
    facts: dict[str, Any] = {"teacher": run.folder.name, "sha256": digest_file(path)}
    facts |= {"found": len(found), "augmented": len(augmented)} | counts
    write_json(path.with_suffix(".json"), facts)
    print(facts)


def sentences_for(dataset: str) -> Iterator[str]:
    """Yield the unlabelled sentences that go with a dataset and occur in no test set."""
    held = set(read_json(HELD)["hashes"])
    for name, parts in SOURCES[dataset].items():
        for part in parts:
            yield from (s for s in read_unlabeled(name, part) if sentence_hash(s) not in held)


def read_unlabeled(name: str, part: str) -> Iterator[str]:
    """Yield the distinct sentences of a part, except very short and very long ones."""
    seen = set()
    for line in find_file(name, part).read_text(encoding="utf-8", errors="replace").splitlines():
        text = unescape(line)
        if name == "yelp-sentences":  # one sentence per line, in the second column
            sentences = [text.split("\t")[1].strip()]
        else:
            sentences = [text[start:end].strip() for start, end in split_sentences(text)]
        for sentence in sentences:
            if _MIN_CHARACTERS <= len(sentence) <= _MAX_CHARACTERS and sentence not in seen:
                seen.add(sentence)
                yield sentence


def read_pros_cons(path: Path) -> dict[Polarity, list[str]]:
    """Return the distinct lines of pros and of cons, without tags."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for side, name in _SIDES.items():
            text = archive.read(f"pros_cons/{name}").decode("latin-1")
            lines = (_TAG.sub("", line).strip() for line in text.splitlines())
            # A few lines hold HTML entities.
            found[side] = list(dict.fromkeys(line for line in lines if line and "&" not in line))
    return found


def label_aspects(teacher: str, sentences: Sequence[str]) -> list[Example]:
    """Return one example per aspect that a teacher finds, with the polarity that it predicts."""
    found = [
        (Example(sentence, (AspectSpan(aspect.start, aspect.end),), aspect.polarity), aspect)
        for sentence, aspects in zip(
            sentences, load(teacher).analyze_stream(sentences), strict=True
        )
        for aspect in aspects
        if (aspect.aspect_confidence or 0) >= MIN_ASPECT_CONFIDENCE
    ]
    examples = [example for example, _ in found]
    lengths = [[aspect.scores[p] for p in CLASSES] for _, aspect in found]
    cache_teacher_outputs(teacher, examples, lengths)
    return examples


def augment_training_set(data_config: DataConfig, times: int) -> list[Example]:
    """Return `times` augmented copies of each training example."""
    train = read_splits(data_config).train
    words = [word for text in dict.fromkeys(e.text for e in train) for word in text.split()]
    random = Random(0)
    return [augment(example, words, random) for _ in range(times) for example in train]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON Lines, atomically: a file that exists is complete."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def row_of(example: Example) -> dict[str, Any]:
    """Return an example with one span as a row of a file."""
    (span,) = example.spans
    return {
        "text": example.text,
        "aspect": example.aspect,
        "start": span.start,
        "end": span.end,
        "polarity": str(example.polarity),
    }


if __name__ == "__main__":
    label_dataset(sys.argv[1])

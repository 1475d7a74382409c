"""The teacher of the bundled models: train it, and record its outputs for their training.

    python experiments/pretrained/teacher.py train --seed 0
    python experiments/pretrained/teacher.py record --seed 0

`record` writes `experiments/teachers/mpnet-SEED.npz`: capsule lengths and tag probabilities of the
training data and of unlabelled lines of pros and cons and sentences of Bing Liu's reviews, by
hashes of the texts. The bundled models are trained from these files, without the teacher itself.
`--part 0/2` computes one half of them in a process of its own; without, the rest is computed and
the file is written. The first seed decides which spans of unlabelled text are labelled.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import numpy as np

from capsar import train
from capsar.config import list_sources, read_config, run_config
from capsar.data.catalog import find_file, training_examples
from capsar.data.splits import drop_hashed
from capsar.inference.decoding import decode_spans
from capsar.schema import CLASSES, AspectSpan, Example, Polarity
from capsar.tokenizer import tokenize_words
from capsar.training.dataset import read_splits
from capsar.training.teachers import (
    LENGTHS,
    TAGS,
    example_key,
    predict_tags,
    predict_teacher,
    record_outputs,
    text_key,
)
from guard import close_test_sets
from pseudo_labels import PROS_CONS, labels_path, read_pros_cons, row_of, write_rows
from run import CONFIGS, EXPERIMENTS, WORK, prepare_process, record_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

CONFIG = CONFIGS / "teacher.toml"
RECORDED = EXPERIMENTS / "teachers"
PSEUDO_LABELS = "by-teacher"
_MIN_WORDS, _MAX_WORDS = 2, 60
_MIN_PROBABILITY = 1e-3
_OPPOSITE = {
    (Polarity.POSITIVE, Polarity.NEGATIVE),
    (Polarity.NEGATIVE, Polarity.POSITIVE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the teacher or record its outputs.")
    parser.add_argument("step", choices=("train", "record"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="of the texts, such as 0/2")
    options = parser.parse_args()
    close_test_sets()
    prepare_process()
    folder = WORK / f"pretrained-teacher-{options.seed}"
    if options.step == "train":
        content = read_config(CONFIG).as_dict()
        content["train"]["seed"] = options.seed
        record_commit(folder)
        train(run_config(content), folder)
    else:
        part, parts = map(int, options.part.split("/"))
        record(str(folder / "bundle"), recorded_path(options.seed), part, parts)


def recorded_path(seed: int) -> Path:
    """Return the file of a seed's recorded outputs."""
    return RECORDED / f"mpnet-{seed}.npz"


def record(teacher: str, path: Path, part: int = 0, parts: int = 1) -> None:
    """Compute a teacher's outputs, and write them to a file if this is the only part."""
    lines = unlabeled_lines()
    splits = read_splits(read_config(CONFIG).data)
    labeled = splits.training_examples(with_unlabeled=True)
    texts = list(dict.fromkeys([*(example.text for example in labeled), *lines]))[part::parts]
    chosen = set(texts)
    tags = dict(zip(texts, predict_tags(teacher, texts), strict=True))
    first = recorded_path(0)
    own_lines = [line for line in lines if line in chosen]
    by_first = predict_tags(str(first), own_lines) if first.is_file() and first != path else None
    found = by_first or [tags[line] for line in own_lines]
    examples = [example for example in labeled if example.spans and example.text in chosen]
    examples += [
        example
        for line, probabilities in zip(own_lines, found, strict=True)
        for example in examples_of(line, probabilities)
    ]
    lengths = predict_teacher(teacher, examples)
    if parts == 1:
        by_key = zip(map(example_key, examples), lengths[:, None], strict=True)
        outputs = {
            LENGTHS: dict(by_key),
            TAGS: {text_key(text): own for text, own in tags.items()},
        }
        record_outputs(path, outputs)
        print({"texts": len(texts), "examples": len(examples), "bytes": path.stat().st_size})


def unlabeled_lines() -> dict[str, Polarity | None]:
    """Return the unlabelled lines, each with its side if it is one of pros or cons.

    Lines of test sets, and very short and very long ones, are excluded.
    """
    data = read_config(CONFIG).data
    sides: dict[str, Polarity | None] = {}
    for source in list_sources(data.partially_annotated):
        name, _, part = source.partition(":")
        sides |= {example.text: None for example in training_examples(name, part)}
    for side, some in read_pros_cons(find_file(PROS_CONS, "text")).items():
        sides |= dict.fromkeys(some, side)
    kept, _ = drop_hashed(list(map(Example, sides)), Path(data.exclude_hashes))
    texts = (example.text for example in kept)
    return {t: sides[t] for t in texts if _MIN_WORDS <= len(tokenize_words(t)) <= _MAX_WORDS}


def examples_of(text: str, probabilities: NDArray[np.float32]) -> Iterator[Example]:
    """Yield the spans that tag probabilities (W, 3) give, without polarities."""
    words = tokenize_words(text)
    for first, end in decode_spans(np.log(probabilities.clip(_MIN_PROBABILITY))):
        yield Example(text, (AspectSpan(words[first][0], words[end - 1][1]),))


def write_pseudo_labels(teachers: Sequence[str]) -> dict[str, int]:
    """Write the unlabelled lines with the aspects and polarities that recorded teachers give.

    A line of pros (or cons) with a negative (positive) aspect is excluded.
    """
    lines = unlabeled_lines()
    tags = predict_tags(teachers[0], list(lines))
    found = {line: list(examples_of(line, own)) for line, own in zip(lines, tags, strict=True)}
    flat = [example for examples in found.values() for example in examples]
    lengths = np.mean([predict_teacher(teacher, flat) for teacher in teachers], axis=0)
    classes = iter(lengths.argmax(-1).tolist())
    labeled = {
        line: [Example(example.text, example.spans, CLASSES[next(classes)]) for example in examples]
        for line, examples in found.items()
    }
    kept = {
        line: examples
        for line, examples in labeled.items()
        if not any((lines[line], example.polarity) in _OPPOSITE for example in examples)
    }
    write_rows(labels_path(PSEUDO_LABELS), _rows(kept))
    return {"lines": len(lines), "kept": len(kept), "aspects": sum(map(len, kept.values()))}


def _rows(labeled: dict[str, list[Example]]) -> Iterable[dict[str, Any]]:
    for line, examples in labeled.items():
        yield from map(row_of, examples) if examples else [{"text": line}]


if __name__ == "__main__":
    main()

"""The teacher of the bundled models: train it, and record its outputs for their training.

    torchrun --standalone --nproc-per-node 2 experiments/pretrained/teacher.py train --seed 0
    python experiments/pretrained/teacher.py record --seed 0

`record` writes `experiments/teachers/mpnet-SEED.npz`: capsule lengths and tag probabilities of the
training data and of Bing Liu's unlabeled lines of pros and cons, by hashes of the texts. The
bundled models are trained from these files, without the teacher itself. `--part 0/2` and `--part
1/2` compute one half each, in two processes; the last one writes the file. The first seed decides
which spans of unlabeled text are labeled.
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
from capsar.bundle import open_bundle
from capsar.config import read_config, run_config
from capsar.data.catalog import find_file
from capsar.data.splits import drop_hashed
from capsar.inference.decoding import decode_spans
from capsar.inference.engine import Engine
from capsar.inference.inputs import Request
from capsar.schema import CLASSES, AspectSpan, Example, Polarity
from capsar.tokenizer import tokenize_words, words_within
from capsar.training.dataset import read_splits
from capsar.training.teachers import (
    LENGTHS,
    TAGS,
    example_key,
    predict_tags,
    predict_teacher,
    record_outputs,
    round_outputs,
    tag_probabilities,
    text_key,
)
from guard import close_test_sets
from pseudo_labels import PROS_CONS, labels_path, read_pros_cons, row_of, write_rows
from run import CONFIGS, EXPERIMENTS, WORK, prepare_process, record_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

CONFIG = CONFIGS / "teacher.toml"
STUDENT = CONFIGS / "base.toml"
RECORDED = EXPERIMENTS / "teachers"
PSEUDO_LABELS = "by-teacher"
_MIN_WORDS, _MAX_WORDS = 2, 60
_BLOCK = 1000
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


def record(teacher: str, path: Path, part: int, parts: int) -> None:
    """Compute a teacher's outputs block by block, and write them to a file when all are there.

    Outputs of validation sentences are recorded as well, to validate the teacher.
    """
    lines = unlabeled_lines()
    splits = read_splits(read_config(STUDENT).data)
    spans: dict[str, list[AspectSpan]] = {}
    known = {example.text for example in splits.validation}
    others = (Example(s.text) for s in splits.validation_sentences if s.text not in known)
    validated = [*splits.validation, *others]
    for example in (*splits.training_examples(with_unlabeled=True), *validated):
        spans.setdefault(example.text, []).extend(example.spans)
    first = recorded_path(0)
    if first.is_file() and first != path:
        for line, tags in zip(lines, predict_tags(str(first), list(lines)), strict=True):
            spans.setdefault(line, [e.spans[0] for e in examples_of(line, tags)])
    texts = sorted({**spans, **lines}, key=lambda text: (len(text), text))
    blocks = [texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK)]
    scratch = WORK / "teacher" / path.stem
    engine = Engine(open_bundle(Path(teacher)))
    for number, block in enumerate(blocks):
        file = scratch / f"{number}.npz"
        if number % parts == part and not file.is_file():
            record_outputs(file.with_suffix(".tmp.npz"), outputs_of(engine, block, spans))
            file.with_suffix(".tmp.npz").rename(file)
    files = [scratch / f"{number}.npz" for number in range(len(blocks))]
    if all(file.is_file() for file in files):
        loaded = [dict(np.load(file)) for file in files]
        path.parent.mkdir(parents=True, exist_ok=True)
        joined = {name: np.concatenate([own[name] for own in loaded]) for name in loaded[0]}
        np.savez_compressed(path, allow_pickle=False, **joined)
        print({"texts": len(texts), "bytes": path.stat().st_size})


def outputs_of(
    engine: Engine, texts: list[str], given: dict[str, list[AspectSpan]]
) -> dict[str, dict[bytes, NDArray[np.float32]]]:
    """Return tag probabilities of texts, and capsule lengths of given and of found spans."""
    outputs: dict[str, dict[bytes, NDArray[np.float32]]] = {LENGTHS: {}, TAGS: {}}
    spans: dict[str, list[AspectSpan]] = {}

    def find(request: Request, logits: NDArray[np.float32]) -> list[tuple[int, int]]:
        """Return word indices; found spans are those of the recorded probabilities."""
        found = examples_of(request.text, tag_probabilities(logits))
        own = dict.fromkeys([*given.get(request.text, ()), *(e.spans[0] for e in found)])
        within = {s: words_within(request.words, s.start, s.end) for s in own}
        spans[request.text] = [span for span in own if within[span]]
        return [(within[s][0], within[s][-1] + 1) for s in spans[request.text]]

    extracted = engine.extract(list(map(Request.whole_text, texts)), find)
    for text, found in zip(texts, extracted, strict=True):
        outputs[TAGS][text_key(text)] = tag_probabilities(found.logits)
        for span, lengths in zip(spans[text], found.lengths, strict=True):
            outputs[LENGTHS][example_key(Example(text, (span,)))] = lengths[None]
    return outputs


def rounded_logits(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return logits of probabilities as they are recorded."""
    logits: NDArray[np.float32] = np.log(round_outputs(probabilities).clip(_MIN_PROBABILITY))
    return logits


def unlabeled_lines() -> dict[str, Polarity]:
    """Return the lines of pros and cons with their sides.

    Lines of test sets, and very short and very long ones, are excluded.
    """
    sides: dict[str, Polarity] = {}
    for side, some in read_pros_cons(find_file(PROS_CONS, "text")).items():
        sides |= dict.fromkeys(some, side)
    hashes = Path(read_config(CONFIG).data.exclude_hashes)
    kept, _ = drop_hashed(list(map(Example, sides)), hashes)
    texts = (example.text for example in kept)
    return {t: sides[t] for t in texts if _MIN_WORDS <= len(tokenize_words(t)) <= _MAX_WORDS}


def examples_of(text: str, probabilities: NDArray[np.float32]) -> Iterator[Example]:
    """Yield the spans that tag probabilities (W, 3) give, without polarities."""
    words = tokenize_words(text)
    for first, end in decode_spans(rounded_logits(probabilities)):
        yield Example(text, (AspectSpan(words[first][0], words[end - 1][1]),))


def write_pseudo_labels(teachers: Sequence[str]) -> dict[str, int]:
    """Write the unlabeled lines with the aspects and polarities that teachers give.

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

"""Files, vectors, words and long reviews: `python benchmarks/text.py PART`.

`reading`: peak memory of reading a 200 MB XML file and a 2 GB CSV file, and of files a twentieth
the size. `vectors`: memory and time of loading a GloVe file of 1.9 M x 300, the first time and from
the cache. `words`: our word counts next to those of the paper, on test sentences. `reviews`: time
per character and memory of a review of a megabyte, relative to ten kilobytes. `words` and `reviews`
need CAPSAR_DATA. Each part writes `results/PART.json`.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measure import (
    median_ratio,
    peak_memory_mb,
    resident_memory_mb,
    run_fresh,
    time_in_turn,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_BYTES = {"xml": 200_000_000, "csv": 2_000_000_000}
SMALLER = 20
VECTOR_ROWS, VECTOR_DIM, LOADED_ROWS = 1_900_000, 300, 10_000
LONG, SHORT, NUM_SHORT, TURNS = 1_000_000, 10_000, 25, 5
_REVIEW = "The soup was cold, the bread was fine and nobody came to take our order. " * 12


def reading(folder: Path) -> dict[str, float]:
    """Measure both kinds of files."""
    metrics: dict[str, float] = {}
    for kind, size in FILE_BYTES.items():
        metrics |= measure_reading(kind, size, folder)
    return metrics


def measure_reading(kind: str, size: int, folder: Path) -> dict[str, float]:
    """Read two files in fresh processes; a `memory_ratio` near 1 means constant memory."""
    results = []
    for wanted in (size // SMALLER, size):
        path = folder / f"generated-{wanted}.{kind}"
        write_labeled(path, wanted)
        results.append(run_fresh(__file__, "read", path))
        path.unlink()
    small, large = results
    return {
        f"{kind}_file_mb": large["file_mb"],
        f"{kind}_examples": large["examples"],
        f"{kind}_mb_per_s": large["mb_per_s"],
        f"{kind}_peak_mb": large["peak_mb"],
        f"{kind}_memory_ratio": large["peak_mb"] / small["peak_mb"],
    }


def write_labeled(path: Path, size: int) -> None:
    """Write a labeled file of at least `size` bytes with distinct records."""
    head, tail = ("<sentences>\n", "</sentences>\n") if path.suffix == ".xml" else ("", "")
    with path.open("w", encoding="utf-8") as stream:
        stream.write(head or "text,aspect,polarity\n")
        number = 0
        while size > 0:
            record = _xml_record if head else _csv_record
            block = "".join(map(record, range(number, number + 1000)))
            stream.write(block)
            size -= len(block)
            number += 1000
        stream.write(tail)


def _csv_record(number: int) -> str:
    return f'"{number} {_REVIEW}",bread,neutral\n'


def _xml_record(number: int) -> str:
    text = f"{number:09} the soup was cold, the bread was fine and nobody came to take our order."
    terms = "".join(
        f'<aspectTerm term="{term}" polarity="{polarity}" from="{start}" to="{start + len(term)}"/>'
        for term, polarity, start in (("soup", "negative", 14), ("bread", "neutral", 33))
    )
    body = f"<text>{text}</text><aspectTerms>{terms}</aspectTerms>"
    return f'<sentence id="{number}">{body}</sentence>\n'


def read(path: str) -> dict[str, float]:
    """Read a file to its end in this process."""
    from capsar.data.readers import read_examples

    start = time.perf_counter()
    examples = sum(1 for _ in read_examples(Path(path)))
    seconds = time.perf_counter() - start
    size = Path(path).stat().st_size / 1e6
    return {
        "examples": examples,
        "mb_per_s": size / seconds,
        "peak_mb": peak_memory_mb(),
        "file_mb": size,
    }


def vectors(folder: Path, num_rows: int = VECTOR_ROWS) -> dict[str, float]:
    """Load a file of the format and size of `glove.42B.300d.txt` twice, in fresh processes."""
    path = folder / "glove.synthetic.300d.txt"
    write_vectors(path, num_rows)
    first, second = (run_fresh(__file__, "load", path, num_rows) for _ in range(2))
    return {
        "file_rows": num_rows,
        "file_mb": path.stat().st_size / 1e6,
        "rows_kept": second["rows"],
        "first_load_s": first["seconds"],
        "first_load_peak_mb": first["peak_mb"],
        "second_load_s": second["seconds"],
        "second_load_peak_mb": second["peak_mb"],
    }


def write_vectors(path: Path, num_rows: int) -> None:
    """Write distinct words with a thousand distinct vectors."""
    generator = random.Random(0)
    rows = [
        " ".join(f"{generator.gauss(0, 0.4):.5g}" for _ in range(VECTOR_DIM)).encode()
        for _ in range(1000)
    ]
    with path.open("wb") as stream:
        for start in range(0, num_rows, 1000):
            stream.writelines(
                b"word%d %s\n" % (start + n, rows[n]) for n in range(min(1000, num_rows - start))
            )


def load(path: str, num_rows: str) -> dict[str, float]:
    """Load some of the words in this process."""
    from capsar.model.embeddings import load_vectors

    step = max(1, int(num_rows) // LOADED_ROWS)
    wanted = [f"word{row}" for row in range(0, int(num_rows), step)] + ["absent"]
    start = time.perf_counter()
    loaded = load_vectors(Path(path), wanted)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mb": peak_memory_mb(), "rows": len(loaded.words)}


def words(_: Path) -> dict[str, float]:
    """Count words and aspect words per sentence that has an aspect without conflict."""
    from capsar.data.catalog import test_examples
    from capsar.schema import Polarity
    from capsar.tokenizer import tokenize_words, words_within

    metrics: dict[str, float] = {}
    for name in ("restaurants", "laptops"):
        aspects: dict[str, set[int]] = {}
        for example in test_examples(f"semeval14-{name}"):
            if example.spans and example.polarity is not Polarity.CONFLICT:
                found = tokenize_words(example.text)
                touched = (i for s in example.spans for i in words_within(found, s.start, s.end))
                aspects.setdefault(example.text, set()).update(touched)
        lengths = [len(tokenize_words(text)) for text in aspects]
        metrics[f"{name}_words"] = statistics.mean(lengths)
        metrics[f"{name}_aspect_words"] = statistics.mean(map(len, aspects.values()))
    texts = list({example.text for example in test_examples("semeval14-restaurants")})
    start = time.perf_counter()
    for text in texts:
        tokenize_words(text)
    metrics["microseconds_per_sentence"] = (time.perf_counter() - start) / len(texts) * 1e6
    return metrics


def reviews(_: Path) -> dict[str, float]:
    """Time a long review against short ones cut from it, with one thread, and measure memory."""
    from capsar import load as load_model
    from capsar.sentences import split_sentences

    analyzer, text = load_model(), long_review(LONG)
    parts = [text[start : start + SHORT] for start in range(0, LONG, LONG // NUM_SHORT)]
    calls: dict[str, Callable[[], object]] = {
        "long": lambda: analyzer.analyze([text]),
        "short": lambda: [analyzer.analyze([part]) for part in parts],
        "split": lambda: split_sentences(text),
    }
    seconds = time_in_turn(calls, TURNS)
    long, half = (run_fresh(__file__, "review_memory", size) for size in (LONG, LONG // 2))
    scale = sum(map(len, parts)) / LONG
    return {
        "review_scaling": median_ratio(seconds["long"], seconds["short"]) * scale,
        "split_share": median_ratio(seconds["split"], seconds["long"]),
        "long_s": statistics.median(seconds["long"]),
        "sentences": len(split_sentences(text)),
        "peak_mb": long["peak_mb"],
        "peak_mb_half": half["peak_mb"],
        "above_mb": long["above_mb"],
        "above_mb_half": half["above_mb"],
        "aspects": long["aspects"],
    }


def long_review(size: int) -> str:
    """Join real, unlabeled reviews, one paragraph each."""

    def paragraphs() -> Iterator[str]:
        folder = Path(os.environ["CAPSAR_DATA"]) / "data" / "unlabelled" / "fdu-mtl"
        for path in sorted(folder.iterdir()):
            yield from path.read_text(encoding="utf-8", errors="replace").split("\n")

    parts: list[str] = []
    length = 0
    for paragraph in paragraphs():
        parts.append(paragraph)
        length += len(paragraph) + 2
        if length >= size:
            break
    return "\n\n".join(parts)[:size]


def review_memory(size: str) -> dict[str, float]:
    """Return the peak memory of analyzing one review, above that of text and model."""
    from capsar import load as load_model

    analyzer = load_model()
    analyzer.analyze([long_review(SHORT)])
    text = long_review(int(size))
    before = resident_memory_mb()
    (found,) = analyzer.analyze([text])
    peak = peak_memory_mb()
    return {"peak_mb": peak, "above_mb": peak - before, "aspects": len(found)}


PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    part.__name__: part for part in (reading, vectors, words, reviews)
}
STEPS: dict[str, Callable[..., dict[str, float]]] = {
    step.__name__: step for step in (read, load, review_memory)
}
"""Run in fresh processes."""


def main(name: str, *arguments: str) -> None:
    if name in STEPS:
        print(json.dumps(STEPS[name](*arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_result(name, PARTS[name](Path(folder)), ("defusedxml", "onnxruntime"))


if __name__ == "__main__":
    main(*sys.argv[1:])

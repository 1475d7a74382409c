"""How our words compare with the paper's counts, on the test sentences (text and spans, no label).

`CAPSAR_DATA=… python benchmarks/words.py` writes `results/words.json`.
"""

from __future__ import annotations

import time

from capsar.data.catalog import test_examples
from capsar.labels import Polarity
from capsar.text import segment, words_within
from measure import write_result


def count(name: str) -> tuple[float, float]:
    """Return words, and words of aspects, a sentence with at least one non-conflict aspect."""
    aspects: dict[str, set[int]] = {}
    for example in test_examples(name):
        if example.spans and example.polarity is not Polarity.CONFLICT:
            words = segment(example.text)
            touched = (i for s in example.spans for i in words_within(words, s.start, s.end))
            aspects.setdefault(example.text, set()).update(touched)
    num_words = sum(len(segment(text)) for text in aspects)
    return num_words / len(aspects), sum(map(len, aspects.values())) / len(aspects)


def main() -> None:
    metrics: dict[str, float] = {}
    for name in ("restaurants", "laptops"):
        words, aspect_words = count(f"semeval14-{name}")
        metrics |= {f"{name}_words": words, f"{name}_aspect_words": aspect_words}
    texts = list({example.text for example in test_examples("semeval14-restaurants")})
    start = time.perf_counter()
    for text in texts:
        segment(text)
    metrics["microseconds_per_sentence"] = (time.perf_counter() - start) / len(texts) * 1e6
    write_result("words", metrics)


if __name__ == "__main__":
    main()

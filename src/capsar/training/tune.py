"""Choosing, on the dev part, how sure a capsule must be of a word before it names it an aspect."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from capsar.aspects import find_aspects
from capsar.pieces import to_words
from capsar.text import segment
from capsar.training.batches import collate, encode_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.data.example import Example
    from capsar.model.network import Capsar
    from capsar.pieces import SentenceTokenizer

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
_BATCH = 64


def choose_about_threshold(
    model: Capsar, tokenizer: SentenceTokenizer, dev: Sequence[Example]
) -> tuple[float, float]:
    """Return the threshold with the best exact-span F1 on the dev sentences, and that F1."""
    gold: dict[str, set[tuple[int, int]]] = {}
    for example in dev:
        gold.setdefault(example.text, set()).update((s.start, s.end) for s in example.spans)
    by_text = {example.text: example for example in dev}
    counts = {threshold: Counter[str]() for threshold in THRESHOLDS}
    texts = sorted(gold, key=len)
    for start in range(0, len(texts), _BATCH):
        some = texts[start : start + _BATCH]
        encoded = encode_examples([by_text[text] for text in some], tokenizer)
        batch = collate(encoded).without_aspect()
        with torch.inference_mode():
            output = model.eval()(batch)
            pieces = model.about(batch, output).numpy()
        about = to_words(pieces, batch.words.numpy(), how="about")
        for row, text in enumerate(some):
            lengths, scores = output.lengths[row].numpy(), about[row]
            for threshold, count in counts.items():
                words = segment(text)
                found = find_aspects(text, words, lengths, scores, threshold=threshold)
                spans = {(aspect.start, aspect.end) for aspect in found}
                count["right"] += len(spans & gold[text])
                count["found"] += len(spans)
                count["gold"] += len(gold[text])
    scores_f1 = {
        threshold: 2 * count["right"] / max(1, count["found"] + count["gold"])
        for threshold, count in counts.items()
    }
    best = max(scores_f1, key=lambda threshold: (scores_f1[threshold], threshold))
    return best, float(np.round(scores_f1[best], 6))

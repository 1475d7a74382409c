"""Examples -> tensors, in batches of sentences of like length."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from capsar.labels import CLASSES
from capsar.model.network import Batch
from capsar.text import WordTokenizer, segment, words_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.data.example import Example

_BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """An example as word ids and word positions."""

    ids: tuple[int, ...]
    first_words: tuple[int, ...]
    """The first word of each mention of the aspect."""
    aspect_words: tuple[int, ...]
    polarity: int
    """The index of the class, or -1 if it is not known."""


def encode_examples(examples: Sequence[Example], tokenizer: WordTokenizer) -> list[EncodedExample]:
    """Cut texts into words, look up their ids, and find the words of each aspect.

    Texts that many examples share are cut once.
    """
    texts = list(dict.fromkeys(example.text for example in examples))
    spans = {text: segment(text) for text in texts}
    words = [[text[start:end] for start, end in spans[text]] for text in texts]
    ids = {text: tuple(found) for text, found in zip(texts, tokenizer.encode(words), strict=True)}
    encoded = []
    for example in examples:
        mentions = [words_within(spans[example.text], s.start, s.end) for s in example.spans]
        touched = [mention for mention in mentions if mention]
        known = example.polarity in CLASSES
        encoded.append(
            EncodedExample(
                ids=ids[example.text],
                first_words=tuple(mention[0] for mention in touched),
                aspect_words=tuple(sorted({word for mention in touched for word in mention})),
                polarity=CLASSES.index(example.polarity) if known else -1,
            )
        )
    return encoded


def collate(encoded: Sequence[EncodedExample]) -> Batch:
    """Pad examples to one length; a text without words becomes padding, which does not vote."""
    num_words = max(1, *(len(example.ids) for example in encoded))
    num_mentions = max(1, *(len(example.first_words) for example in encoded))
    size = len(encoded)
    ids = torch.zeros(size, num_words, dtype=torch.long)  # (B, T)
    mask = torch.zeros(size, num_words, dtype=torch.bool)  # (B, T)
    first_words = torch.full((size, num_mentions), -1)  # (B, M)
    aspect_mask = torch.zeros(size, num_words, dtype=torch.bool)  # (B, T)
    for row, example in enumerate(encoded):
        ids[row, : len(example.ids)] = torch.tensor(example.ids, dtype=torch.long)
        mask[row, : len(example.ids)] = True
        first_words[row, : len(example.first_words)] = torch.tensor(example.first_words).long()
        aspect_mask[row, list(example.aspect_words)] = True
    polarity = torch.tensor([example.polarity for example in encoded])  # (B)
    return Batch(ids, mask, first_words, aspect_mask, polarity)


def epoch_batches(
    lengths: Sequence[int], *, batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return the examples of each batch of an epoch, as indices.

    Examples are shuffled, then sorted by length within runs of a few batches, so that little is
    padded and yet no two epochs are alike. The order is a function of seed and epoch alone.
    """
    generator = random.Random(f"{seed}:{epoch}")  # noqa: S311  (not for secrets)
    order = list(range(len(lengths)))
    generator.shuffle(order)
    run = batch_size * _BATCHES_SORTED_TOGETHER
    batches: list[list[int]] = []
    for start in range(0, len(order), run):
        alike = sorted(order[start : start + run], key=lambda index: lengths[index])
        batches += [alike[i : i + batch_size] for i in range(0, len(alike), batch_size)]
    generator.shuffle(batches)
    return batches

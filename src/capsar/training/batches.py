"""Encode examples as tensors, in batches of sentences of similar length."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from capsar.inference.decoding import IGNORE_INDEX, NUM_TAGS, encode_tags
from capsar.model.network import Batch
from capsar.schema import CLASSES
from capsar.tokenizer import first_subwords, tokenize_words, words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from capsar.schema import Example
    from capsar.tokenizer import Span, TextTokenizer

_BATCHES_PER_GROUP = 16


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """An example as ids and positions of words."""

    ids: tuple[int, ...]
    """Ids of words, or of subwords and special tokens."""
    first_words: tuple[int, ...]
    """The first word of each mention of the aspect."""
    aspect_words: tuple[int, ...]
    polarity: int
    """Index of the class, or -1 if it is unknown."""
    words: tuple[int, ...] | None = None
    """The word of each id, -1 for none; None if each id is a word."""
    segments: tuple[int, ...] | None = None
    """0 or 1 for each id; None if all are 0."""
    tags: tuple[int, ...] | None = None
    """The tag of each word for the extraction head, `IGNORE_INDEX` where it is unknown; None
    without the head."""
    tag_weight: float = 1.0
    """Weight of the tags in the loss."""
    weight: float = 1.0
    """Weight of the polarity in the loss."""
    teacher_lengths: tuple[float, ...] = (0.0,) * len(CLASSES)
    """Mean capsule lengths of the teachers: soft targets."""
    distill_weight: float = 0.0
    """Weight of the soft targets in the loss of the polarity."""
    teacher_tags: NDArray[np.float32] | None = None
    """Mean tag probabilities of the teachers (W, 3): soft targets."""
    tag_distill_weight: float = 0.0
    """Weight of the soft targets in the loss of the tags."""


def encode_examples(
    examples: Sequence[Example],
    tokenizer: TextTokenizer,
    *,
    terms: Mapping[str, Iterable[Span]] | None = None,
) -> list[EncodedExample]:
    """Tokenize the texts, look up ids, and find the words of each aspect.

    A text that several examples share is tokenized once.

    Args:
        examples: The examples.
        tokenizer: The tokenizer of the network.
        terms: The spans of all aspect terms of each text, to tag words for the extraction head.
            Tags have the same total weight per sentence. All tags of a text that is not in `terms`
            are ignored.
    """
    texts = list(dict.fromkeys(example.text for example in examples))
    spans = {text: tokenize_words(text) for text in texts}
    words = {text: [text[start:end] for start, end in spans[text]] for text in texts}
    mentions = [
        [within for s in e.spans if (within := words_within(spans[e.text], s.start, s.end))]
        for e in examples
    ]
    inputs = [  # the sentence, and its first mention if the encoder reads the aspect
        (e.text, own[0] if own and tokenizer.reads_aspect else range(0))
        for e, own in zip(examples, mentions, strict=True)
    ]
    distinct = list(dict.fromkeys(inputs))
    encodings = tokenizer.encode(
        [words[text] for text, _ in distinct],
        [[words[text][word] for word in mention] for text, mention in distinct],
    )
    encoding_of = dict(zip(distinct, encodings, strict=True))
    tags: dict[str, list[int]] = {}
    if terms is not None:
        tags = {
            text: encode_tags(spans[text], terms[text])
            if text in terms
            else [IGNORE_INDEX] * len(spans[text])
            for text in texts
        }
    shared_by = Counter(example.text for example in examples)
    return [
        EncodedExample(
            ids=encoding_of[key].ids,
            first_words=tuple(mention[0] for mention in own),
            aspect_words=tuple(sorted({word for mention in own for word in mention})),
            polarity=CLASSES.index(example.polarity) if example.polarity in CLASSES else -1,
            words=encoding_of[key].words,
            segments=encoding_of[key].segments,
            tags=None if terms is None else tuple(tags[example.text]),
            tag_weight=1 / shared_by[example.text],
        )
        for example, key, own in zip(examples, inputs, mentions, strict=True)
    ]


def collate(encoded: Sequence[EncodedExample], *, share_sentences: bool = False) -> Batch:
    """Pad examples to one length; a text without words is padding only, which does not vote.

    Args:
        encoded: The examples.
        share_sentences: Whether the encoder reads a sentence of several examples only once.
    """
    width = max(1, *(len(example.ids) for example in encoded))
    num_mentions = max(1, *(len(example.first_words) for example in encoded))
    size = len(encoded)
    ids = torch.zeros(size, width, dtype=torch.long)  # (B, T)
    words = torch.full((size, width), -1)  # (B, T)
    segments = torch.zeros(size, width, dtype=torch.long)  # (B, T)
    first_words = torch.full((size, num_mentions), -1)  # (B, M)
    aspect_mask = torch.zeros(size, width, dtype=torch.bool)  # (B, T)
    for row, example in enumerate(encoded):
        number = len(example.ids)
        own = range(number) if example.words is None else example.words
        ids[row, :number] = torch.tensor(example.ids, dtype=torch.long)
        words[row, :number] = torch.tensor(own, dtype=torch.long)
        if example.segments is not None:
            segments[row, :number] = torch.tensor(example.segments, dtype=torch.long)
        first_words[row, : len(example.first_words)] = torch.tensor(example.first_words).long()
        aspect = set(example.aspect_words)
        aspect_mask[row, [position for position, word in enumerate(own) if word in aspect]] = True
    lengths = torch.tensor([len(example.ids) for example in encoded])  # (B)
    attention = torch.arange(width) < lengths.unsqueeze(1)  # (B, T)
    polarity = torch.tensor([example.polarity for example in encoded])  # (B)
    batch = Batch(ids, words >= 0, words, attention, segments, first_words, aspect_mask, polarity)
    if share_sentences:
        keys = [(example.ids, example.segments) for example in encoded]
        index = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        batch = replace(
            batch,
            sentences=torch.tensor([index[key] for key in keys]),
            sentence_rows=torch.tensor([keys.index(key) for key in index]),
        )
    if any(example.weight != 1 for example in encoded):
        batch = replace(batch, weights=torch.tensor([example.weight for example in encoded]))
    if any(example.distill_weight for example in encoded):
        targets = torch.tensor([example.teacher_lengths for example in encoded])  # (B, C)
        shares = torch.tensor([example.distill_weight for example in encoded])  # (B)
        batch = replace(batch, teacher_lengths=targets, distill_weights=shares)
    if any(example.tags is None for example in encoded):
        return batch
    return _add_tags(batch, encoded)


def _add_tags(batch: Batch, encoded: Sequence[EncodedExample]) -> Batch:
    """Add the tags of words, and the teachers' probabilities of them, to a batch."""
    size = len(encoded)
    num_words = max(1, *(len(example.tags or ()) for example in encoded))
    tags = torch.full((size, num_words), IGNORE_INDEX)  # (B, W)
    for row, example in enumerate(encoded):
        tags[row, : len(example.tags or ())] = torch.tensor(example.tags).long()
    tag_weights = torch.tensor([example.tag_weight for example in encoded])  # (B)
    if any(example.teacher_tags is not None for example in encoded):
        targets = torch.zeros(size, num_words, NUM_TAGS)  # (B, W, 3)
        for row, example in enumerate(encoded):
            if example.teacher_tags is not None:
                targets[row, : len(example.teacher_tags)] = torch.from_numpy(example.teacher_tags)
        shares = torch.tensor([example.tag_distill_weight for example in encoded])  # (B)
        batch = replace(batch, teacher_tags=targets, tag_distill_weights=shares)
    starts = torch.from_numpy(first_subwords(batch.words.numpy(), num_words))  # (B, W)
    return replace(batch, first_subwords=starts, tags=tags, tag_weights=tag_weights)


def group_examples(encoded: Sequence[EncodedExample], batch_by: str) -> list[list[int]]:
    """Return the units that batches are made of: single examples, or those of one sentence."""
    if batch_by == "examples":
        return [[index] for index in range(len(encoded))]
    groups: dict[object, list[int]] = {}
    for index, example in enumerate(encoded):
        groups.setdefault((example.ids, example.segments), []).append(index)
    return list(groups.values())


def epoch_batches(
    lengths: Sequence[int], *, batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return the batches of an epoch as indices of examples or sentences, given their lengths.

    They are shuffled, then sorted by length within groups of a few batches: this keeps padding
    low, yet epochs differ. The order depends on seed and epoch only.
    """
    generator = random.Random(f"{seed}:{epoch}")  # noqa: S311  (not for secrets)
    order = list(range(len(lengths)))
    generator.shuffle(order)
    group = batch_size * _BATCHES_PER_GROUP
    batches: list[list[int]] = []
    for start in range(0, len(order), group):
        alike = sorted(order[start : start + group], key=lambda index: lengths[index])
        batches += [alike[i : i + batch_size] for i in range(0, len(alike), batch_size)]
    generator.shuffle(batches)
    return batches

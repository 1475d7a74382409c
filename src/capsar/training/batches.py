"""Examples -> tensors, in batches of sentences of like length."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from capsar.labels import CLASSES
from capsar.model.batch import Batch
from capsar.pieces import word_places
from capsar.tagging import OUTSIDE, UNTOLD, tags_of
from capsar.text import segment, words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from capsar.data.example import Example
    from capsar.pieces import SentenceTokenizer
    from capsar.text import Span

_BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """An example as ids, and positions of words."""

    ids: tuple[int, ...]
    """Of words, or of pieces of words and special pieces."""
    first_words: tuple[int, ...]
    """The first word of each mention of the aspect."""
    aspect_words: tuple[int, ...]
    polarity: int
    """The index of the class, or -1 if it is not known."""
    words: tuple[int, ...] | None = None
    """The word of each id, -1 for none; not given where each id is a word."""
    segments: tuple[int, ...] | None = None
    """0 or 1 for each id; not given where all are 0."""
    tags: tuple[int, ...] | None = None
    """Of each word, for the extraction head, -1 where it is not told; not given where there is
    no head."""
    tag_weight: float = 1.0
    """What they count for."""
    weight: float = 1.0
    """What the polarity counts for."""
    told: tuple[float, ...] = (0.0,) * len(CLASSES)
    """The capsule lengths that teachers tell."""
    told_share: float = 0.0
    """Their share in the loss."""


def encode_examples(
    examples: Sequence[Example],
    tokenizer: SentenceTokenizer,
    *,
    terms: Mapping[str, Iterable[Span]] | None = None,
) -> list[EncodedExample]:
    """Cut texts into words, look up their ids, and find the words of each aspect.

    Texts that many examples share are cut once.

    Args:
        examples: The examples.
        tokenizer: Whose ids they get.
        terms: Where all terms of each text stand, if words are tagged. Every sentence counts the
            same for the tags, however many examples it has. Of a text that is not here, no tag is
            told; of one that is, none of the words of an aspect that is no term.
    """
    texts = list(dict.fromkeys(example.text for example in examples))
    spans = {text: segment(text) for text in texts}
    words = {text: [text[start:end] for start, end in spans[text]] for text in texts}
    mentions = [
        [within for s in e.spans if (within := words_within(spans[e.text], s.start, s.end))]
        for e in examples
    ]
    asked = [  # what an encoder reads: the sentence, and the first mention if it reads aspects
        (e.text, touched[0] if touched and tokenizer.reads_aspect else range(0))
        for e, touched in zip(examples, mentions, strict=True)
    ]
    distinct = list(dict.fromkeys(asked))
    laid_out = tokenizer.lay_out(
        [words[text] for text, _ in distinct],
        [[words[text][word] for word in mention] for text, mention in distinct],
    )
    layouts = dict(zip(distinct, laid_out, strict=True))
    tags: dict[str, tuple[int, ...]] = {}
    if terms is not None:
        tags = {text: _tags(spans[text], terms.get(text)) for text in texts}
        for example, touched in zip(examples, mentions, strict=True):
            for mention in touched:
                tags[example.text] = _untold(tags[example.text], mention)
    shared_by = Counter(example.text for example in examples)
    return [
        EncodedExample(
            ids=layouts[question].ids,
            first_words=tuple(mention[0] for mention in touched),
            aspect_words=tuple(sorted({word for mention in touched for word in mention})),
            polarity=CLASSES.index(example.polarity) if example.polarity in CLASSES else -1,
            words=layouts[question].words,
            segments=layouts[question].segments,
            tags=tags.get(example.text),
            tag_weight=1 / shared_by[example.text],
        )
        for example, question, touched in zip(examples, asked, mentions, strict=True)
    ]


def _tags(words: Sequence[Span], terms: Iterable[Span] | None) -> tuple[int, ...]:
    return (UNTOLD,) * len(words) if terms is None else tuple(tags_of(words, terms))


def _untold(tags: tuple[int, ...], mention: Iterable[int]) -> tuple[int, ...]:
    """Tags without those of an aspect's words that are outside all terms."""
    unsure = {word for word in mention if tags[word] == OUTSIDE}
    return tuple(UNTOLD if word in unsure else tag for word, tag in enumerate(tags))


def collate(encoded: Sequence[EncodedExample]) -> Batch:
    """Pad examples to one length; a text without words becomes padding, which does not vote."""
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
        aspect_mask[row, [place for place, word in enumerate(own) if word in aspect]] = True
    lengths = torch.tensor([len(example.ids) for example in encoded])  # (B)
    attention = torch.arange(width) < lengths.unsqueeze(1)  # (B, T)
    polarity = torch.tensor([example.polarity for example in encoded])  # (B)
    batch = Batch(ids, words >= 0, words, attention, segments, first_words, aspect_mask, polarity)
    if any(example.weight != 1 for example in encoded):
        batch = replace(batch, weights=torch.tensor([example.weight for example in encoded]))
    if any(example.told_share for example in encoded):
        told = torch.tensor([example.told for example in encoded])  # (B, C)
        shares = torch.tensor([example.told_share for example in encoded])  # (B)
        batch = replace(batch, told=told, told_shares=shares)
    return batch if any(example.tags is None for example in encoded) else _tagged(batch, encoded)


def _tagged(batch: Batch, encoded: Sequence[EncodedExample]) -> Batch:
    """Add the tags of words, and where each word begins."""
    width = max(1, *(len(example.tags or ()) for example in encoded))
    tags = torch.full((len(encoded), width), UNTOLD)  # (B, W)
    for row, example in enumerate(encoded):
        if example.tags:
            tags[row, : len(example.tags)] = torch.tensor(example.tags)
    weights = torch.tensor([example.tag_weight for example in encoded])  # (B)
    places = torch.from_numpy(word_places(batch.words.numpy(), width))
    return replace(batch, places=places, tags=tags, tag_weights=weights)


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

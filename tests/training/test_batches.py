"""Test encoding and batching: positions of words and aspects, and every example exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from capsar.schema import AspectSpan, Example, Polarity
from capsar.tokenizer import WordTokenizer
from capsar.training.batches import collate, encode_examples, epoch_batches, group_examples


def test_encode_examples_matches_hand_computed_values() -> None:
    tokenizer = WordTokenizer.build(["the", "soup", "was", "cold"])
    text = "The soup was cold, soup."
    encoded = encode_examples(
        [
            Example(text, (AspectSpan(4, 8), AspectSpan(19, 22)), Polarity.NEGATIVE),
            Example(text, (AspectSpan(0, 8),), Polarity.CONFLICT),
            Example(" ", (), None),
        ],
        tokenizer,
    )
    assert encoded[0].ids == (2, 3, 4, 5, 1, 3, 1)
    assert encoded[0].first_words == (1, 5)  # the second span ends inside "soup": it still counts
    assert encoded[0].aspect_words == (1, 5)
    assert (encoded[0].polarity, encoded[1].polarity, encoded[2].polarity) == (0, -1, -1)
    assert encoded[1].aspect_words == (0, 1)
    assert encoded[2].ids == ()
    batch = collate(encoded)
    assert batch.ids.shape == (3, 7)
    assert batch.mask.sum(1).tolist() == [7, 7, 0]
    assert batch.first_words.tolist() == [[1, 5], [0, -1], [-1, -1]]
    assert batch.aspect_mask.sum(1).tolist() == [2, 2, 0]
    assert collate(encoded[2:]).ids.tolist() == [[0]]


def test_examples_are_grouped_by_sentence() -> None:
    texts = ["the soup", "the desk", "the soup", "the soup"]
    encoded = encode_examples(
        [Example(text) for text in texts], WordTokenizer.build(["the", "soup", "desk"])
    )
    assert group_examples(encoded, "sentences") == [[0, 2, 3], [1]]
    assert group_examples(encoded, "examples") == [[0], [1], [2], [3]]
    batch = collate(encoded, share_sentences=True)
    assert (batch.sentences.tolist(), batch.sentence_rows.tolist()) == ([0, 1, 0, 0], [0, 1])


@given(st.lists(st.integers(0, 60), max_size=300), st.integers(1, 20), st.integers(0, 3))
def test_every_example_is_in_exactly_one_batch(
    lengths: list[int], batch_size: int, epoch: int
) -> None:
    batches = epoch_batches(lengths, batch_size=batch_size, seed=1, epoch=epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    assert batches == epoch_batches(lengths, batch_size=batch_size, seed=1, epoch=epoch)


def test_batches_have_similar_lengths_and_epochs_differ() -> None:
    lengths = [(i * 7919) % 60 for i in range(2000)]
    batches = epoch_batches(lengths, batch_size=20, seed=0, epoch=0)
    padding = sum(max(lengths[i] for i in b) * len(b) - sum(lengths[i] for i in b) for b in batches)
    assert padding < 0.1 * sum(lengths)
    assert batches != epoch_batches(lengths, batch_size=20, seed=0, epoch=1)
    assert batches != epoch_batches(lengths, batch_size=20, seed=1, epoch=0)

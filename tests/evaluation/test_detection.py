"""Aspect detection: rankings computed by hand, and properties of any ranking."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.data.catalog import test_examples as open_test_part
from capsar.errors import DataError
from capsar.schema import Example, Polarity, find_mentions
from metrics.detection import (
    CapsuleScores,
    Gold,
    GoldSentence,
    active_capsules,
    describe_detection,
    evaluate_detection,
    evaluate_ranking,
    gold_sentences,
    rank_by_centroid,
    rank_words,
    scale_by_norm,
)

TEXT = "The hot soup was cold but the staff were lovely."
NEGATIVE, NEUTRAL, POSITIVE = Polarity.NEGATIVE, Polarity.NEUTRAL, Polarity.POSITIVE


def labeled(text: str, aspect: str, polarity: Polarity) -> Example:
    return Example(text, find_mentions(text, aspect), polarity)


def sentence() -> GoldSentence:
    """Words 1, 2 (hot soup) negative, word 7 (staff) positive, of 11."""
    examples = [labeled(TEXT, "hot soup", NEGATIVE), labeled(TEXT, "staff", POSITIVE)]
    (found,) = gold_sentences(examples)
    return found


def scores(*best: int) -> list[float]:
    """Return scores that rank the words `best` first and the rest by position."""
    row = [-word / 100 for word in range(11)]
    for rank, word in enumerate(best):
        row[word] = 10.0 - rank
    return row


def scored(lengths: list[float], *rows: list[float]) -> CapsuleScores:
    return CapsuleScores(np.array(lengths, dtype=np.float32), np.array(rows, dtype=np.float32))


def test_gold_words_are_collected_by_distinct_sentence() -> None:
    other = "Soup, soup!"
    examples = [
        labeled(TEXT, "hot soup", NEGATIVE),
        labeled(other, "Soup", POSITIVE),
        labeled(TEXT, "staff", POSITIVE),
        labeled("Only a clash of views.", "views", Polarity.CONFLICT),
        Example("Nothing is labeled here."),
        labeled(TEXT, "soup was", NEGATIVE),
    ]
    found = gold_sentences(examples)
    assert [s.text for s in found] == [TEXT, other]
    assert found[0].terms == {NEGATIVE: {1, 2, 3}, POSITIVE: {7}}
    assert found[0].words == {1, 2, 3, 7}
    assert (found[0].num_words, found[1].num_words) == (11, 4)


def test_a_term_that_ends_inside_a_word_counts_the_whole_word() -> None:
    example = Example(TEXT, find_mentions(TEXT, "hot so"), NEGATIVE)
    assert gold_sentences([example])[0].words == {1, 2}


def test_one_active_capsule() -> None:
    """Negative ranks 1, 0, 7, then 2: hits at 1, 3, 4."""
    found = scored([0.8, 0.2, 0.3], scores(1, 0, 7), scores(0), scores(0))
    every = evaluate_detection([sentence()], [found], Gold.ALL)
    assert every.p_at_1 == 1
    assert every.r_at_5 == 1
    assert every.map == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3)


def test_two_active_capsules() -> None:
    """Negative ranks staff first, positive ranks staff first: right once under the strict gold."""
    found = scored([0.8, 0.1, 0.9], scores(7, 1, 2), scores(0), scores(7, 0, 3))
    every = evaluate_detection([sentence()], [found], Gold.ALL)
    # Negative: hits at 1, 2, 3. Positive: 7, 0, 3, 1, 2: hits at 1, 4, 5.
    assert every.p_at_1 == 1
    assert every.r_at_5 == 1
    assert every.map == pytest.approx((1 + (1 / 1 + 2 / 4 + 3 / 5) / 3) / 2)
    strict = evaluate_detection([sentence()], [found], Gold.SAME_POLARITY)
    # Negative wants 1, 2: hits at 2, 3. Positive wants 7: hit at 1.
    assert strict.p_at_1 == 0.5
    assert strict.r_at_5 == 1
    assert strict.map == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 2)
    assert strict.r_at_5_ceiling == 1


def test_a_capsule_without_a_term_of_its_polarity_is_wrong_under_the_strict_gold() -> None:
    found = scored([0.8, 0.9, 0.1], scores(1, 2), scores(1, 2), scores(0))
    strict = evaluate_detection([sentence()], [found], Gold.SAME_POLARITY)
    assert strict.p_at_1 == 0.5
    assert strict.map == 0.5
    assert strict.r_at_5_ceiling == 0.5
    assert evaluate_detection([sentence()], [found], Gold.ALL).p_at_1 == 1


def test_without_an_active_capsule_the_longest_ranks() -> None:
    assert active_capsules(np.array([0.1, 0.4, 0.5], dtype=np.float32)) == ([2], False)
    assert active_capsules(np.array([0.6, 0.4, 0.51], dtype=np.float32)) == ([0, 2], True)
    some = [
        scored([0.1, 0.2, 0.4], scores(0), scores(0), scores(7)),
        scored([0.9, 0.2, 0.6], scores(1), scores(0), scores(7)),
    ]
    pair = [sentence(), sentence()]
    assert evaluate_detection(pair, some, Gold.ALL).p_at_1 == 1
    statistics = describe_detection(pair, some)
    assert statistics.none_active == 0.5
    assert statistics.active_capsules == 1.5
    assert statistics.gold_words == 3
    assert statistics.sentence_words == 11
    assert statistics.num_sentences == 2


def test_sentences_have_equal_weight_with_any_number_of_active_capsules() -> None:
    right = scored([0.9, 0.9, 0.9], scores(1), scores(1), scores(1))
    wrong = scored([0.9, 0.1, 0.1], scores(0), scores(1), scores(1))
    assert evaluate_detection([sentence()] * 2, [right, wrong], Gold.ALL).p_at_1 == 0.5


def test_recall_at_five_has_a_ceiling() -> None:
    metrics = evaluate_ranking(list(range(10)), frozenset(range(8)))
    assert metrics.r_at_5 == metrics.r_at_5_ceiling == 5 / 8
    assert (metrics.p_at_1, metrics.map) == (1, 1)


def test_scores_are_scaled_by_the_norm_of_the_word_vector() -> None:
    found = scored([0.9, 0.1, 0.1], *[[0.5, 0.4]] * 3)
    vectors = np.array([[1.0, 0.0], [0.0, 3.0]], dtype=np.float32)
    (scaled,) = scale_by_norm([found], [vectors])
    assert rank_words(found.scores[0]) == [0, 1]
    assert scaled.scores[0] == pytest.approx([0.5, 1.2])
    (again,) = scale_by_norm([scaled], [vectors], power=-1)
    assert again.scores == pytest.approx(found.scores)


def test_the_centroid_baseline_needs_no_network() -> None:
    found = scored([0.1, 0.1, 0.9], *[[0.9, 0.1, 0.5]] * 3)
    vectors = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    (baseline,) = rank_by_centroid([found], [vectors], np.array([2.0, 1.0], dtype=np.float32))
    cosines = [1 / np.sqrt(5), 2 / np.sqrt(5), 0]
    assert baseline.scores == pytest.approx(np.tile(cosines, (3, 1)))
    assert baseline.lengths is found.lengths


def test_empty_and_mismatched_inputs_are_refused() -> None:
    with pytest.raises(DataError, match="no sentence"):
        evaluate_detection([], [], Gold.ALL)
    with pytest.raises(DataError, match="11 words"):
        evaluate_detection([sentence()], [scored([1.0] * 3, *[[0.1]] * 3)], Gold.ALL)


RANKED = st.integers(1, 30).flatmap(
    lambda size: st.tuples(
        st.permutations(range(size)), st.frozensets(st.integers(0, size - 1), min_size=1)
    )
)


@given(RANKED)
def test_metrics_are_between_0_and_1_and_a_perfect_ranking_reaches_the_ceiling(
    case: tuple[list[int], frozenset[int]],
) -> None:
    ranking, gold = case
    metrics = evaluate_ranking(ranking, gold)
    assert all(0 <= value <= 1 + 1e-12 for value in astuple(metrics))
    assert metrics.r_at_5 <= metrics.r_at_5_ceiling
    perfect = evaluate_ranking(sorted(ranking, key=lambda word: word not in gold), gold)
    assert perfect.p_at_1 == 1
    assert perfect.map == pytest.approx(1)
    assert perfect.r_at_5 == perfect.r_at_5_ceiling
    worst = evaluate_ranking(sorted(ranking, key=lambda word: word in gold), gold)
    assert worst.map <= metrics.map + 1e-12 <= perfect.map + 2e-12


@given(RANKED)
def test_average_precision_matches_scikit_learn(case: tuple[list[int], frozenset[int]]) -> None:
    from sklearn.metrics import average_precision_score

    ranking, gold = case
    truth = [word in gold for word in ranking]
    expected = average_precision_score(truth, range(len(ranking), 0, -1))
    assert evaluate_ranking(ranking, gold).map == pytest.approx(expected)


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=1, max_size=30), st.randoms())
def test_ties_are_ranked_in_text_order(values: list[float], random: Random) -> None:
    row = np.array(values, dtype=np.float32)
    ranking = rank_words(row)
    assert sorted(ranking) == list(range(len(values)))
    keys = [(-values[word], word) for word in ranking]
    assert keys == sorted(keys)
    # The order of the input does not matter, only scores and positions.
    order = list(range(len(values)))
    random.shuffle(order)
    again = sorted(order, key=lambda word: (-values[word], word))
    assert again == ranking


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "number", "more_than_five", "gold_words", "words"),
    [
        ("semeval14-restaurants", 600, 53, 2.76, 16.25),
        ("semeval14-laptops", 411, 38, 2.54, 15.79),
    ],
)
def test_statistics_match_the_paper(
    shared: Path, dataset: str, number: int, more_than_five: int, gold_words: float, words: float
) -> None:
    """The paper's statistics of its test sentences, within a few tenths of a word."""
    found = gold_sentences(open_test_part(dataset))
    assert len(found) == number
    assert sum(len(s.words) > 5 for s in found) == more_than_five
    assert np.mean([len(s.words) for s in found]) == pytest.approx(gold_words, abs=0.1)
    assert np.mean([s.num_words for s in found]) == pytest.approx(words, abs=0.5)

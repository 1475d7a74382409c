"""Aspect detection: rankings worked by hand, and what must hold of any ranking."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsar.data.catalog import test_examples as open_test_part
from capsar.data.example import Example, find_spans
from capsar.errors import DataError
from capsar.evaluation.detection import (
    Gold,
    GoldSentence,
    OpenedSentence,
    active_capsules,
    describe_detection,
    gold_sentences,
    judge_detection,
    judge_ranking,
    rank_by_centroid,
    rank_words,
    scale_by_norm,
)
from capsar.labels import Polarity

TEXT = "The hot soup was cold but the staff were lovely."
NEGATIVE, NEUTRAL, POSITIVE = Polarity.NEGATIVE, Polarity.NEUTRAL, Polarity.POSITIVE


def judgement(text: str, aspect: str, polarity: Polarity) -> Example:
    return Example(text, find_spans(text, aspect), polarity)


def sentence() -> GoldSentence:
    """Words 1, 2 (hot soup) negative, word 7 (staff) positive, of 11."""
    examples = [judgement(TEXT, "hot soup", NEGATIVE), judgement(TEXT, "staff", POSITIVE)]
    (found,) = gold_sentences(examples)
    return found


def scores(*best: int) -> list[float]:
    """Scores that rank the words `best` first, the rest in order of position."""
    row = [-word / 100 for word in range(11)]
    for place, word in enumerate(best):
        row[word] = 10.0 - place
    return row


def opened(lengths: list[float], *rows: list[float]) -> OpenedSentence:
    return OpenedSentence(np.array(lengths, dtype=np.float32), np.array(rows, dtype=np.float32))


def test_gold_is_gathered_by_distinct_sentence() -> None:
    other = "Soup, soup!"
    examples = [
        judgement(TEXT, "hot soup", NEGATIVE),
        judgement(other, "Soup", POSITIVE),
        judgement(TEXT, "staff", POSITIVE),
        judgement("Only a clash of views.", "views", Polarity.CONFLICT),
        Example("Nothing is judged here."),
        judgement(TEXT, "soup was", NEGATIVE),
    ]
    found = gold_sentences(examples)
    assert [s.text for s in found] == [TEXT, other]
    assert found[0].terms == {NEGATIVE: {1, 2, 3}, POSITIVE: {7}}
    assert found[0].words == {1, 2, 3, 7}
    assert (found[0].num_words, found[1].num_words) == (11, 4)


def test_a_term_that_ends_inside_a_word_counts_the_whole_word() -> None:
    example = Example(TEXT, find_spans(TEXT, "hot so"), NEGATIVE)
    assert gold_sentences([example])[0].words == {1, 2}


def test_one_active_capsule_by_hand() -> None:
    """Negative ranks 1, 0, 7, then 2: hits at 1, 3, 4."""
    found = opened([0.8, 0.2, 0.3], scores(1, 0, 7), scores(0), scores(0))
    every = judge_detection([sentence()], [found], Gold.ALL)
    assert every.p_at_1 == 1
    assert every.r_at_5 == 1
    assert every.map == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3)


def test_two_active_capsules_by_hand() -> None:
    """Negative ranks staff first, positive ranks staff first: right once under the strict gold."""
    found = opened([0.8, 0.1, 0.9], scores(7, 1, 2), scores(0), scores(7, 0, 3))
    every = judge_detection([sentence()], [found], Gold.ALL)
    # Negative: hits at 1, 2, 3. Positive: 7, 0, 3, 1, 2: hits at 1, 4, 5.
    assert every.p_at_1 == 1
    assert every.r_at_5 == 1
    assert every.map == pytest.approx((1 + (1 / 1 + 2 / 4 + 3 / 5) / 3) / 2)
    strict = judge_detection([sentence()], [found], Gold.SAME_POLARITY)
    # Negative wants 1, 2: hits at 2, 3. Positive wants 7: hit at 1.
    assert strict.p_at_1 == 0.5
    assert strict.r_at_5 == 1
    assert strict.map == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 2)
    assert strict.r_at_5_ceiling == 1


def test_a_capsule_whose_polarity_no_term_has_is_wrong_under_the_strict_gold() -> None:
    found = opened([0.8, 0.9, 0.1], scores(1, 2), scores(1, 2), scores(0))
    strict = judge_detection([sentence()], [found], Gold.SAME_POLARITY)
    assert strict.p_at_1 == 0.5
    assert strict.map == 0.5
    assert strict.r_at_5_ceiling == 0.5
    assert judge_detection([sentence()], [found], Gold.ALL).p_at_1 == 1


def test_where_no_capsule_is_active_the_longest_ranks() -> None:
    assert active_capsules(np.array([0.1, 0.4, 0.5], dtype=np.float32)) == ([2], False)
    assert active_capsules(np.array([0.6, 0.4, 0.51], dtype=np.float32)) == ([0, 2], True)
    some = [
        opened([0.1, 0.2, 0.4], scores(0), scores(0), scores(7)),
        opened([0.9, 0.2, 0.6], scores(1), scores(0), scores(7)),
    ]
    pair = [sentence(), sentence()]
    assert judge_detection(pair, some, Gold.ALL).p_at_1 == 1
    statistics = describe_detection(pair, some)
    assert statistics.none_active == 0.5
    assert statistics.active_capsules == 1.5
    assert statistics.gold_words == 3
    assert statistics.sentence_words == 11
    assert statistics.num_sentences == 2


def test_sentences_count_the_same_however_many_capsules_are_active() -> None:
    right = opened([0.9, 0.9, 0.9], scores(1), scores(1), scores(1))
    wrong = opened([0.9, 0.1, 0.1], scores(0), scores(1), scores(1))
    assert judge_detection([sentence()] * 2, [right, wrong], Gold.ALL).p_at_1 == 0.5


def test_recall_at_five_has_a_ceiling() -> None:
    figures = judge_ranking(list(range(10)), frozenset(range(8)))
    assert figures.r_at_5 == figures.r_at_5_ceiling == 5 / 8
    assert (figures.p_at_1, figures.map) == (1, 1)


def test_word_scores_differ_by_the_norm_of_the_word() -> None:
    found = opened([0.9, 0.1, 0.1], *[[0.5, 0.4]] * 3)
    vectors = np.array([[1.0, 0.0], [0.0, 3.0]], dtype=np.float32)
    (scaled,) = scale_by_norm([found], [vectors])
    assert rank_words(found.scores[0]) == [0, 1]
    assert scaled.scores[0] == pytest.approx([0.5, 1.2])


def test_the_centroid_needs_no_network() -> None:
    found = opened([0.1, 0.1, 0.9], *[[0.9, 0.1, 0.5]] * 3)
    vectors = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    (control,) = rank_by_centroid([found], [vectors], np.array([2.0, 1.0], dtype=np.float32))
    cosines = [1 / np.sqrt(5), 2 / np.sqrt(5), 0]
    assert control.scores == pytest.approx(np.tile(cosines, (3, 1)))
    assert control.lengths is found.lengths


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(DataError, match="no sentence"):
        judge_detection([], [], Gold.ALL)
    with pytest.raises(DataError, match="11 words"):
        judge_detection([sentence()], [opened([1.0] * 3, *[[0.1]] * 3)], Gold.ALL)


RANKED = st.integers(1, 30).flatmap(
    lambda size: st.tuples(
        st.permutations(range(size)), st.frozensets(st.integers(0, size - 1), min_size=1)
    )
)


@given(RANKED)
def test_figures_are_shares_and_a_perfect_ranking_reaches_the_ceiling(
    case: tuple[list[int], frozenset[int]],
) -> None:
    ranking, gold = case
    figures = judge_ranking(ranking, gold)
    assert all(0 <= value <= 1 + 1e-12 for value in astuple(figures))
    assert figures.r_at_5 <= figures.r_at_5_ceiling
    perfect = judge_ranking(sorted(ranking, key=lambda word: word not in gold), gold)
    assert perfect.p_at_1 == 1
    assert perfect.map == pytest.approx(1)
    assert perfect.r_at_5 == perfect.r_at_5_ceiling
    worst = judge_ranking(sorted(ranking, key=lambda word: word in gold), gold)
    assert worst.map <= figures.map + 1e-12 <= perfect.map + 2e-12


@given(RANKED)
def test_average_precision_is_that_of_scikit_learn(case: tuple[list[int], frozenset[int]]) -> None:
    from sklearn.metrics import average_precision_score

    ranking, gold = case
    truth = [word in gold for word in ranking]
    expected = average_precision_score(truth, range(len(ranking), 0, -1))
    assert judge_ranking(ranking, gold).map == pytest.approx(expected)


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=1, max_size=30), st.randoms())
def test_of_equal_words_the_earlier_comes_first(values: list[float], random: Random) -> None:
    row = np.array(values, dtype=np.float32)
    ranking = rank_words(row)
    assert sorted(ranking) == list(range(len(values)))
    keys = [(-values[word], word) for word in ranking]
    assert keys == sorted(keys)
    # Swapping words of equal score changes nothing: only scores and places count.
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
def test_the_unit_is_the_paper_s(
    shared: Path, dataset: str, number: int, more_than_five: int, gold_words: float, words: float
) -> None:
    """The paper's own statistics of its test sentences, to within a few tenths of a word."""
    found = gold_sentences(open_test_part(dataset))
    assert len(found) == number
    assert sum(len(s.words) > 5 for s in found) == more_than_five
    assert np.mean([len(s.words) for s in found]) == pytest.approx(gold_words, abs=0.1)
    assert np.mean([s.num_words for s in found]) == pytest.approx(words, abs=0.5)

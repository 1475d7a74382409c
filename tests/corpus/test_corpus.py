"""The corpus: derived files are up to date, labels are well formed, and nothing leaks."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

import pytest

import corpus_build as build
import leakage
import quality
from capsar import AspectSpan
from capsar.data import catalog
from capsar.data.markup import parse_markup
from capsar.data.splits import MatchKind, sentence_hash
from capsar.data.validate import check_file
from capsar.errors import ConfigError, DataError
from capsar.evaluation.behavior import SUITE_SHA256
from capsar.tokenizer import cuts_word
from guard import guarded_paths

if TYPE_CHECKING:
    from pathlib import Path

    from corpus_build import Sentence

FROZEN = {
    "test-digital": "2cf8ccee9460bb439182e4a869a76b063cc8c928d0d8f5b8ca290a63719d2064",
    "test-places": "e8bedc79e31471bcbbf1ec1c9215e113cdc6a640096ed66873ea4f9c54774d75",
    "test-products": "cacfe354793723b339d687a266bd9956223067c2e941dc388513b3d319447c86",
    "test-reviews": "ecfccbace40aef31176f591d684ff697c6a2e2e9e9adbf2adf392671da719d63",
}
"""sha256 of the test part as it was before the training part was extended."""
DETERMINERS = re.compile(
    r"(?:[Tt]he|a(?! la)|[Aa]n|[Mm]y|[Oo]ur|[Yy]our|[Tt]heir|[Hh]is|[Hh]er|[Ii]ts|[Tt]h[eo]se)\s"
)


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Sentence]]:
    return build.read_corpus()


def test_derived_files_catalog_and_card_are_up_to_date() -> None:
    for path, content in build.outputs().items():
        assert path.read_bytes() == content, f"run `python corpus/corpus_build.py`: {path.name}"


def test_the_card_shows_the_measured_quality() -> None:
    measured = json.loads(quality.RESULT.read_text(encoding="utf-8"))
    for split, digest in measured["sha256"].items():
        content = (build.FOLDER / f"{split}.jsonl").read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, "run `python corpus/quality.py`"
    assert quality.render(measured) in build.CARD.read_text(encoding="utf-8")


def test_the_card_shows_the_results_of_the_frozen_test_part() -> None:
    results = json.loads(quality.RESULTS_ON_TEST.read_text(encoding="utf-8"))
    assert results["test_sha256"] == catalog.dataset("capsar-corpus").file("test").sha256
    assert results["suite_sha256"] == SUITE_SHA256
    assert quality.render_results(results) in build.CARD.read_text(encoding="utf-8")


@pytest.mark.parametrize("split", build.SPLITS)
def test_every_line_round_trips(split: str) -> None:
    records = (build.FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [
        line
        for source in build.read_sources()
        if source.split == split
        for line in source.path.read_text(encoding="utf-8").split("\n")[:-1]
    ]
    assert [build.to_line(json.loads(record)) for record in records] == lines


@pytest.mark.parametrize("split", build.SPLITS)
def test_a_split_validates_clean(split: str) -> None:
    report, _ = check_file(build.FOLDER / f"{split}.jsonl")
    assert not report.bad
    assert report.labels_as_published
    assert set(report.notices) <= {"term occurs more than once in its sentence"}


def test_sizes(corpus: dict[str, list[Sentence]]) -> None:
    assert len(corpus["train"]) >= 22_000
    authored = sum(s.source.source == "authored" for s in corpus["test"])
    assert authored >= 1_000
    assert len(corpus["test"]) - authored >= 500
    assert len({s.domain for s in corpus["train"]}) >= 60


def test_the_test_part_is_frozen() -> None:
    found = {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (build.FOLDER / "test").glob("*.txt")
    }
    assert found == FROZEN


def test_terms_are_whole_words_without_determiners(corpus: dict[str, list[Sentence]]) -> None:
    wrong = [
        (sentence.text, sentence.text[span.start : span.end])
        for sentences in corpus.values()
        for sentence in sentences
        for span, _ in sentence.terms
        if DETERMINERS.match(sentence.text[span.start : span.end])
        or cuts_word(sentence.text, span.start)
        or cuts_word(sentence.text, span.end)
    ]
    assert wrong == []


def test_no_sentence_is_in_two_splits(corpus: dict[str, list[Sentence]]) -> None:
    assert leakage.between_splits(corpus) == []
    assert leakage.with_suite(corpus) == []


@pytest.mark.data
def test_no_sentence_is_in_a_public_evaluation_set(
    corpus: dict[str, list[Sentence]],
    shared: Path,
) -> None:
    assert leakage.with_public_sets(corpus) == []


@pytest.mark.data
def test_a_leak_would_be_found(shared: Path) -> None:
    source = build.read_sources()[0]
    (text, *_) = [e.text for e in catalog.test_examples("semeval14-laptops") if len(e.text) > 60]
    planted = [build.Sentence(f"{text} Really.", (), "laptops", source)]
    leaks = leakage.with_public_sets({"train": planted})
    assert "semeval14-laptops" in {leak.found_in for leak in leaks}


@pytest.mark.data
def test_held_out_products_stay_in_their_split(
    corpus: dict[str, list[Sentence]],
    shared: Path,
) -> None:
    homes = {"Hitachi_router": "test", "norton": "test", "Nikon_coolpix_4300": "validation"}
    for product, home in homes.items():
        part = "train" if product.startswith("Nikon") else "train-2"
        examples = catalog.training_examples("bing-liu", f"{part}/{product}")
        known = {sentence_hash(e.text) for e in examples if len(e.text.split()) > 5}
        for split, sentences in corpus.items():
            shared_sentences = known & {sentence_hash(s.text) for s in sentences}
            assert bool(shared_sentences) == (split == home), (product, split)


def test_the_corpus_is_in_the_catalog_and_its_test_part_is_guarded() -> None:
    examples = catalog.training_examples("capsar-corpus", "validation")
    assert {e.polarity for e in examples if e.polarity}
    with pytest.raises(ConfigError, match="only for evaluation"):
        catalog.training_examples("capsar-corpus", "test")


@pytest.mark.data
def test_the_guard_covers_the_test_part(shared: Path) -> None:
    guarded = guarded_paths()
    assert str((build.FOLDER / "test.jsonl").resolve()) in guarded
    for path in (build.FOLDER / "test").glob("*.txt"):
        assert str(path.resolve()) in guarded


def test_a_malformed_line_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    (tmp_path / "train").mkdir()
    source = build.Source("bad", "train", "authored", "")
    for line, reason in (("hotels\tThe [room was", "bracket"), ("castles\tNice [moat]+", "domain")):
        source.path.write_text(f"hotels\tFine [room]+.\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=rf"line 2.*{reason}"):
            build.read_file(source, {"hotels"})


def test_a_file_without_a_final_line_feed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    (tmp_path / "train").mkdir()
    source = build.Source("bad", "train", "authored", "")
    source.path.write_text("hotels\tFine [room]+.\nhotels\tLast.", encoding="utf-8")
    with pytest.raises(DataError, match="line feed"):
        build.read_file(source, {"hotels"})


@pytest.fixture
def small_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Sentence]]:
    """Three copies of a sentence in train, the first one on the first line, and one in test."""
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    lines = {"train": ["Twice.", "Once [here]+.", "Twice.", "Twice."], "test": ["Twice."]}
    corpus: dict[str, list[Sentence]] = {"validation": []}
    for split, texts in lines.items():
        (tmp_path / split).mkdir()
        source = build.Source(f"{split}-file", split, "authored", "")
        source.path.write_text("".join(f"hotels\t{t}\n" for t in texts), encoding="utf-8")
        corpus[split] = build.read_file(source, {"hotels"})
    return {split: corpus[split] for split in build.SPLITS}


def test_removing_leaks_removes_only_those_lines(
    small_corpus: dict[str, list[Sentence]],
) -> None:
    repeated = leakage.between_splits(small_corpus | {"test": []})
    leakage.remove(repeated)
    path = small_corpus["train"][0].source.path
    assert path.read_text(encoding="utf-8") == "hotels\tTwice.\nhotels\tOnce [here]+.\n"


def test_removing_leaks_never_touches_the_test_part(
    small_corpus: dict[str, list[Sentence]],
) -> None:
    (sentence,) = small_corpus["test"]
    with pytest.raises(DataError, match="frozen"):
        leakage.remove([leakage.Leak(sentence, "a public set", MatchKind.EXACT)])
    assert sentence.source.path.read_text(encoding="utf-8") == "hotels\tTwice.\n"


def test_kappa_matches_a_hand_computed_value() -> None:
    # Observed agreement 0.7; expected (0.6 * 0.5 + 0.4 * 0.5) = 0.5; kappa (0.7 - 0.5) / 0.5.
    pairs = {("p", "p"): 4, ("p", "n"): 2, ("n", "p"): 1, ("n", "n"): 3}
    assert quality._kappa(pairs) == 0.4


def test_a_memd_span_with_two_polarities_is_a_conflict() -> None:
    def quadruple(first: int, last: int, sentiment: str) -> dict[str, object]:
        return {"aspect": {"from": first, "to": last}, "sentiment": sentiment}

    row = {
        "raw_words": "The front desk was slow .",
        "quadruples": [quadruple(1, 3, "NEG"), quadruple(1, 3, "POS"), quadruple(-1, -1, "NEG")],
    }
    assert quality._memd_terms(row) == {(4, 14): "conflict"}


def test_distinct_ngrams_match_a_hand_computed_value() -> None:
    # Bigrams: a b, b a, a b | a b: two distinct of four.
    assert quality._distinct([("a", "b", "a", "b"), ("a", "b")], 2) == 0.5


def test_offsets_survive_reducing_blanks() -> None:
    text = "  The  front   desk was slow."
    start = text.index("front")
    span = AspectSpan(start, text.index("desk") + 4)
    begin, end = quality._without_blanks(text, span)
    assert " ".join(text.split())[begin:end] == "front desk"


def test_agreement_matches_hand_computed_values() -> None:
    first = _spans("The [soup]+ and [bread]= were fine, [wine list]- poor, [staff]-.")
    second = _spans("The [soup]+ and [bread]+ were fine, wine [list]- poor, staff.")
    agreement = quality.Agreement()
    agreement.add(first, second)
    found = agreement.as_dict()
    # Two of four and of three spans match; one of the two polarities is the same.
    assert (found["span_precision"], found["span_recall"]) == (0.5, round(2 / 3, 4))
    assert found["span_f1"] == round(4 / 7, 4)
    assert found["polarity_agreement"] == 0.5
    assert found["only_first"] == {"other boundaries": 1, "unmarked negative": 1}
    assert found["only_second"] == {"other boundaries": 1}


def _spans(marked: str) -> quality.Spans:
    return {(span.start, span.end): str(p) for span, p in parse_markup(marked)[1]}

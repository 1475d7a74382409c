"""The published files: their known counts, pitfalls and overlaps."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

import pytest

from capsar.data import catalog
from capsar.data.readers import read_examples, read_rows
from capsar.data.splits import decontaminate, split_validation
from capsar.data.validate import FileReport, check_file, data_files, find_overlaps
from capsar.errors import FormatError
from capsar.schema import Example
from capsar.tokenizer import tokenize_words, words_within

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def manifest(shared: Path) -> dict[str, dict[str, str]]:
    with (shared / "data" / "MANIFEST.tsv").open(encoding="utf-8", newline="") as stream:
        return {row["file"]: row for row in csv.DictReader(stream, delimiter="\t")}


@pytest.fixture(scope="module")
def reports(shared: Path) -> dict[str, tuple[FileReport, dict[str, str]]]:
    folder = shared / "data"
    return {p.relative_to(folder).as_posix(): check_file(p) for p in data_files(folder)}


def test_every_file_is_in_the_catalog_and_has_the_labels_of_the_manifest(
    reports: dict[str, tuple[FileReport, dict[str, str]]], manifest: dict[str, dict[str, str]]
) -> None:
    not_data = {"semeval14/SemEvalSchema.xsd", "mams/LICENSE"}
    assert set(reports) == set(manifest) - not_data
    for name, (report, _) in reports.items():
        row = manifest[name]
        assert report.dataset, name
        if row["neg"]:
            expected = [int(row[label]) for label in ("neg", "neu", "pos", "conflict")]
            counted = [report.labels[p] for p in ("negative", "neutral", "positive", "conflict")]  # type: ignore[index]
            assert counted == expected, name
            assert report.labels_as_published
        else:
            assert report.sentences == int(row["sentences"]), name
            assert not report.labels


def test_semeval14_and_mams_have_all_sentences_and_no_bad_record(
    reports: dict[str, tuple[FileReport, dict[str, str]]], manifest: dict[str, dict[str, str]]
) -> None:
    for name in (n for n in reports if n.startswith(("semeval14", "mams"))):
        report, _ = reports[name]
        assert not report.bad
        assert report.sentences == int(manifest[name]["sentences"])
        assert report.sentences_without_aspect == int(manifest[name]["sentences_without_aspect"])


def test_every_term_of_semeval14_and_mams_is_at_its_offsets(shared: Path) -> None:
    from defusedxml.ElementTree import parse

    count = 0
    for name in ("semeval14", "mams"):
        for path in data_files(shared / "data" / name):
            terms = [
                (sentence.findtext("text"), term.get("term"), term.get("from"), term.get("to"))
                for sentence in parse(path).iter("sentence")
                for term in sentence.iter("aspectTerm")
            ]
            read = [
                (e.text, e.aspect, str(e.spans[0].start), str(e.spans[0].end))
                for e in read_examples(path)
                if e.spans
            ]
            assert read == terms
            count += len(terms)
    assert count > 27_000


def test_every_span_of_every_file_touches_a_word(shared: Path) -> None:
    for path in data_files(shared / "data"):
        for row in read_rows(path):
            if isinstance(row, Example) and row.spans:
                words = tokenize_words(row.text)
                assert all(len(words_within(words, s.start, s.end)) for s in row.spans), row


PITFALLS = [
    ("semeval14/Restaurants_Train.xml", "span begins or ends inside a word", 13),
    ("semeval14/Restaurants_Train_v2.xml", "span begins or ends inside a word", 3),
    ("semeval14/Laptops_Train.xml", "span begins or ends inside a word", 5),
    ("semeval14/Laptop_Train_v2.xml", "span begins or ends inside a word", 1),
    ("semeval14/Laptops_Test_Gold.xml", "span begins or ends inside a word", 1),
    ("semeval14/Laptops_Train.xml", "white space around the text", 136),
    ("semeval14/Laptops_Train.xml", "no-break spaces", 168),
    ("semeval14/Restaurants_Train.xml", "term occurs more than once in its sentence", 123),
    ("semeval14/Laptops_Train.xml", "term occurs more than once in its sentence", 140),
    ("semeval14/Restaurants_Train.xml", "text of more than one sentence", 6),
    ("semeval14/Laptops_Train.xml", "text of more than one sentence", 12),
    ("twitter/train.raw", "more than one $T$", 368),
    ("twitter/test.raw", "more than one $T$", 38),
    ("twitter/train.raw", "brackets written as -LRB- and the like, restored", 641),
    ("semeval15/ABSA-15_Restaurants_Train_Final.xml", "implicit target", 375),
    ("semeval15/ABSA-15_Restaurants_Train_Final.xml", "same aspect, different polarity", 12),
    ("semeval16/restaurants_train_dutch.xml", "term differs in case from the text", 127),
    ("semeval16/restaurants_test_dutch.xml", "term differs in case from the text", 72),
    ("semeval16/restaurants_train_turkish.xml", "wrong offset, corrected", 2),
    ("bingliu/product_reviews_1.zip", "feature not in the sentence", 386),
]


@pytest.mark.parametrize(("name", "kind", "count"), PITFALLS)
def test_known_pitfalls_are_found(
    reports: dict[str, tuple[FileReport, dict[str, str]]], name: str, kind: str, count: int
) -> None:
    assert reports[name][0].notices[kind].count == count


def test_wrong_offsets_are_corrected_or_reported(
    reports: dict[str, tuple[FileReport, dict[str, str]]],
) -> None:
    """Each ARTS file has three wrong offsets, Turkish has an offset of -1."""
    for name in ("arts/rest_test_enriched.json", "arts/laptop_test_enriched.json"):
        report, _ = reports[name]
        kinds = ("wrong offset, corrected", "term differs in case from the text")
        corrected = sum(report.notices[kind].count for kind in kinds if kind in report.notices)
        assert corrected + len(report.bad) == 3
    (error,) = reports["semeval16/restaurants_test_turkish.xml"][0].bad
    assert "-1:28" in error.reason
    assert isinstance(error, FormatError)


def test_overlaps_between_mams_semeval15_16_and_semeval14_test(
    reports: dict[str, tuple[FileReport, dict[str, str]]],
) -> None:
    names = [
        "mams/MAMS-ATSA/train.xml",
        "semeval15/ABSA-15_Restaurants_Train_Final.xml",
        "semeval16/restaurants_train_english.xml",
        "semeval14/Restaurants_Train.xml",
        "semeval14/Restaurants_Test_Gold.xml",
    ]
    overlaps = find_overlaps({name: reports[name][1] for name in names})
    found = {o.path: (o.exact, o.near) for o in overlaps if o.other == names[-1]}
    assert found == {names[0]: (10, 6), names[1]: (2, 7), names[2]: (2, 10), names[3]: (1, 15)}


def test_mams_is_decontaminated_of_the_restaurant_test_sentences() -> None:
    test_texts = [e.text for e in catalog.test_examples("semeval14-restaurants")]
    clean = decontaminate(catalog.training_examples("mams"), test_texts)
    assert clean.dropped == {"exact": 10, "near": 6}

    def grams(text: str) -> set[tuple[str, ...]]:  # independent of the code under test
        words = re.findall(r"[^\W_]+", text.lower())
        return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}

    test_grams = [grams(text) for text in set(test_texts)]
    for text in {e.text for e in clean.kept}:
        own = grams(text)
        assert all(len(own & other) < 0.7 * min(len(own), len(other)) for other in test_grams), text


def test_validation_is_split_by_sentence() -> None:
    examples = catalog.training_examples("semeval14-restaurants")
    split = split_validation(examples, ratio=0.1, seed=0)
    assert not {e.text for e in split.train} & {e.text for e in split.validation}
    assert len(split.train) + len(split.validation) == len(examples)
    sentences = len({e.text for e in examples})
    assert abs(len({e.text for e in split.validation}) - 0.1 * sentences) < 10
    assert catalog.present(catalog.dataset("semeval14-restaurants")) == [
        "train",
        "train-v2",
        "test",
    ]

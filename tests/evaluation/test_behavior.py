"""The behavioral suite: its coverage, its cases, and its scores."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from capsar import Polarity
from capsar.cli import app
from capsar.data.markup import parse_markup
from capsar.evaluation import behavior
from capsar.evaluation.behavior import build_cases, evaluate_behavior, load_suite
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsar import Example


CASES_SHA256 = "5d016dc95edeba03146f0c3bb41fb2eb7d60aa7651477e11b3ce764895c07d9b"


class Oracle:
    """A model that is right except on some capabilities."""

    def __init__(self, *, wrong: frozenset[str] = frozenset(), finds: bool = True) -> None:
        self._gold: dict[tuple[str, int], Polarity] = {}
        self._finds = finds
        for case in build_cases(load_suite()):
            for example in case.examples:
                assert example.polarity is not None
                polarity = example.polarity
                if case.capability in wrong:
                    polarity = CLASSES[(CLASSES.index(polarity) + 1) % len(CLASSES)]
                self._gold[example.text, example.spans[0].start] = polarity

    def predict_lengths(self, examples: Sequence[Example]) -> Any:
        eye = np.eye(len(CLASSES), dtype=np.float32)
        return np.stack(
            [eye[CLASSES.index(self._gold[e.text, e.spans[0].start])] for e in examples]
        )

    def analyze(self, texts: Sequence[str]) -> list[list[Any]]:
        if not self._finds:
            return [[] for _ in texts]
        spans = {
            (e.text, e.spans[0].start): e.spans[0].end
            for case in build_cases(load_suite())
            for e in case.examples
        }
        found: dict[str, list[Any]] = {text: [] for text in texts}
        for (text, start), polarity in self._gold.items():
            end = spans[text, start]
            found[text].append(SimpleNamespace(start=start, end=end, polarity=polarity))
        return [found[text] for text in texts]


def test_the_suite_covers_its_capabilities_and_domains() -> None:
    suite = load_suite()
    counts = Counter(pattern["capability"] for pattern in suite["patterns"])
    assert set(counts) == {
        "plain", "negation", "contrast", "conditionals", "comparison", "neutral", "lists",
        "compounds", "slang", "sarcasm",
    }  # fmt: skip
    assert min(counts.values()) >= 8
    assert sum(counts.values()) >= 60
    assert len(suite["domains"]) == 12
    texts = [pattern["text"] for pattern in suite["patterns"]]
    assert len(set(texts)) == len(texts)


def test_every_term_of_a_domain_is_used_and_every_slot_is_marked() -> None:
    suite = load_suite()
    cases = build_cases(suite)
    for domain, words in suite["domains"].items():
        used = {e.aspect for case in cases if case.domain == domain for e in case.examples}
        assert used == {words["product"], *words["terms"], *words["compounds"]}
    for pattern in suite["patterns"]:
        unmarked, _ = parse_markup(pattern["text"])
        assert pattern["text"].count("{") == pattern["text"].count("[") == unmarked.count("{")


def test_cases_are_distinct_and_the_same_every_time() -> None:
    cases = build_cases(load_suite())
    assert cases == build_cases(load_suite())
    assert len({case.examples[0].text for case in cases}) == len(cases) > 3000


def test_an_oracle_passes_everything() -> None:
    metrics = evaluate_behavior(Oracle())
    assert all(row.score == row.span_recall == 1 for row in metrics.capabilities.values())
    assert all(row.interval == (1, 1) for row in metrics.capabilities.values())
    assert not metrics.failed_patterns


def test_a_weakness_affects_only_its_capability() -> None:
    metrics = evaluate_behavior(Oracle(wrong=frozenset({"negation"})))
    scores = {name: row.score for name, row in metrics.capabilities.items()}
    assert {name for name, score in scores.items() if score < 1} == {"negation"}
    assert scores["negation"] == 0
    assert set(metrics.failed_patterns) == {
        p["text"] for p in load_suite()["patterns"] if p["capability"] == "negation"
    }


def test_lists_and_compounds_are_scored_by_extraction() -> None:
    metrics = evaluate_behavior(Oracle(finds=False))
    zero = {name for name, row in metrics.capabilities.items() if row.score == 0}
    assert zero == {"lists", "compounds"}
    assert metrics.capabilities["lists"].polarity_accuracy == 1


def test_a_found_term_with_the_wrong_polarity_does_not_count() -> None:
    row = evaluate_behavior(Oracle(wrong=frozenset({"lists"}))).capabilities["lists"]
    assert row.span_recall == 1
    assert row.joint_recall == row.score == 0


def test_intervals_resample_whole_patterns() -> None:
    # One pattern always right, one always wrong: a draw of two has a mean of 0, 0.5 or 1.
    right = np.array([True] * 50 + [False] * 50)
    pattern = np.array([0] * 50 + [1] * 50)
    assert behavior._bootstrap(right, pattern) == (0, 1)


def test_the_filled_sentences_are_the_frozen_ones() -> None:
    marked = [
        (case.capability, example.text, example.spans[0].start, str(example.polarity))
        for case in build_cases(load_suite())
        for example in case.examples
    ]
    assert hashlib.sha256(repr(marked).encode()).hexdigest() == CASES_SHA256


@pytest.mark.parametrize("option", ["--spans", "--confidence", "--robustness"])
def test_other_measurements_still_need_data(small_bundle: Path, option: str) -> None:
    done = CliRunner().invoke(app, ["evaluate", str(small_bundle), "--behavior", option])
    assert done.exit_code != 0


def test_a_changed_suite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behavior, "SUITE_SHA256", "0" * 64)
    load_suite.cache_clear()
    with pytest.raises(behavior.ArtifactError, match="frozen"):
        load_suite()
    load_suite.cache_clear()


def test_the_command_needs_no_data(small_bundle: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["evaluate", str(small_bundle), "--behavior", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert "metrics" not in document
    assert document["behavior"]["capabilities"]["sarcasm"]["num_patterns"] >= 8
    shown = runner.invoke(app, ["evaluate", str(small_bundle), "--behavior"])
    assert "sarcasm" in shown.stdout

"""The comparison with baselines: all systems are evaluated by the same code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from baselines.prepare import ordinal
from baselines.protocol import BaselineProcess
from baselines.quality import EvaluationSet, evaluate_predictions
from baselines.speed import measure_speed
from baselines.systems import BERT_PROGRAM, CAPSAR_PROGRAM, SETFIT_PROGRAM, System
from capsar.evaluation.spans import TermSentence
from capsar.schema import Polarity

POSITIVE, NEGATIVE, NEUTRAL = map(Polarity, ("positive", "negative", "neutral"))
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from baselines.protocol import serve

class Model:
    def extract(self, texts):
        print("output of a library")
        if "fail" in texts:
            raise ValueError("the reason")
        return [[(0, len(text), "positive")] for text in texts]

    def classify(self, texts, spans):
        return [["negative" for _ in own] for own in spans]

serve(Model())
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "baseline.py"
    script.write_text(SCRIPT.format(folder=str(BENCHMARKS)), encoding="utf-8")
    return [sys.executable, str(script)]


def test_predictions_are_evaluated_like_ours() -> None:
    text = "ab cd ef"
    sentences = [TermSentence(text, {(0, 2): POSITIVE, (3, 5): NEGATIVE, (6, 8): None})]
    test = EvaluationSet(sentences, [[(0, 2), (3, 5)]], [[POSITIVE, NEGATIVE]])
    extracted = [[(0, 2, "positive"), (3, 5, "neutral"), (6, 8, "positive"), (0, 5, "negative")]]
    metrics = evaluate_predictions(test, [["positive", "neutral"]], extracted)
    # Positive is correct once, negative and neutral never.
    assert metrics["accuracy"] == 0.5
    assert metrics["macro_f1"] == pytest.approx(1 / 3)
    # Three of four spans; without the conflict term, one of three pairs, of two.
    assert metrics["span_f1"] == pytest.approx(2 * 3 / (3 + 4))
    assert metrics["joint_f1"] == pytest.approx(2 * 1 / (2 + 3))


@pytest.mark.parametrize(
    ("text", "start", "end", "number"),
    [("tea, tea", 0, 3, 0), ("tea, tea", 5, 8, 1), ("aaa", 1, 3, 1), ("team tea", 5, 8, 1)],
)
def test_ordinal_matches_setfit(text: str, start: int, end: int, number: int) -> None:
    assert ordinal(text, start, end) == number
    index = -1
    for _ in range(number + 1):  # how its trainer locates the aspect
        index = text.index(text[start:end], index + 1)
    assert index == start


def test_lines_of_user_code_are_counted() -> None:
    systems: list[Any] = [
        System("", None, (), program)  # type: ignore[arg-type]
        for program in (CAPSAR_PROGRAM, SETFIT_PROGRAM, BERT_PROGRAM, "a\n\n  \nb\n")
    ]
    assert [system.num_lines for system in systems] == [3, 4, 8, 2]


def test_library_output_does_not_break_the_protocol(command: list[str], tmp_path: Path) -> None:
    with BaselineProcess(command, tmp_path / "log") as baseline:
        assert baseline.extract(["\N{SNOWMAN}", ""]) == [[[0, 1, "positive"]], [[0, 0, "positive"]]]
        assert baseline.classify(["a b"], [[(0, 1), (2, 3)]]) == [["negative", "negative"]]
        assert baseline.time(["a"])["seconds"] >= 0
    assert "output of a library" in (tmp_path / "log").read_text()


def test_capsar_classifies_aspects_by_position(tmp_path: Path) -> None:
    script, source = BENCHMARKS / "baselines" / "run_capsar.py", BENCHMARKS.parent / "src"
    code = f"import runpy, sys; sys.path[:0] = [{str(source)!r}]; "
    code += f"sys.argv = ['', 'fast']; runpy.run_path({str(script)!r}, run_name='__main__')"
    text = "I loved the food, hated the service, and loved the food again."
    with BaselineProcess([sys.executable, "-c", code], tmp_path / "log") as baseline:
        extracted = baseline.extract([text, ""])
        classified = baseline.classify([text, ""], [[(12, 16), (28, 35), (51, 55)], []])
    assert [12, 16, "positive"] in extracted[0]
    assert [28, 35, "negative"] in extracted[0]
    assert (extracted[1], classified) == ([], [["positive", "negative", "positive"], []])


def test_log_of_a_failed_baseline_is_shown(command: list[str], tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match="the reason"),
        BaselineProcess(command, tmp_path / "log") as baseline,
    ):
        baseline.extract(["fail"])


class FakeSystem:
    """A system whose process is the script."""

    def __init__(self, name: str, command: list[str], folder: Path, *, extracts: bool) -> None:
        self.name, self.extracts = name, extracts
        self._command, self._log = command, folder / f"{name}.log"

    def start(self) -> BaselineProcess:
        return BaselineProcess(self._command, self._log)


def test_speed_is_measured_for_supported_tasks(command: list[str], tmp_path: Path) -> None:
    systems: Any = [
        FakeSystem(name, command, tmp_path, extracts=name != "bert")
        for name in ("fast", "setfit", "bert")
    ]
    test = EvaluationSet([TermSentence("a", {})], [[(0, 1)]], [[NEUTRAL]])
    metrics = measure_speed(systems, test, turns=2)
    given = {"fast_given_sentences_per_s", "setfit_given_sentences_per_s"}
    assert given | {"bert_given_sentences_per_s"} <= set(metrics)
    assert {"fast_over_setfit", "fast_over_setfit_given", "bert_peak_mb"} <= set(metrics)
    assert "bert_sentences_per_s" not in metrics
    assert all(value > 0 for value in metrics.values())

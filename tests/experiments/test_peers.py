"""The comparison with peers: counted as ours is, and no page that says more than its figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from capsar.evaluation.extraction import TermSentence
from capsar.labels import Polarity
from peers_prepare import ordinal
from peers_process import Peer
from peers_programs import BERT, CAPSAR, SETFIT, num_lines
from peers_quality import Questions, judge
from peers_speed import measure_speed
from render_peers import ENCODER, PEERS, PEERS_PAGE, render
from summarize import SUMMARY

GOOD, BAD, SOSO = Polarity("positive"), Polarity("negative"), Polarity("neutral")
ANSWERING = """
import sys
sys.path.insert(0, {folder!r})
from peers_answering import answer_requests

class Model:
    def find(self, texts):
        print("a library that prints")
        if "die" in texts:
            raise ValueError("what went wrong")
        return [[(0, len(text), "positive")] for text in texts]

    def classify(self, texts, places):
        return [["negative" for _ in own] for own in places]

answer_requests(Model())
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    folder = str(Path(__file__).parents[2] / "benchmarks")
    script = tmp_path / "answering.py"
    script.write_text(ANSWERING.format(folder=folder), encoding="utf-8")
    return [sys.executable, str(script)]


def test_the_page_is_rendered_from_the_files_byte_for_byte() -> None:
    result, summary = (json.loads(f.read_text(encoding="utf-8")) for f in (PEERS, SUMMARY))
    assert PEERS_PAGE.read_text(encoding="utf-8") == render(result, summary)


def test_no_path_of_a_machine_is_committed() -> None:
    text = PEERS.read_text(encoding="utf-8") + PEERS_PAGE.read_text(encoding="utf-8")
    assert str(Path(__file__).parents[3]) not in text
    assert "--work" not in text


def result_of(**metrics: float) -> dict[str, Any]:
    return {
        "metrics": metrics,
        "restaurant": "capsar-bert",
        "absent": {"Other": "It needs a network."},
        "environments": {"setfit": {"setfit": "1.2"}},
        "machine": "one",
    }


def entry_of(row: str, mean: float) -> dict[str, Any]:
    return {
        "table": "table2", "row": row, "encoder": ENCODER, "dataset": "restaurant",
        "protocol": "ours", "gold": None, "metric": "accuracy", "mean": mean, "n": 3,
    }  # fmt: skip


def unseen(row: str, mean: float) -> dict[str, Any]:
    return entry_of(row, mean) | {"table": "unseen", "encoder": None, "protocol": None, "n": 1}


def line_of(page: str, start: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_where_we_lose_is_said_in_the_same_line() -> None:
    metrics = {
        "setfit_accuracy": 0.75,
        "base_peak_mb": 300, "fast_peak_mb": 100, "setfit_peak_mb": 200,
        "base_lines": 3, "setfit_lines": 4,
    }  # fmt: skip
    summary = [
        entry_of("bert", 0.82), entry_of("capsar-bert", 0.83), unseen("base", 0.8),
        unseen("fast", 0.7),
    ]  # fmt: skip
    page = render(result_of(**metrics), summary)
    accuracy = line_of(page, "accuracy")
    assert accuracy[1] == ".8000<!-- summary.json: unseen/base/restaurant/accuracy/mean -->"
    assert accuracy[4] == ".7500<!-- peers.json: setfit_accuracy -->"
    assert accuracy[5].startswith(".8200<!-- summary.json: table2/bert@")
    assert accuracy[-1] == "`base` to BERT pair; `fast` to SetFit-ABSA and BERT pair"
    assert line_of(page, "peak memory")[-1] == "`base` to SetFit-ABSA"
    assert line_of(page, "lines")[-1] == ""
    assert "joint" not in page
    assert "**Other** is not in the table. It needs a network." in page


@pytest.mark.parametrize(("ratio", "told"), [(50.0, "reached"), (49.9, "**not reached**")])
def test_a_ratio_is_held_against_what_was_wanted(ratio: float, told: str) -> None:
    page = render(result_of(fast_over_setfit=ratio), [])
    line = line_of(page, "`fast`")
    assert line[1:] == [f"{ratio}<!-- peers.json: fast_over_setfit -->", "50", told]


def test_a_figure_in_a_sentence_keeps_its_source_in_one_piece() -> None:
    names = ("steps", "batch", "rows", "aspect_examples", "polarity_examples", "cpu_minutes")
    page = render(result_of(**{f"setfit_{name}": 1234 for name in names}), [])
    for name in names:
        assert f"1,234<!-- peers.json: setfit_{name} -->" in page


def test_answers_are_judged_as_ours_are() -> None:
    text = "ab cd ef"
    sentences = [TermSentence(text, {(0, 2): GOOD, (3, 5): BAD, (6, 8): None})]
    questions = Questions(sentences, [[(0, 2), (3, 5)]], [[GOOD, BAD]])
    found = [[(0, 2, "positive"), (3, 5, "neutral"), (6, 8, "positive"), (0, 5, "negative")]]
    figures = judge(questions, [["positive", "neutral"]], found)
    # Positive is right once; negative and neutral never.
    assert figures["accuracy"] == 0.5
    assert figures["macro_f1"] == pytest.approx(1 / 3)
    # Three of four spans; without the term of conflict one of three pairs, of two.
    assert figures["span_f1"] == pytest.approx(2 * 3 / (3 + 4))
    assert figures["joint_f1"] == pytest.approx(2 * 1 / (2 + 3))


@pytest.mark.parametrize(
    ("text", "start", "end", "number"),
    [("tea, tea", 0, 3, 0), ("tea, tea", 5, 8, 1), ("aaa", 1, 3, 1), ("team tea", 5, 8, 1)],
)
def test_an_aspect_is_numbered_as_setfit_counts(
    text: str, start: int, end: int, number: int
) -> None:
    assert ordinal(text, start, end) == number
    place = -1
    for _ in range(number + 1):  # how its trainer finds the place again
        place = text.index(text[start:end], place + 1)
    assert place == start


def test_lines_that_hold_something_are_counted() -> None:
    assert num_lines("a\n\n  \nb\n") == 2
    assert [num_lines(program) for program in (CAPSAR, SETFIT, BERT)] == [3, 4, 8]


def test_a_peer_answers_whatever_its_libraries_print(command: list[str], tmp_path: Path) -> None:
    with Peer(command, tmp_path / "log") as peer:
        assert peer.find(["\N{SNOWMAN}", ""]) == [[[0, 1, "positive"]], [[0, 0, "positive"]]]
        assert peer.classify(["a b"], [[(0, 1), (2, 3)]]) == [["negative", "negative"]]
        assert peer.time(["a"])["seconds"] >= 0
    assert "a library that prints" in (tmp_path / "log").read_text()


def test_capsar_is_asked_about_places(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "peers_capsar.py"
    source = Path(__file__).parents[2] / "src"
    code = f"import runpy, sys; sys.path[:0] = [{str(script.parent)!r}, {str(source)!r}]; "
    code += f"sys.argv = ['', 'fast']; runpy.run_path({str(script)!r}, run_name='__main__')"
    text = "I loved the food, hated the service, and loved the food again."
    with Peer([sys.executable, "-c", code], tmp_path / "log") as peer:
        found = peer.find([text, ""])
        told = peer.classify([text, ""], [[(12, 16), (28, 35), (51, 55)], []])
    assert [12, 16, "positive"] in found[0]
    assert [28, 35, "negative"] in found[0]
    assert (found[1], told) == ([], [["positive", "negative", "positive"], []])


def test_a_peer_that_dies_says_why(command: list[str], tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match="what went wrong"),
        Peer(command, tmp_path / "log") as peer,
    ):
        peer.find(["die"])


class Made:
    """A system whose process is the answering script."""

    def __init__(self, name: str, command: list[str], folder: Path, *, finds: bool) -> None:
        self.name, self.finds = name, finds
        self._command, self._log = command, folder / f"{name}.log"

    def start(self) -> Peer:
        return Peer(self._command, self._log)


def test_speed_is_told_of_whatever_a_system_can(command: list[str], tmp_path: Path) -> None:
    systems: Any = [
        Made(name, command, tmp_path, finds=name != "bert") for name in ("fast", "setfit", "bert")
    ]
    questions = Questions([TermSentence("a", {})], [[(0, 1)]], [[SOSO]])
    metrics = measure_speed(systems, questions, turns=2)
    given = {"fast_given_sentences_per_s", "setfit_given_sentences_per_s"}
    assert given | {"bert_given_sentences_per_s"} <= set(metrics)
    assert {"fast_over_setfit", "fast_over_setfit_given", "bert_peak_mb"} <= set(metrics)
    assert "bert_sentences_per_s" not in metrics
    assert all(value > 0 for value in metrics.values())

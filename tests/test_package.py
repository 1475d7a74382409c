"""The package as a whole: public names, side effects of imports, and forbidden content."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import capsar
from capsar.errors import CapsarError, MissingExtraError
from capsar.schema import CLASSES, Polarity, parse_polarity

PUBLIC = [
    "Analyzer",
    "AspectSentiment",
    "AspectSpan",
    "Capsar",
    "CapsarError",
    "Example",
    "ModelConfig",
    "Opinion",
    "Polarity",
    "ReportOptions",
    "ScoreOptions",
    "Theme",
    "Themes",
    "TrainConfig",
    "__version__",
    "evaluate",
    "load",
    "read_themes",
    "report",
    "score",
    "score_batch",
    "train",
]


def test_the_reference_lists_exactly_the_public_names(root: Path) -> None:
    page = (root / "docs" / "reference.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(capsar.__all__)


def test_public_names() -> None:
    """A name added here must be announced in docs and changelog."""
    assert sorted(capsar.__all__) == PUBLIC
    assert dir(capsar) == PUBLIC
    for name in PUBLIC:
        assert getattr(capsar, name) is not None
    with pytest.raises(AttributeError, match="'nothing'"):
        capsar.nothing  # noqa: B018


_PROBE = """
import os, sys, time
events = []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def watch(event, arguments):
    if event.startswith("socket.") or event in ("os.mkdir", "os.rename", "os.remove"):
        events.append(event)
    # Only the bytecode cache may be written.
    elif event == "open" and "__pycache__" not in str(arguments[0]) and arguments[2] & writing:
        events.append(f"write {arguments[0]}")
sys.addaudithook(watch)
start = time.perf_counter()
import capsar
seconds = time.perf_counter() - start
def loaded(*names):
    return [name for name in names if name in sys.modules]
print(seconds, events, loaded("torch", "numpy", "tokenizers", "typer", "transformers"))
# Everything except training, which needs torch.
import pkgutil, importlib
for module in pkgutil.walk_packages(capsar.__path__, "capsar."):
    if not module.name.startswith(("capsar.model.", "capsar.training.", "capsar.__main__")):
        importlib.import_module(module.name)
import capsar.model.embeddings
print(events, loaded("torch", "transformers", "accelerate"))
"""


def test_imports_have_no_side_effects() -> None:
    best = 9.0
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True
        )
        first, second = done.stdout.splitlines()
        seconds, _, rest = first.partition(" ")
        assert rest == "[] []"
        assert second == "[] []"
        best = min(best, float(seconds))
    assert best < 0.3


def test_help_does_not_load_torch() -> None:
    code = """
import sys
sys.argv = ["capsar", "--help"]
from capsar.cli import main
try:
    main()
finally:
    print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False"


def tracked(root: Path) -> list[Path]:
    done = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def test_no_unsafe_loading_in_the_source(root: Path) -> None:
    unsafe = re.compile(
        r"\b(pickle|torch\.load|yaml\.load|marshal)\b|(?<![.\w])(?<!def )(eval|exec)\("
    )
    for path in (root / "src").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not unsafe.search(line.replace("allow_pickle=False", "")), (path, line)


def test_no_machine_path_and_no_data_is_tracked(root: Path) -> None:
    machine = re.compile(r"/(?:root|home/\w+|Users/\w+|work)/\w")
    for path in tracked(root):
        assert path.suffix not in (".lock", ".pkl", ".pt", ".npy"), path
        # Bundled models, the corpus, and recorded outputs of teachers.
        is_large = {"models", "corpus"} & {*path.parts} or path.parent.name == "teachers"
        limit = 30_000_000 if is_large else 2_000_000
        assert path.stat().st_size < limit, path
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        assert not machine.search(content), path


@pytest.mark.data
def test_no_sentence_of_the_datasets_is_tracked(root: Path, shared: Path) -> None:
    """No tracked file contains eight consecutive words of SemEval or Twitter sentences."""
    from capsar.data.readers import read_examples
    from capsar.data.splits import content_words
    from capsar.data.validate import data_files

    size = 8
    idiom = ("and", "do", "n't", "get", "me", "started", "on", "the")  # in the frozen test suite
    forbidden = set()
    for name in ("semeval14", "semeval15", "semeval16", "twitter", "arts", "pyabsa"):
        for path in data_files(shared / "data" / name):
            for example in read_examples(path, errors="skip"):
                words = content_words(example.text)
                forbidden |= {hash(words[i : i + size]) for i in range(len(words) - size + 1)}
    forbidden.discard(hash(idiom))
    for path in tracked(root):
        try:
            words = content_words(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        for i in range(len(words) - size + 1):
            assert hash(words[i : i + size]) not in forbidden, (path, words[i : i + size])


def test_polarities_and_their_spellings() -> None:
    assert [str(polarity) for polarity in CLASSES] == ["negative", "neutral", "positive"]
    for spelling, polarity in [("-1", "negative"), (" NEU ", "neutral"), ("+1", "positive")]:
        assert parse_polarity(spelling) is Polarity(polarity)
    with pytest.raises(CapsarError, match="'good' is not a polarity; expected one of: negative"):
        parse_polarity("good")
    with pytest.raises(CapsarError, match="…'"):
        parse_polarity("x" * 100)


def test_a_missing_extra_names_the_command() -> None:
    with pytest.raises(ImportError, match=r"pip install 'capsar\[train\]'"):
        raise MissingExtraError("train", "Training")

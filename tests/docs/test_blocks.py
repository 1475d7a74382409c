"""Every code block of README and docs is run, or says why it is not.

One test per page: blocks depend on one another, and pytest-xdist distributes single tests.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from markdown_pages import PAGES, Block, blocks_of, is_as_shown
from page_runner import PageRunner

from capsar import Themes
from capsar.config import run_config
from capsar.data.readers import read_examples

RUN = ("python", "console", "sh")
EXCUSES = Counter(
    {
        "installs from the package index": 7,
        "takes minutes": 1,
        "needs a cluster": 1,
        "needs a model hub": 1,
        "needs a trained model": 1,
        "needs podman": 1,
        "needs word vectors of some gigabytes": 1,
        "needs this project's address; `.ci/run` does the rest": 1,
        "needs datasets that may not be redistributed, and an hour": 1,
        "needs datasets that may not be redistributed, and a day": 1,
        "needs datasets that may not be redistributed, and environments of the baselines": 1,
    }
)
"""The blocks that are not run. Nothing checks them, so each new one must be counted here."""


def runnable(page: Path) -> list[Block]:
    """Return the blocks of a page that are run."""
    return [b for b in blocks_of(page) if b.language in RUN and not b.excuse]


def runnable_pages() -> list[object]:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if is_slow(page) else [])
        for page in PAGES
        if runnable(page)
    ]


def is_slow(page: Path) -> bool:
    long = ("capsar train", "capsar export")
    return any(command in block.code for command in long for block in runnable(page))


@pytest.mark.parametrize("page", runnable_pages())
def test_page_blocks_run_as_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = PageRunner(tmp_path)
    try:
        for block in runnable(page):
            runner.run_block(block, page.name)
    finally:
        runner.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_excused(page: Path, tmp_path: Path) -> None:
    fences = page.read_text(encoding="utf-8").count("```")
    blocks = blocks_of(page)
    assert fences == 2 * len(blocks), "an unmatched fence"
    for block in blocks:
        location = f"line {block.line}"
        if block.excuse:
            continue
        if block.language == "python":
            assert block.code.startswith(">>> "), location
        elif block.language == "console":
            assert block.code.startswith("$ "), location
        elif block.language == "json":
            (tmp_path / "shown.jsonl").write_text(block.code)
            assert list(read_examples(tmp_path / "shown.jsonl")), location
        elif block.language == "toml" and "[[theme]]" in block.code:
            Themes.parse(block.code)
        elif block.language == "toml":
            run_config(tomllib.loads(block.code))
        elif block.language == "text":
            assert not any(word in block.code for word in ("capsar ", "pip ", "python ")), location
        else:
            assert block.language == "sh", f"{location}: unknown language"


def test_excuses_are_counted() -> None:
    assert Counter(b.excuse for page in PAGES for b in blocks_of(page) if b.excuse) == EXCUSES


@pytest.mark.parametrize(
    ("language", "code", "message"),
    [
        ("console", "$ echo one\ntwo\n", "one"),
        ("console", "$ echo one; exit 3\none\ntwo\n", "one"),
        ("sh", "true\nfalse\n", "line 7: false"),
        ("python", ">>> 1 + 1\n3\n", "Expected:"),
        ("sh", "capsar serve --model absent\n", "ended with 2"),
    ],
)
def test_wrong_block_fails(language: str, code: str, message: str, tmp_path: Path) -> None:
    runner = PageRunner(tmp_path)
    with pytest.raises(AssertionError, match=message):
        runner.run_block(Block(language, code, 7, ""), "page.md")


def test_ellipsis_matches_anything() -> None:
    assert is_as_shown("a 1.5 s\nb\n", "a … s\nb\n")
    assert not is_as_shown("a 1.5 s\n", "a … s\nb\n")
    assert not is_as_shown("a 1.5 s\nb\nc\n", "a … s\nb\n")
    assert not is_as_shown("a.b", "a+b")


def test_blocks_share_folder_and_names(tmp_path: Path) -> None:
    runner = PageRunner(tmp_path)
    runner.run_block(Block("sh", "printf 3 > \\\nnumber\n", 1, ""), "page.md")
    runner.run_block(Block("python", ">>> three = 3\n", 1, ""), "page.md")
    runner.run_block(Block("python", ">>> three\n3\n", 1, ""), "page.md")
    runner.run_block(
        Block("console", "$ cat number\n3\n$ ls\nexamples\nnumber\n", 1, ""), "page.md"
    )

"""Every code block of README and docs is run, or says why it cannot be.

One test a page: blocks build on one another, and pytest-xdist deals single tests to several
processes. So sybil and its like, which make a test of every block, do not fit.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from pages import PAGES, Block, blocks_of, is_as_shown
from story import Story

from capsar.config import run_config
from capsar.data.readers import read_examples

RUN = ("python", "console", "sh")
EXCUSES = Counter(
    {
        "installs from the package index": 6,
        "needs a cluster": 1,
        "needs a model hub": 1,
        "needs word vectors of some gigabytes": 1,
        "needs this project's address; `.ci/run` does the rest": 1,
        "needs datasets that may not be passed on, and an hour": 1,
        "needs datasets that may not be passed on, and a day": 1,
        "needs datasets that may not be passed on, and environments of peers": 1,
    }
)
"""All that is not run. Each is a promise nobody checks, so a new one must be written here too."""


def told(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    return [b for b in blocks_of(page) if b.language in RUN and not b.excuse]


def stories() -> list[object]:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if is_slow(page) else [])
        for page in PAGES
        if told(page)
    ]


def is_slow(page: Path) -> bool:
    long = ("capsar train", "capsar export")
    return any(command in block.code for command in long for block in told(page))


@pytest.mark.parametrize("page", stories())
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    story = Story(tmp_path)
    try:
        for block in told(page):
            story.tell(block, page.name)
    finally:
        story.end()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_excused(page: Path, tmp_path: Path) -> None:
    fences = page.read_text(encoding="utf-8").count("```")
    blocks = blocks_of(page)
    assert fences == 2 * len(blocks), "a fence that no block has"
    for block in blocks:
        place = f"line {block.line}"
        if block.excuse:
            continue
        if block.language == "python":
            assert block.code.startswith(">>> "), place
        elif block.language == "console":
            assert block.code.startswith("$ "), place
        elif block.language == "json":
            (tmp_path / "shown.jsonl").write_text(block.code)
            assert list(read_examples(tmp_path / "shown.jsonl")), place
        elif block.language == "toml":
            run_config(tomllib.loads(block.code))
        elif block.language == "text":
            assert not any(word in block.code for word in ("capsar ", "pip ", "python ")), place
        else:
            assert block.language == "sh", f"{place}: a block of no known language"


def test_excuses_are_counted() -> None:
    assert Counter(b.excuse for page in PAGES for b in blocks_of(page) if b.excuse) == EXCUSES


@pytest.mark.parametrize(
    ("language", "code", "complaint"),
    [
        ("console", "$ echo one\ntwo\n", "one"),
        ("console", "$ echo one; exit 3\none\ntwo\n", "one"),
        ("sh", "true\nfalse\n", "line 7: false"),
        ("python", ">>> 1 + 1\n3\n", "Expected:"),
        ("sh", "capsar serve --model absent\n", "ended with 2"),
    ],
)
def test_a_block_that_is_not_true_fails(
    language: str, code: str, complaint: str, tmp_path: Path
) -> None:
    story = Story(tmp_path)
    with pytest.raises(AssertionError, match=complaint):
        story.tell(Block(language, code, 7, ""), "page.md")


def test_what_differs_from_run_to_run_is_passed_over() -> None:
    assert is_as_shown("a 1.5 s\nb\n", "a … s\nb\n")
    assert not is_as_shown("a 1.5 s\n", "a … s\nb\n")
    assert not is_as_shown("a 1.5 s\nb\nc\n", "a … s\nb\n")
    assert not is_as_shown("a.b", "a+b")


def test_a_story_keeps_its_folder_and_names(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.tell(Block("sh", "printf 3 > \\\nnumber\n", 1, ""), "page.md")
    story.tell(Block("python", ">>> three = 3\n", 1, ""), "page.md")
    story.tell(Block("python", ">>> three\n3\n", 1, ""), "page.md")
    story.tell(Block("console", "$ cat number\n3\n$ ls\nexamples\nnumber\n", 1, ""), "page.md")

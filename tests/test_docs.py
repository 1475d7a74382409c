"""README and docs: blocks are rendered from committed results, and links work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from markdown_pages import PAGES, ROOT

from pages.render import (
    SECTIONS,
    TEMPLATES,
    pages,
    render_page,
    render_template,
    stale_pages,
)
from summarize import Results

_MARKER = re.compile(r"<!-- (begin: [\w-]+|end) -->")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_blocks_are_rendered_from_the_committed_results() -> None:
    stale = [str(path.relative_to(ROOT)) for path, _ in stale_pages()]
    assert not stale, "run `python experiments/pages/render.py`"


def test_every_block_is_closed_and_used_once() -> None:
    used: list[str] = []
    for page in pages():
        markers = _MARKER.findall(text_of(page))
        assert markers[1::2] == ["end"] * (len(markers) // 2), page
        used += [marker.removeprefix("begin: ") for marker in markers[::2]]
    assert "end" not in used
    assert len(set(used)) == len(used)
    functions = {
        f"{section}-{name.replace('_', '-')}"
        for section, module in SECTIONS.items()
        for name, value in vars(module).items()
        if getattr(value, "__annotations__", None) == {"results": "Results", "return": "str"}
    }
    assert len(functions) > 30
    assert functions <= set(used)
    assert set(tomllib.loads(text_of(TEMPLATES))) <= set(used)


def test_a_block_is_replaced_and_the_rest_is_kept() -> None:
    page = "before\n<!-- begin: reproduction-table1 -->\nold\n<!-- end -->\nafter\n"
    rendered = render_page(page, Results())
    assert rendered.startswith("before\n<!-- begin: reproduction-table1 -->\n| dataset |")
    assert rendered.endswith("|\n<!-- end -->\nafter\n")
    assert render_page(rendered, Results()) == rendered


def test_unknown_block_is_an_error() -> None:
    with pytest.raises(SystemExit, match=f"'absent'.*{TEMPLATES.name}"):
        render_page("<!-- begin: absent -->\n<!-- end -->", Results())


def test_templates_read_the_summary_and_result_files() -> None:
    keys = ("table", "row", "dataset", "protocol", "gold", "metric", "mean", "sd", "encoder")
    rows = [
        ("table2", "capsar", "laptop", "ours", None, "accuracy", 0.7, 0.01, "bigru"),
        ("table2", "capsar-bert", "laptop", "ours", None, "accuracy", 0.8, 0.01, "small"),
        ("table2", "capsar-bert", "laptop", "ours", None, "accuracy", 0.9, 0.01, "large"),
        ("table4", "capsar", "laptop", "ours", "all", "map", 0.6, 0.02, "bigru"),
        ("out-of-domain", "base", "laptop", None, None, "ece", 0.1234, None, None),
    ]
    results = Results([dict(zip(keys, row, strict=True)) for row in rows], [])
    for path, value in {
        "table2/capsar/laptop/ours/accuracy/mean": ".7000",
        "table2/capsar-bert@large/laptop/ours/accuracy/mean": ".9000",
        "table4/capsar/laptop/ours/all/map/sd": ".0200",
        "out-of-domain/base/laptop//ece/mean": ".1234",
    }.items():
        assert render_template(f"{{summary[{path}]:.4f}}", results) == value
    with pytest.raises(KeyError):
        render_template("{summary[table2/absent/laptop/ours/accuracy/mean]:.4f}", results)
    assert int(render_template("{install[install_mb]:.0f}", results)) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_work(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text_of(page)):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_number_names_its_source_in_a_comment(page: Path) -> None:
    """Numbers from result files are in blocks, not followed by a comment."""
    assert not re.findall(r"<!-- [\w-]+\.json: ", text_of(page))

"""README and docs: figures come from committed results, links hold, the tree is the tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT

FIGURE = re.compile(r"(−?(?:\d[\d,]*)?\.?\d+)[^\d`(<]*<!-- ([\w-]+)\.json: ([\w/@-]+) -->")
"""A figure, and after it, for those who read the source, where it comes from."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def figures() -> list[tuple[str, str, str, str]]:
    return [(page.name, *match) for page in PAGES for match in FIGURE.findall(text_of(page))]


@pytest.mark.parametrize(("page", "shown", "result", "metric"), figures())
def test_figures_are_those_of_the_committed_results(
    page: str, shown: str, result: str, metric: str
) -> None:
    (path,) = ROOT.glob(f"*/results/{result}.json")
    content = json.loads(path.read_text())
    if isinstance(content, list):
        value = summarized(content, metric)
    else:
        assert {"name", "command", "commit", "versions", "machine", "metrics"} <= set(content)
        value = content["metrics"][metric]
    decimals = len(shown.partition(".")[2])
    told = float(shown.replace(",", "").replace("−", "-"))
    assert told == pytest.approx(round(value, decimals)), page


def summarized(summary: list[dict[str, Any]], name: str) -> float:
    """A figure of `summary.json`, by `table/row/dataset/protocol/[gold/]metric/mean` (or sd, n).

    Where encoders differ, the row is `row@encoder`.
    """
    *facts, metric, field = name.split("/")
    keys = ("table", "row", "dataset", "protocol", "gold")
    wanted = dict(zip(keys, [*facts, None], strict=False)) | {"metric": metric}
    wanted["row"], _, encoder = str(wanted["row"]).partition("@")
    wanted |= {"encoder": encoder} if encoder else {}
    (entry,) = (e for e in summary if all(e[key] == value for key, value in wanted.items()))
    return float(entry[field])


def test_figures_of_the_summary_are_found_by_what_they_are() -> None:
    keys = ("table", "row", "dataset", "protocol", "gold", "metric", "mean", "sd", "encoder")
    rows = [
        ("table2", "capsar", "laptop", "ours", None, "accuracy", 0.7, 0.01, "bigru"),
        ("table2", "capsar-bert", "laptop", "ours", None, "accuracy", 0.8, 0.01, "small"),
        ("table2", "capsar-bert", "laptop", "ours", None, "accuracy", 0.9, 0.01, "large"),
        ("table4", "capsar", "laptop", "ours", "all", "map", 0.6, 0.02, "bigru"),
    ]
    summary = [dict(zip(keys, row, strict=True)) for row in rows]
    assert summarized(summary, "table2/capsar/laptop/ours/accuracy/mean") == 0.7
    assert summarized(summary, "table2/capsar-bert@large/laptop/ours/accuracy/mean") == 0.9
    assert summarized(summary, "table4/capsar/laptop/ours/all/map/sd") == 0.02
    text = "accuracy .7000<!-- summary.json: table2/capsar/laptop/ours/accuracy/mean -->"
    assert FIGURE.findall(text) == [(".7000", "summary", "table2/capsar/laptop/ours/accuracy/mean")]


def test_there_are_figures_to_check() -> None:
    assert len(figures()) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_hold(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text_of(page)):
        assert (page.parent / target).exists(), target


def test_the_tree_in_the_readme_is_the_tree() -> None:
    readme = text_of(ROOT / "README.md")
    for path in (ROOT / "src" / "capsar").rglob("*.py"):
        if path.name in ("__init__.py", "__main__.py") or path.parent.name in ("cli", "formats"):
            continue
        assert path.name in readme, f"{path.name} is not in the README's tree"
    for name in re.findall(r"[├└]── (\w+\.py)", readme):
        assert list((ROOT / "src").rglob(name)), f"{name} is in the README's tree only"

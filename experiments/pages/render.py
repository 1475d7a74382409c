"""Render the blocks of README and docs from committed JSON: `python experiments/pages/render.py`.

A block stands between `<!-- begin: NAME -->` and `<!-- end -->` in any Markdown page. NAME is
`SECTION-FUNCTION`, a function of a module in this folder (`extended-accuracy`), or a template of
`blocks.toml`. With `--check`, nothing is written and stale pages are an error; `tests/test_docs.py`
checks the same.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from pages import baselines, detection, extended, extensions, pretrained, reproduction
from pages.formatting import Number
from run import ROOT, write_text
from summarize import Results, SummaryIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

TEMPLATES = Path(__file__).with_name("blocks.toml")
_BLOCK = re.compile(r"(<!-- begin: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


SECTIONS: dict[str, ModuleType] = {
    "baselines": baselines,
    "detection": detection,
    "extended": extended,
    "extensions": extensions,
    "pretrained": pretrained,
    "reproduction": reproduction,
}
"""The modules whose functions render blocks."""


def render_template(template: str, results: Results) -> str:
    """Fill in a template of `blocks.toml`.

    A field is `{FILE[METRIC]:FORMAT}`: the name of a result file, one of its `metrics`, and a
    Python format. `{summary[TABLE/ROW/DATASET/PROTOCOL/METRIC/mean]:.4f}` is an entry of
    the summary; `sd` and `n` work like `mean`, a row may be `ROW@ENCODER`, and an empty PROTOCOL
    stands for none.
    """

    class Files(dict[str, Any]):
        def __missing__(self, name: str) -> dict[str, Any]:
            if name == "summary":
                return _SummaryFields(results.summary)
            return {key: Number(value) for key, value in results.read(name)["metrics"].items()}

    return template.strip().format_map(Files())


class _SummaryFields(dict[str, Any]):
    """The entries of the summary by path."""

    def __init__(self, summary: SummaryIndex) -> None:
        self._summary = summary

    def __missing__(self, path: str) -> Number:
        table, row, dataset, protocol, *gold, metric, field = path.split("/")
        row, _, encoder = row.partition("@")
        facts = {"encoder": encoder} if encoder else {}
        entry = self._summary.one(
            table, row=row, dataset=dataset, protocol=protocol or None, metric=metric,
            gold=gold[0] if gold else None, **facts,
        )  # fmt: skip
        if entry is None:
            raise KeyError(path)
        return Number(entry[field])


def render_block(name: str, results: Results) -> str:
    """Return the Markdown of a block."""
    section, _, function = name.partition("-")
    render = getattr(SECTIONS.get(section), function.replace("-", "_"), None)
    if render is not None:
        text: str = render(results)
        return text
    templates = tomllib.loads(TEMPLATES.read_text(encoding="utf-8"))
    if name not in templates:
        raise SystemExit(
            f"There is no block {name!r}: it is neither a function of a section "
            f"({', '.join(SECTIONS)}) nor a template of {TEMPLATES.name}"
        )
    return render_template(templates[name], results)


def render_page(text: str, results: Results) -> str:
    """Return a page with all of its blocks rendered."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{render_block(match[2], results)}\n{match[3]}"

    return _BLOCK.sub(fill, text)


def pages() -> list[Path]:
    """Return the pages that may hold blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def stale_pages(results: Results | None = None) -> Iterator[tuple[Path, str]]:
    """Yield the pages that are not as their results give them, with what they should be."""
    results = results or Results()
    for path in pages():
        text = path.read_text(encoding="utf-8")
        rendered = render_page(text, results)
        if rendered != text:
            yield path, rendered


def render_pages() -> None:
    """Write the pages that are stale."""
    for path, rendered in stale_pages():
        write_text(path, rendered)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="report stale pages, write nothing")
    if not parser.parse_args().check:
        render_pages()
        return 0
    stale = [str(path.relative_to(ROOT)) for path, _ in stale_pages()]
    for name in stale:
        print(f"stale: {name}; run `python experiments/pages/render.py`", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())

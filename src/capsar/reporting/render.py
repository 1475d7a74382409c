"""Render a report as CSV, or as one HTML file that loads nothing.

Reviews are untrusted. On the page they are JSON in a block that no browser runs, and are shown as
text nodes; the content security policy allows only the scripts whose hashes it lists.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = (
    "parent", "theme", "aspect", "group", "period", "mentions", "reviews", "low_confidence",
    *(f"{one}{part}" for one in CLASSES for part in ("", "_low", "_high", "_count")),
    "net", "net_low", "net_high",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FOLDER = files("capsar.reporting") / "page"
_INTERPRETER = "vega-interpreter.js"
_SCRIPTS = (
    "dom.js", "topics.js", "shares.js", "charts.js", "draw.js", "table.js", "drivers.js",
    "heatmap.js", "lists.js", "summary.js", "drill.js", "report.js",
)  # fmt: skip
"""The page's own scripts, joined in this order."""


def render_csv(content: dict[str, Any]) -> str:
    """Return the shares of each theme and aspect as CSV."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for names, numbers in share_rows(content):
        writer.writerow([*map(_escape_formula, names), *numbers])
    return stream.getvalue()


def share_rows(content: dict[str, Any]) -> Iterator[tuple[list[str], list[float]]]:
    """Yield names and numbers: of all, of each theme and of each aspect.

    There is a row for everything, one per group, per period, and per group and period, if it has a
    mention. An empty `group` or `period` stands for all of them; an empty `aspect` for a whole
    theme, and if the theme is empty as well, for the whole corpus.
    """
    groups, starts = content["groups"]["names"], content["periods"]["starts"]
    topics = [(["", "", ""], content["overall"])]
    paths = [_path(content["themes"], number) for number in range(len(content["themes"]))]
    topics += [([*path, ""], theme) for path, theme in zip(paths, content["themes"], strict=True)]
    for aspect in content["aspects"]:
        path = ["", ""] if aspect["theme"] is None else paths[aspect["theme"]]
        topics.append(([*path, aspect["name"]], aspect))
    for path, topic in topics:
        cells = [("", "", topic)]
        cells += [(group, "", one) for group, one in zip(groups, topic["by_group"], strict=True)]
        cells += [("", start, one) for start, one in zip(starts, topic["by_period"], strict=True)]
        for group, by_period in zip(groups, topic.get("by_group_and_period", ()), strict=False):
            cells += [(group, start, one) for start, one in zip(starts, by_period, strict=True)]
        for group, start, cell in cells:
            if cell["mentions"]:
                yield [*path, group, start], _csv_numbers(cell)


def _path(themes: list[dict[str, Any]], number: int) -> list[str]:
    """Return the names of a theme's parent, or an empty one, and of the theme."""
    parent = themes[number]["parent"]
    return ["" if parent is None else themes[parent]["name"], themes[number]["name"]]


def _csv_numbers(cell: dict[str, Any]) -> list[float]:
    numbers: list[float] = [cell["mentions"], cell["reviews"], cell["low_confidence"]]
    for polarity, count in zip(CLASSES, cell["counts"], strict=True):
        numbers += [*cell[str(polarity)], count]
    return [*numbers, *cell["net"]]


def _escape_formula(text: str) -> str:
    """Return a text that spreadsheets do not run as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def render_page(content: dict[str, Any]) -> str:
    """Return the HTML page of a report."""
    scripts = [
        _read("vendor/vega.min.js"),
        _read("vendor/vega-lite.min.js"),
        _interpreter(),
        "\n".join(map(_read, _SCRIPTS)),
    ]
    parts = {
        "policy": _policy(scripts),
        "title": html.escape(content["title"]),
        "style": _read("style.css"),
        "content": _inert_json(content),
        "scripts": "\n".join(f"<script>{_checked(script)}</script>" for script in scripts),
    }
    # Split first, so that inserted content is never searched for placeholders.
    first, *rest = _read("index.html").split("{{")
    page = [first]
    for piece in rest:
        name, _, after = piece.partition("}}")
        page += [parts[name], after]
    return "".join(page)


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _interpreter() -> str:
    """Return the library that evaluates charts without `eval`, as a classic script.

    It is published as a module that imports three names; Vega exports all of them.
    """
    module = _read(f"vendor/{_INTERPRETER}")
    imported = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';"
    exported = "export { expression as expressionInterpreter };"
    if imported not in module or exported not in module:
        raise ArtifactError(f"{_INTERPRETER} is not the version that this release contains")
    body = module.replace(imported, "").replace(exported, "").partition("//# sourceMappingURL")[0]
    names = "ascending, isString, DisallowedObjectProperties"
    return f"var capsarInterpreter = (({{ {names} }}) => {{\n{body}\nreturn expression; }})(vega);"


def _inert_json(content: object) -> str:
    """Return JSON that cannot end its script block or begin a comment."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate cannot be encoded as UTF-8; browsers read it from its escape.
    text = "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in text)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _checked(script: str) -> str:
    if "</script" in script.lower() or "<!--" in script:
        raise ArtifactError("A script of the page contains markup that would end it")
    return script


def _policy(scripts: list[str]) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )

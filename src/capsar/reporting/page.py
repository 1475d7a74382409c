"""A report as one HTML file: styles, scripts, charts and data inside, nothing loaded from anywhere.

What reviews say is data: it stands in a block of JSON that no browser runs, is put on the page as
text, and the page's own policy lets no script run but those whose hashes are named here.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

from capsar.errors import ArtifactError
from capsar.reporting.charts import chart_specs

_FOLDER = files("capsar.reporting") / "page"
_LIBRARIES = ("vega.min.js", "vega-lite.min.js")
_INTERPRETER = "vega-interpreter.js"
_SCRIPTS = ("dom.js", "figures.js", "draw.js", "table.js", "lists.js", "drill.js", "report.js")
"""Of the page itself, joined in this order."""


def render_page(content: dict[str, Any]) -> str:
    """Return the page of a report's content."""
    own = "\n".join(_read(name) for name in _SCRIPTS)
    scripts = [*(_read(f"vendor/{name}") for name in _LIBRARIES), _interpreter(), own]
    # In this order: what is put in is never looked through for the marks of others.
    parts = {
        "policy": _policy(scripts),
        "title": html.escape(content["title"]),
        "style": _read("style.css"),
        "content": _inert_json(content),
        "charts": _inert_json(chart_specs()),
        "scripts": "\n".join(f"<script>{_closed(script)}</script>" for script in scripts),
    }
    pieces = _read("index.html").split("{{")
    page = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        page += [parts[name], rest]
    return "".join(page)


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _interpreter() -> str:
    """Return the library that evaluates charts without `eval`, as a script of its own.

    It is published as a module that takes three names from another one; Vega brings both.
    """
    module = _read(f"vendor/{_INTERPRETER}")
    taken = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';"
    given = "export { expression as expressionInterpreter };"
    if taken not in module or given not in module:
        raise ArtifactError(f"{_INTERPRETER} is not the version that this release was made with")
    body = module.replace(taken, "").replace(given, "").partition("//# sourceMappingURL")[0]
    names = "ascending, isString, DisallowedObjectProperties"
    return f"var capsarInterpreter = (({{ {names} }}) => {{\n{body}\nreturn expression; }})(vega);"


def _inert_json(content: object) -> str:
    """Return JSON in which nothing can end its block, or begin a comment."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # A lone half of a pair cannot be written as UTF-8; browsers read it from its escape.
    text = "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in text)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _closed(script: str) -> str:
    if "</script" in script.lower() or "<!--" in script:
        raise ArtifactError("A script of the page would end itself")
    return script


def _policy(scripts: list[str]) -> str:
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )

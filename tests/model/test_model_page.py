"""`docs/model.md`: the functions and tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")


def test_functions_on_the_page_exist() -> None:
    named = re.findall(r"`([\w./]+\.py)` `(\w+)`", PAGE)
    assert len(named) > 20
    for file, name in named:
        source = (ROOT / "src" / "capsar" / "model" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(class |def )?{name}\b", source, re.MULTILINE), (file, name)


def test_tests_on_the_page_exist() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    existing = set(re.findall(r"^def (test_\w+)", "\n".join(sources), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 20
    assert not named - existing

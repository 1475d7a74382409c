"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<excuse>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block."""

    language: str
    code: str
    line: int
    """The number of its first line of code, from 1."""
    excuse: str
    """Why it is not run; empty if it is."""

    def commands(self) -> Iterator[tuple[str, str | None]]:
        """Yield each command, and the output that a `console` block shows."""
        if self.language == "console":
            yield from re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", self.code, re.MULTILINE)
        else:
            lines = self.code.replace("\\\n", " ").splitlines()
            yield from ((line, None) for line in lines if line.strip())


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            found["code"],
            text.count("\n", 0, found.start("code")) + 1,
            found["excuse"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def is_as_shown(printed: str, shown: str) -> bool:
    """Return whether a page shows what was printed, ignoring a missing final newline.

    A `…` on the page stands for anything.
    """
    pattern = ".*".join(map(re.escape, shown.removesuffix("\n").split("…")))
    return re.fullmatch(pattern, printed.removesuffix("\n"), re.DOTALL) is not None

"""A coverage-guided fuzzer for the analyzer: `python tests/fuzz/fuzz_analyze.py CORPUS [-runs=N]`.

The bytes become a text, possibly with lone surrogates; the first two choose an aspect in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["capsar"]):
    from capsar import AspectSpan, CapsarError, load

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
from hostile_text import HOSTILE

ANALYZER = load("fast")


def test_one_input(data: bytes) -> None:
    """Analyze any text and classify any part of it; all offsets must be exact."""
    text = data[2:].decode("utf-8", "surrogateescape")
    aspects = ANALYZER.analyze([text])[0]
    if len(data) > 1:
        for aspect in (text[data[0] : data[0] + data[1]], (data[0], data[0] + data[1])):
            try:
                given = AspectSpan(*aspect) if isinstance(aspect, tuple) else aspect
                aspects += ANALYZER.classify([text], [[given]])[0]
            except CapsarError:  # the text does not contain the aspect
                continue
    for found in aspects:
        if text[found.start : found.end] != found.text or not found.text:
            raise AssertionError(f"{found!r} has wrong offsets")


if __name__ == "__main__":
    corpus = Path(sys.argv[1])
    for number, fragment in enumerate(HOSTILE):
        content = f"ab the {fragment} soup".encode("utf-8", "surrogatepass")
        (corpus / f"seed-{number}").write_bytes(content)
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()

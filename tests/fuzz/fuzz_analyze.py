"""A coverage-guided fuzzer for the analyzer: `python tests/fuzz/fuzz_analyze.py CORPUS [-runs=N]`.

The bytes become a text with lone surrogates and all; the first two choose an aspect in it.
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
    """Analyze any text, ask about any part of it; whatever comes must be in place."""
    text = data[2:].decode("utf-8", "surrogateescape")
    answers = ANALYZER.analyze([text])[0]
    if len(data) > 1:
        for aspect in (text[data[0] : data[0] + data[1]], (data[0], data[0] + data[1])):
            try:
                asked = AspectSpan(*aspect) if isinstance(aspect, tuple) else aspect
                answers += ANALYZER.classify([text], [[asked]])[0]
            except CapsarError:  # no such aspect in the text
                continue
    for answer in answers:
        if text[answer.start : answer.end] != answer.text or not answer.text:
            raise AssertionError(f"{answer!r} is not in place")


if __name__ == "__main__":
    corpus = Path(sys.argv[1])
    for number, piece in enumerate(HOSTILE):
        content = f"ab the {piece} soup".encode("utf-8", "surrogatepass")
        (corpus / f"seed-{number}").write_bytes(content)
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()

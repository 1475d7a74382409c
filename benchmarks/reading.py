"""Peak memory of reading a 200 MB XML file and a 2 GB CSV file, beside files a twentieth the size.

`python benchmarks/reading.py` writes `results/reading.json`; a `memory_ratio` near 1 means that
memory does not grow with the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from measure import peak_memory_mb, run_fresh, write_result

SIZES = {"xml": 200_000_000, "csv": 2_000_000_000}
SMALLER = 20
_REVIEW = "The soup was cold, the bread was fine and nobody came to take our order. " * 12


def generate(path: Path, size: int) -> None:
    """Write a labelled file of `size` bytes or a little more, every record different."""
    with path.open("w", encoding="utf-8") as stream:
        if path.suffix == ".xml":
            stream.write("<sentences>\n")
            _repeat(stream, size, _sentence)
            stream.write("</sentences>\n")
        else:
            stream.write("text,aspect,polarity\n")
            _repeat(stream, size, lambda n: f'"{n} {_REVIEW}",bread,neutral\n')


def _sentence(number: int) -> str:
    text = f"{number:09} the soup was cold, the bread was fine and nobody came to take our order."
    terms = "".join(
        f'<aspectTerm term="{term}" polarity="{polarity}" from="{start}" to="{start + len(term)}"/>'
        for term, polarity, start in (("soup", "negative", 14), ("bread", "neutral", 33))
    )
    body = f"<text>{text}</text><aspectTerms>{terms}</aspectTerms>"
    return f'<sentence id="{number}">{body}</sentence>\n'


def _repeat(stream, size, record) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    number = 0
    while size > 0:
        block = "".join(record(n) for n in range(number, number + 1000))
        stream.write(block)
        size -= len(block)
        number += 1000


def read(path: Path) -> dict[str, float]:
    """Read a file to its end in this process."""
    from capsar.data.readers import read_examples

    start = time.perf_counter()
    examples = sum(1 for _ in read_examples(path))
    seconds = time.perf_counter() - start
    size = path.stat().st_size
    return {
        "examples": examples,
        "mb_per_s": size / 1e6 / seconds,
        "peak_mb": peak_memory_mb(),
        "file_mb": size / 1e6,
    }


def measure(kind: str, size: int, folder: Path) -> dict[str, float]:
    """Generate two files, read each in a fresh process, and compare."""
    results = []
    for wanted in (size // SMALLER, size):
        path = folder / f"generated-{wanted}.{kind}"
        generate(path, wanted)
        results.append(run_fresh(__file__, "read", path))
        path.unlink()
    small, large = results
    return {
        f"{kind}_file_mb": large["file_mb"],
        f"{kind}_examples": large["examples"],
        f"{kind}_mb_per_s": large["mb_per_s"],
        f"{kind}_peak_mb": large["peak_mb"],
        f"{kind}_memory_ratio": large["peak_mb"] / small["peak_mb"],
    }


def main() -> None:
    if sys.argv[1:2] == ["read"]:
        print(json.dumps(read(Path(sys.argv[2]))))
        return
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, size in SIZES.items():
            metrics |= measure(kind, size, Path(folder))
    write_result("reading", metrics, ("defusedxml",))


if __name__ == "__main__":
    main()

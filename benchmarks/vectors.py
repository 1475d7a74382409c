"""Memory and time of reading a GloVe file of 1.9 M rows x 300, the first time and from the cache.

`python benchmarks/vectors.py` writes `results/vectors.json`. The file is synthetic, in the format
and of the size of the public `glove.42B.300d.txt`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from measure import peak_memory_mb, run_fresh, write_result

NUM_ROWS = 1_900_000
DIM = 300
_NEEDED = 10_000


def generate(path: Path, num_rows: int = NUM_ROWS) -> None:
    """Write a file of rows with words all different, and a thousand different vectors."""
    generator = random.Random(0)
    vectors = [
        " ".join(f"{generator.gauss(0, 0.4):.5g}" for _ in range(DIM)).encode() for _ in range(1000)
    ]
    with path.open("wb") as stream:
        for start in range(0, num_rows, 1000):
            stream.writelines(
                b"word%d %s\n" % (start + n, vectors[n]) for n in range(min(1000, num_rows - start))
            )


def load(path: Path, num_rows: int) -> dict[str, float]:
    """Load some of the words in this process."""
    from capsar.model.vectors import load_vectors

    step = max(1, num_rows // _NEEDED)
    words = [f"word{row}" for row in range(0, num_rows, step)] + ["absent"]
    start = time.perf_counter()
    vectors = load_vectors(path, words)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mb": peak_memory_mb(), "rows": len(vectors.words)}


def measure(folder: Path, num_rows: int = NUM_ROWS) -> dict[str, float]:
    """Generate a file and load it twice, each time in a fresh process."""
    path = folder / "glove.synthetic.300d.txt"
    generate(path, num_rows)
    first = run_fresh(__file__, "load", path, num_rows)
    second = run_fresh(__file__, "load", path, num_rows)
    return {
        "file_rows": num_rows,
        "file_mb": path.stat().st_size / 1e6,
        "rows_kept": second["rows"],
        "first_load_s": first["seconds"],
        "first_load_peak_mb": first["peak_mb"],
        "second_load_s": second["seconds"],
        "second_load_peak_mb": second["peak_mb"],
    }


def main() -> None:
    if sys.argv[1:2] == ["load"]:
        print(json.dumps(load(Path(sys.argv[2]), int(sys.argv[3]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_result("vectors", measure(Path(folder)))


if __name__ == "__main__":
    main()

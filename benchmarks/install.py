"""What a user pays before the first answer: size on disk, time to import, time to a cold answer.

`python benchmarks/install.py` builds the wheel, installs it alone in a fresh environment, and
writes `results/install.json`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from measure import write_result

ROOT = Path(__file__).parent.parent
REVIEW = "Great food, terrible service."


def folder_mb(folder: Path) -> float:
    """Return what a folder takes on disk, compiled files included."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20


def seconds(command: list[str | Path], repeats: int = 5) -> float:
    """Return the median time of a command in a fresh process, after one to fill the disk cache."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        dist, fresh = Path(scratch) / "dist", Path(scratch) / "fresh"
        build: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--outdir", dist]
        subprocess.run(build, check=True, capture_output=True, cwd=ROOT)
        (wheel,) = dist.glob("*.whl")
        venv.create(fresh, with_pip=True)
        python = fresh / "bin" / "python"
        (packages,) = (fresh / "lib").glob("python3*/site-packages")
        before = folder_mb(packages)
        constraints = ROOT / "constraints.txt"
        install: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            constraints,
            wheel,
        ]
        subprocess.run(install, check=True, capture_output=True)
        torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        if torch.returncode == 0:
            raise SystemExit("torch is in the core install")
        metrics = {
            "install_mb": folder_mb(packages) - before,
            "wheel_mb": wheel.stat().st_size / 2**20,
            "python_s": seconds([python, "-c", "pass"]),
            "import_s": seconds([python, "-c", "import capsar"]),
            "cold_start_s": seconds(
                [fresh / "bin" / "capsar", "analyze", REVIEW, "--aspect", "food", "--json"]
            ),
            "cold_load_s": seconds(
                [python, "-c", f"import capsar; capsar.load().classify([{REVIEW!r}], ['food'])"]
            ),
        }
    write_result("install", metrics, ("onnxruntime", "tokenizers"))


if __name__ == "__main__":
    main()

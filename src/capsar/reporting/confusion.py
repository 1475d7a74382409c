"""How often a model takes one polarity for another, as it was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.errors import DataError
from capsar.labels import CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST = 10
"""Examples of each class below which a matrix tells nothing."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Examples by true class (row) and predicted class (column), in the order of `CLASSES`."""

    counts: tuple[tuple[int, ...], ...]
    source: str
    """What it was measured on, in words."""
    elsewhere: bool = False
    """Whether that were other reviews than those it is used for."""
    model_sha256: str = ""
    """Of the model that it was measured with; empty if that is not told."""
    warnings: tuple[str, ...] = ()
    """What takes from its worth, in words."""

    @property
    def rates(self) -> NDArray[np.float64]:
        """How often (C, C) each true class is told as each class."""
        counts = np.array(self.counts, dtype=np.float64)
        rates: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
        return rates


def make_confusion(
    counts: Any,  # noqa: ANN401  (whatever JSON holds)
    source: str,
    *,
    elsewhere: bool = False,
) -> Confusion:
    """Check a matrix of counts.

    Raises:
        DataError: If it is none, has too few examples, or tells classes no better than by chance.
    """
    names = ", ".join(CLASSES)
    size = len(CLASSES)
    try:
        matrix = np.array(counts, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != (size, size) or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise DataError(
            f"{source}: expected {size} rows of {size} counts, true by predicted {names}."
        )
    if matrix.sum(1).min() < _LEAST:
        rarest = int(matrix.sum(1).argmin())
        raise DataError(
            f"{source}: {matrix[rarest].sum():.0f} examples are {CLASSES[rarest]}, but correcting "
            f"shares needs {_LEAST} or more of each class. Label more reviews, or do without."
        )
    rates = matrix / matrix.sum(1, keepdims=True)
    if (rates.argmax(1) != np.arange(size)).any():
        raise DataError(
            f"{source}: a class is more often told as another than as itself, which no correction "
            "can mend; the rows are true classes and the columns predicted ones."
        )
    return Confusion(tuple(tuple(int(count) for count in row) for row in matrix), source, elsewhere)


def read_confusion(file: str | Path) -> Confusion:
    """Read a matrix from what `capsar evaluate --json` writes, or from a bare matrix as JSON.

    Raises:
        DataError: If there is none in it.
    """
    path = Path(file)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no confusion matrix can be read: {error}") from error
    about = content if isinstance(content, dict) else {}
    if isinstance(content, dict):
        content = content.get("figures", content)
        content = content.get("confusion") if isinstance(content, dict) else None
    sha256, warnings = about.get("model_sha256"), about.get("warnings")
    return replace(
        make_confusion(content, path.name),
        model_sha256=sha256 if isinstance(sha256, str) else "",
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
    )

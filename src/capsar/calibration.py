"""Applying a calibration: scores -> probabilities, with numpy alone.

Capsule lengths, and the likelihoods of tagged spans, are not probabilities. What makes them such is
fitted on dev at the end of training (`capsar.training.calibrate`) and stored in the bundle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.errors import ArtifactError

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("temperature", "bent", "vector", "bent-vector", "isotonic")
"""From the one of fewest numbers to that of most."""
_EDGE = 1e-4
"""How near to 0 and 1 a score, and a probability, can come."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scores between 0 and 1 of each class -> probabilities.

    `temperature`: the softmax of the scores' log-odds times one number. `vector`: times one number
    a class, plus one a class. `bent` and `bent-vector` add the cube of the log-odds times a number,
    or one a class: capsule lengths crowd near 0 and 1, where a small step means much. `isotonic`:
    one rising step function a class, then shares of their sum.
    """

    kind: str
    weights: tuple[float, ...] = ()
    """One, or one a class."""
    offsets: tuple[float, ...] = ()
    """One a class, or none."""
    bends: tuple[float, ...] = ()
    """Of the cubes: as many as weights, or none."""
    steps: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    """Of each class, where the line turns (log-odds) and how high it is there."""
    most: float = 1.0
    """The highest probability there can be; below one, probabilities are drawn to equal shares."""

    def apply(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the probabilities of scores (n, C); each row sums to one.

        >>> halves = Calibration("temperature", (1.0,)).apply(np.array([[0.5, 0.5]]))
        >>> halves.tolist()
        [[0.5, 0.5]]
        """
        odds = log_odds(scores)
        if self.kind == "isotonic":
            columns = [np.interp(odds[:, i], x, y) for i, (x, y) in enumerate(self.steps)]
            parts = np.clip(np.stack(columns, axis=1), _EDGE, None)
        else:
            logits = odds * np.array(self.weights) + np.array(self.offsets or 0.0)
            if self.bends:
                logits = logits + cubes(odds) * np.array(self.bends)
            parts = np.exp(logits - logits.max(1, keepdims=True))
        shares: NDArray[np.float64] = parts / parts.sum(1, keepdims=True)
        if self.most < 1:
            equal = 1 / shares.shape[1]
            shares = equal + (shares - equal) * (self.most - equal) / (1 - equal)
        return shares

    def as_dict(self) -> dict[str, Any]:
        """Return the calibration as JSON holds it."""
        content: dict[str, Any] = {
            "kind": self.kind,
            "weights": list(self.weights),
            "offsets": list(self.offsets),
            "steps": [[list(x), list(y)] for x, y in self.steps],
        }
        if self.bends:
            content["bends"] = list(self.bends)
        return content | ({"most": self.most} if self.most < 1 else {})

    @classmethod
    def from_dict(cls, content: object, num_classes: int) -> Calibration:
        """Read a calibration of so many classes from a bundle's configuration.

        Raises:
            ArtifactError: If it is none.
        """
        try:
            made = cls(
                kind=str(content["kind"]),  # type: ignore[index]
                weights=_numbers(content["weights"]),  # type: ignore[index]
                offsets=_numbers(content["offsets"]),  # type: ignore[index]
                steps=tuple((_numbers(x), _numbers(y)) for x, y in content["steps"]),  # type: ignore[index]
                bends=_numbers(content.get("bends", ())),  # type: ignore[attr-defined]
                most=float(content.get("most", 1.0)),  # type: ignore[attr-defined]
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ArtifactError(
                f"config.json holds no usable calibration ({error!r}). Export the model again."
            ) from error
        if not made._fits(num_classes):
            raise ArtifactError(
                f"config.json holds a calibration {made.kind!r} that does not fit {num_classes} "
                "classes. Export the model again."
            )
        return made

    def _fits(self, num_classes: int) -> bool:
        if not 1 / num_classes < self.most <= 1:
            return False
        if self.kind == "isotonic":
            alike = all(len(x) == len(y) > 0 and list(x) == sorted(x) for x, y in self.steps)
            return len(self.steps) == num_classes and alike
        if self.kind not in KINDS:
            return False
        sizes = len(self.weights), len(self.bends), len(self.offsets)
        return sizes == sizes_of(self.kind, num_classes)


def sizes_of(kind: str, num_classes: int) -> tuple[int, int, int]:
    """Return how many weights, bends and offsets a kind that is not `isotonic` has."""
    weights, offsets = (num_classes, num_classes) if kind.endswith("vector") else (1, 0)
    return weights, weights if kind.startswith("bent") else 0, offsets


def cubes(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cubes of log-odds, of about their size where scores are near 0 or 1."""
    return odds**3 / 10


def log_odds(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the log-odds of scores from 0 to 1, of which none is taken for quite 0 or 1."""
    inside = np.clip(np.asarray(scores, dtype=np.float64), _EDGE, 1 - _EDGE)
    return np.log(inside) - np.log1p(-inside)


def two_sided(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return scores (n) of *yes* as those of *no* and *yes* (n, 2)."""
    yes = np.asarray(scores, dtype=np.float64)
    return np.stack([1 - yes, yes], axis=1)


def _numbers(values: Any) -> tuple[float, ...]:  # noqa: ANN401  (whatever JSON holds)
    made = tuple(float(value) for value in values)
    if not np.isfinite(made).all():
        raise ValueError("a number that is none")
    return made

"""Robustness: does the prediction follow the aspect when the rest of the sentence changes?

ARTS (Xing et al., EMNLP 2020) rewrites each test sentence of SemEval-2014 in up to three ways. A
second measure uses the original test sentences whose terms differ in polarity.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from capsar.data.catalog import test_examples
from capsar.data.formats import Variant, variant_of
from capsar.errors import ConfigError, DataError
from capsar.evaluation.evaluate import compute_predictions, labeled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.evaluation.evaluate import Predictor
    from capsar.schema import Example

ARTS_OF = {
    "semeval14-restaurants": "arts-restaurants",
    "semeval14-laptops": "arts-laptops",
}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of correctly predicted examples."""

    accuracy: float
    num_examples: int


@dataclass(frozen=True, slots=True)
class Robustness:
    """Accuracy on rewritten sentences."""

    variants: dict[Variant, Accuracy]
    """Only variants that occur."""
    ars: float
    """Aspect robustness score: the share of (sentence, aspect) that is right in all variants."""
    num_groups: int

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        return asdict(self)


def arts_examples(dataset: str) -> list[Example]:
    """Return the rewritten test sentences of a dataset.

    Raises:
        ConfigError: If it has none.
    """
    if dataset not in ARTS_OF:
        raise ConfigError(
            f"There are no rewritten test sentences of {dataset!r}; robustness is measured on: "
            f"{', '.join(ARTS_OF)}"
        )
    return test_examples(ARTS_OF[dataset])


def evaluate_robustness(predictor: Predictor, examples: Sequence[Example]) -> Robustness:
    """Evaluate a predictor on the examples of an ARTS file.

    Raises:
        DataError: If none is labeled.
    """
    chosen = labeled(examples)
    if not chosen:
        raise DataError("There is no rewritten sentence with a known class to evaluate on")
    truth, predicted = compute_predictions(predictor, chosen)
    by_variant: dict[Variant, list[bool]] = {variant: [] for variant in Variant}
    by_group: dict[str, list[bool]] = {}
    for example, right in zip(chosen, (truth == predicted).tolist(), strict=True):
        by_variant[variant_of(example.id)].append(right)
        by_group.setdefault(example.group, []).append(right)
    return Robustness(
        variants={
            variant: Accuracy(sum(rights) / len(rights), len(rights))
            for variant, rights in by_variant.items()
            if rights
        },
        ars=sum(map(all, by_group.values())) / len(by_group),
        num_groups=len(by_group),
    )


def mixed_polarity(examples: Iterable[Example]) -> list[Example]:
    """Return the examples of sentences whose terms have more than one polarity."""
    chosen = labeled(examples)
    polarities: dict[str, set[str]] = {}
    for example in chosen:
        polarities.setdefault(example.text, set()).add(str(example.polarity))
    return [example for example in chosen if len(polarities[example.text]) > 1]


def evaluate_mixed(predictor: Predictor, examples: Sequence[Example]) -> Accuracy | None:
    """Evaluate a predictor on sentences of mixed polarity; return `None` if there are none."""
    chosen = mixed_polarity(examples)
    if not chosen:
        return None
    truth, predicted = compute_predictions(predictor, chosen)
    return Accuracy(float((truth == predicted).mean()), len(chosen))

"""Behavioral tests after CheckList (Ribeiro et al., ACL 2020): one capability at a time.

`behavior.toml` holds sentence patterns and the terms of twelve domains. Each pattern is filled with
terms of each domain, so that a failure names the pattern, not the vocabulary.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.data.markup import parse_markup
from capsar.errors import ArtifactError
from capsar.evaluation.evaluate import Predictor
from capsar.schema import CLASSES, Example

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from capsar.schema import AspectSentiment

SUITE_SHA256 = "c18e53c2b365261f9e0d2c3faeb06177fea5734b35a175e9b61eef0d32f18256"
"""SHA-256 of `behavior.toml`: the suite is frozen, so that models can be compared."""
FILLINGS = 3
"""Fillings per pattern and domain; repeated sentences are dropped."""
SPAN_CAPABILITIES = frozenset({"lists", "compounds"})
"""Capabilities about finding terms: their score counts terms found exactly with the right
polarity. The score of all others is polarity accuracy with the aspect given."""
_RESAMPLES = 2000


class Model(Predictor, Protocol):
    """A predictor that also extracts aspects."""

    def analyze(self, texts: Sequence[str]) -> list[list[AspectSentiment]]:
        """Return the aspects found in each text."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Case:
    """One sentence of the suite."""

    capability: str
    pattern: int
    """The pattern's position in the suite, from 0."""
    domain: str
    examples: tuple[Example, ...]
    """One per marked term."""


@dataclass(frozen=True, slots=True)
class CapabilityMetrics:
    """Results of one capability, over the marked terms of its cases."""

    num_patterns: int
    num_cases: int
    num_terms: int
    polarity_accuracy: float
    """With the aspects given."""
    span_recall: float
    """Terms found exactly."""
    joint_recall: float
    """Terms found exactly, with the right polarity."""
    score: float
    """`joint_recall` for lists and compounds, `polarity_accuracy` for the others."""
    interval: tuple[float, float]
    """95 % interval of the score, bootstrapped over patterns."""


@dataclass(frozen=True, slots=True)
class BehaviorMetrics:
    """Results of the whole suite."""

    suite_sha256: str
    capabilities: dict[str, CapabilityMetrics]
    failed_patterns: dict[str, float]
    """Score of each pattern below one half, by its text."""

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        return asdict(self)


@cache
def load_suite() -> Mapping[str, Any]:
    """Return the suite as written: `domains` and `patterns`.

    Raises:
        ArtifactError: If the file is not the frozen one.
    """
    content = files("capsar.evaluation").joinpath("behavior.toml").read_bytes()
    if hashlib.sha256(content).hexdigest() != SUITE_SHA256:
        raise ArtifactError("behavior.toml was changed: reinstall capsar to get the frozen suite")
    return tomllib.loads(content.decode("utf-8"))


def build_cases(suite: Mapping[str, Any], *, fillings: int = FILLINGS) -> list[Case]:
    """Fill each pattern with terms of each domain.

    Terms rotate with the pattern and the filling, so that every term is used and the result is the
    same on every machine. Patterns whose slots give the same sentence twice yield it once.
    """
    cases: list[Case] = []
    for number, pattern in enumerate(suite["patterns"]):
        for domain, words in suite["domains"].items():
            texts: set[str] = set()
            for filling in range(fillings):
                text, terms = parse_markup(_fill(pattern["text"], words, 7 * number + 3 * filling))
                if text in texts:
                    continue
                texts.add(text)
                examples = tuple(Example(text, (span,), polarity) for span, polarity in terms)
                cases.append(Case(pattern["capability"], number, domain, examples))
    return cases


def evaluate_behavior(model: Model) -> BehaviorMetrics:
    """Evaluate a model on the suite."""
    suite = load_suite()
    cases = build_cases(suite)
    examples = [example for case in cases for example in case.examples]
    predicted = model.predict_lengths(examples).argmax(-1)  # (n)
    gold = np.array([CLASSES.index(e.polarity) for e in examples if e.polarity])
    is_right = predicted == gold
    is_found, is_joint = _find_terms(model, cases)
    pattern = np.array([case.pattern for case in cases for _ in case.examples])
    capability = np.array([case.capability for case in cases for _ in case.examples])
    metrics: dict[str, CapabilityMetrics] = {}
    failed: dict[str, float] = {}
    for name in dict.fromkeys(capability.tolist()):
        mask = capability == name
        scored = (is_joint if name in SPAN_CAPABILITIES else is_right)[mask]
        patterns = pattern[mask]
        for number in np.unique(patterns):
            rate = float(scored[patterns == number].mean())
            if rate < 0.5:  # noqa: PLR2004
                failed[suite["patterns"][number]["text"]] = rate
        metrics[name] = CapabilityMetrics(
            num_patterns=len(np.unique(patterns)),
            num_cases=sum(case.capability == name for case in cases),
            num_terms=int(mask.sum()),
            polarity_accuracy=float(is_right[mask].mean()),
            span_recall=float(is_found[mask].mean()),
            joint_recall=float(is_joint[mask].mean()),
            score=float(scored.mean()),
            interval=_bootstrap(scored, patterns),
        )
    return BehaviorMetrics(SUITE_SHA256, metrics, failed)


def _fill(template: str, words: Mapping[str, Any], offset: int) -> str:
    """Replace the slots of a pattern by terms of a domain."""
    terms, compounds = words["terms"], words["compounds"]
    return template.format(
        **{slot: terms[(offset + i) % len(terms)] for i, slot in enumerate("abcd")},
        **{slot: compounds[(offset + i) % len(compounds)] for i, slot in enumerate("xy")},
        product=words["product"],
    )


def _find_terms(model: Model, cases: Sequence[Case]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each marked term whether it is found exactly, and with the right polarity."""
    results = model.analyze([case.examples[0].text for case in cases])
    found, joint = [], []
    for case, aspects in zip(cases, results, strict=True):
        polarities = {(aspect.start, aspect.end): aspect.polarity for aspect in aspects}
        for example in case.examples:
            (span,) = example.spans
            polarity = polarities.get((span.start, span.end))
            found.append(polarity is not None)
            joint.append(polarity == example.polarity)
    return np.array(found), np.array(joint)


def _bootstrap(right: NDArray[np.bool_], pattern: NDArray[np.int64]) -> tuple[float, float]:
    """Return a 95 % interval of the mean, resampling whole patterns."""
    _, index = np.unique(pattern, return_inverse=True)
    sizes = np.bincount(index)
    rights = np.bincount(index, weights=right)
    draws = np.random.default_rng(0).integers(0, len(sizes), (_RESAMPLES, len(sizes)))
    means = rights[draws].sum(-1) / sizes[draws].sum(-1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)

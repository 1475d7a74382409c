"""Mentions and sentences -> themes: by listed terms, else by similarity, or none."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import ArtifactError
from capsar.themes.vectors import normalize, read_vectors
from capsar.tokenizer import tokenize_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from capsar.themes.schema import Themes
    from capsar.themes.vectors import WordVectors

NO_THEME = -1
HEAD = {
    "mention", "mention_bias", "mention_weights", "context", "sentence", "sentence_bias",
    "sentence_weights", "evaluates", "evaluates_bias", "no_theme", "no_implicit_theme",
    "implicit_threshold",
}  # fmt: skip
"""The weights of a theme head."""
_PLURAL = 3
"""Shorter words do not lose a final s."""


@dataclass(frozen=True, slots=True)
class StateFeatures:
    """The states of encoded sentences, pooled."""

    mentions: NDArray[np.float32]
    """The mean state of each mention's words (A, H)."""
    sentences: NDArray[np.float32]
    """The mean and the maximum of each sentence's states (S, 2H)."""


def fold(word: str) -> str:
    """Return a word as it is matched: in lower case and composed Unicode."""
    return unicodedata.normalize("NFC", word).lower()


def words_of(text: str) -> list[str]:
    """Return the folded words of a text."""
    return [fold(text[start:end]) for start, end in tokenize_words(text)]


def _singular(word: str) -> str:
    """Return a word without the ending of a plural."""
    if len(word) <= _PLURAL or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


class _Phrases:
    """The listed terms of themes."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._owners: dict[tuple[str, ...], dict[int, None]] = {}
        for number, terms in enumerate(lists):
            for term in terms:
                phrase = tuple(map(_singular, words_of(term)))
                self._owners.setdefault(phrase, {})[number] = None
        self._sizes = sorted({len(phrase) for phrase in self._owners}, reverse=True)

    def find(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """Return the themes whose phrases are among the words, with the length of the phrase."""
        if not self._owners:
            return []
        singular = tuple(map(_singular, words))
        return [
            (number, size)
            for size in self._sizes
            for start in range(len(singular) - size + 1)
            for number in self._owners.get(singular[start : start + size], ())
        ]


class ThemeMatcher:
    """Assigns themes. Threads may share it.

    The score of a mention and a theme is a weighted sum of cosine similarities: of the vectors of
    mention, sentence, name, description and terms, and, if the model has a theme head, of its
    projection of the states and the theme. A mention whose best score is below that of *no theme*
    has none. Only a model with a theme head finds implicit mentions.

    Args:
        themes: The themes.
        head: The weights of the model's theme head, if it has one.
    """

    def __init__(self, themes: Themes, head: Mapping[str, NDArray[np.float32]] | None) -> None:
        self.themes = themes
        self._vectors, static = shared_vectors()
        self._weights = static if head is None else head
        if head is not None and head["mention"].shape[-1] != self._vectors.dim:
            raise ArtifactError(
                "The theme head of this model belongs to other word vectors. Use the release of "
                "capsar that trained it."
            )
        listed = themes.themes
        self._listed = _Phrases([theme.terms for theme in listed])
        self._excluded = _Phrases([theme.excluded for theme in listed])
        embed = self._embed
        self._names = np.stack([embed(words_of(theme.name)) for theme in listed])  # (K, D)
        self._descriptions = np.stack([embed(words_of(theme.description)) for theme in listed])
        terms = [np.stack([embed(words_of(t)) for t in theme.terms])
                 for theme in listed if theme.terms]  # fmt: skip
        owners = np.array([number for number, theme in enumerate(listed) for _ in theme.terms], int)
        means = np.zeros_like(self._names)
        if terms:
            np.add.at(means, owners, np.concatenate(terms))
        together = np.concatenate([np.arange(len(listed)), owners])
        order = np.argsort(together, kind="stable")
        self._terms = np.concatenate([self._names, *terms])[order]  # (K + terms, D), by theme
        self._first_terms = np.searchsorted(together[order], np.arange(len(listed)))
        counts = np.maximum(1, np.bincount(owners, minlength=len(listed)))[:, None].astype(
            np.float32
        )
        self._centers = normalize(self._names + self._descriptions + means / counts)

    def match(
        self,
        sentences: Sequence[Sequence[str]],
        mentions: Sequence[Sequence[str]],
        owners: NDArray[np.int64],
        features: StateFeatures | None,
    ) -> tuple[list[tuple[int, float]], list[list[tuple[int, float]]]]:
        """Return the theme of each mention and the implicit themes of each sentence.

        A theme is its number, or `NO_THEME`, and a probability. A sentence has no implicit mention
        of a theme that one of its mentions has, or whose excluded terms it contains.

        Args:
            sentences: The folded words of each sentence.
            mentions: The folded words of each mention.
            owners: The sentence of each mention.
            features: The pooled states, if the model has a theme head.
        """
        vectors = normalize(np.stack([self._vectors.add_words(words) for words in sentences]))
        found: list[tuple[int, float]] = []
        if len(mentions):
            own = normalize(np.stack([self._vectors.add_words(words) for words in mentions]))
            parts = self._mention_parts(own, vectors[owners])
            if features is not None:
                projected = features.mentions @ self._weights["mention"]
                projected += (features.sentences @ self._weights["context"])[owners]
                projected += self._weights["mention_bias"]
                parts.append(normalize(projected) @ self._centers.T)
            scores = _weighted(parts, self._weights["mention_weights"])  # (A, K)
            found = self._choose_all(mentions, scores)
        taken: list[set[int]] = [set() for _ in sentences]
        for sentence, (theme, _) in zip(owners.tolist(), found, strict=True):
            taken[sentence].add(theme)
        for own_themes, words in zip(taken, sentences, strict=True):
            own_themes |= {number for number, _ in self._excluded.find(words)}
        implicit: list[list[tuple[int, float]]] = [[] for _ in sentences]
        if features is not None:
            probabilities = self._implicit(vectors, features, taken)
            rows, columns = np.nonzero(probabilities >= self._weights["implicit_threshold"])
            for row, theme in zip(rows.tolist(), columns.tolist(), strict=True):
                implicit[row].append((theme, float(probabilities[row, theme])))
        return found, implicit

    def _embed(self, words: Sequence[str]) -> NDArray[np.float32]:
        return normalize(self._vectors.add_words(words))

    def _nearest_term(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the largest similarity to a theme's name or one of its terms (A, K)."""
        return np.maximum.reduceat(self._terms @ vectors.T, self._first_terms).T

    def _mention_parts(
        self, mentions: NDArray[np.float32], sentences: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        return [
            mentions @ self._names.T,
            self._nearest_term(mentions),
            mentions @ self._descriptions.T,
            sentences @ self._descriptions.T,
            sentences @ self._names.T,
        ]

    def _choose_all(
        self, mentions: Sequence[Sequence[str]], scores: NDArray[np.float32]
    ) -> list[tuple[int, float]]:
        """Return the theme of each mention: by its words, else by its scores (A, K)."""
        for row, words in enumerate(mentions):
            barred = [number for number, _ in self._excluded.find(words)]
            scores[row, barred] = -np.inf
        none = float(self._weights["no_theme"])
        best, peaks = scores.argmax(1), scores.max(1)
        tops = np.maximum(peaks, none)
        totals = np.exp(scores - tops[:, None]).sum(1) + np.exp(none - tops)
        numbers = np.where(peaks <= none, NO_THEME, best).tolist()
        probabilities = (1 / totals).astype(float).tolist()  # the chosen one is at the top
        found = list(zip(numbers, probabilities, strict=True))
        for row, words in enumerate(mentions):
            listed = [
                pair for pair in self._listed.find(words) if np.isfinite(scores[row, pair[0]])
            ]
            if listed:
                longest = max(size for _, size in listed)
                owners = [number for number, size in listed if size == longest]
                found[row] = max(owners, key=lambda number: float(scores[row, number])), 1.0
        return found

    def _implicit(
        self,
        vectors: NDArray[np.float32],
        features: StateFeatures,
        taken: Sequence[set[int]],
    ) -> NDArray[np.float64]:
        """Return the probability of an implicit mention of each theme in each sentence (S, K)."""
        weights = self._weights
        projected = features.sentences @ weights["sentence"] + weights["sentence_bias"]
        parts = [
            vectors @ self._names.T,
            vectors @ self._descriptions.T,
            self._nearest_term(vectors),
            normalize(projected) @ self._centers.T,
        ]
        scores = _weighted(parts, weights["sentence_weights"])  # (S, K)
        none = np.full((len(scores), 1), float(weights["no_implicit_theme"]))
        for row, themes in enumerate(taken):
            scores[row, [theme for theme in themes if theme != NO_THEME]] = -np.inf
        logits = np.concatenate([scores, none], axis=1).astype(np.float64)
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        chosen = exponentials[:, :-1] / exponentials.sum(1, keepdims=True)
        evaluates = features.sentences @ weights["evaluates"] + weights["evaluates_bias"]  # (S)
        return np.asarray(chosen / (1 + np.exp(-evaluates.astype(np.float64)))[:, None])


def _weighted(
    parts: Sequence[NDArray[np.float32]], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    total = np.zeros_like(parts[0])
    for part, weight in zip(parts, weights, strict=True):
        total += weight * part
    return total


@lru_cache(maxsize=1)
def shared_vectors() -> tuple[WordVectors, Mapping[str, NDArray[np.float32]]]:
    """Return the word vectors of this installation, which all matchers share."""
    return read_vectors()

"""Suggest themes for a scored folder: clusters of the aspects that customers mention most."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import ConfigError, DataError, MissingExtraError
from capsar.reporting.aspect_names import merge_names
from capsar.reporting.options import ReportOptions
from capsar.reporting.query import connect, open_scored_folder
from capsar.themes.matcher import shared_vectors, words_of
from capsar.themes.schema import Theme
from capsar.themes.vectors import normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.reporting.aspect_names import MergedAspect

_MAX_ASPECTS = 800
"""Only the most frequent aspects are clustered."""
_MIN_MENTIONS = 2
_MAX_DISTANCE = 0.6
"""The largest mean cosine distance at which clusters are joined. Small ones are no themes."""
_MAX_TERMS = 25


def suggest_themes(scored: str | Path, number: int = 12) -> tuple[list[Theme], list[int]]:
    """Cluster the aspects of a scored folder.

    Returns:
        At most so many themes, the most frequent first, and the number of mentions of their terms.

    Raises:
        DataError: If the folder is not the output of `capsar score`, or has too few aspects.
        MissingExtraError: If the extra `analyst` is not installed.
    """
    if number < 1:
        raise ConfigError(f"The number of themes must be 1 or more, got {number}")
    if not all(map(find_spec, ("duckdb", "scipy", "snowballstemmer", "symspellpy"))):
        raise MissingExtraError("analyst", "Suggesting themes")
    aspects = [
        one
        for one in merge_names(_count_names(scored))
        if one.mentions >= _MIN_MENTIONS and words_of(one.name)
    ]
    aspects = sorted(aspects, key=lambda one: (-one.mentions, one.name))[:_MAX_ASPECTS]
    vectors = _embed(aspects) if aspects else np.zeros((0, 1), np.float32)
    known = np.flatnonzero(vectors.any(1))  # not only unknown signs
    aspects, vectors = [aspects[row] for row in known.tolist()], vectors[known]
    if len(aspects) < 2 * number:
        raise DataError(f"{len(aspects)} aspects are too few for {number} themes")
    clusters = _cluster(vectors)
    clusters.sort(key=lambda rows: -sum(aspects[row].mentions for row in rows))
    themes = [_make_theme([aspects[row] for row in rows], vectors[rows]) for rows in clusters]
    counts = [sum(aspects[row].mentions for row in rows) for rows in clusters]
    return themes[:number], counts[:number]


def write_themes(themes: Sequence[Theme], counts: Sequence[int]) -> str:
    """Return themes as the text of a `themes.toml`, with the number of mentions."""
    lines = ["# Suggested from the aspects of a scored folder. Rename, merge and describe them."]
    for theme, count in zip(themes, counts, strict=True):
        lines += ["", f"# {count:,} mentions", "[[theme]]", f"name = {_quoted(theme.name)}"]
        lines += [f"description = {_quoted(theme.description)}", "terms = ["]
        lines += [f"  {_quoted(term)}," for term in theme.terms] + ["]"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else " " for char in escaped) + '"'


def _count_names(scored: str | Path) -> dict[str, int]:
    with connect(ReportOptions()) as database:
        folder = open_scored_folder(database, scored)
        rows: list[tuple[str, int]] = database.execute(
            f"""SELECT mention.text, count(*)
                FROM (SELECT unnest({folder.mentions}) AS mention
                      FROM read_parquet($files) AS source WHERE source.error IS NULL)
                GROUP BY ALL ORDER BY ALL""",  # noqa: S608
            {"files": folder.files},
        ).fetchall()
    return dict(rows)


def _embed(aspects: Iterable[MergedAspect]) -> NDArray[np.float32]:
    vectors, _ = shared_vectors()
    return normalize(np.stack([vectors.add_words(words_of(one.name)) for one in aspects]))


def _cluster(vectors: NDArray[np.float32]) -> list[list[int]]:
    """Return the rows of each cluster (average linkage)."""
    from scipy.cluster.hierarchy import fcluster, linkage

    labels = fcluster(linkage(vectors, "average", metric="cosine"), _MAX_DISTANCE, "distance")
    order = np.argsort(labels, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(labels[order])) + 1).tolist(), len(order)]
    return [order[start:end].tolist() for start, end in pairwise(edges)]


def _make_theme(aspects: Sequence[MergedAspect], vectors: NDArray[np.float32]) -> Theme:
    """Return the theme of a cluster, named by its most frequent and central aspect.

    It has no description: one made of its terms would attract mentions of other themes.
    """
    counts = np.array([one.mentions for one in aspects])
    center = normalize((vectors * counts[:, None]).sum(0))
    name = aspects[int(((vectors @ center) * np.log1p(counts)).argmax())].name
    terms = [aspects[row].name.lower() for row in np.argsort(-counts, kind="stable")[:_MAX_TERMS]]
    return Theme(name[:1].upper() + name[1:], terms=tuple(terms))

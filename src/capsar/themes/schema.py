"""Themes: what an analyst sorts mentions into, as written in `themes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError, ConfigError
from capsar.tokenizer import tokenize_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

READY_MADE = Path(__file__).parent / "files"
_MAX_THEMES = 200
_MAX_TERMS = 500
_MAX_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Theme:
    """A topic of reviews.

    >>> Theme("Delivery", "How and when the order arrives.", terms=("shipping", "courier")).name
    'Delivery'
    """

    name: str
    description: str = ""
    """What belongs to it, in a sentence or two."""
    terms: tuple[str, ...] = ()
    """Words and phrases that always belong to it, in any case, singular or plural."""
    excluded: tuple[str, ...] = ()
    """Words and phrases that never belong to it."""
    parent: str = ""
    """The name of the theme that this one is a part of."""

    def __post_init__(self) -> None:
        for name in ("name", "description", "parent"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) > _MAX_CHARS:
                raise ConfigError(
                    f"The {name} of a theme must be text of at most {_MAX_CHARS} characters, "
                    f"got {value!r:.80}"
                )
        if not tokenize_words(self.name):
            raise ConfigError("A theme needs a name")
        for name in ("terms", "excluded"):
            value = getattr(self, name)
            terms = tuple(value) if isinstance(value, list | tuple) else (None,)
            if not all(isinstance(term, str) and tokenize_words(term) for term in terms):
                raise ConfigError(
                    f"{name} of the theme {self.name!r} must be a list of words or phrases, "
                    f"got {value!r:.80}"
                )
            if len(terms) > _MAX_TERMS or any(len(term) > _MAX_CHARS for term in terms):
                raise ConfigError(
                    f"{name} of the theme {self.name!r}: at most {_MAX_TERMS} terms of at most "
                    f"{_MAX_CHARS} characters"
                )
            object.__setattr__(self, name, terms)


@dataclass(frozen=True, slots=True)
class Themes:
    """A set of themes; a mention gets at most one of them."""

    themes: tuple[Theme, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "themes", tuple(self.themes))
        if not all(isinstance(theme, Theme) for theme in self.themes):
            raise ConfigError(f"Expected a list of Theme, got {self.themes!r:.80}")
        if not 1 <= len(self.themes) <= _MAX_THEMES:
            raise ConfigError(f"Expected 1 to {_MAX_THEMES} themes, got {len(self.themes)}")
        parents = {theme.name: theme.parent for theme in self.themes}
        if len(parents) != len(self.themes):
            names = [theme.name for theme in self.themes]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"Two themes have the name {twice[0]!r}")
        theme_of: dict[str, str] = {}
        for theme in self.themes:
            for term in {term.casefold() for term in theme.terms}:
                other = theme_of.setdefault(term, theme.name)
                if other != theme.name:
                    raise ConfigError(f"The themes {other!r} and {theme.name!r} share {term!r}")
        for name, parent in parents.items():
            if parent and parent not in parents:
                raise ConfigError(f"The parent {parent!r} of the theme {name!r} is not a theme")
            if parent and (parents[parent] or parent == name):
                raise ConfigError(
                    f"The parent {parent!r} of the theme {name!r} has a parent itself; themes "
                    "have two levels"
                )

    @classmethod
    def parse(cls, text: str, source: str = "themes") -> Themes:
        r"""Read themes from TOML: a list of tables `[[theme]]`.

        >>> Themes.parse('[[theme]]\nname = "Price"\nterms = ["bill"]').names
        ('Price',)

        Raises:
            ConfigError: If the text is not TOML or a theme is malformed.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{source} is not TOML: {error}") from error
        tables = content.pop("theme", None)
        if content or not isinstance(tables, list):
            found = f"found {', '.join(map(repr, content))}" if content else "found none"
            raise ConfigError(f"{source}: expected only tables [[theme]], {found}")
        try:
            return cls.from_dicts(tables)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None

    @classmethod
    def from_dicts(cls, tables: Iterable[Any]) -> Themes:
        """Return themes given as dictionaries.

        Raises:
            ConfigError: If a key is unknown or a value malformed.
        """
        known = {field.name for field in fields(Theme)}
        themes = []
        for table in tables:
            unknown = sorted(table.keys() - known) if isinstance(table, dict) else ()
            if not isinstance(table, dict) or unknown or "name" not in table:
                found = f"not {unknown[0]!r}" if unknown else f"got {table!r:.120}"
                raise ConfigError(
                    f"A theme needs a name and may have {', '.join(sorted(known - {'name'}))}; "
                    f"{found}"
                )
            themes.append(Theme(**table))
        return cls(tuple(themes))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the themes."""
        return tuple(theme.name for theme in self.themes)


def as_themes(given: Themes | Sequence[Theme] | str | Path) -> Themes:
    """Return themes that were given as such, as a list of themes, as a file or as a name.

    Raises:
        ArtifactError: If there is no such file.
        ConfigError: If they are malformed.
    """
    if isinstance(given, Themes):
        return given
    if isinstance(given, Theme):
        return Themes((given,))
    return read_themes(given) if isinstance(given, str | Path) else Themes(tuple(given))


def read_themes(path: str | Path) -> Themes:
    """Read a `themes.toml`, or ready-made themes such as `restaurants`.

    Raises:
        ArtifactError: If there is no such file.
        ConfigError: If it is malformed.
    """
    return Themes.parse(find_themes(path), str(path))


def find_themes(path: str | Path) -> str:
    """Return the text of a themes file, or of ready-made themes.

    Raises:
        ArtifactError: If there is no such file.
    """
    ready = {file.stem: file for file in sorted(READY_MADE.glob("*.toml"))}
    file = ready.get(str(path), Path(path))
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # not UTF-8, or not a path
        raise ArtifactError(
            f"Cannot read themes from {str(path)!r}: {error}. Pass a TOML file, or one of: "
            f"{', '.join(ready)}."
        ) from error

"""`capsar inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from capsar.bundle import Bundle


def inspect_command(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A trained model's folder, a shipped name, or a hub id."
        ),
    ],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Verify a model and tell what it is: files, sizes, classes, data, licence, figures.

    `capsar inspect runs/mine/bundle`

    `capsar inspect runs/mine/bundle --json`
    """
    from json import dumps

    from capsar.hub import find_bundle

    found = find_bundle(bundle)
    if json:
        document = {
            "folder": str(found.folder),
            "sha256": found.fingerprint(),
            "schema_version": found.schema_version,
            "files": dict(found.files),
            "config": found.config,
        }
        typer.echo(dumps(document, indent=1))
    else:
        _print(found)


def _print(bundle: Bundle) -> None:
    config = bundle.config
    typer.echo(f"{bundle.folder}: every file is as its manifest says")
    total = sum(bundle.files.values())
    for name, size in [*sorted(bundle.files.items()), ("together", total)]:
        typer.echo(f"  {name:<18} {size:>12,} bytes")
    trained = _section(config, "trained_on")
    # What an older release did not record is left out.
    for name, value in (
        ("sha256", bundle.fingerprint()),
        ("schema", bundle.schema_version),
        ("written by", f"capsar {config.get('capsar_version', '(unknown)')}"),
        ("classes", _listed(config.get("classes"))),
        ("network", _named(_section(config, "model"))),
        ("trained on", _named(trained, "train", "train_examples", "words")),
        ("went on from", trained.get("started_from")),
        ("data licence", trained.get("licence")),
        ("vectors", trained.get("vectors")),
        ("vectors licence", trained.get("vectors_licence")),
        ("dev part", _named(trained, "dev", "dev_examples", "shared_sentences_dropped")),
        ("dev figures", _figures(config)),
    ):
        if value:
            typer.echo(f"{name:<16} {value}")


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _named(section: dict[str, Any], *names: str) -> str:
    chosen = {name: section.get(name) for name in names} if names else section
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if value not in (None, ""))


def _figures(config: dict[str, Any]) -> str:
    figures, intervals = _section(config, "dev"), _section(config, "dev_intervals")
    told = []
    for name in ("accuracy", "macro_f1"):
        if figure := _number(figures.get(f"dev_{name}")):
            between = intervals.get(name)
            ends = [_number(end) for end in between] if isinstance(between, list) else []
            spread = f" (95 % interval {' to '.join(ends)})" if len(ends) == 2 else ""  # noqa: PLR2004
            told.append(f"{name} {figure}{spread}")
    spans = _section(config, "dev_spans")
    for name, part in (("spans", "spans"), ("spans and polarity", "joint")):
        if found := _number(_section(spans, part).get("f1")):
            told.append(f"F1 of found {name} {found}")
    if found := _number(spans.get("false_per_100")):
        told.append(f"aspects told per 100 sentences without any {found}")
    if found := _number(config.get("dev_span_f1")):
        told.append(f"F1 of aspects that opened capsules name {found}")
    return ", ".join(told)


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else ""

"""`capsar models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.bundle import Bundle


def models_command(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the models that come with the package: size, speed, figures, licence.

    `capsar models --json`

    `capsar analyze "Great food!" --model fast`
    """
    from json import dumps

    from capsar.hub import DEFAULT_MODEL, find_bundle, shipped_models

    found = {name: find_bundle(name) for name in shipped_models()}
    if json:
        document = [_described(name, bundle, DEFAULT_MODEL) for name, bundle in found.items()]
        typer.echo(dumps(document, indent=1))
        return
    for name, bundle in found.items():
        described = _described(name, bundle, DEFAULT_MODEL)
        typer.echo(f"{name}{' (default)' if described['default'] else ''}")
        for key, value in _lines(described):
            typer.echo(f"  {key:<12} {value}")


def _described(name: str, bundle: Bundle, default: str) -> dict[str, Any]:
    """What a model says of itself."""
    shipped = bundle.config.get("shipped", {})
    return {
        "name": name,
        "default": name == default,
        "folder": str(bundle.folder),
        "sha256": bundle.fingerprint(),
        "mb": round(sum(bundle.files.values()) / 1e6, 1),
        "finds_aspects": "spans.onnx" in bundle.files,
        "network": shipped.get("network", ""),
        "for": shipped.get("for", ""),
        "sentences_per_s": shipped.get("sentences_per_s"),
        "unseen": shipped.get("unseen", {}),
        "licence": shipped.get("licence", bundle.config.get("trained_on", {}).get("licence", "")),
    }


def _lines(described: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is known of a model, for people."""
    if described["for"]:
        yield "for", described["for"]
    if described["network"]:
        yield "network", described["network"]
    yield "size", f"{described['mb']} MB"
    if speed := described["sentences_per_s"]:
        yield "speed", f"{speed:,.0f} sentences/s on one thread, with nothing given"
    for name, figures in described["unseen"].items():
        told = f"accuracy {figures['accuracy']:.3f}, macro-F1 {figures['macro_f1']:.3f}"
        yield "never met", f"{name}: {told}"
    yield "licence", described["licence"] or "see its README.md"
    yield "sha256", described["sha256"]
    yield "card", f"{described['folder']}/README.md"

"""`capsar models` and `capsar inspect`."""

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
    """List the bundled models: size, speed, out-of-domain accuracy, license.

    `capsar models --json`

    `capsar analyze "Great food!" --model fast`
    """
    from json import dumps

    from capsar.bundle import DEFAULT_MODEL, bundled_models, find_bundle

    found = [_describe(name, find_bundle(name), DEFAULT_MODEL) for name in bundled_models()]
    if json:
        typer.echo(dumps(found, indent=1))
        return
    for model in found:
        typer.echo(f"{model['name']}{' (default)' if model['default'] else ''}")
        for key, value in _lines(model):
            typer.echo(f"  {key:<14} {value}")


def _describe(name: str, bundle: Bundle, default: str) -> dict[str, Any]:
    info = bundle.config.get("bundled", {})
    return {
        "name": name,
        "default": name == default,
        "folder": str(bundle.folder),
        "sha256": bundle.fingerprint(),
        "mb": round(sum(bundle.files.values()) / 1e6, 1),
        "extracts_aspects": "spans.onnx" in bundle.files,
        "network": info.get("network", ""),
        "purpose": info.get("purpose", ""),
        "sentences_per_s": info.get("sentences_per_s"),
        "out_of_domain": info.get("out_of_domain", {}),
        "license": info.get("license", bundle.config.get("trained_on", {}).get("license", "")),
    }


def _lines(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if model["purpose"]:
        yield "purpose", model["purpose"]
    if model["network"]:
        yield "network", model["network"]
    yield "size", f"{model['mb']} MB"
    if speed := model["sentences_per_s"]:
        yield "speed", f"{speed:,.0f} sentences/s on one thread, with aspect extraction"
    for name, metrics in model["out_of_domain"].items():
        scores = f"accuracy {metrics['accuracy']:.3f}, macro-F1 {metrics['macro_f1']:.3f}"
        yield "out of domain", f"{name}: {scores}"
    yield "license", model["license"] or "see its README.md"
    yield "sha256", model["sha256"]
    yield "model card", f"{model['folder']}/README.md"


def inspect_command(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="Folder of a trained model, name of a bundled one, or hub id."
        ),
    ],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Verify a model and show its files, classes, training data, license and metrics.

    `capsar inspect runs/mine/bundle`

    `capsar inspect runs/mine/bundle --json`
    """
    from json import dumps

    from capsar.bundle import find_bundle

    found = find_bundle(bundle)
    if json:
        document = {
            "folder": str(found.folder),
            "sha256": found.fingerprint(),
            "schema_version": found.config["schema_version"],
            "files": dict(found.files),
            "config": found.config,
        }
        typer.echo(dumps(document, indent=1))
    else:
        _print(found)


def _print(bundle: Bundle) -> None:
    config = bundle.config
    typer.echo(f"{bundle.folder}: all files match the manifest")
    total = sum(bundle.files.values())
    for name, size in [*sorted(bundle.files.items()), ("total", total)]:
        typer.echo(f"  {name:<18} {size:>12,} bytes")
    trained = _section(config, "trained_on")
    classes = config.get("classes")
    # Older releases did not record all of these: empty rows are omitted.
    for name, value in (
        ("sha256", bundle.fingerprint()),
        ("schema", bundle.config["schema_version"]),
        ("written by", f"capsar {config.get('capsar_version', '(unknown)')}"),
        ("classes", ", ".join(map(str, classes)) if isinstance(classes, list) else ""),
        ("network", _pairs(_section(config, "model"))),
        ("training data", _pairs(trained, "train", "train_examples", "words")),
        ("fine-tuned from", trained.get("init_from")),
        ("data license", trained.get("license")),
        ("vectors", trained.get("vectors")),
        ("vectors license", trained.get("vectors_license")),
        (
            "validation data",
            _pairs(trained, "validation", "validation_examples", "shared_sentences_dropped"),
        ),
        ("validation", _validation_metrics(config)),
    ):
        if value:
            typer.echo(f"{name:<16} {value}")


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _pairs(section: dict[str, Any], *names: str) -> str:
    chosen = {name: section.get(name) for name in names} if names else section
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if value not in (None, ""))


def _validation_metrics(config: dict[str, Any]) -> str:
    metrics, intervals = _section(config, "validation"), _section(config, "validation_intervals")
    shown = []
    for name in ("accuracy", "macro_f1"):
        if metric := _number(metrics.get(f"validation_{name}")):
            interval = intervals.get(name)
            ends = [_number(end) for end in interval] if isinstance(interval, list) else []
            spread = f" (95 % interval {' to '.join(ends)})" if len(ends) == 2 else ""  # noqa: PLR2004
            shown.append(f"{name} {metric}{spread}")
    spans = _section(config, "validation_spans")
    for name, value in (
        ("F1 of extracted spans", _section(spans, "spans").get("f1")),
        ("F1 of extracted spans with polarity", _section(spans, "joint").get("f1")),
        ("extracted aspects per 100 sentences without any", spans.get("false_per_100")),
        ("F1 of spans from capsules", config.get("validation_span_f1")),
    ):
        if number := _number(value):
            shown.append(f"{name} {number}")
    return ", ".join(shown)


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else ""

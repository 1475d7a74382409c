"""`capsar evaluate`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.data.tables import Columns
    from capsar.inference.analyzer import Analyzer
    from capsar.schema import Example

    Echo = Callable[[str], None]


def evaluate_command(  # noqa: PLR0913
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A trained model's folder, a bundled model's name, or a hub id."
        ),
    ],
    *,
    dataset: Annotated[str, typer.Option(help="Evaluate on the test part of a dataset.")] = "",
    data: Annotated[Path | None, typer.Option(help="Evaluate on a labeled file.")] = None,
    text_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Also evaluate on rewritten sentences (ARTS).")
    ] = False,
    spans: Annotated[
        bool, typer.Option("--spans", help="Also evaluate aspect extraction.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Also evaluate the calibration of confidences.")
    ] = False,
    behavior: Annotated[
        bool, typer.Option("--behavior", help="Run the behavioral suite, which needs no data.")
    ] = False,
    backend: Annotated[
        str, typer.Option(help="Inference backend: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Evaluate a model on labeled data that it was not trained on.

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants`

    `capsar evaluate runs/mine/bundle --dataset semeval14-laptops --robustness`

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants --spans`

    `capsar evaluate runs/mine/bundle --data test.csv --json`

    `capsar evaluate base --behavior`
    """
    from json import dumps

    from capsar.data.tables import Columns
    from capsar.evaluation.robustness import arts_examples
    from capsar.inference.analyzer import load

    columns = Columns(text=text_column, aspect=aspect_column, polarity=polarity_column)
    rewritten = arts_examples(dataset) if robustness else []
    # Only the behavioral suite needs no data; in all other cases `_read` checks the options.
    has_data = any((dataset, data, robustness, spans, confidence, not behavior))
    examples = _read(dataset, data, columns, encoding) if has_data else []
    analyzer = load(bundle, backend=backend)
    document = _describe_model(bundle, data)
    for warning in document["warnings"]:
        typer.echo(f"capsar: {warning}", err=True)
    echo: Echo = (lambda _: None) if json else typer.echo
    if has_data:
        document |= _evaluate_polarity(analyzer, examples, echo)
    if robustness:
        document |= _evaluate_robustness(analyzer, examples, rewritten, echo)
    if spans:
        document |= _evaluate_spans(analyzer, examples, echo)
    if confidence:
        document |= _evaluate_confidence(analyzer, examples, echo)
    if behavior:
        document |= _evaluate_behavior(analyzer, echo)
    if json:
        typer.echo(dumps(document, indent=1))


def _read(dataset: str, data: Path | None, columns: Columns, encoding: str) -> list[Example]:
    from capsar.cli.hints import suggest_check
    from capsar.data.catalog import test_examples
    from capsar.data.readers import read_examples
    from capsar.errors import ConfigError

    if bool(dataset) == (data is not None):
        raise ConfigError(
            "Give either --data FILE or --dataset NAME to evaluate on, and not both; only "
            "--behavior needs neither"
        )
    if data is not None:
        with suggest_check():
            return list(read_examples(data, columns=columns, encoding=encoding, labeled=True))
    return test_examples(dataset)


def _describe_model(bundle: str, data: Path | None) -> dict[str, Any]:
    """Return the model's name and hash, and a warning if it was trained on the data."""
    from capsar.bundle import find_bundle
    from capsar.data.catalog import digest_file

    found = find_bundle(bundle)
    trained_on = found.config.get("trained_on")
    files = trained_on.get("files_sha256") if isinstance(trained_on, dict) else None
    warnings = []
    if data is not None and isinstance(files, list) and digest_file(data) in files:
        warnings.append(
            f"the model was trained on this very file, {str(data)!r}: the metrics measure "
            "memorization, not generalization. Evaluate it on other sentences"
        )
    return {"model": bundle, "model_sha256": found.fingerprint(), "warnings": warnings}


def _evaluate_polarity(analyzer: Analyzer, examples: list[Example], echo: Echo) -> dict[str, Any]:
    from capsar.evaluation.evaluate import evaluate
    from capsar.schema import CLASSES

    evaluation = evaluate(analyzer, examples)
    metrics, intervals = evaluation.metrics, evaluation.intervals
    echo(f"{metrics.num_examples} examples, {evaluation.excluded} excluded")
    for name in ("accuracy", "macro_f1"):
        low, high = getattr(intervals, name)
        echo(f"{name:<9} {getattr(metrics, name):.4f}  (95 % interval {low:.4f} to {high:.4f})")
    classes = metrics.classes.items()
    rows = [(str(p), row.precision, row.recall, row.f1, row.support) for p, row in classes]
    _echo_table(("", "precision", "recall", "f1", "examples"), rows, echo)
    counts = zip(CLASSES, metrics.confusion, strict=True)
    header = ("true", "predicted", *(f"{polarity:>8}" for polarity in CLASSES))
    _echo_table(header, [(str(p), "", *row) for p, row in counts], echo)
    return evaluation.as_dict()


def _evaluate_robustness(
    analyzer: Analyzer, examples: list[Example], rewritten: list[Example], echo: Echo
) -> dict[str, Any]:
    from dataclasses import asdict

    from capsar.data.formats import Variant
    from capsar.evaluation.robustness import evaluate_mixed, evaluate_robustness

    metrics, mixed = evaluate_robustness(analyzer, rewritten), evaluate_mixed(analyzer, examples)
    descriptions = {
        Variant.ORIGINAL: "as published",
        Variant.TARGET_REVERSED: "the aspect's sentiment reversed",
        Variant.OTHERS_REVERSED: "the other aspects' sentiment reversed",
        Variant.OPPOSITE_ADDED: "opposite aspects added",
    }
    rows: list[tuple[object, ...]] = [
        (variant, row.accuracy, row.num_examples, descriptions[variant])
        for variant, row in metrics.variants.items()
    ]
    rows.append(("ars", metrics.ars, metrics.num_groups, "right in all variants"))
    if mixed:
        sentences = "sentences whose terms differ in polarity"
        rows.append(("mixed", mixed.accuracy, mixed.num_examples, sentences))
    _echo_table(("ARTS", "accuracy", "examples", ""), rows, echo)
    return {"robustness": metrics.as_dict(), "mixed_polarity": asdict(mixed) if mixed else None}


def _evaluate_spans(analyzer: Analyzer, examples: list[Example], echo: Echo) -> dict[str, Any]:
    from dataclasses import astuple

    from capsar.evaluation.spans import evaluate_spans, term_sentences

    sentences = term_sentences(examples)
    texts = [sentence.text for sentence in sentences]
    by_mode = {}
    for mode in analyzer.modes:
        found = evaluate_spans(sentences, analyzer.analyze(texts, mode=mode))
        by_mode[mode] = found.as_dict()
        rows = [
            ("spans, all sentences", *astuple(found.spans)),
            ("spans, sentences with terms", *astuple(found.spans_with_terms)),
            ("spans and polarity", *astuple(found.joint)),
        ]
        columns = ("gold", "found", "right", "precision", "recall", "f1")
        _echo_table((f"found by {mode}", *columns), rows, echo)
        if found.false_per_100 is not None:
            echo(
                f"{found.false_per_100:.1f} aspects per 100 of the {found.num_without} sentences "
                "without any"
            )
    return {"found": by_mode}


def _evaluate_confidence(analyzer: Analyzer, examples: list[Example], echo: Echo) -> dict[str, Any]:
    from capsar.evaluation.confidence import evaluate_confidence

    metrics = evaluate_confidence(analyzer, examples)
    names = ("ece", "ece_bound", "brier", "log_loss", "accuracy", "accuracy_at_80")
    rows = [(name, *(getattr(some, name) for some in metrics.values())) for name in names]
    _echo_table(("confidence", *metrics), rows, echo)
    return {"confidence": {name: some.as_dict() for name, some in metrics.items()}}


def _evaluate_behavior(analyzer: Analyzer, echo: Echo) -> dict[str, Any]:
    from capsar.evaluation.behavior import evaluate_behavior

    metrics = evaluate_behavior(analyzer)
    columns = ("score", "low", "high", "polarity_accuracy", "span_recall", "joint_recall",
               "num_patterns", "num_cases")  # fmt: skip
    rows = [
        (name, row.score, *row.interval, *(getattr(row, column) for column in columns[3:]))
        for name, row in metrics.capabilities.items()
    ]
    _echo_table(("capability", *columns), rows, echo)
    if metrics.failed_patterns:
        echo("\npatterns that fail more often than not")
        for text, score in sorted(metrics.failed_patterns.items(), key=lambda item: item[1]):
            echo(f"{score:>6.3f}  {text}")
    return {"behavior": metrics.as_dict()}


def _echo_table(header: Sequence[str], rows: Sequence[Sequence[object]], echo: Echo) -> None:
    """Print a table with texts aligned left and numbers aligned right."""
    columns = []
    for name, *values in zip(header, *rows, strict=True):
        cells = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in values]
        width = max(map(len, (name, *cells)))
        align = "<" if all(isinstance(value, str) for value in values) else ">"
        columns.append([f"{cell:{align}{width}}" for cell in (name, *cells)])
    echo("")
    for row in zip(*columns, strict=True):
        echo("  ".join(row).rstrip())

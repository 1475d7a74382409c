"""`capsar evaluate`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from capsar.analyze import Analyzer
    from capsar.data.example import Example
    from capsar.data.formats.tables import Columns
    from capsar.evaluation.behavior import BehaviorMetrics
    from capsar.evaluation.calibration import CalibrationFigures
    from capsar.evaluation.evaluate import Evaluation
    from capsar.evaluation.extraction import Extraction
    from capsar.evaluation.faithfulness import Faithfulness, Ranker
    from capsar.evaluation.robustness import Accuracy, Robustness

    Judged = tuple[dict[str, Any], Callable[[], None]]
    """A part of the document, and what shows it to a reader."""
    Judge = Callable[[Analyzer, list[Example]], Judged]


def evaluate_command(  # noqa: PLR0913
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A trained model's folder, a shipped name, or a hub id."
        ),
    ],
    *,
    dataset: Annotated[str, typer.Option(help="Judge on the test part of a named dataset.")] = "",
    data: Annotated[Path | None, typer.Option(help="Judge on a file of your own.")] = None,
    text_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Judge on rewritten test sentences (ARTS) too.")
    ] = False,
    spans: Annotated[
        bool, typer.Option("--spans", help="Judge the aspects it finds by itself too.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Judge how far its confidences can be trusted.")
    ] = False,
    faithfulness: Annotated[
        bool, typer.Option("--faithfulness", help="Judge whether the words of *because* matter.")
    ] = False,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="With --faithfulness: gradients beside; slower.")
    ] = False,
    behavior: Annotated[
        bool,
        typer.Option("--behavior", help="Run the behavioral suite; needs no data of yours."),
    ] = False,
    backend: Annotated[
        str, typer.Option(help="What runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge a model on labelled data it has not been trained on.

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants`

    `capsar evaluate runs/mine/bundle --dataset semeval14-laptops --robustness`

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants --spans`

    `capsar evaluate runs/mine/bundle --data held-out.csv --json`

    `capsar evaluate runs/mine/bundle --data held-out.csv --faithfulness --gradients`

    `capsar evaluate base --behavior`
    """
    from functools import partial
    from json import dumps

    from capsar.analyze import load
    from capsar.data.formats.tables import Columns
    from capsar.errors import ConfigError
    from capsar.evaluation.robustness import arts_examples

    if gradients and not faithfulness:
        raise ConfigError("--gradients are shown beside --faithfulness; give both")
    columns = Columns(text=text_column, aspect=aspect_column, polarity=polarity_column)
    rewritten = arts_examples(dataset) if robustness else []
    has_data = bool(dataset) or data is not None
    needs_data = not behavior or robustness or spans or confidence or faithfulness
    has_data = has_data or needs_data  # without any, reading says which option to give
    examples = _read(dataset, data, columns, encoding) if has_data else []
    analyzer = load(bundle, backend=backend)
    about, warnings = _about(bundle, data)
    for warning in warnings:
        typer.echo(f"capsar: {warning}", err=True)
    rankers = _gradient_rankers(bundle) if gradients else {}
    judges: list[tuple[bool, Judge]] = [
        (has_data, _judge_task),
        (robustness, partial(_judge_robustness, rewritten=rewritten)),
        (spans, _judge_spans),
        (confidence, _judge_confidence),
        (faithfulness, partial(_judge_faithfulness, rankers=rankers)),
        (behavior, _evaluate_behavior),
    ]
    document: dict[str, Any] = about | {"warnings": warnings}
    for is_wanted, judge in judges:
        if is_wanted:
            part, show = judge(analyzer, examples)
            document |= part
            if not json:
                show()
    if json:
        typer.echo(dumps(document, indent=1))


def _judge_task(analyzer: Analyzer, examples: list[Example]) -> Judged:
    from capsar.evaluation.evaluate import evaluate

    evaluation = evaluate(analyzer, examples)
    return evaluation.as_dict(), lambda: _print(evaluation)


def _judge_robustness(
    analyzer: Analyzer, examples: list[Example], *, rewritten: list[Example]
) -> Judged:
    from dataclasses import asdict

    from capsar.evaluation.robustness import judge_mixed, judge_robustness

    found, mixed = judge_robustness(analyzer, rewritten), judge_mixed(analyzer, examples)
    part = {"robustness": found.as_dict(), "mixed_polarity": asdict(mixed) if mixed else None}
    return part, lambda: _print_robustness(found, mixed)


def _judge_spans(analyzer: Analyzer, examples: list[Example]) -> Judged:
    from capsar.evaluation.extraction import judge_extraction, term_sentences

    sentences = term_sentences(examples)
    texts = [sentence.text for sentence in sentences]
    by_mode = {
        mode: judge_extraction(sentences, analyzer.analyze(texts, mode=mode))
        for mode in analyzer.modes
    }
    part = {"found": {mode: figures.as_dict() for mode, figures in by_mode.items()}}
    return part, lambda: _print_extraction(by_mode)


def _judge_confidence(analyzer: Analyzer, examples: list[Example]) -> Judged:
    from capsar.evaluation.calibration import judge_confidence

    judged = judge_confidence(analyzer, examples)
    part = {"confidence": {name: figures.as_dict() for name, figures in judged.items()}}
    return part, lambda: _print_confidence(judged)


def _judge_faithfulness(
    analyzer: Analyzer, examples: list[Example], *, rankers: dict[str, Ranker]
) -> Judged:
    from capsar.evaluation.faithfulness import judge_faithfulness

    judged = judge_faithfulness(analyzer, examples, rankers=rankers)
    return {"faithfulness": judged.as_dict()}, lambda: _print_faithfulness(judged)


def _evaluate_behavior(analyzer: Analyzer, _: list[Example]) -> Judged:
    from capsar.evaluation.behavior import evaluate_behavior

    metrics = evaluate_behavior(analyzer)
    return {"behavior": metrics.as_dict()}, lambda: _print_behavior(metrics)


def _gradient_rankers(bundle: str) -> dict[str, Ranker]:
    """Load the weights for gradients; the one part of judging that needs torch, so by its name."""
    from importlib import import_module

    from capsar.errors import MissingExtraError
    from capsar.hub import find_bundle

    folder = find_bundle(bundle).folder
    try:
        ranker = import_module("capsar.training.gradients").GradientRanker
    except ImportError as error:
        raise MissingExtraError("train", "Judging against gradients") from error
    return {"gradient": ranker.load(folder), "gradient_norm": ranker.load(folder, by_norm=True)}


def _read(dataset: str, data: Path | None, columns: Columns, encoding: str) -> list[Example]:
    from capsar.cli.advice import advising_check
    from capsar.data.catalog import test_examples
    from capsar.data.readers import read_examples
    from capsar.errors import ConfigError

    if bool(dataset) == (data is not None):
        raise ConfigError(
            "Give either --data FILE or --dataset NAME to judge on, and not both; only --behavior "
            "needs neither"
        )
    if data is not None:
        with advising_check():
            return list(read_examples(data, columns=columns, encoding=encoding))
    return test_examples(dataset)


def _about(bundle: str, data: Path | None) -> tuple[dict[str, str], list[str]]:
    """Which model is judged, and what takes from the figures' worth."""
    from capsar.data.catalog import digest_file
    from capsar.hub import find_bundle

    found = find_bundle(bundle)
    trained_on = found.config.get("trained_on")
    files = trained_on.get("files_sha256") if isinstance(trained_on, dict) else None
    warnings = []
    if data is not None and isinstance(files, list) and digest_file(data) in files:
        warnings.append(
            f"the model was trained on this very file, {str(data)!r}: figures tell what it "
            "remembers, not how it will do. Judge it on sentences that it has not seen"
        )
    return {"model": bundle, "model_sha256": found.fingerprint()}, warnings


def _print(evaluation: Evaluation) -> None:
    from capsar.labels import CLASSES

    figures, intervals = evaluation.figures, evaluation.intervals
    typer.echo(f"{figures.num_examples} examples, {evaluation.left_out} left out")
    for name in ("accuracy", "macro_f1"):
        low, high = getattr(intervals, name)
        typer.echo(
            f"{name:<9} {getattr(figures, name):.4f}  (95 % interval {low:.4f} to {high:.4f})"
        )
    typer.echo(f"\n{'':<9} precision  recall      f1  examples")
    for polarity, row in figures.classes.items():
        typer.echo(
            f"{polarity:<9} {row.precision:>9.4f} {row.recall:>7.4f} {row.f1:>7.4f} "
            f"{row.support:>9}"
        )
    typer.echo(f"\n{'true':<9} predicted " + " ".join(f"{polarity:>9}" for polarity in CLASSES))
    for polarity, counts in zip(CLASSES, figures.confusion, strict=True):
        typer.echo(f"{polarity:<20}" + " ".join(f"{count:>9}" for count in counts))


def _print_robustness(robustness: Robustness, mixed: Accuracy | None) -> None:
    from capsar.data.formats.arts import Variant

    about = {
        Variant.ORIGINAL: "as published",
        Variant.TARGET_REVERSED: "the aspect's sentiment reversed",
        Variant.OTHERS_REVERSED: "the others' reversed",
        Variant.OPPOSITE_ADDED: "opposite aspects added",
    }
    typer.echo(f"\n{'ARTS':<9} {'accuracy':<9} examples")
    for variant, row in robustness.variants.items():
        typer.echo(f"{variant:<9} {row.accuracy:<9.4f} {row.num_examples:>8}  {about[variant]}")
    groups = f"{robustness.num_groups:>8}  right in all variants"
    typer.echo(f"{'ars':<9} {robustness.ars:<9.4f} {groups}")
    if mixed:
        sentences = "sentences whose terms differ in polarity"
        typer.echo(f"{'mixed':<9} {mixed.accuracy:<9.4f} {mixed.num_examples:>8}  {sentences}")


def _print_extraction(by_mode: dict[str, Extraction]) -> None:
    for mode, extraction in by_mode.items():
        typer.echo(f"\n{f'found by {mode}':<27} precision  recall      f1    gold   found   right")
        for name, row in (
            ("spans, all sentences", extraction.spans),
            ("spans, sentences with terms", extraction.spans_with_terms),
            ("spans and polarity", extraction.joint),
        ):
            typer.echo(
                f"{name:<27} {row.precision:>9.4f} {row.recall:>7.4f} {row.f1:>7.4f} "
                f"{row.gold:>7} {row.found:>7} {row.right:>7}"
            )
        if extraction.false_per_100 is not None:
            typer.echo(
                f"{extraction.false_per_100:.1f} aspects per 100 of the {extraction.num_without} "
                "sentences without any"
            )


def _print_confidence(judged: dict[str, CalibrationFigures]) -> None:
    names = ("ece", "ece_bound", "brier", "log_loss", "accuracy", "accuracy_at_80")
    typer.echo(f"\n{'confidence':<14} " + " ".join(f"{name:>14}" for name in judged))
    for name in names:
        row = " ".join(f"{getattr(figures, name):>14.4f}" for figures in judged.values())
        typer.echo(f"{name:<14} {row}")


def _print_faithfulness(judged: Faithfulness) -> None:
    typer.echo(f"\n{'words ranked by':<15} comprehensiveness  sufficiency")
    for name, value in judged.comprehensiveness.items():
        typer.echo(f"{name:<15} {value:>17.4f} {judged.sufficiency[name]:>12.4f}")
    for name, difference in judged.differences.items():
        low, high = difference.low, difference.high
        typer.echo(f"{name:<32} {difference.mean:+.4f}  (95 % interval {low:+.4f} to {high:+.4f})")


def _print_behavior(metrics: BehaviorMetrics) -> None:
    typer.echo(
        f"\n{'capability':<13} score  95 % interval   polarity   spans   joint  patterns  sentences"
    )
    for name, row in metrics.capabilities.items():
        low, high = row.interval
        typer.echo(
            f"{name:<13} {row.score:.3f}  {low:.3f} to {high:.3f} {row.polarity_accuracy:>9.3f} "
            f"{row.span_recall:>7.3f} {row.joint_recall:>7.3f} {row.num_patterns:>9} "
            f"{row.num_cases:>10}"
        )
    if metrics.failed_patterns:
        typer.echo("\npatterns that fail more often than not")
        for text, score in sorted(metrics.failed_patterns.items(), key=lambda item: item[1]):
            typer.echo(f"{score:>6.3f}  {text}")

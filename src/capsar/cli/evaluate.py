"""`capsar evaluate`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from capsar.data.example import Example
    from capsar.evaluation.calibration import CalibrationFigures
    from capsar.evaluation.evaluate import Evaluation
    from capsar.evaluation.extraction import Extraction
    from capsar.evaluation.robustness import Accuracy, Robustness


def evaluate_command(  # noqa: PLR0913
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="A trained model's folder, or its hub id.")
    ],
    *,
    dataset: Annotated[str, typer.Option(help="Judge on the test part of a named dataset.")] = "",
    data: Annotated[Path | None, typer.Option(help="Judge on a file of your own.")] = None,
    text_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "polarity",
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Judge on rewritten test sentences (ARTS) too.")
    ] = False,
    spans: Annotated[
        bool, typer.Option("--spans", help="Judge the aspects it finds by itself too.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Judge how far its confidences can be trusted.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge a model on labelled data it has not been trained on.

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants`

    `capsar evaluate runs/mine/bundle --dataset semeval14-laptops --robustness`

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants --spans`

    `capsar evaluate runs/mine/bundle --data held-out.csv --json`
    """
    from dataclasses import asdict
    from json import dumps

    from capsar.analyze import load
    from capsar.data.formats.tables import Columns
    from capsar.evaluation.calibration import judge_confidence
    from capsar.evaluation.evaluate import evaluate
    from capsar.evaluation.extraction import judge_extraction, term_sentences
    from capsar.evaluation.robustness import arts_examples, judge_mixed, judge_robustness

    columns = Columns(text=text_column, aspect=aspect_column, polarity=polarity_column)
    rewritten = arts_examples(dataset) if robustness else []
    examples = _read(dataset, data, columns)
    analyzer = load(bundle)
    evaluation = evaluate(analyzer, examples)
    document = evaluation.as_dict()
    if not json:
        _print(evaluation)
    if robustness:
        found, mixed = judge_robustness(analyzer, rewritten), judge_mixed(analyzer, examples)
        document |= {
            "robustness": found.as_dict(),
            "mixed_polarity": asdict(mixed) if mixed else None,
        }
        if not json:
            _print_robustness(found, mixed)
    if spans:
        sentences = term_sentences(examples)
        texts = [sentence.text for sentence in sentences]
        by_mode = {
            mode: judge_extraction(sentences, analyzer.analyze(texts, mode=mode))
            for mode in analyzer.modes
        }
        document |= {"found": {mode: figures.as_dict() for mode, figures in by_mode.items()}}
        if not json:
            for mode, figures in by_mode.items():
                _print_extraction(mode, figures)
    if confidence:
        judged = judge_confidence(analyzer, examples)
        document |= {"confidence": {name: figures.as_dict() for name, figures in judged.items()}}
        if not json:
            _print_confidence(judged)
    if json:
        typer.echo(dumps(document, indent=1))


def _read(dataset: str, data: Path | None, columns: object) -> list[Example]:
    from capsar.data.catalog import test_examples
    from capsar.data.readers import read_examples
    from capsar.errors import ConfigError

    if bool(dataset) == (data is not None):
        raise ConfigError("Give either --dataset or --data, and not both")
    if data is not None:
        return list(read_examples(data, columns=columns))  # type: ignore[arg-type]
    return test_examples(dataset)


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


def _print_extraction(mode: str, extraction: Extraction) -> None:
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

"""`capsar evaluate`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from capsar.data.example import Example
    from capsar.evaluation.evaluate import Evaluation
    from capsar.evaluation.faithfulness import Faithfulness, Ranker
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
    faithfulness: Annotated[
        bool, typer.Option("--faithfulness", help="Judge whether the words of *because* matter.")
    ] = False,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="With --faithfulness: gradients beside; slower.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge a model on labelled data it has not been trained on.

    `capsar evaluate runs/mine/bundle --dataset semeval14-restaurants`

    `capsar evaluate runs/mine/bundle --dataset semeval14-laptops --robustness`

    `capsar evaluate runs/mine/bundle --data held-out.csv --json`

    `capsar evaluate runs/mine/bundle --data held-out.csv --faithfulness --gradients`
    """
    from dataclasses import asdict
    from json import dumps

    from capsar.analyze import load
    from capsar.data.formats.tables import Columns
    from capsar.errors import ConfigError
    from capsar.evaluation.evaluate import evaluate
    from capsar.evaluation.faithfulness import judge_faithfulness
    from capsar.evaluation.robustness import arts_examples, judge_mixed, judge_robustness

    if gradients and not faithfulness:
        raise ConfigError("--gradients are shown beside --faithfulness; give both")
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
    if faithfulness:
        rankers = _gradient_rankers(bundle) if gradients else {}
        judged = judge_faithfulness(analyzer, examples, rankers=rankers)
        document["faithfulness"] = judged.as_dict()
        if not json:
            _print_faithfulness(judged)
    if json:
        typer.echo(dumps(document, indent=1))


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


def _print_faithfulness(judged: Faithfulness) -> None:
    typer.echo(f"\n{'words ranked by':<15} comprehensiveness  sufficiency")
    for name, value in judged.comprehensiveness.items():
        typer.echo(f"{name:<15} {value:>17.4f} {judged.sufficiency[name]:>12.4f}")
    for name, difference in judged.differences.items():
        low, high = difference.low, difference.high
        typer.echo(f"{name:<32} {difference.mean:+.4f}  (95 % interval {low:+.4f} to {high:+.4f})")

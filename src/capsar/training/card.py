"""The model card of a bundle, written from the run itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from capsar.data.catalog import datasets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from capsar.config import RunConfig


def render_card(
    run_config: RunConfig,
    facts: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
    best_epoch: int,
) -> str:
    """Return the card: what it is, on what it was trained, how well it does, where it will not."""
    best = history[best_epoch]
    name = str(facts["train"]).partition(":")[0]
    known = datasets().get(name)
    licence = known.licence if known else "that of your own data"
    chosen = "the last one; no dev part was held back"
    if facts["dev_examples"]:
        chosen = f"{facts['dev_examples']} dev examples, cut from the training data by sentence"
    if facts["dev"]:
        dropped = facts["shared_sentences_dropped"]
        chosen = (
            f"{facts['dev_examples']} dev examples of {facts['dev']}; {dropped} sentences they "
            "share were dropped from training"
        )
    figures = f"| epoch | {best_epoch + 1} of {len(history)} |"
    if "dev_accuracy" in best:
        figures += (
            f"\n| dev accuracy | {best['dev_accuracy']:.4f} |"
            f"\n| dev macro-F1 | {best['dev_macro_f1']:.4f} |"
        )
    settings = "\n".join(
        f"| `{key}` | {value} |" for key, value in asdict(run_config.model).items()
    )
    return f"""# A CAPSAR model

Aspect-based sentiment with a capsule network (arXiv 1912.10785): negative, neutral or positive,
about a given aspect of an English sentence.

| | |
|---|---|
| trained on | {facts["train"]}, {facts["train_examples"]} examples |
| licence of that data | {licence} |
| word vectors | {facts["vectors"]}; {facts["words"]} words |
| epoch chosen on | {chosen} |
{figures}
| seed | {run_config.train.seed} |

Dev figures chose the epoch, so they flatter. `capsar evaluate` gives figures on data the model
has never met.

## Limits

Trained on one kind of text, it does worse on others. Capsule lengths are not probabilities.

## The network

| setting | value |
|---|---|
{settings}
"""

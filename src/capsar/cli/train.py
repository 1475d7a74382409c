"""`capsar train`."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.config import RunConfig
    from capsar.training.loop import StepInfo


def train_command(  # noqa: PLR0913
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.toml", help="The run's configuration.")
    ] = None,
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Train on this file or named dataset, with default settings; repeatable."
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="MODEL", help="Go on from a trained model: base, fast, …"),
    ] = "",
    some_aspects: Annotated[
        bool,
        typer.Option(
            "--some-aspects",
            help="With --from: not every aspect is marked, so learn nothing of where they stand.",
        ),
    ] = False,
    folds: Annotated[
        int,
        typer.Option(
            help="Cross-validate in so many parts instead of holding one back: 5 for few labels."
        ),
    ] = 0,
    vectors: Annotated[
        str, typer.Option(help="GloVe text file, or named vectors; random without.")
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/capsar"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting."),
    ] = None,
    text_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for torch's own choice.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model and save it as a bundle. A run that was stopped goes on where it was.

    `capsar train --from base --data reviews.csv --out runs/mine`

    `capsar train --data reviews.csv --vectors glove.42B.300d.txt --out runs/mine`

    `capsar train examples/restaurants.toml --set train.seed=1`
    """
    from capsar.cli.advice import advising_check
    from capsar.errors import ConfigError

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    content = _content(config, data or [], vectors)
    content["data"] |= {
        name: value
        for name, value, usual in (
            ("text_column", text_column, "text"),
            ("aspect_column", aspect_column, "aspect"),
            ("polarity_column", polarity_column, "polarity"),
            ("encoding", encoding, "utf-8"),
        )
        if value != usual
    }
    if threads < 0:
        raise ConfigError(f"--threads must be 0 or more, got {threads}")
    if start:
        if config or vectors:
            raise ConfigError("--from keeps a model's network and vectors: give --data only")
        with _needing_torch():
            from capsar.training.start import further
        kept = further(start)
        content |= kept | {"data": kept["data"] | content["data"]}
    if folds:
        content["data"]["folds"] = folds
    if some_aspects:
        content["data"]["all_marked"] = False
    run = _configure(content, settings or [])
    with _needing_torch():  # it takes seconds, so what is wrong in the question was said before
        import torch

        from capsar.training.run import train
    if threads:
        torch.set_num_threads(threads)
    with advising_check(), _Progress(marks_best=run.train.keep == "best") as progress:
        result = train(run, out, on_step=progress.show)
    _report(result, as_json=json)


@contextmanager
def _needing_torch() -> Iterator[None]:
    from capsar.errors import MissingExtraError

    try:
        yield
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error


def _content(config: Path | None, data: list[str], vectors: str) -> dict[str, Any]:
    """The sections of a run's configuration, from a file or from options."""
    from capsar.config import read_config
    from capsar.errors import ConfigError

    if (config is None) == (not data):
        raise ConfigError(
            "Give either --data, as in `capsar train --from base --data reviews.csv --out "
            "runs/mine`, or a CONFIG.toml, and not both"
        )
    if config and config.suffix in (".csv", ".tsv", ".jsonl", ".xml"):
        raise ConfigError(f"{str(config)!r} is no configuration; to train on it, say --data")
    sources = data[0] if len(data) == 1 else data
    content: dict[str, Any] = (
        read_config(config).as_dict() if config else {"data": {"train": sources}}
    )
    if vectors:
        content["data"]["vectors"] = vectors
    return content


def _configure(content: dict[str, Any], settings: list[str]) -> RunConfig:
    """Apply `section.name=value` settings, the value read as TOML reads it."""
    import tomllib

    from capsar.config import run_config
    from capsar.errors import ConfigError

    for setting in settings:
        place, _, value = setting.partition("=")
        section, _, name = place.partition(".")
        try:  # TOML wants a digit before the point, people do not
            parsed = tomllib.loads(f"value = {'0' * value.startswith('.')}{value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        if not name:
            raise ConfigError(f"{setting!r} is not SECTION.NAME=VALUE")
        content.setdefault(section, {})[name] = parsed
    return run_config(content)


def _report(result: Any, *, as_json: bool) -> None:  # noqa: ANN401  (its type needs torch)
    from json import dumps

    if os.environ.get("RANK", "0") != "0":
        return  # one of several processes speaks for all
    if as_json:
        fields = {"bundle": str(result.bundle), "best_epoch": result.best_epoch, **result.dev}
        typer.echo(dumps(fields | {"seconds": round(result.seconds, 1)}))
        return
    told = f"{result.bundle}: epoch {result.best_epoch + 1} of {len(result.history)}"
    if "dev_accuracy" in result.dev:
        told += (
            f", dev accuracy {result.dev['dev_accuracy']:.4f}, "
            f"macro-F1 {result.dev['dev_macro_f1']:.4f}"
        )
    typer.echo(told)


class _Progress:
    """A bar for people on a terminal, one line an epoch for logs, the best one so far marked."""

    def __init__(self, *, marks_best: bool) -> None:
        self._marks_best = marks_best

    def __enter__(self) -> _Progress:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
        self._bar.start()
        self._task = self._bar.add_task("epoch 1")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, info: StepInfo) -> None:
        """Show one step."""
        done = (info.step - 1) % info.num_batches + 1
        self._bar.update(
            self._task,
            total=info.num_batches,
            completed=done,
            description=f"epoch {info.epoch + 1}, loss {info.loss:.4f}",
        )
        if info.dev:
            mark = " *" if info.is_best and self._marks_best else ""
            self._bar.console.print(f"epoch {info.epoch + 1}: {info.dev}{mark}")
        elif info.ends_epoch:
            self._bar.console.print(f"epoch {info.epoch + 1}: loss {info.loss:.4f}")

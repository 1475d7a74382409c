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
    init_from: Annotated[
        str,
        typer.Option("--init-from", metavar="MODEL", help="Fine-tune a trained model: base, fast."),
    ] = "",
    partial_labels: Annotated[
        bool,
        typer.Option(
            "--partial-labels",
            help="With --init-from: not every aspect is marked, so do not train aspect extraction.",
        ),
    ] = False,
    folds: Annotated[
        int,
        typer.Option(
            help="Cross-validate with this many folds instead of a validation set; 5 for few rows."
        ),
    ] = 0,
    vectors: Annotated[
        str, typer.Option(help="GloVe text file, or named vectors; default: random vectors.")
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/capsar"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting; repeatable."),
    ] = None,
    text_column: Annotated[str, typer.Option(help="In a table or JSON Lines.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="In a table or JSON Lines.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="In a table or JSON Lines.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for torch's default.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model and save it as a bundle. A stopped run continues after its last epoch.

    `capsar train --init-from base --data reviews.csv --out runs/mine`

    `capsar train --data reviews.csv --vectors glove.42B.300d.txt --out runs/mine`

    `capsar train examples/restaurants.toml --set train.seed=1`
    """
    from capsar.cli.hints import suggest_check
    from capsar.errors import ConfigError

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if threads < 0:
        raise ConfigError(f"--threads must be 0 or more, got {threads}")
    content = _read_sections(config, data or [])
    own = content["data"]
    given = {
        "vectors": vectors, "folds": folds, "text_column": text_column,
        "aspect_column": aspect_column, "polarity_column": polarity_column, "encoding": encoding,
    }  # fmt: skip
    defaults = ("", 0, "text", "aspect", "polarity", "utf-8")
    own |= {k: v for (k, v), usual in zip(given.items(), defaults, strict=True) if v != usual}
    if partial_labels:
        own["exhaustive"] = False
    if init_from and (config or vectors):
        raise ConfigError("--init-from keeps a model's network and vectors: give --data only")
    with suggest_check():
        _check_files(own)
    if init_from:
        with _needing_torch():
            from capsar.training.initialize import fine_tune_settings
        kept = fine_tune_settings(init_from)
        content |= kept | {"data": kept["data"] | own}
    run = _configure(content, settings or [])
    with _needing_torch():
        import torch

        from capsar.training.trainer import train
    if threads:
        torch.set_num_threads(threads)
    marks_best = run.train.checkpoint_selection == "best"
    with suggest_check(), _Progress(marks_best=marks_best) as progress:
        result = train(run, out, on_step=progress.show)
    _report(result, as_json=json)


@contextmanager
def _needing_torch() -> Iterator[None]:
    from capsar.errors import MissingExtraError

    try:
        yield
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error


def _read_sections(config: Path | None, data: list[str]) -> dict[str, Any]:
    """Return the sections of the configuration, from a file or from `--data`."""
    from capsar.config import read_config
    from capsar.data.tables import table_format
    from capsar.errors import ConfigError

    if (config is None) == (not data):
        raise ConfigError(
            "Give either --data, as in `capsar train --init-from base --data reviews.csv --out "
            "runs/mine`, or a CONFIG.toml, and not both"
        )
    if config and (table_format(config.name)[0] or config.suffix == ".xml"):
        raise ConfigError(f"{str(config)!r} is not a configuration; to train on it, use --data")
    return read_config(config).as_dict() if config else {"data": {"train": data}}


def _check_files(data: dict[str, Any]) -> None:
    """Read the header and the first row of each data file, before torch is imported."""
    from capsar.config import DataConfig, from_dict, list_sources
    from capsar.data.readers import read_examples
    from capsar.data.tables import Columns

    known = from_dict(DataConfig, data)
    columns = Columns(
        text=known.text_column, aspect=known.aspect_column, polarity=known.polarity_column
    )
    for sources in (known.train, known.partially_annotated, known.validation):
        for path in map(Path, list_sources(sources)):
            if path.is_file():
                rows = read_examples(path, columns=columns, encoding=known.encoding, labeled=True)
                next(iter(rows), None)


def _configure(content: dict[str, Any], settings: list[str]) -> RunConfig:
    """Apply `section.name=value` settings, with values in TOML syntax."""
    import tomllib

    from capsar.config import run_config
    from capsar.errors import ConfigError

    for setting in settings:
        target, _, value = setting.partition("=")
        section, _, name = target.partition(".")
        try:  # TOML needs a digit before the point
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
        return  # only the main process prints
    if as_json:
        fields = {"bundle": str(result.bundle), "best_epoch": result.best_epoch}
        typer.echo(dumps(fields | result.validation | {"seconds": round(result.seconds, 1)}))
        return
    line = f"{result.bundle}: epoch {result.best_epoch + 1} of {len(result.history)}"
    metrics = result.validation
    if "validation_accuracy" in metrics:
        line += (
            f", validation accuracy {metrics['validation_accuracy']:.4f}, "
            f"macro-F1 {metrics['validation_macro_f1']:.4f}"
        )
    typer.echo(line)


class _Progress:
    """A progress bar on a terminal, and one line per epoch; the best epoch so far is marked."""

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
        epoch = info.epoch + 1
        description = f"epoch {epoch}, loss {info.loss:.4f}"
        self._bar.update(
            self._task, total=info.num_batches, completed=done, description=description
        )
        if info.ends_epoch:
            mark = " *" if info.validation and info.is_best and self._marks_best else ""
            shown = info.validation or f"loss {info.loss:.4f}"
            self._bar.console.print(f"epoch {epoch}: {shown}{mark}")

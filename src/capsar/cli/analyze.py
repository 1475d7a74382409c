"""`capsar analyze`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from capsar.analyze import Analyzer, Explanation
    from capsar.schema import AspectSentiment

_COLOURS = {"negative": (200, 60, 60), "neutral": (120, 120, 120), "positive": (40, 140, 70)}


def analyze_command(
    source: Annotated[
        str, typer.Argument(metavar="TEXT|FILE|-", help="A text, a file of one text a line, or -.")
    ],
    *,
    model: Annotated[str, typer.Option(help="A trained model's folder, or its hub id.")],
    aspect: Annotated[
        list[str] | None, typer.Option(help="What to ask about; may be given several times.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the shaded words to this page.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of the engine.")] = 1,
) -> None:
    """Tell what is felt, and about what.

    `capsar analyze "The soup was cold but the staff were lovely." --model runs/mine/bundle`

    `capsar analyze reviews.txt --model runs/mine/bundle --json`

    `capsar analyze "The soup was cold." --aspect soup --model runs/mine/bundle`
    """
    from json import dumps

    from capsar.analyze import load
    from capsar.schema import document

    analyzer = load(model, threads=threads)
    if json:
        pairs = _answers(analyzer, _texts(source), aspect)
        for text, aspects in pairs:
            typer.echo(dumps(document(text, aspects)))
        return
    _show(analyzer, list(_answers(analyzer, _texts(source), aspect)), aspect, html)


def _texts(source: str) -> Iterator[str]:
    """The texts that a user named: one given, or the lines of a file or of standard input."""
    if source == "-":
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    path = Path(source)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a file's name, or not one at all
        is_file = False
    if not is_file:
        yield source
        return
    from capsar.data.formats.plain import read_plain
    from capsar.errors import FormatError

    with path.open("rb") as stream:
        for row in read_plain(stream, str(path)):
            if isinstance(row, FormatError):
                raise row
            yield row.text  # type: ignore[union-attr]


def _answers(
    analyzer: Analyzer, texts: Iterator[str], aspect: list[str] | None
) -> Iterator[tuple[str, list[AspectSentiment]]]:
    from itertools import tee

    kept, asked = tee(texts)
    if aspect:
        answers = analyzer.classify_stream((text, aspect) for text in asked)
    else:
        answers = analyzer.analyze_stream(asked)
    return zip(kept, answers, strict=True)


def _show(
    analyzer: Analyzer,
    answers: list[tuple[str, list[AspectSentiment]]],
    aspect: list[str] | None,
    html: Path | None,
) -> None:
    """Print each text's aspects, and its words shaded by what each sentiment is about."""
    from rich.console import Console

    from capsar.errors import ArtifactError

    console = Console(record=html is not None, highlight=False, soft_wrap=True)
    for text, aspects in answers:
        for found in aspects:
            console.print(f"{found.text}: {found.polarity}", markup=False)
        if not aspects:
            console.print("(no aspect found)")
        asked: list[str] | list[None] = aspect or [None]
        for given in asked:
            explanation = analyzer.explain(text, given)
            for polarity, length in explanation.lengths.items():
                console.print(_shaded(explanation, polarity, length))
    if html is not None:
        try:
            html.write_text(console.export_html(), encoding="utf-8", errors="replace")
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(html)!r}: {error}") from error


def _shaded(explanation: Explanation, polarity: str, length: float) -> Text:
    """The words of a text on a ground as dark as the sentiment is about them."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    line = Text(f"{polarity:<8} {length:.2f}  ")
    position = 0
    for (start, end), score in zip(explanation.words, explanation.about[polarity], strict=True):  # type: ignore[index]
        line.append(explanation.text[position:start])
        strength = max(0.0, score) * length
        ground = Color.from_rgb(*(255 - strength * (255 - part) for part in _COLOURS[polarity]))
        ink = Color.from_rgb(0, 0, 0)
        line.append(explanation.text[start:end], Style(bgcolor=ground, color=ink))
        position = end
    line.append(explanation.text[position:])
    return line

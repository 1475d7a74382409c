"""`capsar analyze`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capsar.bundle import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from rich.style import Style
    from rich.text import Text

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import AspectSentiment, Polarity
    from capsar.tokenizer import Span

    Results = Iterator[tuple[str, list[AspectSentiment]]]
    """Each text with its aspects."""

_FILE_SUFFIXES = {".txt", ".md", ".zip", ".xml"}
_COLORS = {"negative": (200, 60, 60), "neutral": (120, 120, 120), "positive": (40, 140, 70)}


def analyze_command(  # noqa: PLR0913
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE|-",
            help="A text; a file (lines, CSV, Excel, JSON Lines, Parquet); or - for stdin.",
        ),
    ],
    *,
    model: Annotated[
        str, typer.Option(help="Name of a bundled model, folder of a trained one, or hub id.")
    ] = DEFAULT_MODEL,
    aspect: Annotated[
        list[str] | None, typer.Option(help="Classify all mentions of this aspect; repeatable.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="Aspect extraction: spans (default if available) or capsules."),
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Mark predictions with a lower confidence, from 0 to 1.")
    ] = 0.0,
    themes: Annotated[
        str | None,
        typer.Option(help="Sort mentions into themes: a TOML file, or a name such as restaurants."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the colored output to this file.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="In a table or JSON Lines; default: text.")
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of files and standard input.")] = "utf-8",
    text: Annotated[
        bool, typer.Option("--text", help="Treat the argument as a text, never as a file.")
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads for inference.")] = 1,
    backend: Annotated[
        str, typer.Option(help="Runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
) -> None:
    """Find the aspects of texts and the sentiment toward each.

    `capsar analyze "Great food, terrible service." --aspect food --aspect service`

    `capsar analyze reviews.txt --json`

    `capsar analyze reviews.csv --text-column review`

    `capsar analyze "Great food, terrible service." --model runs/mine/bundle`
    """
    from contextlib import nullcontext

    from capsar.data.readers import read_texts
    from capsar.errors import ConfigError
    from capsar.inference.analyzer import load

    if themes and aspect:
        raise ConfigError("--themes and --aspect cannot be combined; give one of them")
    if json and html:
        raise ConfigError("--json and --html cannot be combined; give one of them")
    stream = None if text else _open(source, is_file=text_column is not None)
    analyzer = load(model, threads=threads, backend=backend)
    with stream or nullcontext():
        texts = iter([source])
        if stream:
            name = "standard input" if source == "-" else source
            texts = read_texts(stream, name, column=text_column or "text", encoding=encoding)
        if aspect:
            skips = stream is not None
            results = _classify(analyzer, texts, aspect, min_confidence, skips_missing=skips)
        else:
            results = _extract(analyzer, texts, mode, min_confidence, themes)
        _show(results, as_json=json, html=html)


def _open(source: str, *, is_file: bool) -> BinaryIO | None:
    """Open a file or standard input; return None if the argument is a text."""
    from capsar.data.tables import COMPRESSIONS, table_format
    from capsar.errors import ConfigError

    if source == "-":
        return sys.stdin.buffer
    if not source.strip():
        raise ConfigError("The text is empty")
    path = Path(source)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError):  # too long, or not a valid path
        return None
    if is_folder:
        raise ConfigError(f"{source!r} is a folder; name a file, or add --text if it is a text")
    if exists:
        return path.open("rb")
    is_named = path.suffix.lower() in {*_FILE_SUFFIXES, *COMPRESSIONS} or table_format(source)[0]
    looks_like_file = is_named or os.sep in source
    if is_file or (looks_like_file and not any(map(str.isspace, source))):
        raise ConfigError(f"There is no file {source!r}; if it is a text, add --text")
    return None


def _extract(
    analyzer: Analyzer,
    texts: Iterator[str],
    mode: str | None,
    min_confidence: float,
    themes: str | None,
) -> Results:
    from itertools import tee

    kept, texts = tee(texts)
    found = analyzer.analyze_stream(texts, mode=mode, min_confidence=min_confidence, themes=themes)
    return zip(kept, found, strict=True)


def _classify(
    analyzer: Analyzer,
    texts: Iterator[str],
    aspects: list[str],
    min_confidence: float,
    *,
    skips_missing: bool,
) -> Results:
    """Classify given aspects; in a file, skip those that a text does not mention."""
    from itertools import tee

    def mentioned(text: str) -> list[str]:
        return [aspect for aspect in aspects if aspect.strip() and aspect in text]

    kept, texts = tee(texts)
    pairs = ((text, mentioned(text) if skips_missing else aspects) for text in texts)
    num_texts = num_without = num_other_case = 0
    found = analyzer.classify_stream(pairs, min_confidence=min_confidence)
    for text, sentiments in zip(kept, found, strict=True):
        num_texts += 1
        if not sentiments:
            num_without += 1
            folded = text.casefold()
            num_other_case += any(aspect.casefold() in folded for aspect in aspects)
        yield text, sentiments
    if num_without:
        message = f"{num_without} of {num_texts} texts mention none of the given aspects"
        if num_other_case:
            message += f"; {num_other_case} of them have one in another case (repeat --aspect)"
        typer.echo(f"capsar: {message}", err=True)


def _show(results: Results, *, as_json: bool, html: Path | None) -> None:
    """Print the sentences of each text with their aspects."""
    from json import dumps

    from rich.console import Console

    from capsar.errors import ArtifactError
    from capsar.schema import document
    from capsar.sentences import split_sentences

    if as_json:
        for text, aspects in results:
            typer.echo(dumps(document(text, aspects, split_sentences(text))))
        return
    console = Console(record=html is not None, highlight=False, soft_wrap=True)
    for text, aspects in results:
        for line in _lines(text, split_sentences(text), aspects):
            console.print(line)
    if html is not None:
        try:
            html.write_text(console.export_html(), encoding="utf-8", errors="replace")
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(html)!r}: {error}") from error


def _lines(text: str, sentences: list[Span], aspects: list[AspectSentiment]) -> Iterator[Text]:
    """Yield each sentence with its aspects colored, followed by one line per aspect."""
    from rich.text import Text

    remaining = sorted(aspects, key=lambda found: (-found.start, found.end))
    for start, end in sentences:
        own = []
        while remaining and remaining[-1].start < end:
            own.append(remaining.pop())
        line = Text()
        position = start
        for found in own:
            if found.implicit:
                continue
            line.append(text[position : found.start].replace("\n", " "))
            if found.start >= position:  # given aspects may overlap
                line.append(found.text, _background(found.polarity, max(found.scores.values())))
            position = max(position, found.end)
        line.append(text[position:end].replace("\n", " "))
        yield line
        yield from map(_aspect_line, own)
    yield from map(_aspect_line, reversed(remaining))  # outside every sentence, in markup
    if not aspects:
        yield Text("  (no aspect found)")


def _aspect_line(found: AspectSentiment) -> Text:
    from rich.text import Text

    note = " (long sentence, read in windows)" if found.windowed else ""
    name = f"({found.theme})" if found.implicit else found.text
    theme = f" [{found.theme}]" if found.theme and not found.implicit else ""
    return Text(f"  {name}{theme}: {_verdict(found)}{note}")


def _verdict(found: AspectSentiment) -> str:
    """Return the polarity and the opinion phrases: `negative, "cold"`."""
    if found.abstained:
        return "uncertain"
    phrases = (" ".join(opinion.text.split()) for opinion in found.opinions or ())
    return ", ".join([str(found.polarity), *(f'"{phrase}"' for phrase in phrases)])


def _background(polarity: Polarity, strength: float) -> Style:
    """Return the color of a polarity, darker for a higher strength."""
    from rich.color import Color
    from rich.style import Style

    color = Color.from_rgb(*(255 - strength * (255 - part) for part in _COLORS[polarity]))
    return Style(bgcolor=color, color=Color.from_rgb(0, 0, 0))

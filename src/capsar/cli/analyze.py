"""`capsar analyze`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capsar.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from rich.style import Style
    from rich.text import Text

    from capsar.analyze import Analyzer, Explanation
    from capsar.schema import AspectSentiment
    from capsar.text import Span

_ENDINGS = {
    ".txt", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".md", ".gz", ".zip", ".xml", ".parquet"
}  # fmt: skip
_COLOURS = {"negative": (200, 60, 60), "neutral": (120, 120, 120), "positive": (40, 140, 70)}


def analyze_command(  # noqa: PLR0913
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE|-",
            help="A text; a file of one text a line, CSV, TSV or JSON Lines; or - for lines.",
        ),
    ],
    *,
    model: Annotated[
        str, typer.Option(help="A shipped model's name, a trained model's folder, or a hub id.")
    ] = DEFAULT_MODEL,
    aspect: Annotated[
        list[str] | None,
        typer.Option(help="What to ask about, in all its mentions; may be given several times."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="How aspects are found: spans (default if the model can) or capsules."),
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Mark answers that are less sure than this, from 0 to 1.")
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the shaded words to this page.")] = None,
    text_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "text",
    encoding: Annotated[str, typer.Option(help="Of files.")] = "utf-8",
    text: Annotated[
        bool, typer.Option("--text", help="Take the argument as a text, whatever it looks like.")
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads of the engine.")] = 1,
    backend: Annotated[
        str, typer.Option(help="What runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
) -> None:
    """Tell what is felt, and about what.

    `capsar analyze "Great food, terrible service." --aspect food --aspect service`

    `capsar analyze reviews.txt --json`

    `capsar analyze reviews.csv --text-column review`

    `capsar analyze "Great food, terrible service." --model runs/mine/bundle`
    """
    from capsar.analyze import load
    from capsar.data.readers import read_texts
    from capsar.errors import ConfigError

    if json and html:
        raise ConfigError("--json and --html are two ways to show one thing; give one of them")
    stream = None if text else _open(source)
    analyzer = load(model, threads=threads, backend=backend)
    if stream is None:
        answers = _answers(analyzer, iter([source]), aspect, mode, min_confidence)
        _show(analyzer, answers, aspect, as_json=json, html=html)
        return
    with stream:
        asked = _Asked(aspect)
        name = "standard input" if source == "-" else source
        texts = asked.seen(read_texts(stream, name, column=text_column, encoding=encoding))
        answers = _answers(analyzer, texts, aspect, mode, min_confidence, some=asked.found)
        _show(analyzer, answers, aspect, as_json=json, html=html)
    asked.report()


def _open(source: str) -> BinaryIO | None:
    """Open what a user named, a file, a pipe or standard input; nothing if it is a text."""
    from capsar.errors import ConfigError

    if source == "-":
        return sys.stdin.buffer
    path = Path(source)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError):  # too long for a file's name, or not one at all
        return None
    if is_folder:
        raise ConfigError(f"{source!r} is a folder; name a file, or say --text")
    if is_there:
        return path.open("rb")
    if not any(map(str.isspace, source)) and (path.suffix in _ENDINGS or os.sep in source):
        raise ConfigError(f"There is no file {source!r}; if it is a text, say --text")
    return None


class _Asked:
    """Which of the aspects that are asked about each text of many holds."""

    def __init__(self, aspects: list[str] | None) -> None:
        self._aspects = aspects or []
        self._texts = self._without = 0

    def seen(self, texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            self._texts += 1
            self._without += bool(self._aspects) and not self.found(text)
            yield text

    def found(self, text: str) -> list[str]:
        return [aspect for aspect in self._aspects if aspect.strip() and aspect in text]

    def report(self) -> None:
        if self._without:
            told = f"{self._without} of {self._texts} texts hold none of the aspects asked about"
            typer.echo(f"capsar: {told}", err=True)


def _answers(
    analyzer: Analyzer,
    texts: Iterator[str],
    aspect: list[str] | None,
    mode: str | None,
    least: float,
    *,
    some: Callable[[str], list[str]] | None = None,
) -> Iterator[tuple[str, list[AspectSentiment]]]:
    from itertools import tee

    kept, asked = tee(texts)
    if aspect:
        pairs = ((t, some(t) if some else aspect) for t in asked)
        answers = analyzer.classify_stream(pairs, min_confidence=least)
    else:
        answers = analyzer.analyze_stream(asked, mode=mode, min_confidence=least)
    return zip(kept, answers, strict=True)


def _show(
    analyzer: Analyzer,
    answers: Iterator[tuple[str, list[AspectSentiment]]],
    aspect: list[str] | None,
    *,
    as_json: bool,
    html: Path | None,
) -> None:
    """Print each text's aspects, and its words shaded by what each sentiment is about."""
    from json import dumps

    from rich.console import Console

    from capsar.errors import ArtifactError
    from capsar.schema import document
    from capsar.sentences import split_sentences

    if as_json:
        for text, aspects in answers:
            typer.echo(dumps(document(text, aspects, split_sentences(text))))
        return
    console = Console(record=html is not None, highlight=False, soft_wrap=True)
    for text, aspects in answers:
        for line in _lines_of(analyzer, text, aspects, asked=bool(aspect)):
            console.print(line)
    if html is not None:
        try:
            html.write_text(console.export_html(), encoding="utf-8", errors="replace")
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(html)!r}: {error}") from error


def _lines_of(
    analyzer: Analyzer, text: str, aspects: list[AspectSentiment], *, asked: bool
) -> Iterator[Text]:
    """What is shown of a text: a review sentence by sentence, or what each sentiment is about."""
    from rich.text import Text

    from capsar.sentences import split_sentences

    sentences = split_sentences(text)
    if len(sentences) > 1 and not asked:
        yield from _review_lines(text, sentences, aspects)
        return
    for found in aspects:
        yield Text(f"{found.text}: {_told(found)}")
    if not aspects:
        yield Text("(no aspect found)")
    given = list(dict.fromkeys(found.text for found in aspects)) if asked else [None]
    for one in given:
        yield Text(f"capsule lengths for {one or 'the whole sentence'}:")
        explanation = analyzer.explain(text, one)
        for polarity, length in explanation.lengths.items():
            yield _shaded(explanation, polarity, length)


def _review_lines(
    text: str, sentences: list[Span], aspects: list[AspectSentiment]
) -> Iterator[Text]:
    """Each sentence of a review on a line, its aspects shaded, and what is felt about them."""
    from rich.text import Text

    waiting = aspects[::-1]
    for start, end in sentences:
        own = []
        while waiting and waiting[-1].start < end:
            own.append(waiting.pop())
        line = Text()
        position = start
        for found in own:
            line.append(text[position : found.start].replace("\n", " "))
            line.append(found.text, _ground(found.polarity, max(found.scores.values())))
            position = found.end
        line.append(text[position:end].replace("\n", " "))
        yield line
        for found in own:
            part = " (read in parts: the sentence is overlong)" if found.windowed else ""
            yield Text(f"  {found.text}: {_told(found)}{part}")


def _told(found: AspectSentiment) -> str:
    return "not sure" if found.abstained else str(found.polarity)


def _ground(polarity: str, strength: float) -> Style:
    """The colour of a sentiment, as dark as it is strong."""
    from rich.color import Color
    from rich.style import Style

    ground = Color.from_rgb(*(255 - strength * (255 - part) for part in _COLOURS[polarity]))
    return Style(bgcolor=ground, color=Color.from_rgb(0, 0, 0))


def _shaded(explanation: Explanation, polarity: str, length: float) -> Text:
    """The words that were read on a ground as dark as the sentiment is about them."""
    from rich.text import Text

    from capsar.sentences import without_markup

    line = Text(f"  {polarity:<8} {length:.2f}  ")
    position = explanation.words[0][0] if explanation.words else 0
    for (start, end), score in zip(explanation.words, explanation.about[polarity], strict=True):  # type: ignore[index]
        between = explanation.text[position:start]
        is_unread = any(map(str.isalnum, without_markup(between)))  # a sentence without the aspect
        line.append(" … " if is_unread else between)
        line.append(explanation.text[start:end], _ground(polarity, max(0.0, score) * length))
        position = end
    return line

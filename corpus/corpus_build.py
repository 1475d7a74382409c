"""Convert the marked-up corpus to JSON Lines and bring catalog and data card up to date.

    python corpus/corpus_build.py           # after editing a marked-up file
    python corpus/corpus_build.py --check   # write nothing; fail if anything is out of date

The marked-up files are the ones to edit: `SPLIT/NAME.txt`, one `domain<TAB>marked sentence` per
line (`GUIDELINE.md`). `sources.toml` describes each file. `SPLIT.jsonl`, the entry in the
project's catalog and the tables of the card are derived from them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capsar.data.markup import Term, format_markup, parse_markup
from capsar.errors import DataError
from capsar.schema import AspectSpan, Polarity

FOLDER = Path(__file__).parent
CATALOG = FOLDER.parent / "src" / "capsar" / "data" / "catalog.toml"
CARD = FOLDER / "README.md"
SPLITS = ("train", "validation", "test")
LICENSE = "CC-BY-4.0"


@dataclass(frozen=True, slots=True)
class Source:
    """One marked-up file."""

    name: str
    split: str
    source: str
    """`authored`, or the data set that the sentences come from."""
    description: str

    @property
    def path(self) -> Path:
        """Return where the file is."""
        return FOLDER / self.split / f"{self.name}.txt"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One annotated sentence."""

    text: str
    terms: tuple[Term, ...]
    domain: str
    source: Source
    line: int = 0
    """Line number in the marked-up file, from 1."""

    @property
    def id(self) -> str:
        """Return an ID that depends only on the file and the text."""
        return f"{self.source.name}-{hashlib.sha256(self.text.encode()).hexdigest()[:10]}"


def read_sources() -> list[Source]:
    """Return the described files; each must exist, and each file must be described."""
    entries = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))["file"]
    sources = [Source(**entry) for entry in entries]
    described = [source.path for source in sources]
    present = [path for split in SPLITS for path in (FOLDER / split).glob("*.txt")]
    if sorted(described) != sorted(present):
        missing = ", ".join(sorted(path.name for path in {*described} - {*present})) or "none"
        unknown = ", ".join(sorted(path.name for path in {*present} - {*described})) or "none"
        raise DataError(
            "sources.toml must describe each marked-up file once; described but missing: "
            f"{missing}; present but not described: {unknown}"
        )
    return sources


def read_domains() -> list[str]:
    """Return the names of all domains."""
    return (FOLDER / "domains.txt").read_text(encoding="utf-8").split()


def read_file(source: Source, domains: set[str]) -> list[Sentence]:
    """Return the sentences of one marked-up file.

    Raises:
        DataError: If a line is malformed, its domain unknown, or its text not stripped.
    """
    sentences = []
    *lines, rest = source.path.read_text(encoding="utf-8").split("\n")
    if rest:
        raise DataError(f"{source.split}/{source.name}.txt must end with a line feed")
    for number, line in enumerate(lines, start=1):
        domain, tab, marked = line.partition("\t")
        try:
            if not tab or domain not in domains:
                raise DataError(f"expected a domain of domains.txt and a tab, got {line[:40]!r}")
            text, terms = parse_markup(marked)
            if not text.strip() or text != text.strip():
                raise DataError("the sentence is empty or has blanks at its ends")
        except DataError as error:
            raise DataError(f"{source.split}/{source.name}.txt, line {number}: {error}") from error
        sentences.append(Sentence(text, tuple(terms), domain, source, number))
    return sentences


def read_corpus() -> dict[str, list[Sentence]]:
    """Return the sentences of each split, in the order of sources.toml."""
    domains = set(read_domains())
    corpus: dict[str, list[Sentence]] = {split: [] for split in SPLITS}
    for source in read_sources():
        corpus[source.split] += read_file(source, domains)
    return corpus


def to_record(sentence: Sentence) -> dict[str, Any]:
    """Return the JSON record of a sentence."""
    return {
        "id": sentence.id,
        "text": sentence.text,
        "aspects": [
            {
                "aspect": sentence.text[span.start : span.end],
                "start": span.start,
                "end": span.end,
                "polarity": str(polarity),
            }
            for span, polarity in sentence.terms
        ],
        "domain": sentence.domain,
        "source": sentence.source.source,
        "author": sentence.source.name,
        "license": LICENSE,
        "split": sentence.source.split,
    }


def to_line(record: dict[str, Any]) -> str:
    """Return the marked-up line of a JSON record: the inverse of `to_record`."""
    terms = [
        (AspectSpan(aspect["start"], aspect["end"]), Polarity(aspect["polarity"]))
        for aspect in record["aspects"]
    ]
    return f"{record['domain']}\t{format_markup(record['text'], terms)}"


def to_jsonl(sentences: list[Sentence]) -> bytes:
    """Return the content of a split's JSON Lines file."""
    lines = (json.dumps(to_record(s), ensure_ascii=False) + "\n" for s in sentences)
    return "".join(lines).encode()


def catalog_entry(corpus: dict[str, list[Sentence]]) -> str:
    """Return the corpus' entry in the catalog."""
    parts = [
        '[[dataset]]\nname = "capsar-corpus"\nkind = "labeled"\n'
        'description = "Review sentences of many domains, written and annotated for this project, '
        "and sentences of Bing Liu's reviews annotated under the same guideline.\"\n"
        f'license = "{LICENSE}"\nhome = "corpus/ of this project"\n'
    ]
    for split, sentences in corpus.items():
        content = to_jsonl(sentences)
        counts = Counter(str(polarity) for s in sentences for _, polarity in s.terms)
        names = ("negative", "neutral", "positive", "conflict")
        labels = ", ".join(f"{name} = {counts[name]}" for name in names)
        parts.append(
            f'[[dataset.file]]\npart = "{split}"\npath = "corpus/{split}.jsonl"\n'
            f'bytes = {len(content)}\nsha256 = "{hashlib.sha256(content).hexdigest()}"\n'
            f'source = "this project"\ncommit = ""\nsource_path = "corpus/{split}.jsonl"\n'
            f"labels = {{ {labels} }}\nsentences = {len(sentences)}\n"
        )
    return "\n".join(parts)


def statistics(corpus: dict[str, list[Sentence]]) -> str:
    """Return the card's tables of sizes: by split, by file and by domain."""
    everything = [sentence for sentences in corpus.values() for sentence in sentences]
    columns = [describe(sentences) for sentences in (*corpus.values(), everything)]
    rows = ["| | " + " | ".join([*SPLITS, "all"]) + " |", "|---|" + "---:|" * len(columns)]
    rows += [
        f"| {name} | " + " | ".join(column[name] for column in columns) + " |"
        for name in columns[0]
    ]
    rows += ["", "| file | split | sentences | terms | content |", "|---|---|---:|---:|---|"]
    by_source: dict[Source, list[Sentence]] = {}
    for sentence in everything:
        by_source.setdefault(sentence.source, []).append(sentence)
    rows += [
        f"| `{source.name}` | {source.split} | {len(own)} | {sum(len(s.terms) for s in own)} | "
        f"{source.description} |"
        for source, own in by_source.items()
    ]
    domains = Counter(sentence.domain for sentence in everything)
    listed = ", ".join(f"{name} {count:,}" for name, count in domains.most_common())
    return "\n".join([*rows, "", f"Sentences per domain: {listed}."])


def describe(sentences: list[Sentence]) -> dict[str, str]:
    """Return one column of the card's first table."""
    num_sentences = max(1, len(sentences))
    terms = [s.text[span.start : span.end] for s in sentences for span, _ in s.terms]
    labels = Counter(polarity for s in sentences for _, polarity in s.terms)
    num_terms = max(1, len(terms))
    lengths = sorted(len(s.text.split()) for s in sentences) or [0]
    quantiles = (lengths[int(q * (len(lengths) - 1))] for q in (0.1, 0.5, 0.9))
    return {
        "sentences": f"{len(sentences):,}",
        "from real reviews": f"{sum(s.source.source != 'authored' for s in sentences):,}",
        "without a term": f"{sum(not s.terms for s in sentences) / num_sentences:.1%}",
        "domains": str(len({s.domain for s in sentences})),
        "terms": f"{len(terms):,}",
        **{str(p): f"{labels[p] / num_terms:.1%}" for p in Polarity},
        "terms of several words": f"{sum(' ' in term for term in terms) / num_terms:.1%}",
        "words per sentence, 10 / 50 / 90 %": " / ".join(map(str, quantiles)),
    }


def replace_block(content: str, name: str, block: str) -> str:
    """Return a document with the text between the markers of a block replaced."""
    pattern = re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?<!-- end -->", flags=re.DOTALL)
    replaced, count = pattern.subn(lambda m: f"{m[1]}{block}\n<!-- end -->", content)
    if count != 1:
        raise DataError(f"expected one block {name!r}, found {count}")
    return replaced


def outputs() -> dict[Path, bytes]:
    """Return every derived file with the content that it must have."""
    corpus = read_corpus()
    derived = {FOLDER / f"{split}.jsonl": to_jsonl(corpus[split]) for split in SPLITS}
    card = replace_block(CARD.read_text(encoding="utf-8"), "statistics", statistics(corpus))
    derived[CARD] = card.encode()
    catalog = CATALOG.read_text(encoding="utf-8")
    entry = catalog_entry(corpus)
    begin, end = "# begin: capsar-corpus\n", "# end: capsar-corpus\n"
    if not catalog.count(begin) == catalog.count(end) == 1:
        raise DataError(f"{CATALOG.name} must hold the markers of capsar-corpus once")
    head, _, rest = catalog.partition(begin)
    derived[CATALOG] = (head + begin + entry + end + rest.partition(end)[2]).encode()
    return derived


def main() -> int:
    """Write or check the derived files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on differences")
    is_check = parser.parse_args().check
    derived = outputs()
    stale = [
        path
        for path, content in derived.items()
        if not path.is_file() or path.read_bytes() != content
    ]
    if not is_check:
        for path in stale:
            path.write_bytes(derived[path])
    for path in stale:
        print(f"{'out of date' if is_check else 'wrote'}: {path.relative_to(FOLDER.parent)}")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

"""Find sentences that splits share with each other or with a public evaluation set.

    CAPSAR_DATA=... python corpus/leakage.py            # list them; fail if there is one
    CAPSAR_DATA=... python corpus/leakage.py --remove   # and remove them from train and validation

Sentences are compared by `capsar.data.splits`: *exact* means the same words in the same order,
*near* that half of the word 5-grams of the shorter sentence occur in the other one. Only the
corpus' own sentences are printed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from capsar.data.catalog import TEST, data_folder, datasets, test_examples
from capsar.data.splits import MatchKind, SentenceIndex, sentence_hash
from capsar.errors import DataError
from capsar.evaluation.behavior import build_cases, load_suite
from corpus_build import read_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from corpus_build import Sentence

CORPUS = "capsar-corpus"


@dataclass(frozen=True, slots=True)
class Leak:
    """A sentence that is also in another set."""

    sentence: Sentence
    found_in: str
    kind: MatchKind


def between_splits(corpus: dict[str, list[Sentence]]) -> list[Leak]:
    """Return the sentences that also occur in a later split, and repetitions within a split."""
    leaks: list[Leak] = []
    for split in ("train", "validation"):  # the frozen test part has "meh" twice
        seen: set[str] = set()
        for sentence in corpus[split]:
            key = sentence_hash(sentence.text)
            if key in seen:
                leaks.append(Leak(sentence, split, MatchKind.EXACT))
            seen.add(key)
    for one, other in combinations(corpus, 2):
        index = SentenceIndex()
        index.add(other, (sentence.text for sentence in corpus[other]))
        leaks += _find(corpus[one], index)
    return leaks


def with_public_sets(corpus: dict[str, list[Sentence]]) -> list[Leak]:
    """Return the sentences that are in a public evaluation set."""
    index = SentenceIndex()
    for name, texts in public_sets():
        index.add(name, texts)
    return [leak for sentences in corpus.values() for leak in _find(sentences, index)]


def with_suite(corpus: dict[str, list[Sentence]]) -> list[Leak]:
    """Return the training and validation sentences that are in the behavioral suite."""
    index = SentenceIndex()
    index.add("behavioral suite", (case.examples[0].text for case in build_cases(load_suite())))
    return [leak for split in ("train", "validation") for leak in _find(corpus[split], index)]


def public_sets() -> Iterator[tuple[str, list[str]]]:
    """Yield each public evaluation set: the catalog's test parts, MEMD, ASTE and M-ABSA."""
    for dataset in datasets().values():
        if dataset.name != CORPUS and any(file.part == TEST for file in dataset.files):
            texts = dict.fromkeys(example.text for example in test_examples(dataset.name))
            yield dataset.name, list(texts)
    folder = data_folder() / "evaluation"
    for name in ("memd", "aste", "m-absa"):
        if not (folder / name).is_dir():
            raise DataError(f"{str(folder / name)!r} is missing: this check needs every public set")
    for path in sorted(folder.glob("memd/*/*.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))
        yield _name(path, folder), [row["raw_words"] for row in rows]
    for path in (*sorted(folder.glob("aste/*/*.txt")), *sorted(folder.glob("m-absa/*/en/*.txt"))):
        lines = path.read_text(encoding="utf-8").splitlines()
        yield _name(path, folder), [line.partition("####")[0] for line in lines]


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def _find(sentences: list[Sentence], index: SentenceIndex) -> list[Leak]:
    return [
        Leak(sentence, name, match.kind)
        for sentence in sentences
        for name, match in index.find(sentence.text).items()
    ]


def remove(leaks: list[Leak]) -> None:
    """Remove leaked sentences from the marked-up files.

    Raises:
        DataError: If one is in the test part, which is frozen.
    """
    lines_of: dict[Path, set[int]] = {}
    for leak in leaks:
        if leak.sentence.source.split == "test":
            raise DataError(f"{leak.sentence.id} is in the frozen test part; nothing was removed")
        lines_of.setdefault(leak.sentence.source.path, set()).add(leak.sentence.line)
    for path, unwanted in lines_of.items():
        lines = path.read_text(encoding="utf-8").split("\n")
        kept = [line for number, line in enumerate(lines, start=1) if number not in unwanted]
        path.write_text("\n".join(kept), encoding="utf-8")


def find_leaks() -> list[Leak]:
    """Return every leak of the corpus."""
    corpus = read_corpus()
    return [*between_splits(corpus), *with_suite(corpus), *with_public_sets(corpus)]


def main() -> int:
    """Print every leak; fail if there is one that was not removed."""
    leaks = find_leaks()
    for leak in leaks:
        source = leak.sentence.source
        print(f"{leak.kind}\t{source.split}/{source.name}\t{leak.found_in}\t{leak.sentence.text}")
    print(f"{len(leaks)} leaks", file=sys.stderr)
    if "--remove" in sys.argv[1:]:
        remove(leaks)
        leaks = find_leaks()
    return int(bool(leaks))


if __name__ == "__main__":
    sys.exit(main())

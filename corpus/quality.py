"""Measure agreement between annotators and with people, and diversity beside real reviews.

    CAPSAR_DATA=... python corpus/quality.py

writes `quality.json`, from which the card's tables are rendered. `checks/` holds the second
annotations: marked-up text where the sentences are the corpus' own, and offsets keyed by sentence
hash where they belong to a public set whose text may not be redistributed.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from capsar.data.catalog import data_folder, find_file, training_examples
from capsar.data.markup import parse_markup
from capsar.data.splits import content_words
from capsar.schema import CLASSES
from corpus_build import CARD, FOLDER, SPLITS, read_corpus, replace_block, to_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from capsar.schema import AspectSpan, Example
    from corpus_build import Sentence

CHECKS = FOLDER / "checks"
RESULT = FOLDER / "quality.json"
RESULTS_ON_TEST = FOLDER.parent / "experiments" / "results" / "out-of-domain.json"
_SAMPLE_WORDS = 5000

Spans = dict[tuple[int, int], str]
"""Polarity by character offsets."""


@dataclass
class Agreement:
    """How far two annotations of the same sentences agree; the second one is the reference."""

    sentences: int = 0
    first: int = 0
    second: int = 0
    matched: int = 0
    polarities: Counter[tuple[str, str]] = field(default_factory=Counter)
    only_first: Counter[str] = field(default_factory=Counter)
    only_second: Counter[str] = field(default_factory=Counter)

    def add(self, first: Spans, second: Spans) -> None:
        """Count one sentence."""
        self.sentences += 1
        self.first += len(first)
        self.second += len(second)
        shared = first.keys() & second.keys()
        self.matched += len(shared)
        self.polarities.update((first[span], second[span]) for span in shared)
        self.only_first.update(_kinds(first, second))
        self.only_second.update(_kinds(second, first))

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        labeled = {
            pair: n
            for pair, n in self.polarities.items()
            if pair[0] in CLASSES and pair[1] in CLASSES
        }
        total = sum(labeled.values())
        same = sum(n for (one, other), n in labeled.items() if one == other)
        polar = {pair: n for pair, n in labeled.items() if "neutral" not in pair}
        same_polar = sum(n for (one, other), n in polar.items() if one == other)
        return {
            "sentences": self.sentences,
            "terms_first": self.first,
            "terms_second": self.second,
            "span_precision": _ratio(self.matched, self.first),
            "span_recall": _ratio(self.matched, self.second),
            "span_f1": _ratio(2 * self.matched, self.first + self.second),
            "polarity_pairs": total,
            "polarity_agreement": _ratio(same, total),
            "polarity_agreement_non_neutral": _ratio(same_polar, sum(polar.values())),
            "polarity_kappa": _kappa(labeled),
            "polarity_confusion": {
                f"{one} / {other}": n for (one, other), n in sorted(self.polarities.items())
            },
            "only_first": dict(self.only_first.most_common()),
            "only_second": dict(self.only_second.most_common()),
        }


def _kinds(own: Spans, other: Spans) -> Iterable[str]:
    """Yield the class of each term that only one annotation has."""
    for (start, end), polarity in own.items():
        if (start, end) in other:
            continue
        overlaps = any(start < stop and begin < end for begin, stop in other)
        yield "other boundaries" if overlaps else f"unmarked {polarity}"


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _kappa(pairs: dict[tuple[str, str], int]) -> float | None:
    """Return Cohen's kappa of the polarities of terms that both annotations have."""
    total = sum(pairs.values())
    if not total:
        return None
    first, second = Counter[str](), Counter[str]()
    for (one, other), n in pairs.items():
        first[one] += n
        second[other] += n
    expected = sum(first[c] * second[c] for c in first) / total**2
    observed = sum(n for (one, other), n in pairs.items() if one == other) / total
    return round((observed - expected) / (1 - expected), 4) if expected < 1 else None


def read_marked(path: Path) -> dict[str, Spans]:
    """Return the annotations of a file of marked-up sentences, by text."""
    annotations = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text, terms = parse_markup(line)
        annotations[text] = {(s.start, s.end): str(p) for s, p in terms}
    return annotations


def by_text(sentences: Iterable[Sentence]) -> dict[str, Spans]:
    """Return the annotations of the corpus, by text."""
    return {s.text: {(span.start, span.end): str(p) for span, p in s.terms} for s in sentences}


def _only(annotations: dict[str, Spans], texts: Iterable[str]) -> dict[str, Spans]:
    return {text: annotations[text] for text in texts}


def compare(first: dict[str, Spans], second: dict[str, Spans]) -> dict[str, Any]:
    """Compare two annotations on the sentences that both have."""
    agreement = Agreement()
    for text in first.keys() & second.keys():
        agreement.add(first[text], second[text])
    return agreement.as_dict()


def agreement_with_people() -> dict[str, Any]:
    """Compare bare-text annotations with the gold labels of public sets, set by set."""
    gold = {name: _by_hash(texts) for name, texts in _gold_sets().items()}
    results: dict[str, Agreement] = {}
    for line in (CHECKS / "public.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        ours = {(start, end): polarity for start, end, polarity in record["terms"]}
        name = f"{record['set']}, round {record['round']}"
        gold_terms = gold[record["set"]][record["sentence"]]
        results.setdefault(name, Agreement()).add(ours, gold_terms)
    return {name: results[name].as_dict() for name in sorted(results)}


def _by_hash(texts: dict[str, Spans]) -> dict[str, Spans]:
    return {hashlib.sha256(text.encode()).hexdigest(): spans for text, spans in texts.items()}


def _gold_sets() -> dict[str, dict[str, Spans]]:
    """Return the gold annotations of the sets that were annotated a second time."""
    sets = {
        "MAMS, dev": _xml_terms(find_file("mams", "dev")),
        "SemEval-14 Restaurant, train": _xml_terms(find_file("semeval14-restaurants", "train")),
        "SemEval-14 Laptop, train": _xml_terms(find_file("semeval14-laptops", "train")),
    }
    memd: dict[str, Spans] = {}
    for path in sorted((data_folder() / "evaluation" / "memd").glob("*/dev.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            memd[row["raw_words"]] = _memd_terms(row)
    return sets | {"MEMD, dev": memd}


def _xml_terms(path: Path) -> dict[str, Spans]:
    sentences = {}
    for sentence in ET.parse(path).getroot().iter("sentence"):
        sentences[sentence.findtext("text") or ""] = {
            (int(term.get("from", 0)), int(term.get("to", 0))): str(term.get("polarity"))
            for term in sentence.iter("aspectTerm")
        }
    return sentences


def _memd_terms(row: dict[str, Any]) -> Spans:
    """Return the explicit aspects of a MEMD sentence; a span with two polarities is a conflict."""
    names = {"POS": "positive", "NEG": "negative", "NEU": "neutral"}
    words = row["raw_words"].split(" ")
    starts = [sum(len(word) + 1 for word in words[:i]) for i in range(len(words))]
    spans: Spans = {}
    for quadruple in row["quadruples"]:
        first, last = quadruple["aspect"]["from"], quadruple["aspect"]["to"] - 1
        if first < 0:
            continue
        span = (starts[first], starts[last] + len(words[last]))
        polarity = names[quadruple["sentiment"]]
        spans[span] = polarity if spans.get(span, polarity) == polarity else "conflict"
    return spans


def agreement_with_bing_liu(corpus: dict[str, list[Sentence]]) -> dict[str, Any]:
    """Compare our labels of real sentences with the published ones.

    The published labels name features by dictionary form, without offsets, and none is neutral. A
    feature that occurs in the sentence is matched if it overlaps one of our terms.
    """
    ours = by_text(
        s for sentences in corpus.values() for s in sentences if s.source.source == "bing-liu"
    )
    counts = Counter[str]()
    unmatched = Counter[str]()
    seen: set[str] = set()
    for part in ("train", "train-2"):
        for example in training_examples("bing-liu", part):
            text = " ".join(example.text.split())
            if text in ours and example.spans:
                feature = [_without_blanks(example.text, span) for span in example.spans]
                _count_feature(example, feature, ours[text], counts, unmatched)
            if text in ours:
                seen.add(text)
    return {
        "sentences": len(seen),
        "features_in_sentence": counts["features"],
        "matched": counts["matched"],
        "same_polarity": counts["same"],
        "ours_neutral": counts["neutral"],
        "conflict": counts["conflict"],
        "polarity_agreement": _ratio(counts["same"], counts["matched"] - counts["conflict"]),
        "polarity_agreement_where_ours_is_not_neutral": _ratio(
            counts["same"], counts["matched"] - counts["conflict"] - counts["neutral"]
        ),
        "most_frequent_unmatched": dict(unmatched.most_common(15)),
    }


def _without_blanks(text: str, span: AspectSpan) -> tuple[int, int]:
    """Return where a span is once runs of blanks are reduced to one."""
    start = len(" ".join((text[: span.start] + "x").split())) - 1
    return start, start + len(" ".join(text[span.start : span.end].split()))


def _count_feature(
    example: Example,
    feature: list[tuple[int, int]],
    ours: Spans,
    counts: Counter[str],
    unmatched: Counter[str],
) -> None:
    """Count a published feature; it agrees if any of our overlapping terms has its polarity."""
    counts["features"] += 1
    overlapping = [
        polarity
        for begin, stop in feature
        for (start, end), polarity in ours.items()
        if begin < end and start < stop
    ]
    if not overlapping:
        unmatched[str(example.aspect).lower()] += 1
        return
    counts["matched"] += 1
    if str(example.polarity) in overlapping:
        counts["same"] += 1
    elif "conflict" in overlapping:
        counts["conflict"] += 1
    elif set(overlapping) == {"neutral"}:
        counts["neutral"] += 1


def diversity(texts: Sequence[str], terms: Sequence[Spans]) -> dict[str, Any]:
    """Return how varied sentences are; distinct n-grams are counted on a sample of fixed size."""
    order = list(range(len(texts)))
    random.Random(0).shuffle(order)
    words: list[tuple[str, ...]] = []
    total = 0
    for i in order:
        sentence = content_words(texts[i])
        words.append(sentence[: _SAMPLE_WORDS - total])
        total += len(words[-1])
        if total >= _SAMPLE_WORDS:
            break
    lengths = [len(text.split()) for text in texts]
    openings = Counter(" ".join(text.lower().split()[:2]) for text in texts)
    return {
        "sentences": len(texts),
        "distinct_2": _distinct(words, 2),
        "distinct_4": _distinct(words, 4),
        "words_mean": round(statistics.mean(lengths), 1),
        "words_sd": round(statistics.stdev(lengths), 1),
        "opens_with_term": _ratio(sum(any(s == 0 for s, _ in t) for t in terms), len(texts)),
        "top_openings": [[name, n] for name, n in openings.most_common(3)],
    }


def _distinct(sentences: Sequence[tuple[str, ...]], n: int) -> float | None:
    grams = [tuple(s[i : i + n]) for s in sentences for i in range(len(s) - n + 1)]
    return _ratio(len(set(grams)), len(grams))


def measure_diversity(corpus: dict[str, list[Sentence]]) -> dict[str, Any]:
    """Return the diversity of each authored file, and of real reviews."""
    groups: dict[str, list[Sentence]] = {}
    for sentences in corpus.values():
        for s in sentences:
            real = s.source.source != "authored"
            groups.setdefault("Bing Liu's reviews" if real else s.source.name, []).append(s)
    rows = {
        name: diversity([s.text for s in own], [by_text([s])[s.text] for s in own])
        for name, own in groups.items()
    }
    mams = _xml_terms(find_file("mams", "train"))
    return rows | {"MAMS, train": diversity(list(mams), list(mams.values()))}


def render(result: dict[str, Any]) -> str:
    """Return the card's tables of agreement and diversity."""
    rows = ["| read again | sentences | changed or removed |", "|---|---:|---:|"]
    rows += [
        f"| {step['what']} | {step['sentences']:,} | {step['changed']:,} |"
        for step in result["history"]
    ]
    rows += [
        "",
        "Agreement on terms (exact span, F1) and on the polarity of the terms that both have:",
        "",
        "| compared with | sentences | span F1 | polarity | kappa | both non-neutral |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    compared = {
        f"a second annotator: {name}": value for name, value in result["second_annotator"].items()
    } | {f"people: {name}": value for name, value in result["people"].items()}
    rows += [
        f"| {name} | {row['sentences']} | {row['span_f1']:.3f} | {row['polarity_agreement']:.3f} | "
        f"{row['polarity_kappa']:.3f} | {row['polarity_agreement_non_neutral']:.3f} |"
        for name, row in compared.items()
    ]
    rows += [
        "",
        "Where our annotation and people's differ in terms. The guideline marks everything that a "
        "business provides, and the reviewed product itself; the public sets leave many of these "
        "unmarked.",
        "",
        "| compared with | terms only we mark: neutral | non-neutral | other boundaries | "
        "terms only they mark |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in result["people"].items():
        ours, theirs = row["only_first"], row["only_second"]
        boundaries = ours.get("other boundaries", 0)
        neutral = ours.get("unmarked neutral", 0)
        polar = sum(ours.values()) - boundaries - neutral
        only_theirs = sum(theirs.values()) - theirs.get("other boundaries", 0)
        rows.append(f"| {name} | {neutral} | {polar} | {boundaries} | {only_theirs} |")
    bing = result["bing_liu"]
    rows += [
        "",
        f"Bing Liu's published labels have no neutral class and no offsets. Of "
        f"{bing['features_in_sentence']:,} features that occur in our {bing['sentences']:,} real "
        f"sentences, {bing['matched']:,} overlap at least one of our terms; one of these has the "
        f"same polarity for {bing['polarity_agreement']:.1%}, and for "
        f"{bing['polarity_agreement_where_ours_is_not_neutral']:.1%} where ours is not neutral. "
        "Most frequent features without a term of ours: "
        + ", ".join(f"*{name}*" for name in list(bing["most_frequent_unmatched"])[:8])
        + ".",
        "",
        "Diversity of authored files compared with real reviews. Distinct n-grams are counted in "
        "samples of "
        f"{_SAMPLE_WORDS:,} words.",
        "",
        "| file | distinct-2 | distinct-4 | words per sentence | opens with a term | "
        "most frequent openings | artificial, of 30 |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    artificial: dict[str, list[str]] = {}
    for reading in result["readings"]:
        for name, row in reading["files"].items():
            artificial.setdefault(name, []).append(str(row["artificial"]))
    rows += [
        f"| {name} | {row['distinct_2']:.3f} | {row['distinct_4']:.3f} | {row['words_mean']} ± "
        f"{row['words_sd']} | {row['opens_with_term']:.1%} | "
        + ", ".join(f"{opening} ({n / row['sentences']:.1%})" for opening, n in row["top_openings"])
        + f" | {', '.join(artificial.get(name, ['-']))} |"
        for name, row in result["diversity"].items()
    ]
    return "\n".join([*rows, "", *_describe_readings(result["readings"])])


def render_results(document: dict[str, Any]) -> str:
    """Return the card's tables of results on the test part and the suite."""
    models: dict[str, Any] = dict(document["models"])
    for name, model in document["models"].items():
        models[f"{name} of {model['previous']['release']}"] = model["previous"]
    models |= document["baselines"]
    rows = [
        "| test part | accuracy, 95 % | macro-F1 | minus VADER, 95 % | authored / real | span F1 | "
        "span and polarity F1 | false aspects per 100 sentences without any |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for name, model in models.items():
        found = model["sets"]["capsar-corpus"]
        metrics, difference = found["metrics"], found["minus_vader"]
        low, high = found["intervals"]["accuracy"]
        spans = found.get("spans")
        cells = [
            f"{metrics['accuracy']:.3f} [{low:.3f}, {high:.3f}]",
            f"{metrics['macro_f1']:.3f}",
            f"{difference['accuracy']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]",
            " / ".join(f"{part['accuracy']:.3f}" for part in found["by_source"].values()),
            f"{spans['spans']['f1']:.3f}" if spans else "-",
            f"{spans['joint']['f1']:.3f}" if spans else "-",
            f"{spans['false_per_100']:.1f}" if spans else "-",
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    names = list(next(iter(models.values()))["behavior"]["capabilities"])
    rows += ["", "| behavioral suite | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name, model in models.items():
        scores = model["behavior"]["capabilities"]
        rows.append(f"| {name} | " + " | ".join(f"{scores[c]['score']:.2f}" for c in names) + " |")
    return "\n".join(rows)


def _describe_readings(readings: list[dict[str, Any]]) -> list[str]:
    """Return what an independent reader found artificial, reading by reading."""
    lines = []
    for reading in readings:
        counts = reading["files"].values()
        lines.append(
            f"Reading {reading['reading']}: an independent reader (a language model), not informed "
            "but able to guess which lines are real, read 30 random lines of each of "
            f"{len(counts)} files and called "
            f"{sum(row['artificial'] for row in counts)} of {sum(row['of'] for row in counts):,} "
            "artificial, none of them among the real ones. Most frequent patterns: "
            f"{'; '.join(reading['patterns'])}."
        )
        lines.append("")
    return lines[:-1]


def main() -> int:
    """Measure everything and write `quality.json`."""
    corpus = read_corpus()
    ours = by_text(s for sentences in corpus.values() for s in sentences)
    first = read_marked(CHECKS / "test-first.txt")
    second = read_marked(CHECKS / "test-second.txt")
    real = {s.text for s in corpus["test"] if s.source.source != "authored"}
    result = {
        "command": "python corpus/quality.py",
        "sha256": {split: hashlib.sha256(to_jsonl(corpus[split])).hexdigest() for split in SPLITS},
        "second_annotator": {
            "test part, real": compare(_only(first, real), second),
            "test part, authored": compare(_only(first, first.keys() - real), second),
            "training part": compare(ours, read_marked(CHECKS / "train-second.txt")),
            "training part, later files": compare(ours, read_marked(CHECKS / "train-later.txt")),
        },
        "people": agreement_with_people(),
        "bing_liu": agreement_with_bing_liu(corpus),
        "diversity": measure_diversity(corpus),
        "history": json.loads((CHECKS / "history.json").read_text(encoding="utf-8")),
        "readings": json.loads((CHECKS / "readings.json").read_text(encoding="utf-8")),
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    card = CARD.read_text(encoding="utf-8")
    card = replace_block(card, "quality", render(result))
    results = json.loads(RESULTS_ON_TEST.read_text(encoding="utf-8"))
    card = replace_block(card, "baselines", render_results(results))
    CARD.write_text(card, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

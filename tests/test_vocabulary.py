"""Code and docs use the vocabulary of the field: no word of the project's former dialect.

Words with legitimate ordinary uses are listed in a narrow form, such as `opened capsule`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATTERNS = (
    "src/**/*.py",
    "docs/**/*.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/**/*.py",
    "examples/**/*.md",
    "experiments/**/*.py",
    "benchmarks/**/*.py",
    "corpus/*.py",
)
PROSE = {
    r"told|tells?(?!\()|telling": "predicted, reported, distinguished",
    r"foresee|foresees|foreseen|foreseeing": "predict the hidden states",
    r"imitate|imitates|imitated|imitating|imitation": "distillation",
    r"judges?|judged|judging|judge?ments?|judgeable": "evaluate, annotation, labeled",
    r"whoever|anybody|somebody|nobody": "the user, the caller, no one",
    r"anew": "again",
    r"mend|mends|mended": "correct, repair",
    r"reckon|reckons|reckoned|reckoning": "compute, estimate",
    r"surety|sureties|surest": "confidence, most confident",
    r"felt": "sentiment",
    r"asked|asking|asks": "requested, given",
    r"answered|answering": "predicted, returned, handled",
    r"held[ -]back|holds? back|holding back": "validation set",
    r"(go|goes|going|went) on from": "fine-tune, initialize from",
    r"ships|shipped": "bundled",
    r"unseen": "out-of-domain",
    r"lesson|lessons": "weak labels",
    r"the doctor": "validation, check",
    r"ledger|ledgers": "job manifest",
    r"fragment|fragments": "shard",
    r"tally|tallies": "counts",
    r"peers": "baselines",
    r"opened (capsules?|sentences?)|opens? (the )?capsules?": "capsule scores",
    r"dev[ -](set|part|split|data|accuracy|macro-F1)": "validation",
    r"left[ _]out": "excluded",
}
"""Regular expressions, in any case, and the words to use instead."""
NAMES = {
    r"HeldBack|Learner|DevFigures|JudgedSpans": "ValidationSet, TrainState, ValidationMetrics",
    r"be_told|keep_told|UNTOLD|told_shares?|teacher_share": "add_teacher_targets, distill_weight",
    r"(Class|Span|Calibration|Ranking)Figures|compute_figures": "*Metrics, compute_metrics",
    r"no_aspect_share|warmup_share|train_share|clip_norm": "*_dropout, *_ratio, max_grad_norm",
    r"imitate_epochs|start_from|load_start": "init_from",
    r"gather_known|read_parts": "collect_vocabulary, read_splits",
    r"dev_(share|seed|examples|sentences|confusion|accuracy|macro_f1|span_f1)": "validation_*",
    r"data\.dev|data\.without": "data.validation, data.exclude_hashes",
    r"aspect_entry|first_token|FirstToken|first-token": "aspect_encoding, bert-pair",
    r"polarity_only|all_marked|some[-_]aspects": "partially_annotated, exhaustive, partial-labels",
    r"lay_out|Layout\(|PieceTokenizer|SentenceTokenizer": "encode, Encoding, SubwordTokenizer",
    r"OpenedSentence|open_(sentences|examples|capsules)": "CapsuleScores, score_*",
    r"about_threshold|\.because|\*because\*|\*about\*|\"because\"": "attributions, aspect_scores",
    r"LineProcess|class Admission|class Envelope|Answering": "WorkerProcess, *Middleware, Engine",
}
"""Regular expressions, case-sensitive, and the names to use instead."""
EXCEPTIONS = {
    ("CHANGELOG.md", "`--some-aspects`"): "lists the former names of options",
    ("benchmarks/serve/load.py", "nobody minded"): "the text of a review",
    ("benchmarks/text.py", "nobody came to take our order"): "the text of a review",
    ("docs/faq.md", "Frequently asked questions"): "the usual title",
}
"""(file, line with a forbidden word) -> why it stays."""
_RULES = [
    # An underscore or digit is a boundary, so that parts of identifiers are found as well.
    (re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", flags), better)
    for rules, flags in ((PROSE, re.IGNORECASE), (NAMES, re.NOFLAG))
    for pattern, better in rules.items()
]


def _files() -> list[Path]:
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def _find_words(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    allowed = [line for file, line in EXCEPTIONS if file == name]
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not any(text in line for text in allowed):
            found += [
                f"{name}:{number}: {match[0]!r}; write: {better}"
                for pattern, better in _RULES
                for match in pattern.finditer(line)
            ]
    return found


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_word_of_the_former_dialect_is_used(path: Path) -> None:
    assert _find_words(path) == []


@pytest.mark.parametrize(("name", "line"), EXCEPTIONS)
def test_every_exception_is_needed(name: str, line: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [text for text in lines if line in text]
    assert found
    assert all(any(pattern.search(text) for pattern, _ in _RULES) for text in found)

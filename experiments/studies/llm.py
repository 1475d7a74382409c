"""A language model beside ours: `python experiments/studies/llm.py predict`, then `… llm.py score`.

Qwen2.5-Coder-1.5B-Instruct (Q4_K_M, llama.cpp) extracts aspects with their polarities
from 200 sentences of each of three test sets, without examples and with five from the corpus'
training part. A grammar keeps its answers in form. `predict` resumes where it stopped; `score` runs
the bundled models on the same sentences and writes `results/llm.json`, which holds no text. Where
the answers are not on this machine, it keeps the language model's metrics.

Needs `xllamacpp`, and the model's file (`pretrained/fetch.py llm FILE`) in `CAPSAR_LLM`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.evaluation.spans import TermSentence, evaluate_spans, term_sentences
from capsar.schema import Polarity
from evaluate import rounded
from pretrained.sets import BUNDLED, CORPUS, read_test_set
from run import RESULTS, WORK, describe_study, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULT = RESULTS / "llm.json"
MODEL = "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M"
SETS = ("restaurant", "laptop", CORPUS)
SHOTS = (0, 5)
NUM_SENTENCES = 200
THREADS = 1
"""Processor time of one thread depends least on what else the machine does."""
PRICE_PER_CORE_HOUR = 0.05
"""US dollars: the order of a large cloud's on-demand price of one virtual core."""
_CONTEXT = 2048
_MAX_TOKENS = 160
_TASK = """Extract the aspect terms of the review and the sentiment toward each of them
(positive, negative or neutral). An aspect term is a noun or noun phrase, copied exactly from the
review. Write one per line as "<aspect term>: <sentiment>". If there is no aspect term, write
"none".

Review: """
"""Of four prompts, the best on eight sentences of the corpus' training part."""
_NONE = "none"
_GRAMMAR = r"""
root ::= "none" | item ("\n" item)*
item ::= [^:\n]+ ": " polarity
polarity ::= "positive" | "negative" | "neutral"
"""


class Found:
    """An aspect found in a sentence."""

    def __init__(self, start: int, end: int, polarity: Polarity) -> None:
        self.start, self.end, self.polarity = start, end, polarity


def sample(name: str) -> list[TermSentence]:
    """Return the same sentences of a test set in every run, chosen by a hash."""
    sentences = term_sentences(read_test_set(name))
    return sorted(sentences, key=lambda s: _hash(s.text))[:NUM_SENTENCES]


def examples() -> Iterator[dict[str, str]]:
    """Yield five sentences of the corpus' training part as a conversation."""
    from capsar.data.catalog import training_examples

    sentences = term_sentences(training_examples(CORPUS))
    chosen = sorted(sentences, key=lambda s: _hash(f"example {s.text}"))
    several = [s for s in chosen if len(s.terms) > 1 and None not in s.terms.values()][:3]
    one = [s for s in chosen if len(s.terms) == 1 and None not in s.terms.values()][:1]
    for sentence in (*several, *one, next(s for s in chosen if not s.terms)):
        found = [
            f"{sentence.text[start:end]}: {polarity}"
            for (start, end), polarity in sorted(sentence.terms.items())
        ]
        yield {"role": "user", "content": _TASK + sentence.text}
        yield {"role": "assistant", "content": "\n".join(found) or _NONE}


def predict() -> None:
    """Let the language model answer, and append each answer to a file."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = os.environ["CAPSAR_LLM"]
    settings.n_ctx, settings.n_parallel = _CONTEXT, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREADS
    model = xllamacpp.Server(settings)
    for shots in SHOTS:
        start = [*(examples() if shots else ())]
        for name in SETS:
            kept = read_answers(name, shots)
            file = answers_path(name, shots)
            file.parent.mkdir(parents=True, exist_ok=True)
            for sentence in sample(name):
                if _hash(sentence.text) in kept:
                    continue
                begin = time.process_time()
                request = {
                    "messages": [*start, {"role": "user", "content": _TASK + sentence.text}],
                    "grammar": _GRAMMAR,
                    "temperature": 0.0,
                    "max_tokens": _MAX_TOKENS,
                }
                answer: Any = model.handle_chat_completions(request)
                row = {
                    "hash": _hash(sentence.text),
                    "seconds": time.process_time() - begin,
                    "answer": answer["choices"][0]["message"]["content"],
                }
                with file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")


def answers_path(name: str, shots: int) -> Path:
    """Return the file of the answers."""
    return WORK / "llm" / f"{name}-{shots}.jsonl"


def read_answers(name: str, shots: int) -> dict[str, dict[str, Any]]:
    """Return the answers so far, by the hash of the sentence."""
    path = answers_path(name, shots)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {row["hash"]: row for row in map(json.loads, lines)}


def locate(text: str, answer: str) -> list[Found]:
    """Return the aspects of an answer that occur in the text, each at its next occurrence."""
    found: list[Found] = []
    lower, taken = text.lower(), set[int]()
    for line in answer.splitlines():
        aspect, _, polarity = line.rpartition(": ")
        aspect = aspect.strip().lower()
        start = lower.find(aspect) if aspect and aspect != _NONE else -1
        while start in taken:
            start = lower.find(aspect, start + 1)
        if start >= 0 and polarity in list(Polarity):  # the limit of tokens may cut a line
            taken.add(start)
            found.append(Found(start, start + len(aspect), Polarity(polarity)))
    return found


def score() -> None:
    """Evaluate all systems on the same sentences, and time the bundled models."""
    about = describe_study("llm", "studies/llm.py score", "numpy", "onnxruntime")
    before = read_json(RESULT).get("systems", {})
    systems: dict[str, dict[str, Any]] = {}
    for name in SETS:
        sentences = sample(name)
        texts = [sentence.text for sentence in sentences]
        for shots in SHOTS:
            system, answers = f"LLM, {shots} examples", read_answers(name, shots)
            own = systems.setdefault(system, {})
            if not answers:
                own[name] = before[system][name]
                continue
            found = [locate(text, answers[_hash(text)]["answer"]) for text in texts]
            seconds = sum(answer["seconds"] for answer in answers.values())
            own[name] = _describe(sentences, found, seconds)
        for model in BUNDLED:
            analyzer = load(model, threads=THREADS)
            analyzer.analyze(texts[:20])
            begin = time.process_time()
            predicted = analyzer.analyze(texts)
            seconds = time.process_time() - begin
            systems.setdefault(model, {})[name] = _describe(sentences, predicted, seconds)
    document = about | {
        "llm": MODEL,
        "threads": THREADS,
        "sentences_per_set": NUM_SENTENCES,
        "price_per_core_hour": PRICE_PER_CORE_HOUR,
        "systems": systems,
    }
    write_json(RESULT, rounded(document))


def _describe(sentences: list[TermSentence], found: list[Any], seconds: float) -> dict[str, Any]:
    extraction = evaluate_spans(sentences, found)
    pairs = [
        (aspect.polarity, gold)
        for sentence, aspects in zip(sentences, found, strict=True)
        for aspect in aspects
        if (gold := sentence.terms.get((aspect.start, aspect.end))) is not None
    ]
    per_thousand = 1000 * seconds / len(sentences)
    return {
        "span_f1": extraction.spans.f1,
        "joint_f1": extraction.joint.f1,
        "precision": extraction.spans.precision,
        "recall": extraction.spans.recall,
        "false_per_100": extraction.false_per_100,
        "polarity_of_found": sum(one == other for one, other in pairs) / max(1, len(pairs)),
        "seconds_per_1000": per_thousand,
        "dollars_per_1000": per_thousand / 3600 * PRICE_PER_CORE_HOUR,
    }


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    {"predict": predict, "score": score}[sys.argv[1]]()

"""SetFit-ABSA in its own environment: `run_setfit.py train|predict FOLDER SPACY …`.

The parts of the library run in its own order: noun spans by spaCy, the model that filters them, the
model of their polarity. Offsets are taken from spaCy's tokens, because `predict` returns strings
without positions.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from setfit import AbsaModel, AbsaTrainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).parent.parent))

from baselines.protocol import Prediction, Span, serve


class SetFit:
    """A trained pair of models."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model

    def extract(self, texts: list[str]) -> list[list[Prediction]]:
        """Do the same as `AbsaModel.predict` on texts, and keep positions."""
        docs, candidates = self._model.aspect_extractor(texts)
        aspects = self._model.aspect_model(docs, candidates) if any(candidates) else candidates
        predicted = self._model.polarity_model(docs, aspects) if any(aspects) else aspects
        return [
            [
                (doc[one].start_char, doc[one].end_char, str(polarity))
                for one, polarity in zip(own, polarities, strict=True)
            ]
            for doc, own, polarities in zip(docs, aspects, predicted, strict=True)
        ]

    def classify(self, texts: list[str], spans: list[list[Span]]) -> list[list[str]]:
        """Do the same as `AbsaModel.predict` on a dataset of aspects, by position.

        An aspect that ends inside a spaCy token is extended to the whole token; `predict` would
        return no polarity for it.
        """
        docs, _ = self._model.aspect_extractor(texts)
        found = [
            [doc.char_span(start, end, alignment_mode="expand") for start, end in own]
            for doc, own in zip(docs, spans, strict=True)
        ]
        slices = [[slice(span.start, span.end) for span in own] for own in found]
        predicted = self._model.polarity_model(docs, slices)
        return [[str(polarity) for polarity in own] for own in predicted]


def train(options: argparse.Namespace) -> None:
    """Train both models on rows of text, span, ordinal and label, and write facts about it.

    Aspects with the label `--without` are not used for polarity.
    """
    rows = json.loads(options.rows.read_text(encoding="utf-8"))
    model = AbsaModel.from_pretrained(
        str(options.encoder), str(options.encoder), spacy_model=str(options.spacy)
    )
    settings = TrainingArguments(
        output_dir=str(options.folder / "checkpoints"),
        max_steps=options.steps,
        batch_size=options.batch,
        seed=options.seed,
        save_strategy="no",
        report_to="none",
        show_progress_bar=False,
    )
    trainer = AbsaTrainer(model, args=settings, train_dataset=Dataset.from_list(rows))
    polarity = trainer.polarity_trainer
    polarity.train_dataset = polarity.train_dataset.filter(
        lambda row: row["label"] != options.without
    )
    trainer.train()
    model.save_pretrained(str(options.folder / "aspect"), str(options.folder / "polarity"))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    facts = {
        "steps": options.steps,
        "batch": options.batch,
        "rows": len(rows),
        "cpu_minutes": (usage.ru_utime + usage.ru_stime) / 60,
        "aspect_examples": len(trainer.aspect_trainer.train_dataset),
        "polarity_examples": len(polarity.train_dataset),
    }
    options.facts.write_text(json.dumps(facts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train SetFit-ABSA, or predict with it.")
    parser.add_argument("command", choices=("train", "predict"))
    for name in ("folder", "spacy", "--encoder", "--rows", "--facts"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--without")
    for name in ("--steps", "--batch", "--seed"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "train":
        train(options)
        return
    aspect, polarity = (str(options.folder / name) for name in ("aspect", "polarity"))
    serve(SetFit(AbsaModel.from_pretrained(aspect, polarity, spacy_model=str(options.spacy))))


if __name__ == "__main__":
    main()

"""SetFit-ABSA, inside its own environment: `peers_setfit.py train|ask FOLDER SPACY …`.

The library's own parts do everything, in its own order: spaCy's noun runs, the model that filters
them, the model of their polarity. Only offsets are read off spaCy's tokens, because `predict`
returns bare strings, which cannot be told apart where one occurs twice.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from setfit import AbsaModel, AbsaTrainer, TrainingArguments

from peers_answering import Found, Place, answer_requests


class SetFit:
    """A trained pair of models."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model

    def find(self, texts: list[str]) -> list[list[Found]]:
        """Do what `AbsaModel.predict` does with texts, and keep the places."""
        docs, candidates = self._model.aspect_extractor(texts)
        aspects = self._model.aspect_model(docs, candidates) if any(candidates) else candidates
        told = self._model.polarity_model(docs, aspects) if any(aspects) else aspects
        return [
            [
                (doc[one].start_char, doc[one].end_char, str(polarity))
                for one, polarity in zip(own, polarities, strict=True)
            ]
            for doc, own, polarities in zip(docs, aspects, told, strict=True)
        ]

    def classify(self, texts: list[str], places: list[list[Place]]) -> list[list[str]]:
        """Do what `AbsaModel.predict` does with a dataset of aspects, by place.

        An aspect that ends inside one of spaCy's tokens takes the whole token; `predict` would
        leave it without an answer.
        """
        docs, _ = self._model.aspect_extractor(texts)
        spans = [
            [doc.char_span(start, end, alignment_mode="expand") for start, end in own]
            for doc, own in zip(docs, places, strict=True)
        ]
        slices = [[slice(span.start, span.end) for span in own] for own in spans]
        told = self._model.polarity_model(docs, slices)
        return [[str(polarity) for polarity in own] for own in told]


def load(folder: Path, spacy: Path) -> Any:  # noqa: ANN401
    """Load the two models that `train` wrote."""
    return AbsaModel.from_pretrained(
        str(folder / "aspect"), str(folder / "polarity"), spacy_model=str(spacy)
    )


def train(options: argparse.Namespace) -> None:
    """Train both models on rows of text, span, ordinal and label; say what it took.

    The label `--without` is of aspects that teach nothing about polarity.
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
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts = {
        "steps": options.steps,
        "batch": options.batch,
        "rows": len(rows),
        "cpu_minutes": (used.ru_utime + used.ru_stime) / 60,
        "aspect_examples": len(trainer.aspect_trainer.train_dataset),
        "polarity_examples": len(polarity.train_dataset),
    }
    options.facts.write_text(json.dumps(facts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train SetFit-ABSA, or ask it.")
    parser.add_argument("what", choices=("train", "ask"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("spacy", type=Path)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--facts", type=Path)
    parser.add_argument("--without")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "train":
        train(options)
    else:
        answer_requests(SetFit(load(options.folder, options.spacy)))


if __name__ == "__main__":
    main()

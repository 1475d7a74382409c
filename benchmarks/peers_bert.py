"""A plain BERT pair classifier, as one writes it with transformers: `peers_bert.py ask FOLDER`.

`peers_bert.py convert BUNDLE FOLDER` makes the folder from our own baseline. Its head judges from
the first piece by one linear layer: a token classifier of which the first token is read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForTokenClassification,
    PreTrainedTokenizerFast,
)

from peers_answering import Found, Place, answer_requests

BATCH = 32
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def convert(bundle: Path, folder: Path) -> None:
    """Write our baseline in the form of transformers."""
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    own = dict(enumerate(config["classes"]))
    settings = BertConfig(**config["transformer"] | {"id2label": own})
    model = BertForTokenClassification(settings)
    weights = load_file(bundle / "model.safetensors")
    model.load_state_dict({_renamed(name): value for name, value in weights.items()})
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(bundle / "tokenizer.json"),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": piece for name, piece in _SPECIAL.items()},
    )
    tokenizer.save_pretrained(folder)


def _renamed(name: str) -> str:
    inside = name.removeprefix("encoder.model.")
    return f"bert.{inside}" if inside != name else name.replace("layer.", "classifier.")


class PairClassifier:
    """Sentence and aspect as a pair."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForTokenClassification.from_pretrained(folder).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def find(self, texts: list[str]) -> list[list[Found]]:
        """Refuse: a pair classifier must be given aspects."""
        raise NotImplementedError(f"a pair classifier finds no aspects in {len(texts)} texts")

    def classify(self, texts: list[str], places: list[list[Place]]) -> list[list[str]]:
        """Classify all pairs, those of like length in one batch."""
        pairs = [
            (text, text[start:end])
            for text, own in zip(texts, places, strict=True)
            for start, end in own
        ]
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
        told = [""] * len(pairs)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            for row, answer in zip(rows, self._judge([pairs[i] for i in rows]), strict=True):
                told[row] = answer
        answers = iter(told)
        return [[next(answers) for _ in own] for own in places]

    @torch.inference_mode()
    def _judge(self, pairs: list[tuple[str, str]]) -> list[str]:
        texts, aspects = zip(*pairs, strict=True)
        inputs = self._tokenizer(list(texts), list(aspects), padding=True, return_tensors="pt")
        logits = self._model(**inputs).logits[:, 0]  # (B, C)
        names = self._model.config.id2label
        return [names[i] for i in logits.argmax(-1).tolist()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, *paths = sys.argv[1:]
    if what == "convert":
        convert(*map(Path, paths))
    else:
        answer_requests(PairClassifier(*map(Path, paths)))

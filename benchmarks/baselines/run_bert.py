"""A BERT pair classifier with transformers: `run_bert.py predict FOLDER`.

`run_bert.py convert BUNDLE FOLDER` makes the folder from our own baseline. Its head classifies the
first token by one linear layer: a token classifier of which only the first token is used.
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

sys.path.insert(0, str(Path(__file__).parent.parent))

from baselines.protocol import Prediction, Span, serve

BATCH = 32
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def convert(bundle: Path, folder: Path) -> None:
    """Write our baseline in the format of transformers."""
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    labels = dict(enumerate(config["classes"]))
    model = BertForTokenClassification(BertConfig(**config["transformer"] | {"id2label": labels}))
    weights = load_file(bundle / "model.safetensors")
    model.load_state_dict({_rename(name): value for name, value in weights.items()})
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(bundle / "tokenizer.json"),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in _SPECIAL.items()},
    )
    tokenizer.save_pretrained(folder)


def _rename(name: str) -> str:
    inner = name.removeprefix("encoder.model.")
    return f"bert.{inner}" if inner != name else name.replace("layer.", "classifier.")


class PairClassifier:
    """Classifies pairs of a sentence and an aspect."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForTokenClassification.from_pretrained(folder).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def extract(self, texts: list[str]) -> list[list[Prediction]]:
        """Fail, because a pair classifier needs aspects."""
        raise NotImplementedError(f"A pair classifier cannot extract aspects ({len(texts)} texts)")

    def classify(self, texts: list[str], spans: list[list[Span]]) -> list[list[str]]:
        """Classify all pairs, in batches of similar length."""
        pairs = [
            (text, text[start:end])
            for text, own in zip(texts, spans, strict=True)
            for start, end in own
        ]
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
        labels = [""] * len(pairs)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            for row, label in zip(rows, self._predict([pairs[i] for i in rows]), strict=True):
                labels[row] = label
        remaining = iter(labels)
        return [[next(remaining) for _ in own] for own in spans]

    @torch.inference_mode()
    def _predict(self, pairs: list[tuple[str, str]]) -> list[str]:
        texts, aspects = zip(*pairs, strict=True)
        inputs = self._tokenizer(list(texts), list(aspects), padding=True, return_tensors="pt")
        logits = self._model(**inputs).logits[:, 0]  # (B, C)
        labels = self._model.config.id2label
        return [labels[i] for i in logits.argmax(-1).tolist()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    command, *paths = sys.argv[1:]
    if command == "convert":
        convert(*map(Path, paths))
    else:
        serve(PairClassifier(*map(Path, paths)))

"""Rank sentences by how strongly a cross-validated model disagrees with their labels.

    CAPSAR_ENCODERS=... python corpus/disagreement.py FOLD      # one run for each of 0, 1, 2
    python corpus/disagreement.py rank 1500                     # the strongest, for review

The model is a pre-trained encoder that tags each subword with the polarity of its term, or none.
It is trained on two folds of the training and validation parts and predicts the third; the test
part is not read. All sentences of a file are in one fold, so
the model never predicts an author that it was trained on.
"""

from __future__ import annotations

import json
import os
import random
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from capsar.schema import Polarity
from corpus_build import FOLDER, read_domains, read_file, read_sources

if TYPE_CHECKING:
    from corpus_build import Sentence

ENCODER = "all-MiniLM-L6-v2"
OUTPUT = FOLDER.parent / "runs" / "disagreement"
NUM_FOLDS = 3
EPOCHS = 3
BATCH = 32
POLARITIES = tuple(map(str, Polarity))
TAGS = ("O", *(f"{part}-{p}" for p in POLARITIES for part in "BI"))


class Tagger(nn.Module):
    """An encoder with one linear layer over its hidden states."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder)
        self.head = nn.Linear(self.encoder.config.hidden_size, len(TAGS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return a logit per tag (B, T, tags)."""
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, H)
        logits: torch.Tensor = self.head(nn.functional.dropout(states, 0.1, self.training))
        return logits


def tags_of(sentence: Sentence, offsets: list[tuple[int, int]]) -> list[int]:
    """Return the tag of each subword; special ones have an empty range and tag O."""
    tags = [0] * len(offsets)
    for span, polarity in sentence.terms:
        first = True
        for i, (start, end) in enumerate(offsets):
            if start < end and start < span.end and span.start < end:
                tags[i] = TAGS.index(f"{'B' if first else 'I'}-{polarity}")
                first = False
    return tags


def main(fold: int) -> None:
    """Train on the other folds and write the disagreement of each sentence of this one."""
    torch.manual_seed(fold)
    torch.set_num_threads(1)
    folder = Path(os.environ["CAPSAR_ENCODERS"]) / ENCODER
    tokenizer = AutoTokenizer.from_pretrained(folder)
    domains = set(read_domains())
    sources = [source for source in read_sources() if source.split != "test"]
    own: list[Sentence] = []
    others: list[Sentence] = []
    for source in sources:
        is_own = zlib.crc32(source.name.encode()) % NUM_FOLDS == fold
        (own if is_own else others).extend(read_file(source, domains))
    model = Tagger(folder)
    train(model, tokenizer, others, fold)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    records = [score(model, tokenizer, sentence) for sentence in own]
    content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (OUTPUT / f"fold-{fold}.jsonl").write_text(content, encoding="utf-8")


def train(model: Tagger, tokenizer: Any, sentences: list[Sentence], seed: int) -> None:  # noqa: ANN401
    """Fine-tune the tagger."""
    encoded = []
    for sentence in sentences:
        one = tokenizer(sentence.text, truncation=True, max_length=128, return_offsets_mapping=True)
        encoded.append((one["input_ids"], tags_of(sentence, one["offset_mapping"])))
    steps = EPOCHS * (len(encoded) // BATCH + 1)
    groups = [
        {"params": model.encoder.parameters(), "lr": 1e-4},
        {"params": model.head.parameters(), "lr": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [1e-4, 1e-3], total_steps=steps + 1, pct_start=0.1
    )
    model.train()
    order = random.Random(seed)
    for epoch in range(EPOCHS):
        order.shuffle(encoded)
        # Batches of similar length waste less padding.
        blocks = [sorted(encoded[i : i + 50 * BATCH], key=lambda e: len(e[0]))
                  for i in range(0, len(encoded), 50 * BATCH)]  # fmt: skip
        batches = [b[i : i + BATCH] for b in blocks for i in range(0, len(b) - BATCH + 1, BATCH)]
        order.shuffle(batches)
        total = 0.0
        for batch in batches:
            width = max(len(ids) for ids, _ in batch)
            ids = torch.tensor([i + [0] * (width - len(i)) for i, _ in batch])
            tags = torch.tensor([t + [-100] * (width - len(t)) for _, t in batch])
            loss = nn.functional.cross_entropy(
                model(ids, (tags >= 0).long()).flatten(0, 1), tags.flatten()
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch}: loss {total / len(batches):.4f}", flush=True)


@torch.no_grad()
def score(model: Tagger, tokenizer: Any, sentence: Sentence) -> dict[str, Any]:  # noqa: ANN401
    """Return the sentence's disagreement: one minus the smallest probability of a gold tag."""
    model.eval()
    one = tokenizer(sentence.text, truncation=True, max_length=128, return_offsets_mapping=True)
    ids = torch.tensor([one["input_ids"]])
    logits = model(ids, torch.ones_like(ids))[0]  # (T, tags)
    tags = torch.tensor(tags_of(sentence, one["offset_mapping"]))
    gold = logits.softmax(-1).gather(1, tags[:, None])[1:-1, 0]
    worst = int(gold.argmin()) + 1 if len(gold) else 0
    return {
        "id": sentence.id,
        "file": f"{sentence.source.split}/{sentence.source.name}",
        "disagreement": round(1 - float(gold.min()), 4) if len(gold) else 0.0,
        "predicted": TAGS[int(logits[worst].argmax())],
        "gold": TAGS[int(tags[worst])],
    }


def rank(most: int) -> None:
    """Print the sentences with the strongest disagreement."""
    records = [
        json.loads(line)
        for path in sorted(OUTPUT.glob("fold-*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    records.sort(key=lambda record: (-record["disagreement"], record["id"]))
    for record in records[:most]:
        print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank(int(sys.argv[2]))
    else:
        main(int(sys.argv[1]))

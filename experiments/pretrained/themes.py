"""Train the theme heads of the bundled models: `build.py NAME --only themes`.

The word vectors are distilled from all-MiniLM-L6-v2: the output for each subword alone, reduced to
its principal components and weighted by rarity. A linear map of them is trained with the head of
`base`, folded into the table, and kept for the head of `fast`. The encoders stay as they are.
"""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save, save_file
from torch import Tensor, nn
from torch.nn import functional

from capsar.bundle import CONFIG, MANIFEST, THEMES, find_bundle, write_bundle
from capsar.inference.engine import Engine
from capsar.inference.inputs import Request
from capsar.model.encoders import find_encoder
from capsar.schema import AspectSpan
from capsar.themes.matcher import words_of
from capsar.themes.vectors import VECTORS, WordVectors, read_vectors
from capsar.tokenizer import tokenize_words
from run import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

CORPUS = ROOT / "corpus"
DIM = 192
RARITY = 1e-3
"""A subword of probability p is weighted RARITY / (RARITY + p)."""
MIN_COUNT = 3
"""Subwords that occur less often do not determine the principal components."""
EPOCHS, RATE, WEIGHT_RATE, BATCH = 16, 2e-3, 2e-2, 64
DROPOUT, STATE_DROPOUT = 0.1, 0.3
KEPT_TERMS, KEPT_THEMES = 0.7, 0.8
IMPLICIT_WEIGHT, TOPIC_WEIGHT = 1.0, 0.3
LEVELS = ("fine", "medium", "coarse")


@dataclass
class ThemeSet:
    """The themes of one set, and to which of them each annotated theme belongs."""

    themes: list[dict[str, Any]]
    mapping: dict[str, int]


@dataclass
class Part:
    """The annotated sentences of one family of domains."""

    sets: list[ThemeSet] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    spans: list[list[AspectSpan]] = field(default_factory=list)
    themes: list[list[str | None]] = field(default_factory=list)
    implicit: list[list[str | None]] = field(default_factory=list)


@dataclass
class Prepared:
    """The inputs of the head for one family."""

    words: Tensor  # (S, D0)
    mention_words: Tensor  # (A, D0)
    owners: Tensor  # (A)
    states: Tensor  # (S, 2H)
    mentions: Tensor  # (A, H)
    sets: list[dict[str, Tensor]]


def read_annotation(part: str) -> dict[str, Part]:
    """Read the annotation of a part of the corpus, by family."""
    records = {}
    with (CORPUS / f"{part}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            records[record["id"]] = record
    parts: dict[str, Part] = {}
    with (CORPUS / "themes" / f"{part}.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["set"] not in parts:
                parts[row["set"]] = Part(sets=read_sets(row["set"]))
            own, record = parts[row["set"]], records[row["id"]]
            terms = sorted(record["aspects"], key=lambda aspect: aspect["start"])
            own.texts.append(record["text"])
            own.spans.append([AspectSpan(term["start"], term["end"]) for term in terms])
            own.themes.append(row["themes"])
            own.implicit.append([mention["theme"] for mention in row["implicit"]])
    return parts


def read_sets(name: str) -> list[ThemeSet]:
    """Read the sets of themes of a family."""
    content = tomllib.loads((CORPUS / "themes" / "sets" / f"{name}.toml").read_text("utf-8"))
    sets = []
    for level in LEVELS:
        keys = list(content[level])
        fine = content["fine"].items()
        mapping = {k: (k if level == "fine" else theme[level]) for k, theme in fine}
        numbers = {k: keys.index(key) for k, key in mapping.items() if key}
        sets.append(ThemeSet(list(content[level].values()), numbers))
    for other in content.get("set", ()):
        themes = other["theme"]
        numbers = {key: i for i, theme in enumerate(themes) for key in theme["fine"]}
        sets.append(ThemeSet(themes, numbers))
    return sets


def prepare(part: Part, engine: Engine, vectors: WordVectors) -> Prepared:
    """Return the inputs and labels of a family."""
    requests = [Request(text, tokenize_words(text), [(span,) for span in spans])
                for text, spans in zip(part.texts, part.spans, strict=True)]  # fmt: skip
    pooled = engine.pool_states(requests)
    owners = [row for row, spans in enumerate(part.spans) for _ in spans]
    themes = [theme for own in part.themes for theme in own]
    mention_words = [
        words_of(text[span.start : span.end])
        for text, spans in zip(part.texts, part.spans, strict=True)
        for span in spans
    ]
    return Prepared(
        words=_stack(vectors.add_words(words_of(text)) for text in part.texts),
        mention_words=_stack(map(vectors.add_words, mention_words)),
        owners=torch.tensor(owners),
        states=_stack(found.sentences[0] for found in pooled),
        mentions=torch.from_numpy(np.concatenate([found.mentions for found in pooled])),
        sets=[_prepare_set(one, part, themes, owners, vectors) for one in part.sets],
    )


def _prepare_set(
    one: ThemeSet,
    part: Part,
    themes: Sequence[str | None],
    owners: Sequence[int],
    vectors: WordVectors,
) -> dict[str, Tensor]:
    size, none = len(one.themes), len(one.themes)
    width = max(1, *(len(theme["terms"]) for theme in one.themes))
    terms = torch.zeros(size, width, vectors.dim)
    has_term = torch.zeros(size, width, dtype=torch.bool)
    for row, theme in enumerate(one.themes):
        for column, term in enumerate(theme["terms"]):
            terms[row, column] = torch.from_numpy(vectors.add_words(words_of(term)))
            has_term[row, column] = True
    labels = torch.tensor([one.mapping.get(theme or "", none) for theme in themes])
    taken = torch.zeros(len(part.texts), size + 1, dtype=torch.bool)
    taken[torch.tensor(owners), labels] = True
    taken[:, none] = False
    targets = torch.zeros(len(part.texts), size + 1)
    for row, mentioned in enumerate(part.implicit):
        for key in mentioned:
            number = one.mapping.get(key or "", none)
            targets[row, none if taken[row, number] else number] = 1
    return {
        "names": _stack(vectors.add_words(words_of(theme["name"])) for theme in one.themes),
        "descriptions": _stack(
            vectors.add_words(words_of(theme["description"])) for theme in one.themes
        ),
        "terms": terms,
        "has_term": has_term,
        "labels": labels,
        "taken": taken,
        "targets": targets,
    }


def _stack(rows: Any) -> Tensor:  # noqa: ANN401
    return torch.from_numpy(np.stack(list(rows)).astype(np.float32))


class ThemeHead(nn.Module):
    """What `capsar.themes.matcher` computes, with dropout, for training."""

    def __init__(self, dim: int, hidden_dim: int, *, uses_states: bool) -> None:
        super().__init__()
        self.uses_states = uses_states
        self.mention = nn.Linear(hidden_dim, dim)
        self.context = nn.Linear(2 * hidden_dim, dim, bias=False)
        self.sentence = nn.Linear(2 * hidden_dim, dim)
        self.evaluates = nn.Linear(2 * hidden_dim, 1)
        for layer in (self.mention, self.context, self.sentence):
            nn.init.normal_(layer.weight, std=0.01)
        weights = [2.0, 5.0, 4.0, 3.0, 3.0, *([4.0] if uses_states else [])]
        self.mention_weights = nn.Parameter(torch.tensor(weights))
        self.sentence_weights = nn.Parameter(torch.tensor([4.0, 4.0, 4.0, 4.0]))
        self.no_theme = nn.Parameter(torch.tensor(6.0))
        self.no_implicit_theme = nn.Parameter(torch.tensor(5.0))
        self.dropout, self.state_dropout = nn.Dropout(DROPOUT), nn.Dropout(STATE_DROPOUT)

    def forward(
        self, data: Prepared, one: Mapping[str, Tensor], rows: Tensor, adapt: nn.Module
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the logits of mentions (A, K + 1) and sentences (S, K + 1), which mentions, (A).

        The third value are the logits of whether sentences evaluate something without a term (S).
        """

        def embed(vectors: Tensor) -> Tensor:
            return functional.normalize(adapt(self.dropout(vectors)), dim=-1)

        chosen = torch.zeros(len(data.words), dtype=torch.bool)
        chosen[rows] = True
        mentions = torch.nonzero(chosen[data.owners])[:, 0]
        owners = data.owners[mentions]
        names, descriptions = embed(one["names"]), embed(one["descriptions"])
        terms, has_term = embed(one["terms"]), one["has_term"]
        if self.training:
            has_term = has_term & (torch.rand(has_term.shape) < KEPT_TERMS)
        count = has_term.sum(1, keepdim=True).clamp(min=1)
        means = (terms * has_term.unsqueeze(-1)).sum(1) / count
        centers = functional.normalize(names + descriptions + means, dim=-1)

        def nearest(vectors: Tensor) -> Tensor:
            found = torch.einsum("ad,ktd->akt", vectors, terms).masked_fill(~has_term, -1)
            return torch.maximum(found.amax(-1), vectors @ names.T)

        own, around = embed(data.mention_words[mentions]), embed(data.words[owners])
        parts = [own @ names.T, nearest(own), own @ descriptions.T]
        parts += [around @ descriptions.T, around @ names.T]
        states = self.state_dropout(data.states[rows])
        if self.uses_states:
            projected = self.mention(self.state_dropout(data.mentions[mentions]))
            projected = projected + self.context(self.state_dropout(data.states[owners]))
            parts.append(functional.normalize(projected, dim=-1) @ centers.T)
        scores = sum(w * part for w, part in zip(self.mention_weights, parts, strict=True))
        sentences = embed(data.words[rows])
        parts = [sentences @ names.T, sentences @ descriptions.T, nearest(sentences)]
        parts.append(functional.normalize(self.sentence(states), dim=-1) @ centers.T)
        implied = sum(w * part for w, part in zip(self.sentence_weights, parts, strict=True))
        return (
            torch.cat([scores, self.no_theme.expand(len(scores), 1)], 1),
            torch.cat([implied, self.no_implicit_theme.expand(len(implied), 1)], 1),
            self.evaluates(states)[:, 0],
            mentions,
        )

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as the matcher reads them."""
        found: dict[str, Tensor] = {
            "mention_weights": self.mention_weights,
            "no_theme": self.no_theme,
        }
        if self.uses_states:
            found |= {
                "mention": self.mention.weight.T,
                "mention_bias": self.mention.bias,
                "context": self.context.weight.T,
                "sentence": self.sentence.weight.T,
                "sentence_bias": self.sentence.bias,
                "sentence_weights": self.sentence_weights,
                "no_implicit_theme": self.no_implicit_theme,
                "evaluates": self.evaluates.weight[0],
                "evaluates_bias": self.evaluates.bias[0],
            }
        return {name: np.array(value.detach().numpy(), np.float32, order="C")
                for name, value in found.items()}  # fmt: skip


def loss_of(head: ThemeHead, data: Prepared, one: dict[str, Tensor], rows: Tensor,
            adapt: nn.Module, dropped: Tensor) -> Tensor:  # fmt: skip
    """Return the loss of a batch; mentions of dropped themes have none."""
    mention_logits, sentence_logits, evaluates, mentions = head(data, one, rows, adapt)
    none = mention_logits.shape[1] - 1
    labels = one["labels"][mentions]
    labels = torch.where(dropped[labels], none, labels)
    loss = functional.cross_entropy(mention_logits.masked_fill(dropped, -1e4), labels)
    if not head.uses_states:
        return loss
    targets = one["targets"][rows]
    implied = targets.sum(1) > 0
    loss = loss + IMPLICIT_WEIGHT * functional.binary_cross_entropy_with_logits(
        evaluates, implied.float()
    )
    topics = (one["taken"][rows] & ~dropped).float()
    has_topic = topics.any(1)
    if has_topic.any():  # what sentences with a term are about is a topic as well
        topics = topics[has_topic] / topics[has_topic].sum(1, keepdim=True)
        logits = sentence_logits.masked_fill(dropped, -1e4)[has_topic]
        loss = loss + TOPIC_WEIGHT * functional.cross_entropy(logits, topics)
    if implied.any():
        kept = targets.masked_fill(dropped, 0)
        kept[:, none] += (targets * dropped).sum(1)
        kept = kept[implied] / kept[implied].sum(1, keepdim=True)
        logits = sentence_logits.masked_fill(dropped | one["taken"][rows], -1e4)[implied]
        loss = loss + IMPLICIT_WEIGHT * functional.cross_entropy(logits, kept)
    return loss


def fit(
    heads: Sequence[ThemeHead],
    adapt: nn.Module,
    families: Sequence[Prepared],
    seed: int,
    epochs: int = EPOCHS,
) -> None:
    """Train heads, and the map of the word vectors unless it is frozen."""
    torch.manual_seed(seed)
    generator = random.Random(seed)
    slow = [parameter for parameter in adapt.parameters() if parameter.requires_grad]
    quick: list[nn.Parameter] = []
    for head in heads:
        for name, parameter in head.named_parameters():
            is_weight = name.endswith("_weights") or name.startswith("no_")
            (quick if is_weight else slow).append(parameter)
    groups = [{"params": slow, "weight_decay": 0.01}, {"params": quick, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    num_batches = sum(-(-len(one.words) // BATCH) for one in families)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [RATE, WEIGHT_RATE], total_steps=epochs * num_batches, pct_start=0.1
    )
    for _ in range(epochs):
        jobs = []
        for number, family in enumerate(families):
            order = torch.randperm(len(family.words))
            jobs += [(number, order[i : i + BATCH]) for i in range(0, len(order), BATCH)]
        generator.shuffle(jobs)
        for number, rows in jobs:
            data = families[number]
            one = generator.choice(data.sets)
            dropped = torch.rand(len(one["names"]) + 1) >= KEPT_THEMES
            dropped[-1] = False
            loss = sum((loss_of(h.train(), data, one, rows, adapt, dropped) for h in heads),
                       torch.zeros(()))  # fmt: skip
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


@torch.no_grad()
def evaluate(
    head: ThemeHead, adapt: nn.Module, families: Mapping[str, Prepared]
) -> tuple[dict[str, Any], float]:
    """Return the metrics of a head, and the threshold of implicit mentions.

    The threshold is the one with the best F0.5 over all sets: precision counts twice.
    """
    head.eval()
    adapt.eval()
    found: dict[str, Any] = {}
    scores, truth = [], []
    for level, name in enumerate(LEVELS):
        right = predicted = gold = 0
        for data in families.values():
            one = data.sets[level]
            rows = torch.arange(len(data.words))
            logits, implied, evaluates, mentions = head(data, one, rows, adapt)
            none = logits.shape[1] - 1
            best, labels = logits.argmax(1), one["labels"][mentions]
            right += int(((best == labels) & (labels != none)).sum())
            predicted += int((best != none).sum())
            gold += int((labels != none).sum())
            if head.uses_states:
                chosen = implied.masked_fill(one["taken"], -1e4).softmax(1)[:, :-1]
                probabilities = chosen * evaluates.sigmoid().unsqueeze(1)
                free = ~one["taken"][:, :-1]
                scores.append(probabilities[free])
                truth.append(one["targets"][:, :-1][free])
        found[name] = {"f1": 2 * right / (predicted + gold), "precision": right / predicted,
                       "recall": right / gold}  # fmt: skip
    if not head.uses_states:
        return found, 1.0
    ordered, labels = torch.cat(scores), torch.cat(truth)
    order = ordered.argsort(descending=True)
    hits = labels[order].cumsum(0)
    precision, recall = hits / torch.arange(1, len(order) + 1), hits / labels.sum()
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-9)
    weighted = 1.25 * precision * recall / (0.25 * precision + recall).clamp(min=1e-9)
    last = int(weighted.argmax())
    found["implicit"] = {"precision": float(precision[last]), "recall": float(recall[last]),
                         "f1": float(f1[last])}  # fmt: skip
    return found, float(ordered[order[last]])


def distill_vectors() -> tuple[WordVectors, NDArray[np.float32]]:
    """Return untrained word vectors, and their table (V, DIM)."""
    from transformers import AutoModel

    path = find_encoder("all-MiniLM-L6-v2")
    encoder = AutoModel.from_pretrained(path).eval()
    size = encoder.config.vocab_size
    outputs = np.zeros((size, encoder.config.hidden_size), np.float32)
    first, last = 101, 102  # [CLS] and [SEP]
    with torch.no_grad():
        for start in range(0, size, 1024):
            some = torch.arange(start, min(size, start + 1024))
            ids = torch.stack([torch.full_like(some, first), some, torch.full_like(some, last)], 1)
            states = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            outputs[some.numpy()] = states.mean(1).numpy()
    empty = WordVectors(np.zeros((size, 1), np.int8), np.zeros(size, np.float32))
    counts = np.ones(size)
    with (CORPUS / "train.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            for word in words_of(json.loads(line)["text"]):
                np.add.at(counts, empty.subwords(word), 1)
    shares = counts / counts.sum()
    centered = outputs - (outputs * shares[:, None]).sum(0)
    used = counts >= MIN_COUNT
    _, _, axes = np.linalg.svd(centered[used], full_matrices=False)
    table = centered @ axes[:DIM].T
    table *= (RARITY / (RARITY + shares))[:, None] / np.linalg.norm(table[used], axis=1).mean()
    return WordVectors(*quantize(table)), table.astype(np.float32)


def quantize(table: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a table as int8 rows and their scales."""
    scales = np.maximum(np.abs(table).max(1), 1e-6) / 127
    return np.round(table / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def add_theme_head(name: str, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Train the theme head of a bundled model, and write it into its bundle.

    With `base`, the word vectors are trained and written as well.
    """
    bundle = find_bundle(folder)
    engine = Engine(bundle)
    is_first = name == "base"
    table = None
    if is_first:
        vectors, table = distill_vectors()
    else:
        vectors, _ = read_vectors()
    train = {k: prepare(part, engine, vectors) for k, part in read_annotation("train").items()}
    held_out = {
        k: prepare(part, engine, vectors) for k, part in read_annotation("validation").items()
    }
    hidden_dim = next(iter(train.values())).mentions.shape[1]
    adapt: nn.Linear | nn.Identity = nn.Identity()
    heads = [ThemeHead(vectors.dim, hidden_dim, uses_states=True)]
    if is_first:
        adapt = nn.Linear(vectors.dim, vectors.dim, bias=False)
        nn.init.eye_(adapt.weight)
        heads.append(ThemeHead(vectors.dim, hidden_dim, uses_states=False))
    fit(heads, adapt, list(train.values()), seed)
    metrics, threshold = evaluate(heads[0], adapt, held_out)
    arrays = heads[0].arrays() | {"implicit_threshold": np.array(threshold, np.float32)}
    files = {
        file: bundle.path(file).read_bytes()
        for file in bundle.files
        if file not in (CONFIG, MANIFEST, THEMES)
    }
    if table is not None and isinstance(adapt, nn.Linear):
        static, _ = evaluate(heads[1], adapt, held_out)
        metrics["without_states"] = static
        matrix = adapt.weight.detach().numpy()
        quantized, scales = quantize(table @ matrix.T)
        content: dict[str, NDArray[Any]] = {"table": quantized, "scales": scales}
        save_file(content | heads[1].arrays(), VECTORS)
    config = bundle.config | {"validation_themes": metrics}
    write_bundle(folder, config, files | {THEMES: save(arrays)})
    return metrics

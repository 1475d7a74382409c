"""A tiny random BERT and its tokenizer, as a folder on disk."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WINDOW = 24
_WORDS = ["the", "was", "on", "day", "but", "i", "found", "rather", "very", "again", "soup"]
_WORDS += ["screen", "life", "room", "price", "pool", "course", "great", "lovely", "superb"]
_WORDS += ["perfect", "awful", "cold", "broken", "plain", "average", "usual", "typical"]


def subwords() -> list[str]:
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    split = ["bat", "##tery", "terri", "##ble", "st", "##aff"]
    return list(dict.fromkeys([*special, *letters, *(f"##{c}" for c in letters), *_WORDS, *split]))


def tiny_tokenizer() -> Tokenizer:
    ids = {subword: number for number, subword in enumerate(subwords())}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def write_tiny_bert(folder: Path, *, window: int = WINDOW) -> Path:
    """Write a random BERT of 2 layers of 32, with a short window."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(subwords()),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=window,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    names = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "unk_token", "cls_token")}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(), sep_token="[SEP]", mask_token="[MASK]", **names
    )
    fast.save_pretrained(folder)
    return folder

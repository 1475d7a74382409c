"""Text fragments that break careless code, for random concatenation."""

from __future__ import annotations

HOSTILE = [
    *"aZ09é'’-._@#:/()!?$ \t\n\r\x00\x85\xa0\xad\u200b\u200d\u200e\u202e\u2066\ufeff\ufe0f\u0301",
    *"😀👍🏽🇫❤1⃣我한עבالعน้ำ₹…—“”ßİſ\ud800\udfff\U0010ffff\ue000",
    "n't", "N'T", "http://", "www.", "--", "...", ":-)", "<3", "U.S.", "'s", " food ", "don",
    "\r\n",
]  # fmt: skip

"""The models that ship, and the sets that they are judged on."""

from __future__ import annotations

from runs import ROOT

MODELS = ROOT / "src" / "capsar" / "models"
SHIPPED = ("base", "fast")
SEEN = {"mams": "MAMS"}
"""Trained on, though not on its test part."""
UNSEEN = {
    "restaurant": "SemEval-14 Restaurant",
    "laptop": "SemEval-14 Laptop",
    "semeval15-hotels": "SemEval-15 hotels",
    "semeval16-restaurants-english": "SemEval-16 restaurants",
    "television": "Television",
    "tshirt": "T-shirts",
    "yelp": "Yelp",
    "mooc": "MOOC",
    "twitter": "Twitter",
}
WITHOUT_SPANS = ("twitter",)
"""Sets that mark one target a sentence, not every aspect."""

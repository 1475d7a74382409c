"""The bundled models, and the sets on which they are evaluated."""

from __future__ import annotations

from run import ROOT

MODELS = ROOT / "src" / "capsar" / "models"
BUNDLED = ("base", "fast")
IN_DOMAIN = {"mams": "MAMS"}
"""Their training set is trained on; their test set is not."""
OUT_OF_DOMAIN = {
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
"""Sets that mark one target per sentence, not every aspect."""

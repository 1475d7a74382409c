"""The part of `docs/results.md` on explanations: do the words of *because* make the answer?"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from cells import interval, paragraph, seeds, spread, table
from entries import DATASETS, RIVALS
from interval import difference_of

if TYPE_CHECKING:
    from entries import Entries

_MODELS = {"capsar": ("Bi-GRU", 5), "capsar-bert": ("MiniLM, 3 seeds", 3)}
_MEASURES = ("comprehensiveness", "sufficiency")
_NAMES = {
    "": "*because*",
    "_random": "random words",
    "_gradient": "gradient x input, signed",
    "_gradient_norm": "gradient x input, norm",
}
_SHOWN = {
    "random": "random words",
    "gradient": "signed gradients",
    "gradient_norm": "norms of gradients",
}


def faithfulness(found: Entries) -> str:
    """Return the section, or nothing where nothing was judged."""
    rows, gaps = [], []
    for (row, (model, planned)), (dataset, label) in product(_MODELS.items(), DATASETS.items()):
        shown = f"{label}, {model}"
        which = {"row": row, "protocol": "ours", "dataset": dataset}
        for suffix, name in _NAMES.items():
            names = [f"{measure}{suffix}" for measure in _MEASURES]
            entries = found.all_of("faithfulness", names, **which)
            if entries:
                rows.append([shown + seeds(entries[0], planned), name, *map(spread, entries)])
        for rival in RIVALS:
            names = [f"{measure}_vs_{rival}" for measure in _MEASURES]
            entries = found.all_of("faithfulness", names, **which)
            if entries:
                cells = [interval(difference_of(entry)) for entry in entries]
                gaps.append([shown, f"*because* − {_SHOWN[rival]}", *cells])
    if not rows:
        return ""
    said = paragraph(
        """How much the predicted capsule shortens when the words that rank highest are removed
        (comprehensiveness: more is better), and when only they are kept (sufficiency: less is
        better); means over the best 5, 10, 20 and 50 % of the words, rounded up. The words of the
        aspect are always read. *Because* needs no second pass; gradients need the weights and
        torch. Random words: three draws. Intervals are 95 % over seeds (Student's t)."""
    )
    parts = [
        "## Do the words of *because* make the answer?",
        said,
        table(["dataset", "words ranked by", *_MEASURES], rows),
        table(["dataset", "difference", *_MEASURES], gaps),
    ]
    return "\n\n".join(parts)

"""The README's table of the bundled models says where they do not beat VADER."""

from __future__ import annotations

from typing import Any

import pytest

from pages.pretrained import readme
from pretrained.sets import IN_DOMAIN, OUT_OF_DOMAIN
from summarize import Results, make_entry

ROWS = ("base", "fast", "base-previous", "fast-previous", "vader", "majority")


def entries(lows: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    found = []
    for dataset in (*OUT_OF_DOMAIN, *IN_DOMAIN):
        for row in ROWS:
            metrics = {"accuracy": 0.8125, "macro_f1": 0.75, "span_f1": 0.5}
            metrics["low_minus_vader"] = lows.get((row, dataset), 0.01)
            found += [
                make_entry("out-of-domain", metric, [value], row=row, dataset=dataset)
                for metric, value in metrics.items()
            ]
    return found


@pytest.mark.parametrize("low", [0.0, -0.02])
def test_sets_on_which_a_model_does_not_beat_vader_are_named(low: float) -> None:
    page = readme(Results(entries({("fast", "twitter"): low, ("fast", "yelp"): low}), []))
    line = next(line for line in page.splitlines() if line.startswith("| Twitter"))
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2:4] == [".812 / .750", ".812 / .750†"]
    assert cells[6:8] == [".500", ".500"]  # span F1
    assert "† not significantly more accurate than VADER (`fast`: Yelp and Twitter)." in page


def test_without_such_a_set_there_is_no_mark() -> None:
    assert "†" not in readme(Results(entries({}), []))

"""The counts of shared sentences are those of the files."""

from __future__ import annotations

import json

import pytest

from runs import DATASETS
from splits import RESULT, count_shared

COUNTS = json.loads(RESULT.read_text(encoding="utf-8"))["shared"]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dataset", DATASETS)
def test_what_is_counted_is_what_both_parts_hold(dataset: str) -> None:
    assert count_shared(DATASETS[dataset]) == COUNTS[dataset]

"""The counts of shared sentences match the files."""

from __future__ import annotations

import json

import pytest

from run import DATASETS
from studies.overlap import RESULT, count_shared

COUNTS = json.loads(RESULT.read_text(encoding="utf-8"))["shared"]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dataset", DATASETS)
def test_shared_sentences_are_counted(dataset: str) -> None:
    assert count_shared(DATASETS[dataset]) == COUNTS[dataset]

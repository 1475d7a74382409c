"""schemathesis makes requests from the OpenAPI document, good and bad ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from capsar.serve.settings import Settings
from fuzzing import fuzz
from running import running


@pytest.mark.slow
def test_no_request_of_the_openapi_document_breaks_it(tmp_path: Path) -> None:
    with running(Settings(port=0, model="fast"), tmp_path) as service:
        number, wrong = fuzz(service.url, 20)
        assert wrong == ""
        assert number > 100
        counted = service.ask("/metrics")[2].decode()
        assert not re.search(r'status="50[^34]"', counted)
        assert '"level": "error"' not in service.log()

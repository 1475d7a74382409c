"""Logs: what is told of an error, and what is not."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from capsar.serve.log import JsonLines, Words


def record_of_an_error() -> logging.LogRecord:
    try:
        try:
            raise ValueError("the text was Zanzibar")
        except ValueError as error:
            raise RuntimeError("still Zanzibar") from error
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "a batch failed", (), sys.exc_info())
    record.facts = {"texts": 3}
    return record


@pytest.mark.parametrize("form", [JsonLines(), Words()])
def test_an_error_is_told_by_its_place_and_not_by_its_message(form: logging.Formatter) -> None:
    line = form.format(record_of_an_error())
    assert "Zanzibar" not in line
    assert "ValueError" in line
    assert "RuntimeError" in line
    assert "test_log.py" in line


def test_a_line_is_one_json_object() -> None:
    line = JsonLines().format(record_of_an_error())
    assert "\n" not in line
    content = json.loads(line)
    assert content["event"] == "a batch failed"
    assert content["level"] == "error"
    assert content["texts"] == 3

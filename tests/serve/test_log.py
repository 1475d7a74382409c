"""Logs contain the traceback of an error, but not its message."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from capsar.serve.metrics import LogFormatter


def error_record() -> logging.LogRecord:
    try:
        try:
            raise ValueError("the text was Zanzibar")
        except ValueError as error:
            raise RuntimeError("still Zanzibar") from error
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "a batch failed", (), sys.exc_info())
    record.fields = {"texts": 3}
    return record


@pytest.mark.parametrize("as_json", [True, False])
def test_error_is_logged_without_its_message(*, as_json: bool) -> None:
    line = LogFormatter(as_json=as_json).format(error_record())
    assert "Zanzibar" not in line
    assert "ValueError" in line
    assert "RuntimeError" in line
    assert "test_log.py" in line


def test_line_is_one_json_object() -> None:
    line = LogFormatter(as_json=True).format(error_record())
    assert "\n" not in line
    content = json.loads(line)
    assert content["event"] == "a batch failed"
    assert content["level"] == "error"
    assert content["texts"] == 3

"""schemathesis against a service: whatever its OpenAPI allows, and what it does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


def fuzz(url: str, seconds: int) -> tuple[int, str]:
    """Ask for so long; return the number of requests, and what was found wrong (or nothing)."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            f"{url}/v1/openapi.json",
            f"--checks={','.join(CHECKS)}",
            "--phases=examples,coverage,fuzzing",
            f"--max-time={seconds}",
            "--request-timeout=30",
            "--generation-database=none",
            "--warnings=off",
            "--no-color",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    found = re.search(r"([\d,]+) generated", told)
    number = int(found[1].replace(",", "")) if found else 0
    return number, "" if done.returncode == 0 else told

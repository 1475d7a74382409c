"""Pictures of a report: `python benchmarks/report_pictures.py` writes docs/figures/report-*.png."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from report_corpus import World, confusion_counts, write_scored

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
ROWS = 30_000
SHOTS = (
    ("light", 1160, 1460, "light", False),
    ("dark", 1160, 900, "dark", True),
)
"""Name, width, height, look, and whether an aspect is opened."""


def main() -> None:
    """Report on a corpus that was made up, and take the pictures."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(scratch)
        write_scored(folder / "scored", World(num_months=18, tail=0), ROWS)
        confusion = folder / "held-out.json"
        confusion.write_text(json.dumps(confusion_counts(1500, np.random.default_rng(1))))
        options = ReportOptions(by="product", over="date", confusion=confusion, threads=1)
        report(folder / "scored", folder / "report.html", options)
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, width, height, scheme, is_opened in SHOTS:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            page.set_default_timeout(120_000)
            page.goto((folder / "report.html").as_uri())
            page.locator("#surety[data-drawn]").wait_for(state="attached")
            if is_opened:
                page.get_by_role("button", name="keyboard", exact=True).last.click()
                page.locator("#drill-trend[data-drawn]").wait_for()
            page.screenshot(path=FIGURES / f"report-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()

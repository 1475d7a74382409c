"""Pictures of the page: `python benchmarks/screenshots.py` writes docs/figures/page-*.png."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from capsar.serve.settings import Settings
from running import running

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
SHOTS = (("light", 1160, 1, "light"), ("dark", 1160, 1, "dark"), ("phone", 390, 1.5, "light"))


def main(model: str) -> None:
    """Take them of a service with this model."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(Settings(port=0, model=model), Path(scratch)) as service,
        sync_playwright() as playwright,
    ):
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, width, scale, scheme in SHOTS:
            page = browser.new_page(
                viewport={"width": width, "height": 800},
                device_scale_factor=scale,
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            page.goto(service.url)
            page.get_by_role("button", name="A dinner").click()
            page.locator("#about .word").first.wait_for()
            page.screenshot(path=FIGURES / f"page-{name}.png", full_page=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["fast"])

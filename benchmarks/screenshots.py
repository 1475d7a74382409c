"""Take the screenshots of the docs: `python benchmarks/screenshots.py [page|report]`.

`page` writes docs/figures/page-*.png from a running service, `report` docs/figures/report-*.png and
gallery-*.png from the reports of `examples/gallery.py`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright

from capsar.serve.settings import Settings
from measure import ROOT
from serve.service import running

sys.path.insert(0, str(ROOT / "examples"))
from gallery import GALLERY, build

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FIGURES = ROOT / "docs" / "figures"
Scheme = Literal["light", "dark"]


def open_page(
    browser: Browser, url: str, width: int, height: int, scheme: Scheme, scale: float = 1
) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=scale,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.set_default_timeout(120_000)
    page.goto(url)
    return page


def take_page(browser: Browser, scratch: Path) -> None:
    shots: tuple[tuple[str, int, float, Scheme], ...] = (
        ("light", 1160, 1, "light"),
        ("dark", 1160, 1, "dark"),
        ("phone", 390, 1.5, "light"),
    )
    with running(Settings(port=0, models=("base",)), scratch) as service:
        for name, width, scale, scheme in shots:
            page = open_page(browser, service.url, width, 800, scheme, scale)
            page.get_by_role("button", name="Restaurant").click()
            page.locator("#found button").first.wait_for()
            page.screenshot(path=FIGURES / f"page-{name}.png", full_page=True)


def take_report(browser: Browser, scratch: Path) -> None:
    for name in GALLERY:
        file = build(name, scratch)
        page = open_page(browser, file.as_uri(), 1160, 1300, "light")
        page.locator("#drivers-chart[data-drawn]").wait_for(state="attached")
        page.screenshot(path=FIGURES / f"gallery-{name}.png")
        if name == "hotels":
            page.set_viewport_size({"width": 1160, "height": 2400})
            page.wait_for_timeout(1000)
            page.screenshot(path=FIGURES / "report-light.png")
            dark = open_page(browser, file.as_uri(), 1160, 1100, "dark")
            dark.locator("#matters").get_by_role("button", name="Room", exact=True).click()
            dark.locator("#drill-trend[data-drawn]").wait_for()
            dark.screenshot(path=FIGURES / "report-dark.png")


def main(*names: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, take in (("page", take_page), ("report", take_report)):
            if name in names or not names:
                take(browser, Path(scratch))
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

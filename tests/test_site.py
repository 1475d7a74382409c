"""The documentation as a site: built without a warning, complete, and with no dead link."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

import capsar

ROOT = Path(__file__).parent.parent
LINK = re.compile(r'\b(?:href|src)="([^"]*)"')


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("models"))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(tmp_path_factory.mktemp("site"))
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout.lower()
    return folder / "site"


def test_every_link_leads_somewhere(site: Path) -> None:
    links = 0
    for page in site.rglob("*.html"):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            path, _, anchor = unquote(unescape(link)).partition("#")
            if re.match("[a-z]+:", path) or page.name == "404.html":
                continue
            links += 1
            target = (page.parent / path.partition("?")[0]) if path else page
            assert target.exists(), f"{page.relative_to(site)}: {link}"
            if anchor and (inside := target / "index.html" if target.is_dir() else target):
                assert f'id="{anchor}"' in inside.read_text(encoding="utf-8"), link
    assert links > 500


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect|icon)"[^>]*"(https?:)', text)
        assert not loaded, page.name


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    reference = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in set(capsar.__all__) - {"__version__"}:
        home = "errors.CapsarError" if name == "CapsarError" else name
        assert f'id="capsar.{home}"' in reference, name


def test_every_page_is_reached_from_the_menu_or_the_list_of_decisions() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in menu, page.name
    decisions = ROOT / "docs" / "decisions"
    listed = (decisions / "index.md").read_text(encoding="utf-8")
    for page in decisions.glob("0*.md"):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"- [{title}]({page.name})\n" in listed


def test_contributing_lists_every_package() -> None:
    shown = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {p.parent.name for p in (ROOT / "src" / "capsar").glob("*/__init__.py")}
    assert packages == set(re.findall(r"`src/capsar/(\w+)/`", shown))


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with (folder / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    assert build(folder).returncode != 0

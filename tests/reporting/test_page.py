"""The page in a real browser without a network: charts, keyboard, themes, hostile content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from scored_rows import row, write_rows

from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report

pytestmark = pytest.mark.browser

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked=2'> "
    "\u202eThe broth\u2066 {{policy}} &lt;b&gt; <!-- was cold 🍜 “quoted” ' \" \\ \u2028 end"
)
_TIMEOUT = 120_000
"""Milliseconds; a page may open slowly on a busy machine."""
NAME = "<b>\u202esoup</b>"


def corpus(folder: Path) -> Path:
    rows = []
    for index in range(240):
        shop, day = ("north", "south", NAME)[index % 3], f"2026-{index % 6 + 1:02d}-11"
        good = "+" if index % 3 or index % 4 else "-"
        said = ("|slow", "|very_slow|rude", "|<i>odd</i>")[index % 3]
        notes = f"soup:{good}.9 staff:-.8{said} bill:{'o+'[index % 2]}.7"
        rows.append(row(notes, shop=shop, day=day, stars=4 - 2 * (good == "-") + index % 2))
    rows += [row("broth:-.9", HOSTILE, shop="north", day="2026-02-02", stars=3)]
    rows += [row(f"{NAME}:+.9", f"A {NAME} here.", shop="south", day="2026-02-02", stars=3)] * 3
    rows += [row("", error="<i>too long</i>: 9", shop=None, day=None, stars=None)]
    return write_rows(folder, rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    options = ReportOptions(by="shop", over="day", rating="stars", title=f"Soup & {NAME}")
    report(corpus(folder / "scored"), folder / "report.html", options)
    return folder / "report.html"


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, made: Path) -> Iterator[Opened]:
    """Return a function that opens the page; requests, console output and errors fail the test."""
    messages: list[str] = []
    contexts = []

    def open_page(path: Path = made, **settings: object) -> Page:
        context = browser.new_context(offline=True, reduced_motion="reduce", **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda sent: sent.url.startswith("file:") or messages.append(sent.url))
        page.goto(path.as_uri())
        expect(page.locator("#matters li").first).to_be_visible(timeout=_TIMEOUT)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


def test_charts_are_drawn(opened: Opened) -> None:
    page = opened()
    for chart in ("drivers-chart", "trend", "confidence"):
        expect(page.locator(f"#{chart}[data-drawn]")).to_be_attached()
    bars = page.locator("#matters .side.negative i")
    widths = bars.evaluate_all("all => all.map(i => i.offsetWidth)")
    assert len(widths) >= 3
    assert widths == sorted(widths, reverse=True)
    assert page.locator("#heatmap td[title]").count() >= 9
    assert page.locator("#drivers-chart .mark-symbol path").count() >= 2
    lines = page.locator("#trend .mark-line path").evaluate_all(
        "all => all.map(p => p.getBBox().width)"
    )
    assert len(lines) == 2
    assert min(lines) > 200
    expect(page.locator("#aspect-table tbody tr")).to_have_count(5)
    expect(page.locator("#confidence-card")).to_contain_text("<i>too long</i>")


def test_what_too_few_reviews_mention_is_not_called_insignificant(
    opened: Opened, tmp_path: Path
) -> None:
    rows = [row("soup:+", shop="a", day="2025-01-01", stars=4)] * 5
    rows += [row("soup:-", shop="b", day="2025-09-01", stars=2)] * 5
    options = ReportOptions(by="shop", over="day", rating="stars")
    report(write_rows(tmp_path / "scored", rows), tmp_path / "few.html", options)
    page = opened(tmp_path / "few.html")
    expect(page.locator("#difference-list")).to_contain_text("Not tested: no aspect has 20 reviews")
    expect(page.locator("#change-list")).to_contain_text("Not tested: no aspect has 20 reviews")
    expect(page.locator("#drivers-hint")).to_contain_text("Nothing could be estimated")


def test_selecting_an_aspect_opens_its_sentences(opened: Opened) -> None:
    page = opened()
    page.locator("#matters").get_by_role("button", name="staff", exact=True).click()
    expect(page.locator("#drill")).to_be_visible()
    expect(page.locator("#drill-title")).to_have_text("staff")
    expect(page.locator("#sentences li").first).to_contain_text("The staff")
    expect(page.locator("#sentences mark.chosen").first).to_have_text("staff")
    expect(page.locator("#sentences li.positive")).to_have_count(0)
    expect(page.locator("#drill-trend[data-drawn]")).to_be_attached()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#drill")).to_be_hidden()


def test_selecting_a_phrase_opens_its_sentences(opened: Opened) -> None:
    page = opened()
    phrases = page.locator("#matters li", has_text="staff").locator(".phrase")
    expect(phrases).to_have_text(["slow 160", "<i>odd</i> 80", "rude 80"])
    expect(phrases.first).to_have_attribute("title", "also: very slow")
    phrases.nth(2).click()
    expect(page.locator("#drill-title")).to_have_text("staff")
    expect(page.locator("#drill-phrases [aria-pressed=true]")).to_contain_text("rude")
    items = page.locator("#sentences li")
    expect(items.first).to_be_visible()
    assert items.count() == items.filter(has_text="rude").count()
    expect(items.first.locator("u")).to_have_text(["very slow", "rude"])
    page.locator("#drill-phrases [aria-pressed=true]").click()
    expect(page.locator("#drill-phrases [aria-pressed=true]")).to_have_count(0)
    expect(page.locator("#drill-phrases :focus")).to_contain_text("rude")
    expect(items.filter(has_text="odd").first).to_be_visible()


def test_small_groups_are_faded(opened: Opened) -> None:
    page = opened()
    faded = page.locator("#heatmap td.few")
    expect(faded).to_have_count(2)  # one broth in the north, three <b>soup</b> in the south
    expect(faded.first).to_have_attribute(
        "title", re.compile("3 mentions in 3 reviews, too few to compare")
    )
    cell = page.locator("#heatmap td[title]:not(.few)").first
    expect(cell).to_have_attribute("title", re.compile(r"80 mentions in 80 reviews\n"))
    cell.click()
    expect(page.locator("#filter-group")).to_have_value("0")
    page.keyboard.press("Escape")
    header = page.get_by_role("button", name="Low confidence")
    expect(header).to_have_attribute("title", re.compile("whichever is lower"))
    expect(page.locator("#method")).to_contain_text("Intervals cover sampling error only")


def test_keyboard_only(opened: Opened) -> None:
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the table
    soup = page.locator("#aspect-table").get_by_role("button", name="soup", exact=True)
    soup.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#drill-title")).to_have_text("soup")
    chips = page.locator("#filters [data-polarity=negative]")
    chips.focus()
    page.keyboard.press("Space")
    expect(chips).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#sentences li.positive")).to_have_count(0)
    page.locator("#filter-group").select_option("north")
    expect(page.locator("#sentences li.negative").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drill")).to_be_hidden()
    expect(soup).to_be_focused()


def test_sorting_and_searching(opened: Opened) -> None:
    page = opened()
    first = page.locator("#aspect-table tbody tr").first
    page.get_by_role("button", name="Negative", exact=True).click()
    expect(first).to_contain_text("staff")
    page.get_by_role("button", name="Negative", exact=True).click()
    expect(first).not_to_contain_text("staff")
    page.get_by_label("Find").fill("BIL")
    expect(page.locator("#aspect-table tbody tr")).to_have_count(1)
    expect(page.locator("#matches")).to_have_text("1 found")


def test_hostile_content_stays_text(opened: Opened, made: Path) -> None:
    page = opened()
    assert page.evaluate("window.hacked") is None
    assert page.title() == "Soup & <b>soup</b>"
    page.locator("#aspect-table").get_by_role("button", name="broth", exact=True).click()
    page.locator("#filter-group").select_option("north")
    page.locator("#filters [data-polarity=negative]").click()
    shown = page.locator("#sentences li", has_text="window.hacked").locator("blockquote")
    assert shown.text_content() in HOSTILE
    assert page.locator("#sentences script, #sentences img, h1 b, bdi b").count() == 0
    assert page.evaluate("window.hacked") is None
    # Names lose characters that change the direction; nothing ended a block of data early.
    assert "\u202e" not in page.locator("#aspect-table").inner_text()
    assert made.read_text(encoding="utf-8").count("<script") == 5


def test_other_scripts_are_blocked(browser: Browser, made: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    text = made.read_text(encoding="utf-8")
    changed.write_text(text.replace("<main>", "<main><script>window.hacked = 3</script>"))
    messages: list[str] = []
    page = browser.new_page(offline=True)
    page.on("console", lambda message: messages.append(message.text))
    page.goto(changed.as_uri())
    expect(page.locator("#matters li").first).to_be_visible(timeout=_TIMEOUT)
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert "Content Security Policy" in messages[0]
    page.close()


def test_dark_and_light_themes(opened: Opened) -> None:
    page = opened(color_scheme="dark")
    mark = page.locator("#trend .mark-line path").last
    expect(mark).not_to_have_attribute("stroke", "rgb(23, 115, 74)")
    page.emulate_media(color_scheme="light")
    expect(mark).to_have_attribute("stroke", "rgb(23, 115, 74)", timeout=_TIMEOUT)


@pytest.fixture(scope="module")
def themed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page with themes, sub-themes, implicit mentions and ten products."""
    folder = tmp_path_factory.mktemp("themed")
    rows = []
    for index in range(400):
        good = "+-"[index % 3 == 0]
        notes = f"soup:{good}.9@Food staff:-.8|slow@Service queue:-.8|long@Waiting lid:+.9"
        notes += " *:-.7@Waiting" if index % 4 == 0 else ""
        name = f"A rather long product name {index % 10}"
        rows.append(row(notes, product=name, day=f"2026-0{index % 6 + 1}-11", stars=index % 5 + 1))
    names = [{"name": "Food"}, {"name": "Service"}, {"name": "Waiting", "parent": "Service"}]
    scored = write_rows(folder / "scored", rows, job={"options": {"themes": {"themes": names}}})
    options = ReportOptions(by="product", over="day", rating="stars")
    report(scored, folder / "report.html", options)
    return folder / "report.html"


def test_themes_open_into_aspects_phrases_and_sentences(opened: Opened, themed: Path) -> None:
    page = opened(themed)
    findings = page.locator("#findings li")
    expect(findings.first).to_have_text(
        "Most criticized, by mentions: Service (900) and Food (134)."
    )
    expect(findings.nth(2)).to_have_text("More criticized than praised: Service (net −100).")
    expect(page.locator("#matters .open")).to_have_text(["Service", "Food"])
    rows = page.locator("#aspect-table tbody tr")
    expect(rows).to_have_count(3)  # and the aspects without a theme
    page.get_by_role("button", name="Aspects of Service").press("Enter")
    expect(rows).to_have_count(5)
    expect(page.get_by_role("button", name="Aspects of Service")).to_be_focused()
    page.get_by_role("button", name="Aspects of Waiting").click()
    expect(rows.nth(2)).to_contain_text("queue")
    page.locator("#matters").get_by_role("button", name="Service", exact=True).click()
    expect(page.locator("#drill-parts .open")).to_have_text(["Waiting", "queue", "staff"])
    expect(page.locator("#drill-shares")).to_contain_text("100 of them implicit")
    expect(page.locator("#sentences small", has_text="implicit").first).to_be_visible()
    page.locator("#drill-parts").get_by_role("button", name="queue", exact=True).click()
    expect(page.locator("#drill-title")).to_have_text("queue")
    expect(page.locator("#drill-origin")).to_contain_text("Theme: Waiting")


@pytest.mark.parametrize("width", [390, 768, 1160])
def test_page_with_themes_and_ten_products(opened: Opened, themed: Path, width: int) -> None:
    page = opened(themed, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("#heatmap th").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(b => [b.x, b.y, b.right, b.bottom])"
    )
    for number, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[number + 1 :]:  # headers do not collide
            beside = right <= other[0] + 1 or other[2] <= left + 1
            assert beside or bottom <= other[1] + 1 or other[3] <= top + 1
    assert page.locator("#aspect-table").evaluate("one => one.offsetHeight") < 2000
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_print_shows_everything(opened: Opened, themed: Path) -> None:
    page = opened(themed)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("#aspect-table")).to_contain_text("queue")
    expect(page.locator("#drivers-table")).to_be_visible()
    expect(page.locator("#search")).to_be_hidden()
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 1 <= pages <= 12
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("#aspect-table")).not_to_contain_text("queue")


@pytest.mark.parametrize("width", [390, 1160])
def test_page_fits_the_viewport(opened: Opened, width: int) -> None:
    page = opened(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#aspect-table .open").first.click()
    assert page.evaluate("document.querySelector('#drill').scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(opened: Opened, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.locator("#aspect-table .open").first.click()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_corpus_without_text_dates_or_groups(opened: Opened, tmp_path: Path) -> None:
    rows = [{k: v for k, v in row("soup:+").items() if k != "text"} | {"id": 1}] * 3
    report(write_rows(tmp_path / "scored", rows), tmp_path / "r.html")
    page = opened(tmp_path / "r.html")
    expect(page.locator("#differences")).to_be_hidden()
    expect(page.locator("#changes")).to_be_hidden()
    page.locator("#aspect-table .open").first.click()
    expect(page.locator("#drill-hint")).to_contain_text("The reviews were not kept")


def test_vendored_libraries_are_unchanged() -> None:
    """The vendored files have the checksums listed in the README."""
    folder = files("capsar.reporting") / "page" / "vendor"
    named = re.findall(
        r"^\| `([\w.-]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.M
    )
    assert len(named) == 3
    for name, checksum in named:
        assert sha256((folder / name).read_bytes()).hexdigest() == checksum


def test_page_is_small(made: Path) -> None:
    assert made.stat().st_size < 1_050_000

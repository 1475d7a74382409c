"""The demo page in a browser: analysis, explanation, links, keyboard use and hostile texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from capsar.sentences import MAX_SENTENCE_WORDS
from capsar.serve.settings import Settings
from serve.service import Running, running

pytestmark = pytest.mark.browser

TEXT = "The soup was cold. The staff were lovely!"
HOSTILE = (
    "<script>window.hacked = 1</script> <img src=x onerror='window.hacked=2'> "
    "\u202eThe soup\u2066 was &lt;b&gt; cold 🍜🍜 “quoted” ' \" \\ \u0007 soup"
)
KEY = "a key of some length"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Settings(port=0, models=("fast",)), tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture
def page(browser: Browser, service: Running) -> Iterator[Page]:
    """A page that makes requests to the service only and logs nothing to the console."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: _is_expected(message.text) or problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    page.on(
        "request",
        lambda request: request.url.startswith(service.url) or problems.append(request.url),
    )
    page.goto(service.url)
    yield page
    context.close()
    assert problems == []


def _is_expected(message: str) -> bool:
    """Return whether Chromium logged an error response of the service."""
    return message.startswith("Failed to load resource: the server responded with a status of 4")


expect.set_options(timeout=30_000)  # a long text takes seconds on a slow machine


def analyze(page: Page, text: str, aspects: str = "") -> None:
    page.get_by_label("Review", exact=True).fill(text)
    page.get_by_label("Aspects (optional)").fill(aspects)
    page.get_by_role("button", name="Analyze").click()
    expect(page.locator("#result")).not_to_have_attribute("aria-busy", "true")


def explain(page: Page) -> None:
    page.get_by_text("Why? Capsules and words").click()
    expect(page.locator("#importance .word").first).to_be_visible()


def test_aspects_are_listed_with_their_reasons(page: Page) -> None:
    analyze(page, TEXT)
    rows = page.locator("#found button")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("soupcold")  # negative ones first
    expect(rows.nth(1)).to_contain_text("stafflovely")
    expect(page.locator("#why")).not_to_have_attribute("open", "")
    expect(page.locator(".phrase")).to_have_text(["cold", "lovely"])
    rows.nth(0).click()
    expect(page.locator(".phrase.chosen")).to_have_text(["cold"])
    expect(page.locator(".mark").first).to_have_attribute("aria-pressed", "true")


def test_an_error_clears_old_results(page: Page) -> None:
    analyze(page, TEXT)
    expect(page.locator("#result")).to_be_visible()
    for text, aspects in ((TEXT, "pizza"), ("", "")):
        analyze(page, text, aspects)
        expect(page.locator("#status")).to_have_class("status problem")
        expect(page.locator("#result")).to_be_hidden()
        analyze(page, TEXT)
        expect(page.locator("#result")).to_be_visible()


def test_analyze_and_explain(page: Page) -> None:
    analyze(page, TEXT, "soup, staff")
    expect(page.locator("#model")).to_have_text("fast")
    expect(page.locator("#status")).to_have_text("2 aspects.")
    expect(page.locator("#review")).to_contain_text("The soup")
    soup, staff = (page.get_by_role("button", name=name) for name in ("soup:", "staff:"))
    explain(page)
    soup.click()
    expect(soup).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#explanation-title")).to_have_text("Explanation of “soup”")
    soup_value = page.locator(".capsule.positive .value").inner_text()
    staff.click()
    expect(page.locator("#explanation-title")).to_have_text("Explanation of “staff”")
    assert page.locator(".capsule.positive .value").inner_text() != soup_value
    before = page.locator("#importance-top").inner_text()
    page.locator(".capsule.neutral").click()
    expect(page.locator(".capsule.neutral input")).to_be_checked()
    expect(page.locator("#aspect-scores .word.neutral").first).to_be_visible()
    assert page.locator("#importance-top").inner_text() != before
    page.get_by_role("button", name="Explain the whole text").click()
    expect(page.locator("#explanation-title")).to_have_text("Explanation of the whole text")


def test_marks_match_the_response(page: Page, service: Running) -> None:
    """Offsets are correct after characters that have two UTF-16 units."""
    text = "🍜🍜 The soup was 𝕏 cold, the soup!"
    response = json.loads(service.request("/v1/classify", {"text": text, "aspects": ["soup"]})[2])
    analyze(page, text, "soup")
    mark = page.locator(".mark")
    expect(mark).to_have_count(1)
    polarity = response["aspects"][0]["polarity"]
    expect(mark).to_have_class(f"mark {polarity}")
    before = page.evaluate("document.querySelector('.mark').previousSibling.data")
    assert before == text[: response["aspects"][0]["start"]]
    confidence = response["aspects"][0]["confidence"]
    expect(mark).to_have_attribute(
        "aria-label", f"soup: {polarity}, confidence {100 * confidence:.0f} %"
    )
    page.get_by_text("Request and JSON response").click()
    assert json.loads(page.locator("#json").inner_text()) == response
    assert "/v1/classify" in page.locator("#request").inner_text()


def test_link_contains_the_text(page: Page, browser: Browser) -> None:
    text = "Cold soup & 100% #1 “staff” 🍜 + more = less"
    analyze(page, text, "soup")
    expect(page.locator(".mark")).to_have_count(1)
    page.wait_for_url("**/#text=*")
    other = browser.new_page()
    other.goto(page.url)
    expect(other.locator(".mark")).to_have_count(1)
    assert other.get_by_label("Review", exact=True).input_value() == text
    assert other.get_by_label("Aspects (optional)").input_value() == "soup"
    other.close()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#shared")).not_to_be_empty()


def test_page_works_with_the_keyboard(page: Page) -> None:
    def focused() -> str:
        return str(page.evaluate("document.activeElement.id || document.activeElement.className"))

    def tab_to(wanted: str) -> None:
        for _ in range(30):
            if wanted in focused():
                return
            page.keyboard.press("Tab")
        pytest.fail(f"cannot reach {wanted}; {focused()} has the focus")

    tab_to("text")
    page.keyboard.type(TEXT)
    tab_to("aspects")
    page.keyboard.type("soup, staff")
    page.keyboard.press("Enter")
    expect(page.locator(".mark")).to_have_count(2)
    page.locator("#text").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#result")).not_to_have_attribute("aria-busy", "true")
    tab_to("why-title")
    page.keyboard.press("Enter")
    page.locator("#text").focus()
    tab_to("mark")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".mark").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#explanation-title")).to_contain_text("staff")
    page.locator("#whole").focus()
    page.keyboard.press("Tab")
    checked = page.locator(".capsule :checked")
    before = checked.input_value()
    page.keyboard.press("ArrowDown")
    expect(checked).not_to_have_value(before)
    second = checked.input_value()
    page.keyboard.press("ArrowDown")
    expect(checked).not_to_have_value(second)
    page.keyboard.press("ArrowDown")
    expect(checked).to_have_value(before)
    outline = "getComputedStyle(document.activeElement.closest('.capsule')).outlineStyle"
    assert page.evaluate(outline) == "solid"


def test_hostile_text_is_not_interpreted(page: Page) -> None:
    analyze(page, HOSTILE, "soup")
    expect(page.locator(".mark")).to_have_count(1)
    shown = page.evaluate(
        "[...document.querySelector('#review').childNodes]"
        ".map(n => n.querySelector?.('bdi')?.textContent ?? n.textContent).join('')"
    )
    assert shown == HOSTILE
    assert page.locator("#result script, #result img, #result b > b").count() == 0
    assert page.evaluate("window.hacked") is None
    analyze(page, TEXT, "<img src=x onerror=alert(1)>")
    expect(page.locator("#status")).to_contain_text("does not occur in the text")
    assert page.locator("#status img").count() == 0


_PASTE = """size => {
    const carried = new DataTransfer();
    carried.setData("text/plain", "<b>soup</b> ".repeat(size / 12));
    const event = new ClipboardEvent("paste", { clipboardData: carried, cancelable: true });
    return document.querySelector("#text").dispatchEvent(event);
}"""


def test_too_long_text_is_rejected_by_the_page(page: Page, service: Running) -> None:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    expect(page.locator("#size")).to_contain_text("20,000")
    assert page.evaluate(_PASTE, 1_200_000) is False
    message = "The limit is 20,000 characters; this text has 1,200,000."
    expect(page.locator("#status")).to_have_text(message)
    assert page.evaluate(_PASTE, 12_000) is True
    page.get_by_label("Review", exact=True).fill("soup " * 4100)  # slightly too long
    page.get_by_role("button", name="Analyze").click()
    expect(page.locator("#status")).to_have_text("The limit is 20,000 characters.")
    page.goto(f"{service.url}/#text={'soup+' * 200_000}")
    expect(page.locator("#status")).to_contain_text("this text has 1,000,000")
    assert not any("/analyze" in url for url in urls)
    analyze(page, "the soup is cold and " * 780)  # below the limit
    explain(page)
    # The most confident aspect is explained in its window of that sentence; the last is shorter.
    words = page.locator("#aspect-scores .word")
    expect(words).not_to_have_count(0)
    assert words.count() in (MAX_SENTENCE_WORDS, 3900 % MAX_SENTENCE_WORDS)
    expect(page.locator("#aspect-scores .unread").first).to_contain_text("the soup is cold")


def test_markup_in_a_link_is_not_interpreted(page: Page, service: Running) -> None:
    page.goto(f"{service.url}/#text=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20soup&aspects=soup")
    expect(page.locator(".mark")).to_have_count(1)
    assert page.locator("#result img").count() == 0
    page.goto(f"{service.url}/#text=%ED%A0%80%FF")
    expect(page.locator("#status")).not_to_be_empty()


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360)]
)
def test_page_is_accessible(service: Running, browser: Browser, scheme: str, width: int) -> None:
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 800},
        bypass_csp=True,  # to inject the checker
    )
    page = context.new_page()
    page.goto(service.url)
    assert serious(page) == []
    page.get_by_role("button", name="Restaurant").click()
    explain(page)
    page.get_by_text("Request and JSON response").click()
    for capsule in ("negative", "neutral", "positive"):
        page.locator(f".capsule.{capsule}").click()
        assert serious(page) == []
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) == 0
    context.close()


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_api_key_is_requested_if_needed(tmp_path: Path, browser: Browser) -> None:
    keys = {sha256(KEY.encode()).hexdigest(): "shop"}
    with running(Settings(port=0, models=("fast",), api_keys=keys), tmp_path) as guarded:
        page = browser.new_page()
        page.goto(guarded.url)
        expect(page.get_by_label("API key")).to_be_focused()
        page.get_by_label("API key").fill(KEY)
        analyze(page, TEXT, "soup")
        expect(page.locator(".mark")).to_have_count(1)
        expect(page.locator("#model")).to_have_text("fast")
        expect(page.locator("#size")).to_contain_text("20,000")
        page.close()

"""The page in a browser: Debian's chromium, driven by playwright."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; the extra `test` brings it")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed; `make test` installs it where it may", allow_module_level=True)

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
PICTURES = Path(__file__).parents[2] / "out" / "page"
"""Screenshots stay here to be looked at."""
LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, served: Any) -> Iterator[Open]:
    """Opens the page; in the end, it must have asked nobody but its server and complained of nothing."""
    contexts, asked, complaints = [], [], []

    def visit_page(fragment: str = "", **options: Any) -> Any:
        options = {"viewport": {"width": 1280, "height": 860}} | options
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{served.url}{fragment}")
        ready(page)
        return page

    yield visit_page
    for context in contexts:
        context.close()
    assert not [url for url in asked if not url.startswith((served.url, "data:,"))]
    assert not [text for text in complaints if "status of 422" not in text]


def ready(page: Any, state: str = "ready") -> None:
    page.wait_for_selector(f"body[data-state={state}]")


def write(page: Any, source: str, state: str = "ready") -> None:
    page.locator("textarea").fill(source)
    page.wait_for_selector("body:not([data-state=ready])", state="attached")
    ready(page, state)


def picture(page: Any, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def test_typing_a_program(visit: Open) -> None:
    page = visit()
    page.locator("textarea").fill("")
    page.locator("textarea").press_sequentially("v0 = 7\nif v0 > 3:\nv0 += 1")  # the indent comes by itself
    page.wait_for_selector(".verdict >> text=/true result is 8/")
    assert page.locator("textarea").input_value() == "v0 = 7\nif v0 > 3:\n  v0 += 1"
    assert page.locator(".bars .truth th").first.inner_text().startswith("8")
    assert page.locator(".graph .node").count() == 4  # three statements and the exit
    assert page.locator(".heat-map .dot").count() == 3
    assert page.locator(".gutter button").count() == 3


def test_masking_a_line(visit: Open) -> None:
    page = visit()
    write(page, LOOP)
    page.locator(".gutter button").nth(4).click()
    page.wait_for_selector(".verdict >> text=/over all fillings/")
    assert page.locator("textarea").input_value() == LOOP.replace("v0 *= 2", "[MASK]")
    assert "exact" in page.locator(".bars thead").inner_text()
    assert page.locator(".gutter button").nth(4).get_attribute("aria-pressed") == "true"
    picture(page, "masked")
    page.locator(".gutter button").nth(2).click(force=True)  # a condition cannot be masked
    page.locator(".gutter button").nth(4).click()
    page.wait_for_selector(".verdict >> text=/true result is 56/")
    assert page.locator("textarea").input_value() == LOOP


def test_by_keyboard_alone(visit: Open) -> None:
    page = visit()
    write(page, LOOP)
    page.locator("#sample").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.line") == "4"
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict >> text=/over all fillings/")
    assert page.evaluate("document.activeElement.dataset.line") == "4"
    page.locator("textarea").press("Control+End")
    page.keyboard.press("Alt+m")
    page.wait_for_selector(".verdict >> text=/true result is 56/")
    page.locator("#step").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#step-label").inner_text().startswith("step 1 of")
    page.locator(".scroll").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#step-label").inner_text().startswith("step 2 of")


def test_values_of_variables_by_step(visit: Open) -> None:
    page = visit(f"#program={quote(LOOP)}&model=values")
    rows = page.locator(".value-rows tbody tr")
    assert page.locator(".value-rows thead").inner_text().split() == ["step", "line", "v0", "v1"]
    assert [text.split() for text in rows.all_inner_texts()[:1]] == [["0", "1", "0", "0"]]
    steps = page.locator("#step").evaluate("slider => Number(slider.max)")
    assert rows.count() == min(steps + 1, 200)
    page.locator(".values button").click()  # weights drawn at random know nothing: something is wrong at once
    jumped = page.locator("#step-label").inner_text().split()[1]
    current = page.locator(".value-rows [aria-current=step]")
    assert current.locator("th").inner_text() == jumped
    assert "≠" in current.inner_text()
    assert current.locator(".off").count() >= 1
    for step in (str(steps), "1"):
        page.locator("#step").fill(step)
        assert current.locator("th").inner_text() == step
    rows.nth(2).click()
    assert page.locator("#step-label").inner_text().startswith("step 2 of")
    assert page.locator(".panel").first.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_moving_through_the_steps(visit: Open) -> None:
    page = visit()
    write(page, LOOP)

    def masses() -> list[float]:
        found = page.locator(".graph .mass").evaluate_all("all => all.map(e => Number(e.getAttribute('fill-opacity')))")
        return [float(mass) for mass in found]

    assert masses() == [1, 0, 0, 0, 0, 0]
    page.locator("#step").fill("2")
    assert masses() == [0, 0, 1, 0, 0, 0]
    assert "here" in (page.locator(".graph .node").nth(2).get_attribute("class") or "")
    assert page.locator(".row").nth(2).evaluate("e => e.style.getPropertyValue('--mass')") == "1"
    here = page.locator("#here").inner_text()
    assert "line 3: while v1 > 0:" in here
    assert "true branch" in here
    assert "v0 = 7, condition holds" in here
    page.locator(".heat-map").click(position={"x": 5, "y": 10})
    assert page.locator("#step-label").inner_text().startswith("step 0")
    page.locator("#play").click()
    page.wait_for_function("() => Number(document.getElementById('step').value) >= 2")
    page.locator("#play").click()
    at = page.locator("#step").input_value()
    page.wait_for_timeout(600)
    assert page.locator("#step").input_value() == at


def test_hovering_tells_more(visit: Open) -> None:
    page = visit()
    write(page, LOOP)
    page.locator(".graph .mass").first.hover()
    tip = page.locator("#tip").inner_text()
    assert "line 1: v0 = 7" in tip
    assert "p = 1.000" in tip
    assert "v0 = 7" in tip
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()


def test_comparing_two_models(visit: Open) -> None:
    page = visit()
    page.select_option("#compare", "lines")
    page.wait_for_selector(".panel >> nth=1")
    ready(page)
    assert [name.split()[0] for name in page.locator(".panel h3").all_inner_texts()] == ["tiny", "lines"]
    assert page.locator(".panel").nth(1).locator(".heat-map").count() == 0
    picture(page, "compare")
    page.select_option("#model", "tiny-partial")
    page.wait_for_selector(".panel h3 >> text=/^tiny-partial/")


def test_a_shared_link_holds_the_program(visit: Open) -> None:
    page = visit()
    page.select_option("#compare", "lines")
    source = f"# 100% & more?\n{LOOP}"
    write(page, source)
    link = page.url.partition("#")[2]
    other = visit(f"#{link}")
    assert other.locator("textarea").input_value() == source
    assert other.locator("#compare").input_value() == "lines"
    other.wait_for_selector(".verdict >> text=/true result is 56/")
    # The pointer is shown on the line of the text, which the comment has moved.
    assert other.locator(".row").nth(1).evaluate("e => e.style.getPropertyValue('--mass')") == "1"
    bad = visit(f"#program={quote('v0 = 1')}&model=gone")
    assert bad.locator("#model").input_value() == ""


def test_errors_are_shown_where_they_are(visit: Open) -> None:
    page = visit()
    write(page, "v0 = 7\nv0 /= 2", "failed")
    assert page.locator("#error").inner_text().startswith("line 2, column 4: found `/=`")
    assert "wrong" in (page.locator(".gutter button").nth(1).get_attribute("class") or "")
    assert page.locator(".row mark").inner_text() == "/="
    picture(page, "error")
    write(page, "v0 = 7\nv0 += <img src=x onerror=alert(1)>", "failed")
    assert page.locator("img").count() == 0
    write(page, "v0 = 7\nv0 += 2")
    assert page.locator("#error").is_hidden()
    assert page.locator(".wrong").count() == 0


def test_samples_by_length(visit: Open) -> None:
    page = visit()
    for length, masked in (("5", False), ("20", True), ("100", False)):
        before = page.locator("textarea").input_value()
        page.select_option("#length", length)
        page.locator("#masked").set_checked(masked)
        page.locator("#sample").click()
        page.wait_for_function("before => document.querySelector('textarea').value !== before", arg=before)
        ready(page)
        source = page.locator("textarea").input_value()
        assert len(source.split("\n")) == int(length)
        assert ("[MASK]" in source) is masked
    picture(page, "hundred-lines")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [("wide", 1280), ("narrow", 360)])
def test_looks(visit: Open, scheme: str, name: str, width: int) -> None:
    page = visit(f"#program={quote(LOOP)}", color_scheme=scheme, viewport={"width": width, "height": 800})
    page.locator("#step").fill("6")
    picture(page, f"{scheme}-{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.select_option("#model", "values")
    page.wait_for_selector(".values")
    picture(page, f"{scheme}-{name}-values")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", ground)[0])
    assert (red < 60) is (scheme == "dark")


def test_the_report_fits_its_page(browser: Any, tmp_path: Path) -> None:
    """At the width of a laptop no table scrolls, at that of a phone only tables do."""
    from ipagnn.reporting.report import write_report
    from ipagnn.reporting.runs import read_run

    records = sorted((Path(__file__).parents[2] / "records").glob("*/config.toml"))
    page, *_ = write_report([read_run(path.parent) for path in records], tmp_path / "report.html")
    for width, narrow in ((1280, False), (400, True)):
        opened = browser.new_page(viewport={"width": width, "height": 860})
        opened.goto(page.as_uri())
        for summary in opened.query_selector_all("summary"):
            summary.click()
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        wide = opened.evaluate(
            "[...document.querySelectorAll('.wide, pre')].filter(e => e.scrollWidth > e.clientWidth).length"
        )
        assert narrow or not wide
        picture(opened, f"report-{width}")
        opened.close()

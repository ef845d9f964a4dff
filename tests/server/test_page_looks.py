"""The page in a browser: what it looks like, in light and dark, and in a narrow window."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ipagnn.languages.arithmetic.card import EXAMPLES, FORMS
from ipagnn.models import build_model, save_model

from .page import LOOKS, LOOP, Open, fits, picture, ready, write

in_every_look = pytest.mark.parametrize("look", ["light", pytest.param("dark", marks=pytest.mark.slow), "420"])


@in_every_look
def test_results_stand_before_the_fold_and_the_heat_map_says_that_it_scrolls(visit: Open, look: str) -> None:
    sixty = "v0 = 1\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 4\n  while v2 > 0:\n    v2 -= 1\n" + "    v0 += 1\n" * 53
    page = visit(f"#program={quote(sixty.strip())}", **LOOKS[look])
    seen = ".verdict b" if look == "420" else ".notes"  # in a narrow window, where the editor stands above, the answer
    below = page.locator(seen).first.evaluate("e => e.getBoundingClientRect().bottom + window.scrollY")
    assert below <= 860
    found = page.locator(".wider")
    assert re.match(r"Steps 0 to \d+ of \d\d\d are shown; the heat map scrolls sideways", found.inner_text())
    page.locator(".scroll").evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    page.wait_for_function("() => / to (\\d+) of \\1 /.test(document.querySelector('.wider').textContent)")
    assert "goes-on" not in page.locator(".scroll").get_attribute("class")
    picture(page, f"sixty-lines-{look}")
    assert fits(page)
    write(page, LOOP)
    assert found.is_hidden()


@in_every_look
def test_bars_of_all_panels_have_one_scale(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}&compare=lines", **LOOKS[look])
    for source in (LOOP, LOOP.replace("v0 *= 2", "[MASK]")):
        if "[MASK]" in source:
            page.select_option("#compare", "tiny-partial")
            write(page, source)
        bars = page.locator(".bar").evaluate_all(
            "all => all.map(e => [e.querySelector('.fill').style.width, e.lastChild.textContent])"
        )
        assert len(bars) >= 10
        for width, text in bars:
            found = 0.0 if text.startswith("<") else float(text.removesuffix("%"))
            assert abs(float(width.removesuffix("%")) - found) <= 0.5
    picture(page, f"bars-{look}")
    assert fits(page)


@in_every_look
def test_an_error_clears_what_belongs_to_the_program_before(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}", **LOOKS[look])
    page.locator("#step").fill("3")
    write(page, "v0 = 7\nv0 /= 2", "failed")
    assert page.locator(".panel").count() == 0
    assert page.locator("#here").inner_text() == page.locator("#step-label").inner_text() == ""
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#play").is_disabled()
    assert page.locator("#step").is_disabled()
    masses = page.locator(".row").evaluate_all("all => all.map(e => Number(e.style.getPropertyValue('--mass')))")
    assert masses == [0, 0]
    assert quote("/=", safe="") in page.url
    picture(page, f"error-{look}")
    assert fits(page)


@in_every_look
def test_an_empty_editor_is_an_invitation(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}", **LOOKS[look])
    for nothing in ("", "\n  \n", "# only a comment"):
        write(page, nothing, "empty")
        assert "choose an example" in page.locator("#invitation").inner_text()
        assert page.locator("#error").is_hidden()
        assert page.locator(".panel").count() == 0
    write(page, "", "empty")
    assert page.locator("textarea").get_attribute("placeholder").startswith("v0 = ")
    picture(page, f"empty-{look}")
    assert fits(page)
    page.locator("#examples button").nth(1).click()
    ready(page)
    assert page.locator("#invitation").is_hidden()


@in_every_look
def test_names_are_not_clipped_and_the_legend_does_not_break(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}&model=tiny-partial&compare=lines", **LOOKS[look])
    for select in ("#model", "#compare"):
        clipped = page.locator(select).evaluate(
            "e => { const now = e.offsetWidth; e.style.maxWidth = 'none'; e.style.width = 'max-content';"
            " const all = e.offsetWidth; e.style.maxWidth = e.style.width = ''; return now < all; }"
        )
        assert not clipped
    clipped = "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.locator(".panel h3").evaluate_all(clipped) == 0
    keys = page.locator(".legend > span").evaluate_all("all => all.map(e => e.getClientRects().length)")
    assert keys == [1] * 4
    heights = page.locator(".legend > span").evaluate_all("all => all.map(e => e.offsetHeight)")
    assert max(heights) < 30
    assert fits(page)


@in_every_look
def test_help_has_the_language_card_and_links(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}", **LOOKS[look])
    card = page.locator("#card")
    page.locator("#help").click()
    card.wait_for(state="visible")
    assert card.locator(".forms code").first.inner_text() == FORMS[0].text
    assert card.locator(".forms tr").count() == len(FORMS)
    assert "`" not in card.inner_text()
    assert "modulo 1,000" in card.inner_text()
    links = card.locator("a").evaluate_all("all => all.map(e => e.getAttribute('href'))")
    assert links == ["https://arxiv.org/abs/2010.12621", "api/openapi.json"]
    assert card.evaluate("e => e.scrollWidth <= e.clientWidth")
    picture(page, f"help-{look}")
    page.keyboard.press("Escape")
    card.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "help"


@in_every_look
def test_examples_are_one_click_away_with_what_there_is_to_see(visit: Open, look: str) -> None:
    page = visit(**LOOKS[look])
    buttons = page.locator("#examples button")
    assert buttons.all_inner_texts() == [example.name for example in EXAMPLES if example.model is None]
    for button, example in zip(buttons.all(), EXAMPLES, strict=False):
        button.click()
        page.wait_for_function("source => document.querySelector('textarea').value === source", arg=example.source)
        ready(page)
        assert page.locator("#about").inner_text() == example.about.replace("`", "")
    write(page, LOOP)
    assert page.locator("#about").is_hidden()
    assert fits(page)


@in_every_look
def test_the_papers_model_is_one_click_away(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}&model=values", **LOOKS[look])
    button = page.locator("#paper")
    button.click()
    page.wait_for_selector(".panel >> nth=1")
    ready(page)
    names = page.locator(".panel h3")
    assert [name.split()[0] for name in names.all_inner_texts()] == ["values", "tiny"]
    assert button.get_attribute("aria-pressed") == "true"
    page.select_option("#model", "")
    write(page, LOOP.replace("v0 *= 2", "[MASK]"))
    assert [name.split()[0] for name in names.all_inner_texts()] == ["tiny-partial"] * 2
    picture(page, f"paper-{look}")
    assert fits(page)
    button.click()
    page.wait_for_selector(".panel >> nth=1", state="detached")
    assert page.locator("#compare").input_value() == ""


@pytest.mark.slow
def test_the_page_begins_with_a_loop_in_a_loop_beside_the_papers_model(
    browser: Any, serve: Any, tmp_path: Path
) -> None:
    for name, model in (("exact", "env-ipa-gnn"), ("ipa-gnn-full", "ipa-gnn")):
        save_model(build_model(model, hidden=8), tmp_path / f"{name}.safetensors", task="full")
    page = browser.new_page()
    page.goto(serve([tmp_path / "exact.safetensors", tmp_path / "ipa-gnn-full.safetensors"]).url)
    ready(page)
    [example] = [example for example in EXAMPLES if example.compare]
    assert page.locator("textarea").input_value() == example.source
    assert page.locator("#about").inner_text() == example.about.replace("`", "")
    assert [name.split()[0] for name in page.locator(".panel h3").all_inner_texts()] == ["exact", "ipa-gnn-full"]
    assert page.locator("#paper").get_attribute("aria-pressed") == "true"
    page.close()


@pytest.mark.parametrize("look", LOOKS)
def test_looks(visit: Open, look: str) -> None:
    page = visit(f"#program={quote(LOOP)}", **LOOKS[look])
    page.locator("#step").fill("6")
    picture(page, look)
    assert fits(page)
    page.select_option("#model", "values")
    page.wait_for_selector(".values")
    picture(page, f"{look}-values")
    assert fits(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", ground)[0])
    assert (red < 60) is (look == "dark")


@pytest.mark.slow
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

"""The page in a browser: what it does when people write, click and type."""

from typing import Any
from urllib.parse import quote

from .page import LOOKS, LOOP, Open, fits, picture, ready, write


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


def test_large_numbers_lose_no_digit_and_fit(visit: Open) -> None:
    source = "v0 = 987654321987654321\nv1 = 123456789123456789\nif v0 < v1:\n  v0 += 1\nv1 += v0\nv0 -= 9"
    for look, options in LOOKS.items():
        page = visit(f"#program={quote(source)}&model=numbers", **options)
        true = page.locator(".bars tr.truth th .number")
        assert true.text_content() == "987654321987654312"
        assert true.locator("span").all_inner_texts() == ["987", "654", "321", "987", "654", "312"]
        assert page.locator(".verdict b").nth(1).text_content() == "987654321987654312"
        assert page.locator(".panel h3 sup").inner_text() == "18"
        wrong = page.locator(".value-rows tr.parts td.off .number")  # weights drawn at random know nothing
        assert wrong.locator("mark").count() >= 1
        page.locator(".values button").click()
        assert "v0 = 987 654 321 987 654 321" in page.locator("#here").inner_text().replace("\u202f", " ")
        assert page.locator(".heat-map line.parts").count() == 1
        assert fits(page)
        picture(page, f"numbers-{look}")
    page.locator("#help").click()
    card = page.locator("#card")
    card.wait_for(state="visible")
    assert "if v0 < v1:" in card.inner_text()


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


def test_one_model_answers_where_the_other_cannot(visit: Open) -> None:
    page = visit(f"#program={quote(LOOP)}&model=values&compare=lines")

    def refuse(route: Any) -> None:
        if "lines" in (route.request.post_data or ""):
            route.fulfill(status=422, json={"detail": "The program takes longer than 10 seconds; make it shorter."})
        else:
            route.continue_()

    page.route("**/api/explain", refuse)
    write(page, LOOP.replace("7", "8"))
    assert [name.split()[0] for name in page.locator(".panel h3").all_inner_texts()] == ["values"]
    refusal = "lines gives no answer. The program takes longer than 10 seconds; make it shorter."
    assert page.locator("#error").inner_text() == refusal
    page.unroute("**/api/explain")
    write(page, LOOP)
    page.wait_for_selector(".panel >> nth=1")
    assert page.locator("#error").is_hidden()
    write(page, "v0 = 7\nv0 /= 2", "failed")
    assert page.locator(".panel").count() == 0


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

"""What a reader of the page has is not taken away: the place of the keyboard, a look, and any view as a file."""

import base64
import io
import threading

import numpy as np
import pytest
from PIL import Image

import saccade
from browser.served import loud, serving
from browser.test_page import CHANGED, TEXT, ask, drawn
from saccade.explain.faithfulness import attribute_tokens, measure_faithfulness
from saccade.models.build import new
from saccade.models.families import bert
from saccade.serving.runs import RunFolder
from saccade.serving.session import ModelSession
from saccade.text.train import train_tokenizer

FOCUS = "document.activeElement.matches({!r})"
DROP = """data => {
  const all = new DataTransfer();
  all.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], "a.png", { type: "image/png" }));
  return all;
}"""
INKED = """() => {
  const canvas = document.querySelector('.lines canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, 2000).data;
  return data.some((value, i) => i % 4 === 3 && value > 0);
}"""
SEEN = "() => [...document.images].every(one => one.complete && one.naturalWidth > 0)"


def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_the_keyboard_keeps_its_place(page):
    """A button that is pressed again steps again, and a head that was switched off is switched on where it was."""
    ask(page, "writer")
    page.focus("text=Next token ▶")
    for name in ("t", "h", "e"):
        page.keyboard.press("Enter")
        page.wait_for_function(
            "name => document.querySelector('.lines .pinned')?.textContent.trim() === name", arg=name
        )
        page.wait_for_function(FOCUS.format("button") + " && document.activeElement.textContent === 'Next token ▶'")
    drawn(page, "text=All heads")
    page.focus(".many input >> nth=4")
    for on in (False, True):
        before = page.get_attribute("article", "data-ready")
        page.keyboard.press("Space")
        page.wait_for_function(CHANGED, arg=before)
        assert page.evaluate(FOCUS.format(".many input"))
        assert page.locator(".many input").nth(4).is_checked() == on


def test_a_look_outlives_the_colours_and_the_lessons(page):
    ask(page, "reader")
    drawn(page, "text=Heat map")
    shot = "document.querySelector('.heat canvas').toDataURL()"
    before = page.evaluate(shot)
    page.click("#theme")
    page.wait_for_function(f"before => {shot} !== before", arg=before)
    assert page.input_value("textarea[aria-label=text]")
    page.click("header >> text=Learn")
    page.wait_for_selector(".lessons article[data-ready]")
    page.click("#theme")
    page.click("header >> text=Look")
    page.wait_for_function(f"before => document.querySelector('.heat canvas') && {shot} === before", arg=before)


def test_a_lesson_keeps_its_settings_when_the_colours_change(page):
    page.click("header >> text=Learn")
    page.wait_for_selector(".lessons article[data-ready]")
    slider = page.locator("article input[type=range]").first
    slider.focus()
    page.keyboard.press("End")
    page.click("#theme")
    assert slider.input_value() == slider.get_attribute("max")


def test_only_a_writer_is_asked_how_much_to_write(page):
    for name, writes in (("reader", False), ("writer", True), ("captioner", True)):
        page.select_option("select[aria-label=model]", name)
        assert page.locator("input[aria-label=beams]").is_visible() == writes
    assert page.locator("textarea[aria-label=text]").is_hidden()  # a captioner is given a picture


def test_what_all_heads_answer_stands_beside_what_some_do(page):
    ask(page, "translator")
    whole = page.locator(".answer bdi").first.inner_text()
    drawn(page, "text=All heads")
    changed = 0
    for place in range(4):
        number = page.get_attribute("article", "data-ready")
        page.locator(".many input[type=checkbox]").nth(place).uncheck()
        page.wait_for_function(CHANGED, arg=number)
        answers = page.locator(".answer bdi").all_inner_texts()
        assert answers == ([answers[0]] if answers[0] == whole else [answers[0], whole])
        changed += answers[0] != whole
    assert changed


def test_another_model_is_asked_the_same(page, known):
    ask(page, "reader")
    before = page.get_attribute("article", "data-ready")
    page.select_option("select[aria-label=model]", "translator")
    page.wait_for_function(CHANGED, arg=before)
    assert page.locator("select[aria-label=layer] option").count() == 6
    drawn(page, "text=Heat map")
    page.wait_for_selector(".heat canvas")


def test_an_answer_that_comes_too_late_is_not_shown(page, known, monkeypatch):
    """Who asks another model meanwhile sees the other model, and only that."""
    late_one, other, answered = known["reader"], known["translator"], threading.Event()
    quick, look = late_one.look, other.look
    monkeypatch.setattr(late_one, "look", lambda asking: (answered.wait(120), quick(asking))[1])
    monkeypatch.setattr(other, "look", lambda asking: (look(asking), answered.set())[0])
    page.select_option("select[aria-label=model]", "reader")
    page.fill("textarea[aria-label=text]", "the cat")
    page.click("button.first")
    with page.expect_response("**/api/look/reader") as late:
        page.select_option("select[aria-label=model]", "translator")
        page.click("button.first")
    assert late.value.ok
    page.wait_for_selector("article[data-ready]")
    page.wait_for_timeout(300)
    assert page.locator("select[aria-label=layer] option").count() == 6


def test_a_head_says_whether_the_answer_depends_on_it(page, known):
    """The numbers are those of the library, under the label that it gives them; another head has not been asked yet."""
    ask(page, "translator")
    page.click("text=Test faithfulness")
    page.wait_for_selector("p[aria-live] >> text=evidence")
    found = attribute_tokens(known["translator"].model, TEXT)
    wanted = measure_faithfulness(found, found.attention_maps.most_informative(), 0)
    assert page.locator("article p[aria-live]").inner_text() == str(wanted)
    page.select_option("select[aria-label=head]", index=1)
    page.wait_for_function("() => !document.querySelector('article p[aria-live]').textContent")


def test_pointing_at_a_token_tells_what_it_looks_at_most(page, known):
    ask(page, "reader")
    seen = saccade.look(known["reader"].model, "the cat sat on it").most_informative()
    for row in (1, 5):
        page.hover(f".lines .left button[data-at='{row}']")
        best = int(seen.weights[0, row].argmax())
        said = page.locator(".readout").first.inner_text()
        assert float(said.rsplit(" ", 1)[1]) == pytest.approx(float(seen.weights[0, row, best]), abs=1e-3)


def test_a_picture_is_dropped_and_the_gaze_moves_by_itself(page):
    page.select_option("select[aria-label=model]", "captioner")
    data = page.evaluate_handle(DROP, base64.b64encode(picture()).decode())
    page.dispatch_event("article", "drop", {"dataTransfer": data})
    page.wait_for_selector("article[data-ready]")
    drawn(page, "button:has-text('Image')")
    assert (
        "null" not in page.locator("article").inner_text()
    )  # a gaze at a picture has no tokens to take away, and no button
    shade = "document.querySelector('.picture canvas').toDataURL()"
    before = page.evaluate(shade)
    page.click("text=Play")
    page.wait_for_function(f"before => {shade} !== before", arg=before)


@pytest.mark.parametrize("view", ["comparison", "heads", "lesson", "runs"])
def test_any_view_is_saved_as_it_is_seen(page, view, tmp_path, browser):
    """Both sides of a comparison, a lesson with its settings, the curves: one file, and it asks for nothing."""
    if view in ("comparison", "heads"):
        ask(page, "reader")
        drawn(page, "text=All heads" if view == "heads" else "text=Heat map")
        if view == "comparison":
            page.click("text=Add a comparison")
            second = page.locator("article >> nth=1")
            second.locator("select[aria-label=model]").select_option("writer")
            second.locator("textarea[aria-label=text]").fill("zebra <b>")
            second.locator("button.first").click()
            page.wait_for_selector("article >> nth=1 >> .lines")
    else:
        page.click(f"header >> text={'Learn' if view == 'lesson' else 'Runs'}")
        page.wait_for_selector("[data-ready]")
    with page.expect_download() as coming:
        page.click("text=Save this view")
    coming.value.save_as(tmp_path / "view.html")
    other = browser.new_page()
    asked, wrong = [], []
    other.on("request", lambda request: asked.append(request.url))
    other.on("console", lambda said: wrong.append(said.text))
    other.goto((tmp_path / "view.html").as_uri())
    other.wait_for_function(SEEN)
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert wrong == []
    assert other.locator("script, canvas, a[href], iframe").count() == 0
    if view == "comparison":
        assert other.locator("article").count() == 2
        assert other.locator("article textarea >> visible=true").nth(1).input_value() == "zebra <b>"
        assert other.locator("article .heat img").count() == 2
        tokens = other.locator("article .lines .left button").all_inner_texts()
        assert "".join(tokens).startswith("zebra")
        assert other.locator("article b").count() == 0
    elif view == "heads":
        assert other.locator(".many img").count() == page.locator(".many canvas").count() > 0
    else:
        assert other.locator("svg, .heat img").count() > 0
    other.close()


def test_a_window_of_four_thousand_tokens_is_drawn_whole(browser):
    """Lines to the tokens that are looked at most, on a canvas that a browser can have; the weights as they are."""
    words = train_tokenizer([], "bytes")
    config = bert.Config(vocab=words.vocab, width=8, layers=1, heads=1, ffn_width=8, max_positions=4096, dropout=0.0)
    model = loud(new("bert", config))
    model.tokenizer = words
    text = ("where it looks " * 300)[:4000]
    with serving({"long": ModelSession(model, "long")}, RunFolder(None)) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.fill("textarea[aria-label=text]", text)
        page.fill("input[aria-label='first row']", "3900")
        page.click("button.first")
        page.wait_for_selector("article[data-ready]")
        assert page.locator(".lines .left button").count() == 64
        assert page.locator(".lines .right button").count() == 400
        page.wait_for_function(INKED)
        seen = saccade.look(model, text, queries=range(3900, 3964)).most_informative()
        page.hover(".lines .left button[data-at='2']")
        said = float(page.locator(".readout").first.inner_text().rsplit(" ", 1)[1])
        assert said == pytest.approx(float(seen.weights[0, 2].max()), abs=1e-3)
        drawn(page, "text=Heat map")
        assert page.locator(".heat canvas").first.evaluate("one => one.width") > 3 * 4000
        page.close()

"""The page in a real browser: what is drawn is what was computed, everything can be reached, and text stays text."""

import re
import statistics
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from browser.browsing import ANSWERS
from browser.served import MARKUP, loud, serving
from hostile.markup import hostile
from saccade.models.build import new
from saccade.models.families import bert
from saccade.serving.runs import RunFolder
from saccade.serving.session import ModelSession
from saccade.text.train import train_tokenizer

TEXT = "the cat sat on it"
CHANGED = "before => document.querySelector('article').dataset.ready !== before"
READY = f"before => ({CHANGED})(before) || document.querySelector('#status.wrong')"  # or refused, in words
COLOURS = """() => {
  const canvas = document.querySelector('.heat canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  return seen.size;
}"""
FRAMES = """async () => {
  const canvas = document.querySelector('.heat canvas'), box = canvas.getBoundingClientRect();
  const end = performance.now() + 1000;
  let n = 0;
  while (performance.now() < end) {
    const at = { clientX: box.left + 200 + (n * 7) % 600, clientY: box.top + 200 + (n * 3) % 400 };
    canvas.dispatchEvent(new PointerEvent('pointermove', at));
    n++;
    await new Promise(requestAnimationFrame);
  }
  return n;
}"""


def ask(page, model, text=TEXT):
    """Type and look; waits until something is drawn."""
    page.select_option("select[aria-label=model]", model)
    page.fill("textarea[aria-label=text]", text)
    page.click("text=Look >> nth=1")
    page.wait_for_selector("article[data-ready]")


def drawn(page, click):
    """Click on something and wait until the picture is another."""
    before = page.get_attribute("article", "data-ready")
    page.click(click)
    page.wait_for_function(CHANGED, arg=before)


def table(page):
    rows = page.locator(".stage tbody tr")
    return [[float(x) for x in row.locator("td").all_inner_texts()] for row in rows.all()]


@pytest.mark.parametrize("name", ["reader", "writer", "translator"])
def test_the_numbers_are_those_of_the_model(page, known, name):
    ask(page, name)
    seen = saccade.look(known[name].model, TEXT).most_informative()
    drawn(page, "text=Numbers")
    shown = torch.tensor(table(page))
    torch.testing.assert_close(shown, seen.weights[0][:40, :40], atol=1e-3, rtol=0)
    names = page.locator(".stage tbody th").all_inner_texts()
    assert [name.strip() for name in names] == [row.strip() or "␣" for row in seen.query_names[:40]]


def test_the_heat_map_has_the_colours_of_the_weights_and_reads_them_out(page, known):
    ask(page, "reader")
    drawn(page, "text=Heat map")
    weights = saccade.look(known["reader"].model, TEXT).most_informative().weights[0]
    box = page.locator(".heat canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = page.locator(".readout").first.inner_text()
    value = float(said.rsplit(" ", 1)[1])
    assert any(abs(value - float(w)) < 1e-3 for w in weights.flatten())
    page.mouse.move(1, 1)
    page.focus(".heat canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    said = page.locator(".readout").first.inner_text()
    assert float(said.rsplit(" ", 1)[1]) == pytest.approx(float(weights[1, 1]), abs=1e-3)
    assert page.evaluate(COLOURS) > 20  # as many colours as weights differ, and not one plane


def test_every_layer_and_head_can_be_reached_and_switched_off(page):
    ask(page, "translator")
    drawn(page, "text=All heads")
    page.wait_for_selector(".many canvas")
    assert page.locator(".many canvas").count() == 6 * 3  # two layers of self, two of self and two across, three heads
    before = page.locator(".answer").inner_text()
    for box in page.locator(".many input[type=checkbox]").all()[:6]:
        number = page.get_attribute("article", "data-ready")
        box.uncheck()
        page.wait_for_function(CHANGED, arg=number)
    assert "6 heads off" in page.locator(".answer").inner_text()
    assert page.locator(".answer").inner_text() != before
    drawn(page, ".many button >> nth=0")
    assert page.locator("button[aria-pressed=true]", has_text="Heat map").count() == 1


def test_tokens_are_stepped_through_and_lines_follow(page):
    ask(page, "writer")
    drawn(page, "button:has-text('Lines')") if page.locator(
        "button[aria-pressed=true]", has_text="Lines"
    ).count() == 0 else None
    said = []
    for _ in range(3):
        page.click("text=Next token ▶")
        page.wait_for_selector(".lines .pinned")
        page.wait_for_function("() => document.querySelector('.readout').textContent")
        said.append(page.locator(".lines .pinned").inner_text())
    assert [x.strip() for x in said] == ["t", "h", "e"]


def test_a_translation_shows_which_word_became_which(page, known):
    ask(page, "translator")
    drawn(page, "text=Word alignment")
    from saccade.explain.word_alignment import align_words

    wanted = align_words(saccade.look(known["translator"].model, TEXT)).to_pharaoh()
    assert page.locator(".stage code").inner_text() == wanted


def test_two_models_side_by_side(page):
    ask(page, "reader")
    page.click("text=Add a comparison")
    second = page.locator("article >> nth=1")
    second.locator("select[aria-label=model]").select_option("writer")
    second.locator("textarea[aria-label=text]").fill("another")
    second.locator("button.first").click()
    page.wait_for_selector("article >> nth=1 >> .lines")
    second.locator("text=Close").click()
    assert page.locator("article").count() == 1


def test_a_picture_is_looked_at_word_by_word(page, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    page.select_option("select[aria-label=model]", "captioner")
    page.set_input_files("input[type=file]", tmp_path / "a.png")
    page.wait_for_selector("article[data-ready]")
    drawn(page, "button:has-text('Image')")
    assert page.locator("select[aria-label=measure]").count() == 1
    shade = "document.querySelector('.picture canvas').toDataURL()"
    before = page.evaluate(shade)
    page.click("text=Next word")
    assert page.evaluate(shade) != before  # the gaze has moved


def test_a_wrong_question_is_answered_in_words(page):
    page.fill("textarea[aria-label=text]", "   ")
    page.click("text=Look >> nth=1")
    page.wait_for_selector("#status.wrong")
    assert "type a text" in page.locator("#status").inner_text()


def test_lessons_follow_their_controls(page):
    page.click("header >> text=Learn")
    page.wait_for_selector(".lessons article[data-ready]")
    links = page.locator(".lessons ol a")
    assert links.count() >= 3
    before = page.locator(".lessons article").get_attribute("data-ready")
    said = page.locator("article p[aria-live]").inner_text()
    slider = page.locator("article input[type=range]").first
    slider.focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.lessons article').dataset.ready !== before", arg=before)
    page.wait_for_function("said => document.querySelector('article p[aria-live]').textContent !== said", arg=said)


def test_a_lesson_without_its_models_has_them_trained(page, monkeypatch, tmp_path):
    """The button begins, what is said shows how far it is, and the lesson is drawn again when it has ended."""
    ended = tmp_path / "ended"
    wait = f"while not pathlib.Path({str(ended)!r}).exists(): time.sleep(0.02)"
    work = f"import pathlib, time\nprint('step 7 of 9', flush=True)\n{wait}"
    monkeypatch.setattr("saccade.serving.demo_jobs.DEMO_COMMAND", (sys.executable, "-c", work))
    page.click("header >> text=Learn")
    page.click("text=Bahdanau attention and the fixed vector compared")
    page.wait_for_selector(".offer button")
    before = page.locator(".lessons article").get_attribute("data-ready")
    page.click("button:has-text('Train the models')")
    page.wait_for_selector(".offer >> text=step 7 of 9")
    assert page.locator(".offer button").is_disabled()
    ended.touch()
    page.wait_for_function("before => document.querySelector('.lessons article').dataset.ready !== before", arg=before)
    assert page.locator(".offer button").is_enabled()  # this one has left no models, so it is offered again


def test_runs_are_compared(page):
    page.click("header >> text=Runs")
    page.wait_for_selector("[data-ready='loss 2']")
    page.uncheck("input[aria-label='show slow']")
    page.wait_for_selector("[data-ready='loss 1']")
    assert page.locator("text=report").count() == 2


def test_a_run_shows_its_answers_and_its_card(page, folder, tmp_path):
    """Two at a time, as text and nothing else; pressed again they go."""
    page.click("header >> text=Runs")
    page.click("button[aria-label='predictions of quick']")
    page.wait_for_selector("[data-open='quick']")
    page.click("button[aria-label='predictions of slow']")
    page.wait_for_selector("[data-open='quick slow']")
    cells = page.locator("[aria-label='worst predictions of slow'] td").all_inner_texts()
    assert cells == [cell for i in range(ANSWERS) for cell in ("what slow read", MARKUP, f"{i}")]
    assert page.locator(".texts th").all_inner_texts() == ["text", "answer", "gold"] * 2
    page.screenshot(path=tmp_path / "runs.png")
    page.click("button[aria-label='predictions of quick']")
    page.wait_for_selector("[data-open='slow']")
    assert page.locator("[aria-label='worst predictions of quick']").count() == 0
    with page.expect_popup() as coming:
        page.click("a[aria-label='card of quick']")
    card = coming.value
    card.wait_for_load_state()
    assert card.locator("pre").inner_text().strip() == (folder / "quick/model/README.md").read_text().strip()
    assert card.locator("img").count() == 0


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.nightly)])
def test_text_stays_text(page, count):
    """As tokens, as words, as names of models; the page fixture fails on any dialog, request or error."""
    words = [word for word in hostile() if "\ud800" not in word]
    ask(page, MARKUP, "x")
    for word in words[:: max(1, len(words) // count)]:
        page.fill("textarea[aria-label=text]", "<b>" + word)
        number = page.get_attribute("article", "data-ready")
        page.click("text=Look >> nth=1")
        page.wait_for_function(READY, arg=number)
    assert page.locator("img[src=x], .stage script, .stage b, .answer b").count() == 0
    assert page.locator("select[aria-label=model]").input_value() == MARKUP


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["look", "heads", "learn", "runs"])
def test_nobody_is_shut_out(page, view, theme):
    from axe_playwright_python.sync_playwright import Axe

    if theme == "dark":
        page.click("#theme")
    if view in ("look", "heads"):
        ask(page, "translator")
        if view == "heads":
            drawn(page, "text=All heads")
    else:
        page.click(f"header >> text={view.title()}")
        page.wait_for_selector("[data-ready]")
        if view == "runs":
            page.click("button[aria-label='predictions of slow']")
            page.wait_for_selector("[data-open]")
    found = Axe().run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
    assert serious == []


def test_a_saved_look_opens_from_disk(page, tmp_path, browser):
    ask(page, "translator")
    with page.expect_download() as coming:
        page.click("text=Save all maps")
    coming.value.save_as(tmp_path / "looks.html")
    other = browser.new_page()
    asked = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto((tmp_path / "looks.html").as_uri())
    assert other.title() == "Attention of translator"
    assert other.locator("svg").count() > 0
    assert all(url.startswith(("file:", "data:")) for url in asked)
    other.close()


@pytest.mark.nightly
def test_large_maps_are_quick(browser):
    """Twelve layers of twelve heads over 512 tokens: a first picture within a second, hovering at 30 frames a second."""
    words = train_tokenizer([], "bytes")
    config = bert.Config(
        vocab=words.vocab, width=192, layers=12, heads=12, ffn_width=256, max_positions=512, dropout=0.0
    )
    model = loud(new("bert", config))
    model.tokenizer = words
    text = re.sub(r"\s+", " ", "where it looks " * 40)[:510]
    torch.set_num_threads(2)
    with serving({"large": ModelSession(model, "large")}, RunFolder(None)) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.fill("textarea[aria-label=text]", text)
        page.click("text=Look >> nth=1")
        page.wait_for_selector("article[data-ready]")
        drawn(page, "text=Heat map")
        times = []
        for _ in range(5):
            before = page.get_attribute("article", "data-ready")
            begun = page.evaluate("performance.now()")
            page.click("text=Look >> nth=1")
            page.wait_for_function(CHANGED, arg=before)
            times.append((page.evaluate("performance.now()") - begun) / 1000)
        assert statistics.median(times) < 1.0, times
        frames = page.evaluate(FRAMES)
        assert frames >= 30, frames
        page.close()

"""Nothing that is drawn differs from what is said: after any change, when a request fails, and on every scale."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from browser.served import MARKUP, SIZES, loud, serving
from browser.test_page import CHANGED, TEXT, ask, drawn, table
from saccade.decoding import GenerationConfig
from saccade.models.build import new
from saccade.models.families import bert, kernel_regression
from saccade.serving.runs import RunFolder
from saccade.serving.session import ModelSession, model_display_name
from saccade.text.train import train_tokenizer

GROUND = "getComputedStyle(document.body).backgroundColor"
INK = """async ([weight, top]) => {
  const { lines } = await import('/page/attention_lines.js');
  const node = lines({ values: Float32Array.of(weight), rows: ['a'], columns: ['b'], range: { signed: false, top, legend: '' } });
  document.body.append(node);
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  const canvas = node.querySelector('.lines canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  node.remove();
  return data.filter((_, i) => i % 4 === 3).reduce((sum, alpha) => sum + alpha, 0);
}"""


def title(page, number=0):
    return page.locator("article").nth(number).locator(".stage .title").inner_text()


def chosen(page, label, number=0):
    return page.locator("article").nth(number).locator(f"select[aria-label={label}] option:checked").inner_text()


def picture_of(path, size=40):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize("first", ["Lines", "Heat map", "Image", "Numbers"])
def test_the_title_of_a_picture_is_what_the_controls_say(page, tmp_path, first):
    """Every layer in turn, also one whose map has no picture under it; then a model that reads text."""
    page.select_option("select[aria-label=model]", "captioner")
    page.set_input_files("input[type=file]", picture_of(tmp_path / "a.png"))
    page.wait_for_selector("article[data-ready]")
    if first != "Lines":
        drawn(page, f"button:has-text('{first}')")
    for number in range(page.locator("select[aria-label=layer] option").count()):
        before = page.get_attribute("article", "data-ready")
        page.select_option("select[aria-label=layer]", str(number))
        if chosen(page, "layer") != title(page).partition(", head")[0]:
            page.wait_for_function(CHANGED, arg=before)
        head = chosen(page, "head").partition(":")[0]
        assert title(page) == f"{chosen(page, 'layer')}, {head}"
        assert page.locator(".row button[aria-pressed=true]").count() == 1
        assert page.locator(".stage :is(canvas, table)").count() > 0
    page.select_option("select[aria-label=model]", "reader")
    page.fill("textarea[aria-label=text]", TEXT)
    before = page.get_attribute("article", "data-ready")
    page.click("button.first")
    page.wait_for_function(CHANGED, arg=before)
    assert title(page) == f"{chosen(page, 'layer')}, {chosen(page, 'head').partition(':')[0]}"
    assert page.locator(".row button[aria-pressed=true]").count() == 1


def test_a_look_that_is_not_kept_any_more_is_asked_for_again(page, known):
    """Two panels of one model: the left one shows its own look whatever the right one was asked meanwhile."""
    ask(page, "reader")
    drawn(page, "text=Numbers")
    page.click("text=Add a comparison")
    right = page.locator("article").nth(1)
    right.locator("select[aria-label=model]").select_option("reader")
    for number in range(8):
        right.locator("textarea[aria-label=text]").fill(f"other text {number}")
        before = right.get_attribute("data-ready")
        right.locator("button.first").click()
        page.wait_for_function(
            "before => ![undefined, before].includes(document.querySelectorAll('article')[1].dataset.ready)", arg=before
        )
    drawn_on = page.get_attribute("article", "data-ready")
    page.locator("article select[aria-label=layer]").first.select_option("0")
    page.wait_for_function(CHANGED, arg=drawn_on)
    assert title(page).startswith(chosen(page, "layer"))
    wanted = saccade.look(known["reader"].model, TEXT)[0].weights[0]
    shown = torch.tensor(table(page.locator("article").first))
    torch.testing.assert_close(shown, wanted[:40, :40], atol=1e-3, rtol=0)
    assert page.locator("#status.wrong").count() == 0
    with page.expect_download() as coming:
        page.locator("article").first.locator("text=Save all maps").click()
    assert "Attention of reader" in coming.value.path().read_text(encoding="utf-8")


def test_a_picture_that_cannot_be_drawn_leaves_a_reason_and_no_other_picture(page):
    ask(page, "reader")
    refuse = lambda route: route.fulfill(status=400, json={"error": "It is broken."})
    page.route("**/api/look/reader/*/0?*", refuse)
    before = page.get_attribute("article", "data-ready")
    page.select_option("select[aria-label=layer]", "0")
    page.wait_for_function(CHANGED, arg=before)
    assert page.locator(".stage").inner_text().startswith("This cannot be shown: It is broken.")
    assert page.locator(".stage :is(canvas, table, .lines)").count() == 0
    page.unroute("**/api/look/reader/*/0?*")
    page.click("text=Try again")
    page.wait_for_selector(".stage .lines")
    assert title(page) == "layer 0, self, head 0"


def test_a_question_that_fails_takes_the_answer_to_the_last_one_away(page):
    ask(page, "writer")
    page.fill("textarea[aria-label=text]", "   ")
    page.click("button.first")
    page.wait_for_selector("#status.wrong")
    assert page.locator(".answer").inner_text() == ""
    assert page.locator(".stage").is_hidden()
    assert page.locator("article select[aria-label=layer]").count() == 0


def test_a_text_that_is_cut_says_so_and_goes_on(page, known):
    ask(page, MARKUP)
    short = page.locator(".answer bdi").first.text_content()
    assert page.locator(".cut").last.inner_text().startswith("Cut off after 24 tokens, before the end of the text.")
    room = known[MARKUP].model.max_positions - len(TEXT)  # it reads bytes
    assert 24 < room < 48
    drawn(page, f"text=Continue to {room} tokens")
    longer = page.locator(".answer bdi").first.text_content()
    assert longer.startswith(short)
    assert len(longer) > len(short)
    assert longer == saccade.look(known[MARKUP].model, TEXT, decoding=GenerationConfig(max_new_tokens=room)).answer
    said = page.locator(".cut").last.inner_text()
    assert said == f"Cut off after {room} tokens, before the end of the text. The model has reached its maximum length."
    assert page.locator("text=Continue to").count() == 0


def test_a_text_that_is_too_long_to_be_read_says_what_was_left_out(page, known):
    ask(page, "reader", "so it goes on " * 60)
    unread = saccade.look(known["reader"].model, "so it goes on " * 60).truncated_input_tokens
    assert unread > 0
    assert f"Input truncated: the last {unread:,} tokens were not read" in page.locator("article").inner_text()


def test_the_family_never_stands_where_the_answer_stands(page):
    ask(page, "reader")
    assert (
        page.locator(".answer").inner_text()
        == "no prediction: the model has no output head, so it only encodes its input"
    )


def test_a_line_is_as_wide_as_its_weight_on_the_scale_that_is_said(page):
    """Not by the largest of its own map: an even head is drawn faintly, whatever it is beside."""
    whole, half, sixteenth = (page.evaluate(INK, [weight, 1.0]) for weight in (1.0, 0.5, 1 / 16))
    assert half / whole == pytest.approx(0.5, rel=0.15)
    assert sixteenth / whole == pytest.approx(1 / 16, rel=0.3)
    assert page.evaluate(INK, [1 / 16, 1 / 16]) == pytest.approx(whole, rel=0.01)
    assert page.evaluate(INK, [0.005, 1.0]) == 0


def test_the_scale_ends_at_one_unless_another_is_chosen(page, known):
    ask(page, "reader")
    largest = float(saccade.look(known["reader"].model, TEXT).most_informative().weights[0].max())
    for view in ("Lines", "Heat map"):
        if view != "Lines":
            drawn(page, f"text={view}")
        assert "attention weight, from 0 to 1" in page.locator(".stage .key").inner_text()
        drawn_before = page.get_attribute("article", "data-ready")
        page.select_option("select[aria-label=scale]", "own")
        page.wait_for_function(CHANGED, arg=drawn_before)
        said = page.locator(".stage .key").inner_text()
        assert "the largest value shown" in said
        assert float(said.partition("ends at ")[2].partition(",")[0]) == pytest.approx(largest, rel=5e-3)
        before = page.get_attribute("article", "data-ready")
        page.select_option("select[aria-label=scale]", "fixed")
        page.wait_for_function(CHANGED, arg=before)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_zero_has_the_color_of_the_page(page, known, theme):
    if theme == "dark":
        page.click("#theme")
    ask(page, "reader")
    shown = "async range => { const { rgb } = await import('/page/color.js'); return rgb(0, range); }"
    ground = [int(part) for part in page.evaluate(GROUND).removeprefix("rgb(").removesuffix(")").split(",")]
    assert page.evaluate(shown, {"signed": False, "top": 1}) == ground
    assert page.evaluate(shown, {"signed": True, "top": 1}) == ground
    weights = saccade.look(known["reader"].model, TEXT).most_informative().weights[0]
    row, column = divmod(int(weights.argmin()), weights.size(1))
    assert float(weights[row, column]) < 0.004  # of 64 steps of color less than half a step
    page.hover(f".lines .left button[data-at='{row}']")
    token = page.locator(f".lines .right button[data-at='{column}']")
    assert token.evaluate("one => getComputedStyle(one).backgroundColor") == page.evaluate(GROUND)


@pytest.fixture(scope="module")
def framed():
    """A reader whose tokenizer puts special tokens around a text, and a model that reads numbers."""
    words = train_tokenizer([TEXT] * 3, "bpe", 280, token_template="bos_eos")
    model = loud(new("bert", bert.Config(**SIZES, vocab=words.vocab, max_positions=64)))
    model.tokenizer = words
    numbers = ModelSession(new("kernel_regression", kernel_regression.Config()), "curve")
    with serving({"framed": ModelSession(model, "framed"), "curve": numbers}, RunFolder(None)) as address:
        yield address, model


@pytest.fixture
def framed_page(browser, framed):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(framed[0])
    page.fill("textarea[aria-label=text]", TEXT)
    page.click("button.first")
    page.wait_for_selector("article[data-ready]")
    yield page
    page.close()


def test_how_much_special_tokens_pass_on_is_said_and_they_can_be_hidden(framed_page, framed):
    seen = saccade.look(framed[1], TEXT).most_informative()
    special = [i for i, one in enumerate(seen.key.special_tokens_mask) if one]
    assert len(special) == 2
    weight = float(seen.weights[0][:, special].sum() / seen.weights[0].sum())
    passed = seen.weight_by_value_norm().weights[0]
    share = float(passed[:, special].sum() / passed.sum())
    note = f"have {round(100 * weight)}% of this head's attention weight and {round(100 * share)}% of its weight × value norm"
    framed_page.wait_for_selector(f".stage .notes >> text={note}")
    drawn(framed_page, "text=Numbers")
    drawn(framed_page, "text=hide special tokens")
    kept = [i for i in range(len(seen.key)) if i not in special]
    shown = torch.tensor(table(framed_page))
    torch.testing.assert_close(shown, seen.weights[0][kept][:, kept], atol=1e-3, rtol=0)
    framed_page.wait_for_selector(f".stage .notes >> text=/^Hidden: .*{note}/")


def test_weight_times_value_norm_is_that_of_the_library(framed_page, framed):
    drawn(framed_page, "text=Numbers")
    before = framed_page.get_attribute("article", "data-ready")
    framed_page.select_option("select[aria-label=measure]", "value_norm")
    framed_page.wait_for_function(CHANGED, arg=before)
    seen = saccade.look(framed[1], TEXT).most_informative()
    shown = torch.tensor(table(framed_page))
    torch.testing.assert_close(shown, seen.weight_by_value_norm().weights[0], atol=1e-2, rtol=1e-2)
    assert title(framed_page).endswith("weight × value norm")
    drawn(framed_page, "text=Heat map")
    assert "the largest of this layer" in framed_page.locator(".stage .key").inner_text()
    drawn(framed_page, "text=All heads")
    assert framed_page.locator("select[aria-label=scale] option").first.inner_text() == "to the largest of each layer"
    assert framed_page.locator("select[aria-label=layer]").count() == 0  # all of them are there


def test_a_model_that_reads_numbers_is_not_offered(framed_page, browser):
    assert framed_page.locator("select[aria-label=model]").count() == 0  # there is one model to choose
    assert "curve is not available here: its input is numeric" in framed_page.locator("section").inner_text()
    with serving(
        {"curve": ModelSession(new("kernel_regression", kernel_regression.Config()), "curve")}, RunFolder(None)
    ) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("text=curve is not available here")
        assert page.locator("textarea").count() == 0
        page.close()


def test_the_gaze_on_a_picture_is_drawn_by_the_formula_of_the_library(page, known, tmp_path):
    """Every pixel is that of the picture times the light of its cell, and some light added; as explain/overlay.py has it."""
    page.select_option("select[aria-label=model]", "captioner")
    path = picture_of(tmp_path / "a.png", 32)
    page.set_input_files("input[type=file]", path)
    page.wait_for_selector("article[data-ready]")
    drawn(page, "button:has-text('Image')")
    looks = saccade.look(known["captioner"].model, path)
    seen = looks.most_informative()
    rows, columns = seen.key.grid
    weights = seen.weights[0].half().float().numpy()
    light = (weights[0] / weights.max()).reshape(rows, columns)
    high, wide = looks.image.shape[:2]
    cells = light[np.arange(high)[:, None] * rows // high, np.arange(wide)[None] * columns // wide]
    mask = 0.15 + 0.85 * cells[..., None]
    wanted = (looks.image * mask + 60 * (mask - 0.15)).clip(0, 255)
    raw = page.locator(".picture canvas").evaluate("one => one.toDataURL().split(',')[1]")
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(raw))).convert("RGB"), dtype=float)
    assert np.abs(shown - wanted).max() <= 1.5
    top = float(page.locator(".stage p.soft").inner_text().partition("brightest for ")[2].partition(",")[0])
    assert top == pytest.approx(float(weights.max()), rel=5e-3)


def test_held_out_scores_are_drawn_and_the_last_step_is_the_last(browser, tmp_path):
    """860 steps are 860, however the curve is thinned; and a single evaluation can be seen."""
    run = tmp_path / "first"
    run.mkdir()
    lines = [{"step": i, "loss": 1 / i} for i in range(1, 861)]
    lines.insert(400, {"step": 400, "dev": {"exact_match": 0.5, "bleu": 40.0}})
    lines.append({"step": 860, "dev": {"exact_match": 0.75, "bleu": 60.0}})
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "once").mkdir()
    once = [{"step": 1, "loss": 2.0}, {"step": 7, "dev": {"accuracy": 0.9}}, {"step": 7, "loss": float("nan")}]
    (tmp_path / "once" / "metrics.jsonl").write_text("\n".join(map(json.dumps, once)), encoding="utf-8")
    with serving({}, RunFolder(tmp_path)) as address:
        page = browser.new_page()
        page.goto(f"{address}/#runs")
        page.wait_for_selector("[data-ready='loss 2']")
        cells = {
            row.locator("th").inner_text(): row.locator("td").all_inner_texts()
            for row in page.locator("tbody tr").all()
        }
        assert cells["first"][1:5] == [
            "dev exact_match 0.750", "exact_match 0.75 at step 860", "0.0012", "stopped at step 860"
        ]  # fmt: skip
        assert cells["once"][1:5] == ["dev accuracy 0.900", "accuracy 0.9 at step 7", "not finite", "stopped at step 7"]
        assert page.locator("figure").count() == 2  # the loss, and beside it the scores of the newest run
        names = page.locator("select[aria-label=metric] option").all_inner_texts()
        assert names[0] == "loss"
        assert set(names[1:]) == {"held-out accuracy", "held-out exact_match", "held-out bleu"}
        page.select_option("select[aria-label=metric]", "dev exact_match")
        page.wait_for_selector("[data-ready='dev exact_match 1']")
        assert page.locator("figure circle").count() == 2
        page.select_option("select[aria-label=metric]", "dev accuracy")
        page.wait_for_selector("[data-ready='dev accuracy 1']")
        assert page.locator("figure circle").count() == 1
        page.close()


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([0.1, 0.3, 1.0], ["0.1", "0.2", "0.5", "1"]),
        ([0.01, 10.0], ["0.01", "0.1", "1", "10"]),
        ([0.05, 3.0], ["0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ([1.0, 1e12], ["1", "100", "1e+4", "1e+6", "1e+8", "1e+10", "1e+12"]),
    ],
)
def test_a_logarithmic_axis_has_all_its_marks(page, points, wanted):
    draw = """async points => {
      const { curves } = await import('/page/chart.js');
      const node = curves({ title: 't', lines: { a: points.map((x, i) => [x, i]) }, log_x: true });
      return [...node.querySelectorAll('text[text-anchor=middle]')].map(one => one.textContent);
    }"""
    assert [float(one) for one in page.evaluate(draw, points)] == [float(one) for one in wanted]


@pytest.mark.parametrize(("low", "high"), [(-1, 0), (-0.3, 0.7), (0, 1e-7), (12, 900), (-5, -1)])
def test_a_linear_axis_has_zero_and_no_crumbs(page, low, high):
    draw = """async ([low, high]) => {
      const { curves } = await import('/page/chart.js');
      const node = curves({ title: 't', lines: { a: [[low, 0], [high, 1]] } });
      return [...node.querySelectorAll('text[text-anchor=middle]')].map(one => Number(one.textContent));
    }"""
    marks = page.evaluate(draw, [low, high])
    assert len(marks) >= 3
    assert (0 in marks) == (low <= 0 <= high)
    steps = np.diff(marks)
    assert np.allclose(steps, steps[0], rtol=1e-3)


def test_a_model_is_called_by_the_directory_around_it(tmp_path, monkeypatch):
    """Exports lie in runs/NAME/model, and a page of five models called `model` would help nobody."""
    assert model_display_name(tmp_path / "dates" / "model") == "dates"
    assert model_display_name(tmp_path / "dates") == "dates"
    (tmp_path / "here" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "model")
    assert model_display_name(".") == "here"

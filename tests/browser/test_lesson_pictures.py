"""What a lesson draws in a real browser: bars and maps on the scale that the lesson sets, and the formula of what was chosen."""

BARS = "nodes => nodes.map(node => Number(node.getAttribute('width')))"
PIXEL = """at => {
  const canvas = document.querySelector('figure > canvas');
  return [canvas.width, ...canvas.getContext('2d').getImageData(...at, 1, 1).data];
}"""
DARKEST = """() => [...document.querySelectorAll('.heat')].map(heat => {
  const canvas = heat.querySelector('canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]},${data[i + 3]}`);
  return [...seen];
})"""


def lesson(page, name):
    page.click("header >> text=Learn")
    page.wait_for_selector("article[data-ready]")
    page.evaluate("name => { location.hash = `#learn/${name}`; }", name)
    page.wait_for_selector(f".lessons a[href='#learn/{name}'][aria-current=true]")
    page.wait_for_selector("article[data-ready]")


def choose(page, label, value):
    before = page.get_attribute("article", "data-ready")
    page.select_option(f"select[aria-label='{label}']", value)
    page.wait_for_function("before => document.querySelector('article').dataset.ready !== before", arg=before)


def test_nothing_that_did_not_move_has_a_bar(page):
    lesson(page, "permutation")
    assert "does not see the word order" in page.inner_text("article p[aria-live]")
    assert page.eval_on_selector_all("figure rect", BARS) == [0] * 9
    choose(page, "Position scheme", "sinusoidal")
    widths = page.eval_on_selector_all("figure rect", BARS)
    values = [float(text) for text in page.locator("figure td:last-child").all_inner_texts()]
    assert len(widths) == len(values) == 9
    for width, value in zip(widths, values, strict=True):
        assert abs(width - 160 * value) < 0.2 or width == 1  # the length of an output is the full width


def test_a_slider_ends_at_the_last_word(page):
    lesson(page, "future")
    slider = page.locator("article input[type=range]")
    assert slider.get_attribute("max") == "8"
    before = page.get_attribute("article", "data-ready")
    page.fill("article input[type=text]", "one two three")
    page.wait_for_function("before => document.querySelector('article').dataset.ready !== before", arg=before)
    page.wait_for_function("document.querySelector('article input[type=range]').max === '3'")
    assert (slider.input_value(), page.inner_text("article output >> nth=1")) == ("3", "3")


def test_maps_that_are_compared_share_a_scale(page):
    """The mean of four heads never gives all to one word, so nothing in its map has the colour of a whole."""
    lesson(page, "heads")
    assert [text.split() for text in page.locator(".key").all_inner_texts()] == [["0", "1"]] * 5
    *heads, mean = page.evaluate(DARKEST)
    whole = set.intersection(*map(set, heads[:3]))
    assert len([colour for colour in whole if colour not in mean]) >= 1


def test_the_formula_is_that_of_the_cell(page):
    lesson(page, "gates")
    assert "forget" in page.inner_text(".formula")
    choose(page, "Recurrent cell", "random GRU")
    assert "reset" in page.inner_text(".formula")
    assert "forget" not in page.inner_text(".formula")


def test_colours_are_seen_in_colour(page):
    lesson(page, "squeeze")
    assert page.evaluate(PIXEL, [9, 16]) == [32, 214, 39, 40, 255]
    assert page.evaluate(PIXEL, [23, 16]) == [32, 31, 70, 200, 255]

"""The page at the end of a run: what it says is what came in, text stays text, and nothing is asked of another host."""

import math
import os
import random
import re
from html.parser import HTMLParser

import pytest
import torch

from hostile.markup import hostile
from saccade.training.report import dev_metric_points, metric_points, smooth_points, write_report

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Read(HTMLParser):
    """The page as elements and text; it fails where tags do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def rows(count):
    noise = random.Random(3)
    for step in range(1, count + 1):
        yield {"step": step, "loss": 3 / step + noise.random(), "lr": 1e-3 / step, "tokens_per_second": 900 + step}
        if step % 10 == 0:
            yield {"step": step, "dev": {"accuracy": 1 - 1 / step, "loss": 2 / step}}


def full():
    return {
        "title": "A run",
        "facts": [("model", "bert"), ("seed", "17")],
        "metrics": list(rows(120)),
        "scores": ["accuracy 0.90 (0.88 to 0.92)"],
        "confusion": (["ham", "spam", "eggs"], [[5, 1, 0], [2, 11, 3], [0, 0, 7]]),
        "examples": [{"text": "win a prize", "gold": "spam", "answer": "ham", "how sure": "0.97"}],
        "maps": [("layer 0", torch.rand(3, 5).softmax(-1), list("abc"), list("vwxyz"))],
    }


def write(path, **parts):
    write_report(path, **(full() | parts))
    return path.read_text(encoding="utf-8")


def test_a_whole_page(tmp_path):
    text = write(tmp_path / "new" / "report.html")
    page = Read(text)
    assert text.startswith("<!DOCTYPE html>")
    heads = ["Run", "Scores", "Training curves", "Classes", "Worst examples", "Attention maps"]
    assert [head for head in heads if head in page.text] == heads
    names = [tag for tag, _ in page.tags]
    assert not {"script", "iframe", "object", "form", "base"} & set(names)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert set(re.findall(r"https?://[^\"'\s<]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text
    assert "@import" not in text
    assert {a[k] for _, a in page.tags for k in ("src", "href") if k in a} == {"data:,"}


def test_empty_sections_are_left_out(tmp_path):
    empty = {"facts": [], "metrics": [], "scores": [], "confusion": None, "examples": [], "maps": []}
    page = Read(write(tmp_path / "report.html", **empty))
    assert "h2" not in [tag for tag, _ in page.tags]


def test_the_same_input_gives_the_same_bytes(tmp_path):
    parts = full()
    for name in "ab":
        write_report(tmp_path / name, **parts)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    before = write(path)

    def full_disk(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        write(path, title="Another")
    assert path.read_text(encoding="utf-8") == before
    assert os.listdir(tmp_path) == ["report.html"]


def test_text_stays_text(tmp_path):
    words = hostile()
    assert len(set(words)) == 200
    harmless = [f"w{i}" for i in range(200)]

    def parts(w):
        few = w[:12]
        return {
            "title": w[0],
            "facts": list(zip(w[:100], w[100:], strict=True)),
            "scores": w,
            "metrics": [{"step": s, "dev": {w[3]: 1.0, w[16]: 2.0}} for s in (1, 2)],
            "confusion": (few, [[1] * 12] * 12),
            "examples": [{w[5]: x, w[9]: x} for x in w[:40]],
            "maps": [(w[i], torch.ones(10, 12), w[i : i + 10], w[-12:]) for i in range(0, 80, 10)],
        }

    bad, good = Read(write(tmp_path / "bad", **parts(words))), Read(write(tmp_path / "good", **parts(harmless)))
    assert [tag for tag, _ in bad.tags] == [tag for tag, _ in good.tags]
    assert [set(a) for _, a in bad.tags] == [set(a) for _, a in good.tags]
    assert words[0] in bad.text  # and it can still be read


def test_many_classes_show_those_with_most_mistakes(tmp_path):
    count = 300
    counts = [[9 if i == j else 0 for j in range(count)] for i in range(count)]
    counts[123][251] = 4
    page = write(tmp_path / "report.html", confusion=([f"c{i}" for i in range(count)], counts), maps=[])
    assert "c123, predicted c251: 4" in page
    assert "40 of 300 classes" in page
    assert len(page) < 1_000_000


def test_a_long_run_makes_a_small_page(tmp_path):
    page = write(tmp_path / "report.html", metrics=list(rows(20_000)))
    assert len(page) < 1_000_000
    lines = re.findall(r'<polyline class="\w+" points="([^"]*)"', page)
    assert len(lines) == 2 + 2 + 1 + 2  # loss and throughput with their smoothed lines, two dev scores, rate
    assert all(len(line.split()) <= 500 for line in lines)


def test_metrics_as_series():
    metrics = [
        {"step": 2, "loss": 5},
        {"step": 1, "loss": 4.0},
        {"step": 2, "loss": 3.0},
        {"step": 3},
        {"step": 4, "loss": None},
    ]
    assert metric_points(metrics, "loss") == [(1.0, 4.0), (2.0, 3.0)]
    assert dev_metric_points([{"step": 5, "dev": 0.5}, {"step": 6, "dev": {"f1": 0.25, "interval": [0, 1]}}]) == {
        "score": [(5.0, 0.5)],
        "f1": [(6.0, 0.25)],
    }


def test_smoothing_is_the_mean_of_as_many_on_either_side():
    points = [(float(i), float(y)) for i, y in enumerate([3, 1, 4, 1, 5, 9, 2, 6])]
    assert [step for step, _ in smooth_points(points, width=5)] == [step for step, _ in points]
    for n, (_, value) in enumerate(smooth_points(points, width=5)):
        far = min(2, n, 7 - n)
        inside = [y for _, y in points[n - far : n + far + 1]]
        assert value == pytest.approx(sum(inside) / len(inside))
    assert smooth_points([(0.0, math.nan), (1.0, 2.0)], width=3) == [(1.0, 2.0)]


def test_a_smoothed_curve_lies_on_a_falling_one():
    """A mean of the past lies above a loss that falls; the curve that is drawn does not, from the first step on."""
    falling = [(float(i), 10.0 - 0.01 * i) for i in range(1, 501)]
    assert smooth_points(falling, width=20) == [(x, pytest.approx(y)) for x, y in falling]


def ticks(page, title):
    """The numbers at the axes of one curve of a page: across, and up."""
    (picture,) = (one for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if f"<title>{title}</title>" in one)
    read = lambda kind: [float(x.replace(",", "")) for x in re.findall(rf'class="{kind}"[^>]*>([-\d.,e]+)<', picture)]
    return read("mid"), read("end")


@pytest.mark.parametrize(("score", "up"), [(0.8, (0, 1)), (0.0, (0, 1)), (1.0, (0, 1)), (36.5, (0, 80))])
def test_one_dev_score_is_drawn_on_the_range_it_can_have(tmp_path, score, up):
    metrics = [{"step": n, "loss": 2.0 - n / 300, "lr": 1e-3} for n in range(1, 251)]
    metrics.append({"step": 250, "dev": {"accuracy": score}})
    page = write(tmp_path / "report.html", metrics=metrics)
    across, heights = ticks(page, "Dev: accuracy")
    assert (across[0], across[-1]) == (0, 250)
    assert (heights[0], heights[-1]) == up
    assert ticks(page, "Training loss")[0] == across, "curves of one run have the same steps"
    assert min(ticks(page, "Learning rate")[1]) == 0


def test_a_long_text_is_cut_and_says_how_long_it_was(tmp_path):
    examples = [{"text": "word " * 5000, "how sure": "0.5"}] * 70
    page = write(tmp_path / "report.html", examples=examples, maps=full()["maps"] * 9)
    assert "(25,000 characters)" in page
    assert "Shows 50 of 70 examples" in page
    assert "Shows 8 of 9 attention maps" in page
    assert '<td class="number" data-label="how sure">' in page


def test_each_class_has_its_line(tmp_path):
    text = Read(write(tmp_path / "report.html")).text
    at = text.index("spam (1)")  # what ham was taken for
    found = [word for word in text[:at] if word.strip()][-6:]
    assert found == ["ham", "6", "7", f"{5 / 7:.3f}", f"{5 / 6:.3f}", f"{2 * 5 / 13:.3f}"]

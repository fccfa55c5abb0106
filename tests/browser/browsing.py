"""A browser for the tests of the page: Debian's chromium, driven by Playwright; where there is none, the tests say so."""

import shutil
from urllib.parse import urlparse

import pytest

from browser.served import MARKUP, rooms, serving
from saccade.serving.runs import RunFolder
from saccade.training.report import write_report

ANSWERS = 3  # wrong ones of a run, in its report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "the page is tested in a browser, and there is none here: install the package `chromium` of your system"


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for name, loss in (("slow", 4.0), ("quick", 2.0)):
        (home / name).mkdir()
        lines = "".join(f'{{"step": {i}, "loss": {loss / (i + 1)}}}\n' for i in range(30))
        (home / name / "metrics.jsonl").write_text(lines, encoding="utf-8")
        (home / name / "model").mkdir()
        (home / name / "model" / "README.md").write_text(f"# {name}\n\nKnows nothing. {MARKUP}\n", encoding="utf-8")
        answers = [{"text": f"what {name} read", "answer": MARKUP, "gold": f"{i}"} for i in range(ANSWERS)]
        facts, scores = [("task", "label")], ["dev: accuracy 0.5"]
        write_report(home / name / "report.html", title=name, facts=facts, metrics=[], scores=scores, examples=answers)
    return home


@pytest.fixture(scope="session")
def known():
    return rooms()


@pytest.fixture(scope="session")
def address(known, folder):
    with serving(known, RunFolder(folder)) as found:
        yield found


@pytest.fixture
def page(browser, address):
    """A page that fails the test when it asks another host, throws, or complains."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.set_default_timeout(120_000)  # milliseconds: a busy machine is slow, and what hangs hangs longer
    found = context.new_page()
    wrong: list[str] = []
    found.on("request", lambda r: wrong.append(r.url) if not _own(r.url, address) else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on(
        "console", lambda said: wrong.append(said.text) if said.type == "error" and not _refused(said.text) else None
    )
    found.on("dialog", lambda box: (wrong.append(f"a dialog: {box.message}"), box.dismiss()))
    found.goto(address)
    yield found
    context.close()
    assert wrong == []


def _refused(said: str) -> bool:
    """What a browser notes of an answer that is an error in words, or that a look is not kept any more."""
    return "status of 400" in said or "status of 410" in said


def _own(url: str, address: str) -> bool:
    return url.startswith(("data:", "blob:", "file:")) or urlparse(url).netloc == urlparse(address).netloc

"""Every command and every example on the pages of docs/ runs as it stands; trainings are cut to two steps."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from saccade.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SLOW = ("--processes", "torchrun", "saccade serve")  # these start processes or wait; other tests have them


def commands(page: Path) -> list[list[str]]:
    """The saccade commands of its console blocks, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words and words[0] == "saccade" and not any(word in line for word in SLOW):
                found.append(words[1:])
    return found


LONG = ("exporting", "auditing", "language", "plugins")  # pages whose commands take a quarter of a minute each


def marked(page):
    return pytest.param(page, marks=pytest.mark.nightly if page.stem in LONG else ())


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, tmp_path, monkeypatch, capsys, unregistered):
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r"```(?:json|python) (\S+)\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        Path(name).write_text(text, encoding="utf-8")  # a file that the page shows
    for words in commands(page):
        short = ["--train.max-steps", "2"] if words[0] == "train" and "--dry-run" not in words else []
        code = main([*words, *short])
        assert code == 0, (words, capsys.readouterr())


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")], ids=lambda p: p.stem
)
def test_the_examples_of_a_page_are_true(page, tmp_path, monkeypatch, unregistered):
    monkeypatch.chdir(tmp_path)
    done = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert not done.failed

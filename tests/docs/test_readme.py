"""Every block of README.md runs, in the order in which it stands; trainings are cut to two steps."""

import re
import shlex
from pathlib import Path

from saccade.cli import main

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(block):
    """The saccade commands of a console block; the lines without a prompt are output."""
    lines = [line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True))[0] == "saccade"]


def test_every_block_runs(tmp_path, monkeypatch, capsys, unregistered):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, file, text in BLOCK.findall(README.read_text(encoding="utf-8")):
        if file:
            Path(file).write_text(text, encoding="utf-8")
        elif language == "python":
            text = text.replace("minutes=5", 'train={"max_steps": 2}')
            exec(compile(text, str(README), "exec"), names)
        elif language == "console":
            for words in commands(text):
                short = ["--train.max-steps", "2"] if words[0] == "train" else []
                assert main([*words, *short]) == 0, (words, capsys.readouterr())
    assert names["run"].scores  # type: ignore[attr-defined]


def test_it_is_short():
    assert len(README.read_bytes()) < 8_192


def test_the_figures_are_those_of_the_records():
    """Each headline figure stands in the table of its own page."""
    figures = re.findall(r"\*\*([\d.,]+)(?: ?x| %)?\*\*", README.read_text(encoding="utf-8"))
    pages = [(README.parent / "docs" / page).read_text(encoding="utf-8") for page in ("benchmarks.md", "results.md")]
    assert len(figures) >= 5
    for figure in figures:
        assert any(figure in page for page in pages), figure

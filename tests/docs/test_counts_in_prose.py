"""Counts in prose are those of the code: a table that grows without its sentence fails here, with the file and the line."""

import json
import re
from pathlib import Path

import pytest

from saccade.attention import KERNELS, MECHANISMS
from saccade.cli.commands.demo import DEFAULT_MINUTES
from saccade.data.samples.dates import LANGUAGES
from saccade.data.samples.number_words import spell_english
from saccade.lessons.registry import LESSONS
from saccade.lessons.tour import CHAPTERS
from saccade.models.registry import FAMILIES
from saccade.parts.position import POSITIONS
from saccade.studies.listops.study import MODEL_SPECS
from saccade.tasks.registry import TASKS
from saccade.text.language_id import load_languages

ROOT = Path(__file__).parents[2]
NUMBERS = {spell_english(number): number for number in range(2, 100)}
CAPTIONERS = [family.name for family in FAMILIES if family.name.startswith("captioner_")]
TOLD_APART = {code.split("_")[0] for code in LANGUAGES}  # two kinds of English are one language
COUNTS = {
    "lessons": len(LESSONS),
    "mechanisms": len(MECHANISMS),
    "position schemes": len(POSITIONS) - 1,  # one line of the table is none
    "captioners": len(CAPTIONERS),
    "kernels": len(KERNELS),
    "languages": len(TOLD_APART),
    "short experiments": len(CHAPTERS),
    "families": len(FAMILIES),
    "tasks": len(TASKS),
}
SOME = {  # where a few of them are meant: how the sentence goes, and how many those are
    "Two lessons show trained models": len(DEFAULT_MINUTES),
    "Time and memory of seven mechanisms alone": len(
        {case["mechanism"] for case in json.loads((ROOT / "docs/results/attention/report.json").read_text())["cases"]}
    ),
    "Multiply-adds of five mechanisms": 5,  # the lines of the lesson on cost
    "Two captioners that differ in one thing": 2,
    "so that the two languages can be compared": 2,
    "source and target are in two languages": 2,
    "five languages": 5,  # what `saccade doctor` spells
    "Experiments on three tasks support this": 3,  # of a paper that is quoted
}
FILES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "GLOSSARY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.toml")),
]
COUNTED = re.compile(
    rf"(?<![:\w])(\d+|{'|'.join(NUMBERS)}) (?:(?:short|live) )?({'|'.join(COUNTS)})\b(?!/)", re.IGNORECASE
)


def read(path):
    """The text of a file with one space between words, whatever its lines are."""
    return re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))


def claims():
    """Every count of something that the code has a table of: file, sentence around it, number, and what is counted."""
    for path in FILES:
        text = read(path)
        for found in COUNTED.finditer(text):
            word, noun = found.group(1).lower(), found.group(2).lower()
            around = text[max(0, found.start() - 60) : found.end() + 40]
            whole = f"short {noun}" if "short" in found.group(0) and f"short {noun}" in COUNTS else noun
            yield path.relative_to(ROOT), around, int(NUMBERS.get(word, word)), whole


@pytest.mark.parametrize(("path", "around", "number", "noun"), [*claims()])
def test_a_count_in_prose_is_that_of_the_code(path, around, number, noun):
    some = [count for sentence, count in SOME.items() if sentence in around]
    wanted = some[0] if some else COUNTS[noun]
    assert number == wanted, f"{path}: “…{around}…” says {number} {noun}; there are {wanted}"


def test_the_counts_that_readers_rely_on_are_found():
    found = {(str(path), noun) for path, _, _, noun in claims()}
    assert {
        ("CHANGELOG.md", "lessons"),
        ("CHANGELOG.md", "mechanisms"),
        ("CHANGELOG.md", "position schemes"),
        ("docs/concepts.md", "kernels"),
        ("docs/published-models.md", "captioners"),
    } <= found


def test_no_exception_outlives_its_sentence():
    every = [around for _, around, _, _ in claims()]
    assert all(any(sentence in around for around in every) for sentence in SOME)


def test_counts_of_other_things():
    readme = read(ROOT / "README.md")
    glossary = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
    words = len(re.findall(r"^\| (?!term \|)[a-z]", glossary, re.MULTILINE))
    assert f"{words} words" in readme.split("GLOSSARY.md](GLOSSARY.md) explains ")[1]
    table = (ROOT / "docs/published-models.md").read_text(encoding="utf-8").split("## Supported families")[1]
    lines = [line for line in table.splitlines() if line.endswith("| within 1e-9 | within 1e-8 |")]
    published = re.findall(r"\w+", re.sub(r"\([^)]*\)", "", " ".join(line.split("|")[1] for line in lines)))
    assert f"{len(published)} published families equal" in readme
    assert f"`listops` ({spell_english(len(MODEL_SPECS))} readers" in read(ROOT / "CHANGELOG.md")
    assert f"one text in {len(load_languages())} languages" in read(ROOT / "docs/auditing.md")


def test_every_task_is_linked_and_every_family_is_listed():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\[`(\w+)`\]\(docs/tasks/", readme)
    assert sorted(linked) == sorted(task if isinstance(task, str) else task.name for task in TASKS)
    families = (ROOT / "docs/published-models.md").read_text(encoding="utf-8").split("## Supported families")[1]
    for family in FAMILIES:
        called = (
            family.name.split("_")[0] if family.name.startswith(("rnn", "transformer", "captioner")) else family.name
        )
        assert called in families, f"{family.name} is missing among the families of docs/published-models.md"

"""What a file is good for, when nobody says: the first task whose roles its first records fill sensibly."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.item import ROLES, Example, Role, several
from saccade.data.read import idx
from saccade.data.read.folder import METADATA
from saccade.data.read.formats import find_format
from saccade.data.read.header import is_number
from saccade.data.read.picture import SUFFIXES, is_picture
from saccade.data.read.reading import stream
from saccade.data.read.record import Ask, Record, plain_name
from saccade.data.read.source import open_source
from saccade.data.split import splits
from saccade.errors import DataError

TASKS: dict[str, tuple[tuple[Role, ...], ...]] = {  # in the order of guessing; a second choice is for pictures
    "span": ((ROLES["context"], ROLES["question"], ROLES["answers"]),),
    "tag": ((ROLES["words"], ROLES["tags"]),),
    "label": ((ROLES["text"], ROLES["label"]), (ROLES["image"], ROLES["label"])),
    "pair": ((ROLES["first"], ROLES["second"], ROLES["judged"]),),
    "summarise": ((ROLES["article"], ROLES["summary"]),),
    "translate": ((ROLES["source"], ROLES["target"]),),
    "caption": ((ROLES["image"], ROLES["caption"]),),
    "regress": ((ROLES["x"], ROLES["y"]),),
    "language": ((ROLES["line"],),),
    "pretrain": ((ROLES["line"],),),
    "paint": ((ROLES["caption"], ROLES["image"]),),
}
SAMPLE = 2_000  # records
FEW = 20  # records looked at for pictures
TAG = re.compile(r"[BIESLUM]-.+|[A-Z][A-Z0-9_+=|.-]*\$?|\d{1,2}|[^\w\s]+")  # a span, a part of speech, its number
ROLLS = {"image", "file_name", "filename", "img", "picture"}  # columns that hold pictures, whatever stands in them


def roles_for(task: str, paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> tuple[Role, ...]:
    """The roles of a task that the material can fill: words or pictures."""
    choices = TASKS[task]
    if len(choices) == 1:
        return choices[0]
    return choices[1] if pictured(paths, columns) else choices[0]


def pictured(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> bool:
    """Whether data show pictures, not texts: idx files, folders of pictures, or a table with a column of them.

    Where a table has both, `columns` decides, and without it the text; but metadata.csv, as its name says, tells of pictures.
    """
    named = columns or {}
    if "image" in named or "text" in named:
        return "image" in named
    first = next(iter(splits(paths, TASKS["label"][1]).values()))[0]
    if first.is_dir():
        return any(file.suffix.lower() in SUFFIXES for depth in ("*", "*/*") for file in first.glob(depth))
    source = open_source(first)
    if idx.looks(source):
        return True
    ask = Ask((ROLES["image"], ROLES["text"], ROLES["label"]))
    form = find_format(source, ask)
    if not form.columns:
        return False
    rows = [row.fields for row in islice(form.records(source, ask), FEW) if isinstance(row, Record)]
    names = {plain_name(name) for row in rows for name in row}
    if names & set(ROLES["text"].known) and first.name not in METADATA:
        return False
    values = [[row[name] for row in rows if row.get(name)] for name in (rows[0] if rows else ())]
    return bool(names & ROLLS) or any(column and all(map(is_picture, column)) for column in values)


def guess(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> tuple[str, tuple[Role, ...]]:
    """The task and its roles; running text is what everything else can be read as."""
    for task in TASKS:
        roles = roles_for(task, paths, columns)
        fits = set(columns or {}) <= {role.name for role in roles}
        shown = task == "label" and roles[0].kind == "image"  # pictures can be read as nothing else, not even bad ones
        if fits and (_sensible(task, _first(paths, roles, columns)) or (shown and _fills(paths, roles, columns))):
            return task, roles
    for task in TASKS if columns else ():  # bad throughout, but the caller's names say what it should be
        roles = roles_for(task, paths, columns)
        if set(columns or {}) <= {role.name for role in roles} and _fills(paths, roles, columns):
            return task, roles
    return "language", TASKS["language"][0]


def _fills(paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None) -> bool:
    """There is a column for every role, whatever stands in it."""
    bad: list[DataError] = []
    try:
        files = next(iter(splits(paths, roles, columns).values()))
        return any(True for _ in stream(files, roles, columns=columns, on_bad="skip", max_bad=1.0, bad=bad))
    except DataError:
        return bool(bad)


def _first(paths: Sequence[str | Path], roles: Sequence[Role], columns: Mapping[str, str] | None) -> list[Example]:
    """The first good records, or none if the roles cannot be filled by most of them."""
    bad: list[DataError] = []
    try:
        files = next(iter(splits(paths, roles, columns).values()))
        found = list(islice(stream(files, roles, columns=columns, on_bad="skip", max_bad=1.0, bad=bad), SAMPLE))
    except DataError:
        return []
    return found if len(found) > len(bad) else []


def _sensible(task: str, found: list[Example]) -> bool:
    """Almost anything can be read as almost anything: labels repeat and are short, texts are no numbers."""
    if not found:
        return False
    if task == "label":
        labels = {example["label"] for example in found}
        few = len(labels) <= len(found) / 4 if len(found) >= 20 else not any(" " in label for label in labels)
        return few and _brief(found) and not _numbers(found, "text")
    if task == "pair":
        few = len({example["label"] for example in found}) <= max(3, len(found) / 4)
        return few and not _numbers(found, "first") and not _numbers(found, "second")
    if task == "summarise":  # a long text and a short one
        read, told = (sum(len(several(e[name])[0].split()) for e in found) for name in ("source", "target"))
        return read >= 30 * len(found) and read >= 3 * told
    if task == "translate":
        return not _numbers(found, "source")
    if task == "tag":
        tags = [tag for example in found for tag in example["tags"]]
        many = (
            len(tags) > len(found) > 1 or len(found) == 1 < len(tags) < 40
        )  # a table of words is one endless sentence
        words = {word for example in found for word in example["words"]}
        return many and len(set(tags)) <= max(3, len(tags) / 4) and _are_tags(set(tags), words)
    return True


def _brief(found: list[Example]) -> bool:
    """Labels of a word or two, or texts twice as long: two sentences side by side, however often they repeat, are no label."""
    said = sum(len(example["label"].split()) for example in found)
    read = sum(len(example["text"].split()) for example in found if "text" in example)
    return said <= 2 * len(found) or 2 * said <= read


def _are_tags(tags: set[str], words: set[str]) -> bool:
    """Spans, capitals or small numbers throughout; or far fewer than the words, of which a sentence beside them has as many.

    >>> _are_tags({"O", "B-PER"}, {"Ann"}), _are_tags({"NOUN", "DET", "PRP$", "."}, {"a", "cat", "."})
    (True, True)
    >>> _are_tags({"le", "chat", "dort", "."}, {"the", "cat", "sleeps", "."})
    False
    """
    return all(map(TAG.fullmatch, tags)) or 4 * len(tags) <= len(words)


def _numbers(found: list[Example], name: str) -> bool:
    return all(name in example and is_number(example[name]) for example in found)

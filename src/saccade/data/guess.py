"""What a file is good for, when nobody says: the first task whose roles its first records fill sensibly."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from saccade.data.item import ROLES, DataError, Example, Role
from saccade.data.read import idx
from saccade.data.read.header import is_number
from saccade.data.read.picture import SUFFIXES
from saccade.data.read.reading import stream
from saccade.data.read.source import open_source
from saccade.data.split import splits

TASKS: dict[str, tuple[tuple[Role, ...], ...]] = {  # in the order of guessing; a second choice is for pictures
    "answer": ((ROLES["context"], ROLES["question"], ROLES["answers"]),),
    "tag": ((ROLES["words"], ROLES["tags"]),),
    "label": ((ROLES["text"], ROLES["label"]), (ROLES["image"], ROLES["label"])),
    "translate": ((ROLES["source"], ROLES["target"]),),
    "regress": ((ROLES["x"], ROLES["y"]),),
    "language": ((ROLES["line"],),),
}
SAMPLE = 2_000  # records


def roles_for(task: str, paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> tuple[Role, ...]:
    """The roles of a task that the material can fill: words or pictures."""
    choices = TASKS[task]
    if len(choices) == 1:
        return choices[0]
    first = next(iter(splits(paths, choices[1]).values()))[0]
    if first.is_dir():
        pictures = any(file.suffix.lower() in SUFFIXES for file in first.glob("*/*"))
        return choices[1] if pictures else choices[0]
    if idx.looks(open_source(first)) or "image" in (columns or {}):
        return choices[1]
    return next((roles for roles in choices if _fills(paths, roles, columns)), choices[0])


def guess(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> tuple[str, tuple[Role, ...]]:
    """The task and its roles; running text is what everything else can be read as."""
    for task in TASKS:
        roles = roles_for(task, paths, columns)
        fits = set(columns or {}) <= {role.name for role in roles}
        if fits and _sensible(task, _first(paths, roles, columns)):
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
        return few and not _numbers(found, "text")
    if task == "translate":
        return not _numbers(found, "source")
    if task == "tag":
        tags = [tag for example in found for tag in example["tags"]]
        many = (
            len(tags) > len(found) > 1 or len(found) == 1 < len(tags) < 40
        )  # a table of words is one endless sentence
        return many and len(set(tags)) <= max(3, len(tags) / 4)
    return True


def _numbers(found: list[Example], name: str) -> bool:
    return all(name in example and is_number(example[name]) for example in found)

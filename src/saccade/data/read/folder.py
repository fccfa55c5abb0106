"""A folder for each class, of texts or of pictures, whose name is the label; or pictures with a table of what they show."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.read.picture import SUFFIXES
from saccade.data.read.record import Ask, Record
from saccade.data.read.source import lines, open_text
from saccade.errors import DataError

TEXTS = (".txt", ".text")
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")  # as Hugging Face's ImageFolder has it
LARGEST = 1 << 24  # characters in the text of one file


def metadata_of(path: Path) -> Path | None:
    """The table in a folder that says what its pictures show, if there is one."""
    return next((path / name for name in METADATA if (path / name).is_file()), None)


def only_pictures(path: Path) -> bool:
    """A folder of nothing but pictures, such as one that a table beside it names."""
    there = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    return bool(there) and all(entry.suffix.lower() in SUFFIXES for entry in there)


def class_folders(path: Path) -> list[Path]:
    """The folders in a folder that hold texts or pictures."""
    found = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    return [entry for entry in found if any(_members(entry, (*TEXTS, *SUFFIXES)))]


def _members(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for entry in sorted(path.iterdir()):
        if entry.suffix.lower() in suffixes and entry.is_file() and not entry.name.startswith("."):
            yield entry


def folder(path: Path, ask: Ask) -> Iterator[tuple[Path, Record | DataError]]:
    """A record for each file, with the file that it came from."""
    image = ask.of("image")
    content = (image or ask.of("text", "line") or ask.roles[:1])[0]
    labels = ask.of("label", "labels")
    wrong = [role.name for role in ask.roles if role is not content and role not in labels]
    if wrong or content in labels:
        cure = f"a folder has one text or picture for each record; give a table for {', '.join(wrong) or content.name}"
        raise DataError("a folder for each class gives a text or a picture, and a label", file=path, cure=cure)
    classes = class_folders(path)
    if labels:
        listed = ", ".join(entry.name for entry in classes[:6])
        ask.said.append(f"{path.name}: a folder for each of {len(classes)} classes ({listed}).")
    for home in classes if labels else [path, *classes]:
        if not home.resolve().is_relative_to(path.resolve()):
            cure = "put the folder itself there, not a link to it"
            raise DataError("the folder of a class leads out of the directory", file=home, value=home.name, cure=cure)
        for file in _members(home, SUFFIXES if image else TEXTS):
            try:
                value = str(file.name) if image else _content(file)
            except DataError as error:
                yield file, error
                continue
            yield file, Record(1, {content.name: value, **{role.name: home.name for role in labels}})


def _content(file: Path) -> str:
    parts, size = [], 0
    for _, text in lines(open_text(file)):
        if isinstance(text, DataError):
            raise text
        parts.append(text)
        size += len(text)
        if size > LARGEST:
            cure = "cut it into several files"
            raise DataError(
                f"a text of more than {LARGEST:,} characters", file=file, line=len(parts), value=text[:40], cure=cure
            )
    return "".join(parts)

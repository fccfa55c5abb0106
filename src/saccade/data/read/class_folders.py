"""Folders of texts, images or recordings, one folder per class whose name is the label; or files with a metadata table."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.media_files import MEDIA, SUFFIXES
from saccade.data.read.open_text import open_text, read_lines
from saccade.errors import DataError

TEXT_SUFFIXES = (".txt", ".text")
METADATA_FILES = (
    "metadata.jsonl",
    "metadata.csv",
    "metadata.parquet",
)  # as in Hugging Face's ImageFolder and AudioFolder
MAX_FILE_CHARACTERS = 1 << 24


def find_metadata(path: Path) -> Path | None:
    """The metadata table of a folder of images or recordings, if there is one."""
    return next((path / name for name in METADATA_FILES if (path / name).is_file()), None)


def has_only_media(path: Path) -> bool:
    """Whether a folder contains only images and recordings, such as those that a table beside it names."""
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    return bool(entries) and all(entry.suffix.lower() in SUFFIXES for entry in entries)


def list_class_folders(path: Path) -> list[Path]:
    """The subfolders that contain text files, images or recordings."""
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    return [entry for entry in folders if any(_list_files(entry, (*TEXT_SUFFIXES, *SUFFIXES)))]


def _list_files(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for entry in sorted(path.iterdir()):
        if entry.suffix.lower() in suffixes and entry.is_file() and not entry.name.startswith("."):
            yield entry


def read_class_folders(path: Path, request: ReadRequest) -> Iterator[tuple[Path, Record | DataError]]:
    """A record for each file, and the path of the file."""
    media = request.find_roles(*MEDIA)
    content = (media or request.find_roles("text", "line") or request.roles[:1])[0]
    labels = request.find_roles("label", "labels")
    wrong = [role.name for role in request.roles if role is not content and role not in labels]
    if wrong or content in labels:
        hint = f"give a table with a column for {', '.join(wrong) or content.name}"
        raise DataError(
            "folders of classes have one text or one file per record and its label, nothing else", file=path, hint=hint
        )
    classes = list_class_folders(path)
    if labels:
        listed = ", ".join(entry.name for entry in classes[:6])
        request.notes.append(f"{path.name}: a folder for each of {len(classes)} classes ({listed}).")
    for class_folder in classes if labels else [path, *classes]:
        if not class_folder.resolve().is_relative_to(path.resolve()):
            hint = "move the folder itself there instead of a link to it"
            problem = "the folder of a class is a link that leads out of the directory"
            raise DataError(problem, file=class_folder, value=class_folder.name, hint=hint)
        for file in _list_files(class_folder, MEDIA[content.kind].suffixes if media else TEXT_SUFFIXES):
            try:
                value = str(file.name) if media else _read_content(file)
            except DataError as error:
                yield file, error
                continue
            yield file, Record(1, {content.name: value, **{role.name: class_folder.name for role in labels}})


def _read_content(file: Path) -> str:
    parts, size = [], 0
    for _, text in read_lines(open_text(file)):
        if isinstance(text, DataError):
            raise text
        parts.append(text)
        size += len(text)
        if size > MAX_FILE_CHARACTERS:
            hint = "split it into several files"
            raise DataError(
                f"a text of more than {MAX_FILE_CHARACTERS:,} characters",
                file=file,
                line=len(parts),
                value=text[:40],
                hint=hint,
            )
    return "".join(parts)

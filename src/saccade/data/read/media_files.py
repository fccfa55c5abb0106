"""Files of images and recordings that a table names: their paths stay inside its folder, and the files are valid."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from saccade.audio import load_audio as audio_files
from saccade.data.example import Example, Role
from saccade.errors import DataError
from saccade.vision import load_image as image_files

CLIP_FOLDER = "clips"  # where Common Voice keeps the recordings that its tables name


@dataclass(frozen=True)
class MediaKind:
    """A kind of files that records name, and of the role whose values they are."""

    noun: str  # with its article, for messages
    nouns: str
    suffixes: tuple[str, ...]
    column_names: frozenset[str]  # column names that always mean such files
    check: Callable[[Path | bytes], tuple[str, ...]]  # notes for the user; an invalid file is a DataError


def _check_image(image: Path | bytes) -> tuple[str, ...]:
    """Decode an image, scaled down as far as possible."""
    return image_files.load_image(image, target_side=1).notes


def _check_recording(recording: Path | bytes) -> tuple[str, ...]:
    return audio_files.load_audio(recording, sample_rate=None).notes


MEDIA = {  # by the kind of the role
    "image": MediaKind(
        "an image",
        "images",
        image_files.SUFFIXES,
        frozenset({"image", "file_name", "filename", "img", "picture"}),
        _check_image,
    ),
    "audio": MediaKind(
        "a recording",
        "recordings",
        audio_files.SUFFIXES,
        frozenset({"audio", "audio_filepath", "audio_file", "audio_path", "recording", "wav"}),
        _check_recording,
    ),
}
SUFFIXES = tuple(suffix for kind in MEDIA.values() for suffix in kind.suffixes)


class ErrorLocation(Protocol):
    """The location of the value that names the image, for error messages."""

    def error(self, problem: str, value: object, hint: str) -> DataError: ...


def resolve_inside(folder: Path, name: str, kind: MediaKind, location: ErrorLocation) -> Path:
    """The path of a file, relative or absolute, that has to be inside the folder after symbolic links are resolved."""
    path = folder / name
    noun = kind.noun.split()[-1]
    hint = f"put the {noun} into the folder of this file, and write its path relative to the folder"
    try:
        if not path.is_file() and (folder / CLIP_FOLDER / name).is_file():
            path = folder / CLIP_FOLDER / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise location.error(f"the path of the {noun} leads out of the folder", name, hint)
        if not path.is_file():
            raise location.error(f"there is no such {noun}", name, _suggest_hint(folder, name, kind))
    except (OSError, ValueError, RuntimeError) as error:  # a path that is too long, has a NUL, or is a link to itself
        if isinstance(error, DataError):
            raise
        raise location.error(f"the path of the {noun} cannot be resolved", name, hint) from None
    return path


def _suggest_hint(folder: Path, name: str, kind: MediaKind) -> str:
    if "://" in name:
        return f"download the {kind.nouns} first, and write their paths relative to this file"
    if "\\" in name:
        return "separate folders by / instead of \\"
    return f"put it into {folder}, or correct its name"


def check_file(file: Path | bytes, kind: MediaKind, location: ErrorLocation, value: object) -> tuple[str, ...]:
    """Check that an image or a recording is valid; returns notes for the user."""
    try:
        return kind.check(file)
    except DataError as error:
        raise location.error(error.problem, value, error.hint) from None


def list_media_paths(examples: Iterable[Example], roles: Iterable[Role]) -> list[Path]:
    """The files that the examples name, sorted and without duplicates; they belong to the data's digest."""
    names = [role.name for role in roles if role.kind in MEDIA]
    values = (example[name] for example in (examples if names else ()) for name in names)
    return [Path(name) for name in sorted({value for value in values if isinstance(value, str)})]


def find_media_kind(value: Any) -> str | None:
    """The kind of the file that a value names, such as "image"; None for any other value.

    Besides the name of a file it may be its bytes, with or without a name, as Hugging Face datasets stores them.

    >>> find_media_kind("cats/1.JPG"), find_media_kind({"bytes": None, "path": "1.flac"}), find_media_kind("A fine film.")
    ('image', 'audio', None)
    """
    if isinstance(value, Mapping):
        named = find_media_kind(value.get("path"))
        return named or (find_media_kind(value["bytes"]) if isinstance(value.get("bytes"), bytes) else None)
    if isinstance(value, bytes):
        return "audio" if audio_files.detect_format(value[:12]) else "image"
    name = value.strip().lower() if isinstance(value, str) else ""
    return next((kind for kind, media in MEDIA.items() if name.endswith(media.suffixes)), None)

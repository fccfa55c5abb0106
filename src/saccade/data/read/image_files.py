"""Pictures named in a table or lying in a folder: inside it, whole, and of a size that can be held."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from saccade.data.example import Example, Role
from saccade.errors import DataError
from saccade.vision.load_image import SUFFIXES, ImageError, load_image


class ErrorLocation(Protocol):
    """Where the picture is named, so that an error can say so."""

    def error(self, problem: str, value: object, hint: str) -> DataError: ...


def resolve_inside(folder: Path, name: str, location: ErrorLocation) -> Path:
    """The path of a picture that stays in the folder, links followed; an absolute one may lead there too."""
    path = folder / name
    hint = "write a path that stays in the folder of this file, and put the picture there"
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise location.error("the path of the picture leads out of the folder", name, hint)
        if not path.is_file():
            raise location.error("there is no such picture", name, _suggest_hint(folder, name))
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a link to itself
        if isinstance(error, DataError):
            raise
        raise location.error("the path of the picture cannot be followed", name, hint) from None
    return path


def _suggest_hint(folder: Path, name: str) -> str:
    if "://" in name:
        return "fetch the pictures first, and write their paths, as seen from this file"
    if "\\" in name:
        return "write / for \\ between folders"
    return f"put it into {folder}, or correct its name"


def check_image(image: Path | bytes, location: ErrorLocation, value: object) -> tuple[str, ...]:
    """Unpack a picture, as small as it can be, to know that it is whole; gives what its owner should know."""
    try:
        return load_image(image, target_side=1).notes
    except ImageError as bad:
        raise location.error(bad.problem, value, bad.hint) from None


def list_image_paths(examples: Iterable[Example], roles: Iterable[Role]) -> list[Path]:
    """The files of all pictures that examples name, in order, each once: they are part of the data."""
    names = [role.name for role in roles if role.kind == "image"]
    values = (example[name] for example in (examples if names else ()) for name in names)
    return [Path(name) for name in sorted({value for value in values if isinstance(value, str)})]


def is_image(value: Any) -> bool:
    """A value that can only be a picture: the name of a picture file, bytes, or both as `datasets` writes them.

    >>> is_image("cats/1.JPG"), is_image({"bytes": None, "path": "1.png"}), is_image("A fine film.")
    (True, True, False)
    """
    if isinstance(value, Mapping):
        return isinstance(value.get("bytes"), bytes) or is_image(value.get("path"))
    return isinstance(value, bytes) or (isinstance(value, str) and value.strip().lower().endswith(SUFFIXES))


__all__ = ["SUFFIXES", "check_image", "is_image", "list_image_paths", "resolve_inside"]

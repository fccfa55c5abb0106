"""Image files that a table names: their paths have to stay inside its folder, and the files have to be valid images."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from saccade.data.example import Example, Role
from saccade.errors import DataError
from saccade.vision.load_image import SUFFIXES, ImageError, load_image


class ErrorLocation(Protocol):
    """The location of the value that names the image, for error messages."""

    def error(self, problem: str, value: object, hint: str) -> DataError: ...


def resolve_inside(folder: Path, name: str, location: ErrorLocation) -> Path:
    """The path of an image, relative or absolute, that has to be inside the folder after symbolic links are resolved."""
    path = folder / name
    hint = "put the image into the folder of this file, and write its path relative to the folder"
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise location.error("the path of the image leads out of the folder", name, hint)
        if not path.is_file():
            raise location.error("there is no such image", name, _suggest_hint(folder, name))
    except (OSError, ValueError, RuntimeError) as error:  # a path that is too long, has a NUL, or is a link to itself
        if isinstance(error, DataError):
            raise
        raise location.error("the path of the image cannot be resolved", name, hint) from None
    return path


def _suggest_hint(folder: Path, name: str) -> str:
    if "://" in name:
        return "download the images first, and write their paths relative to this file"
    if "\\" in name:
        return "separate folders by / instead of \\"
    return f"put it into {folder}, or correct its name"


def check_image(image: Path | bytes, location: ErrorLocation, value: object) -> tuple[str, ...]:
    """Decode an image, scaled down as far as possible, to check that it is valid; returns notes for the user."""
    try:
        return load_image(image, target_side=1).notes
    except ImageError as error:
        raise location.error(error.problem, value, error.hint) from None


def list_image_paths(examples: Iterable[Example], roles: Iterable[Role]) -> list[Path]:
    """The files of all images that the examples name, sorted and without duplicates; they belong to the data's digest."""
    names = [role.name for role in roles if role.kind == "image"]
    values = (example[name] for example in (examples if names else ()) for name in names)
    return [Path(name) for name in sorted({value for value in values if isinstance(value, str)})]


def is_image(value: Any) -> bool:
    """Whether a value is an image: the name of an image file, bytes, or both, as Hugging Face datasets stores them.

    >>> is_image("cats/1.JPG"), is_image({"bytes": None, "path": "1.png"}), is_image("A fine film.")
    (True, True, False)
    """
    if isinstance(value, Mapping):
        return isinstance(value.get("bytes"), bytes) or is_image(value.get("path"))
    return isinstance(value, bytes) or (isinstance(value, str) and value.strip().lower().endswith(SUFFIXES))


__all__ = ["SUFFIXES", "check_image", "is_image", "list_image_paths", "resolve_inside"]

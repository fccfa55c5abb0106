"""Parse raw values by the kind of their role; every error says where the value is and how to correct it."""

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from saccade.data.read.media_files import MEDIA, check_file, resolve_inside
from saccade.data.read.squad import parse_answers
from saccade.errors import DataError

MAX_WORD_CHARACTERS = 1_000


class Location(NamedTuple):
    """The location of a value, for errors and notes."""

    file: Path
    line: int
    column: str
    notes: list[str] | None = None

    def add_note(self, note: str, value: object) -> None:
        """Add a note for the user, unless it was added before."""
        if self.notes is not None and not any(note in line for line in self.notes):
            self.notes.append(f"{self.file.name}: {note} (the first is {value}).")

    def error(self, problem: str, value: object, hint: str) -> DataError:
        return DataError(problem, file=self.file, line=self.line, column=self.column, value=value, hint=hint)


def is_missing(value: Any, kind: str) -> bool:
    """Whether a value is an empty cell, null or NaN or, for a number, a question mark.

    >>> is_missing(" ", "label"), is_missing("?", "number"), is_missing("?", "label"), is_missing(0, "label")
    (True, True, False, False)
    """
    if isinstance(value, str):
        return value.strip().lower() in (("", "nan", "?") if kind == "number" else ("", "nan"))
    return value is None or (isinstance(value, float) and math.isnan(value))


def parse_text(value: Any, location: Location) -> str:
    if type(value) is str:
        text = value.rstrip("\r\n")
        if text and not text.isspace():
            return text
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise location.error("the text is missing", value, "fill it in or remove the record")
    if isinstance(value, list | Mapping | bool | np.ndarray):
        raise location.error(f"expected a text, got {_describe_type(value)}", value, "write a string in quotes")
    if not str(value).strip():
        raise location.error("the text is empty", value, "fill it in or remove the record")
    return str(value)


def parse_texts(value: Any, location: Location) -> str | list[str]:
    """A text, or a list of several with the same meaning, such as the captions of an image."""
    if isinstance(value, list | tuple | np.ndarray) and len(value):
        return [parse_text(part, location) for part in value]
    return parse_text(value, location)


def join_sentences(value: Any, location: Location) -> str:
    """A text, or a list of its sentences, which are joined; empty sentences are left out."""
    if not isinstance(value, list | tuple | np.ndarray) or not len(value):
        return parse_text(value, location)
    location.add_note("lists of sentences are joined by spaces", f"one of {len(value)}")
    filled = [part for part in value if not (isinstance(part, str) and not part.strip())]
    return " ".join(parse_text(part, location) for part in filled or value)


def parse_references(value: Any, location: Location) -> str | list[str]:
    """A text, or a list of several references, any of which is correct."""
    texts = parse_texts(value, location)
    if isinstance(texts, str) or len(texts) == 1:
        return texts if isinstance(texts, str) else texts[0]
    location.add_note(
        "of several references the first is used in training, and all of them in scores", f"one of {len(texts)}"
    )
    return texts


def parse_line(value: Any, location: Location) -> str:
    """A line of running text, which may be empty."""
    if not isinstance(value, str):
        value = parse_text(value, location)
    return value if value.endswith("\n") else value + "\n"


def parse_label(value: Any, location: Location) -> str:
    hint = "write a label or remove the record"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise location.error("the label is missing", value, hint)
    if isinstance(value, list | Mapping | np.ndarray):
        raise location.error(
            f"expected one label, got {_describe_type(value)}",
            value,
            "write one label, or use the role labels for several",
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    label = str(value).strip()
    if not label or label.lower() == "nan":
        raise location.error("the label is missing", value, hint)
    return label


def parse_labels(value: Any, location: Location) -> list[str]:
    """Zero or more labels: a list, or a string separated by | ; or , (the first of these that occurs)."""
    if value is None:
        return []
    if isinstance(value, str):
        separator = next((separator for separator in "|;," if separator in value), ",")
        value = [part for part in value.split(separator) if part.strip()]
    if not isinstance(value, list | tuple | np.ndarray):
        value = [value]
    return list(dict.fromkeys(parse_label(part, location) for part in value))


def parse_number(value: Any, location: Location) -> float:
    if isinstance(value, bool | list | Mapping) or value is None:
        raise location.error(f"expected a number, got {_describe_type(value)}", value, "write one number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        hint = "write it with a point and without a unit"
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value):
            hint = "write the decimal comma as a point"
        elif not str(value).strip():
            hint = "fill it in or remove the record"
        raise location.error("a number is needed", value, hint) from None
    if not math.isfinite(number):
        raise location.error("a finite number is needed", value, "fill it in or remove the record")
    return number


def parse_words(value: Any, location: Location) -> list[str]:
    words = _parse_strings(value, location, "words")
    for number, word in enumerate(words, 1):
        if len(word) > MAX_WORD_CHARACTERS:
            raise make_word_error(word, location, f"word {number}")
    return words


def make_word_error(word: str, location: Location, name: str = "the word") -> DataError:
    """The error of a word that is too long to be one, such as a paragraph without spaces or an image in base64."""
    problem = f"{name} has {len(word):,} characters; a word may have at most {MAX_WORD_CHARACTERS:,}"
    return location.error(problem, word, "write spaces between words, shorten it, or remove it")


def parse_tags(value: Any, location: Location) -> list[str]:
    return _parse_strings(value, location, "tags")


def _parse_strings(value: Any, location: Location, name: str) -> list[str]:
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple | np.ndarray):
        raise location.error(
            f"expected a list of {name}, got {_describe_type(value)}",
            value,
            f"write a list of {name}, one for each word",
        )
    if not len(value):
        raise location.error(f"the list of {name} is empty", value, "fill it in or remove the record")
    strings = [str(part) for part in value if isinstance(part, str | int | np.integer) and not isinstance(part, bool)]
    if len(strings) != len(value) or not all(part.strip() for part in strings):
        wrong = next((x for x in value if not isinstance(x, str | int | np.integer) or not str(x).strip()), value)
        raise location.error(
            f"one of the {name} is empty or not a string", wrong, f"write each of the {name} as a string"
        )
    return strings


def parse_media(kind: str, value: Any, location: Location) -> str | bytes | np.ndarray:
    """The path of a valid image or recording, relative to the file that names it, or its bytes; an array is returned as it is."""
    if isinstance(value, np.ndarray):
        return value
    media, name = MEDIA[kind], value
    if isinstance(value, Mapping):  # as Hugging Face datasets stores it
        name = value.get("path")
        value = value.get("bytes") or name
    if isinstance(value, bytes):
        file, name = value, name if isinstance(name, str) else f"{len(value):,} bytes"
    elif isinstance(value, str) and value.strip():
        file = resolve_inside(location.file.parent, value.strip(), media, location)
    else:
        raise location.error(f"the path of {media.noun} is needed", value, "write the path relative to this file")
    for note in check_file(file, media, location, name):
        location.add_note(note, name)
    return file if isinstance(file, bytes) else str(file)


def _describe_type(value: object) -> str:
    names = {bool: "true or false", list: "a list", dict: "an object", type(None): "null", str: "a text"}
    return names.get(type(value), type(value).__name__)


LIST_PARSERS: dict[str, Callable[[Any, Location], Any]] = {  # by the list_policy of a role
    "join": join_sentences,
    "references": parse_references,
}
PARSERS: dict[str, Callable[[Any, Location], Any]] = {
    "text": parse_text,
    "texts": parse_texts,
    "line": parse_line,
    "label": parse_label,
    "labels": parse_labels,
    "number": parse_number,
    "words": parse_words,
    "tags": parse_tags,
    **{kind: partial(parse_media, kind) for kind in MEDIA},
    "answers": parse_answers,
}

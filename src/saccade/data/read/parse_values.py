"""Raw values turned into what a role's kind promises; each refusal says what to do."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from saccade.data.read.image_files import check_image, resolve_inside
from saccade.data.read.squad import parse_answers
from saccade.errors import DataError

MAX_WORD_CHARACTERS = 1_000  # characters of one word in a list of words


class Location(NamedTuple):
    """Where a value stands, so that an error can say so."""

    file: Path
    line: int
    column: str
    notes: list[str] | None = None  # what there is to say of the values, beside errors

    def add_note(self, note: str, value: object) -> None:
        """Once for each thing to say."""
        if self.notes is not None and not any(note in line for line in self.notes):
            self.notes.append(f"{self.file.name}: {note} (the first is {value}).")

    def error(self, problem: str, value: object, hint: str) -> DataError:
        return DataError(problem, file=self.file, line=self.line, column=self.column, value=value, hint=hint)


def is_missing(value: Any, kind: str) -> bool:
    """An empty cell, null or NaN; where a number should stand, a question mark too.

    >>> is_missing(" ", "label"), is_missing("?", "number"), is_missing("?", "label"), is_missing(0, "label")
    (True, True, False, False)
    """
    if isinstance(value, str):
        return value.strip().lower() in (("", "nan", "?") if kind == "number" else ("", "nan"))
    return value is None or (isinstance(value, float) and math.isnan(value))


def parse_text(value: Any, location: Location) -> str:
    if type(value) is str:
        found = value.rstrip("\r\n")
        if found and not found.isspace():
            return found
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise location.error("the text is missing", value, "fill it in or remove the record")
    if isinstance(value, list | Mapping | bool | np.ndarray):
        raise location.error(f"text is needed, not {_describe_type(value)}", value, "write a string in quotes")
    if not str(value).strip():
        raise location.error("the text is empty", value, "fill it in or remove the record")
    return str(value)


def parse_texts(value: Any, location: Location) -> str | list[str]:
    """One text, or a list of several that say the same, such as the captions of a picture."""
    if isinstance(value, list | tuple | np.ndarray) and len(value):
        return [parse_text(part, location) for part in value]
    return parse_text(value, location)


def join_sentences(value: Any, location: Location) -> str:
    """One text, or the sentences of one, of which some may be empty."""
    if not isinstance(value, list | tuple | np.ndarray) or not len(value):
        return parse_text(value, location)
    location.add_note("lists of sentences are joined, with a space between them", f"one of {len(value)}")
    filled = [part for part in value if not (isinstance(part, str) and not part.strip())]
    return " ".join(parse_text(part, location) for part in filled or value)


def parse_references(value: Any, location: Location) -> str | list[str]:
    """One text, or several of which any is right."""
    found = parse_texts(value, location)
    if isinstance(found, str) or len(found) == 1:
        return found if isinstance(found, str) else found[0]
    location.add_note("of several right texts the first is learnt, and all count in the score", f"one of {len(found)}")
    return found


def parse_line(value: Any, location: Location) -> str:
    """Running text: an empty line is a line."""
    if not isinstance(value, str):
        value = parse_text(value, location)
    return value if value.endswith("\n") else value + "\n"


def parse_label(value: Any, location: Location) -> str:
    hint = "write a label or remove the record"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise location.error("the label is missing", value, hint)
    if isinstance(value, list | Mapping | np.ndarray):
        raise location.error(
            f"one label is needed, not {_describe_type(value)}", value, "name one, or use the role labels for several"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    found = str(value).strip()
    if not found or found.lower() == "nan":
        raise location.error("the label is missing", value, hint)
    return found


def parse_labels(value: Any, location: Location) -> list[str]:
    """Several labels, or none: a list, or a string with | ; or , between them (the first of these that occurs)."""
    if value is None:
        return []
    if isinstance(value, str):
        mark = next((mark for mark in "|;," if mark in value), ",")
        value = [part for part in value.split(mark) if part.strip()]
    if not isinstance(value, list | tuple | np.ndarray):
        value = [value]
    return list(dict.fromkeys(parse_label(part, location) for part in value))


def parse_number(value: Any, location: Location) -> float:
    if isinstance(value, bool | list | Mapping) or value is None:
        raise location.error(f"a number is needed, not {_describe_type(value)}", value, "write one number")
    try:
        found = float(value)
    except (ValueError, OverflowError):
        hint = "write it with a point and without a unit"
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value):
            hint = "write a point for the decimal comma"
        elif not str(value).strip():
            hint = "fill it in or remove the record"
        raise location.error("a number is needed", value, hint) from None
    if not math.isfinite(found):
        raise location.error("a finite number is needed", value, "fill it in or remove the record")
    return found


def parse_words(value: Any, location: Location) -> list[str]:
    found = _parse_strings(value, location, "words")
    for number, word in enumerate(found, 1):
        if len(word) > MAX_WORD_CHARACTERS:
            raise make_word_error(word, location, f"word {number}")
    return found


def make_word_error(word: str, location: Location, name: str = "the word") -> DataError:
    """What is said of a word that is none: a paragraph without spaces, a picture in base64, letters without end."""
    what = f"{name} has {len(word):,} characters; at most {MAX_WORD_CHARACTERS:,} are read as one word"
    return location.error(what, word, "write spaces between words, shorten it, or remove it")


def parse_tags(value: Any, location: Location) -> list[str]:
    return _parse_strings(value, location, "tags")


def _parse_strings(value: Any, location: Location, name: str) -> list[str]:
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple | np.ndarray):
        raise location.error(
            f"a list of {name} is needed, not {_describe_type(value)}",
            value,
            f"write a list of {name}, one for each word",
        )
    if not len(value):
        raise location.error(f"the list of {name} is empty", value, "fill it in or remove the record")
    found = [str(part) for part in value if isinstance(part, str | int | np.integer) and not isinstance(part, bool)]
    if len(found) != len(value) or not all(part.strip() for part in found):
        wrong = next((x for x in value if not isinstance(x, str | int | np.integer) or not str(x).strip()), value)
        raise location.error(f"one of the {name} is empty or no string", wrong, f"write each of the {name} as a string")
    return found


def parse_image(value: Any, location: Location) -> str | bytes | np.ndarray:
    """The path of a picture beside the file that names it, or its bytes, which are whole; or pixels as they are."""
    if isinstance(value, np.ndarray):
        return value
    name = value
    if isinstance(value, Mapping):  # as datasets writes it
        name = value.get("path")
        value = value.get("bytes") or name
    if isinstance(value, bytes):
        found, name = value, name if isinstance(name, str) else f"{len(value):,} bytes"
    elif isinstance(value, str) and value.strip():
        found = resolve_inside(location.file.parent, value.strip(), location)
    else:
        raise location.error(
            "the path of a picture is needed", value, "write the picture's path, as seen from this file"
        )
    for note in check_image(found, location, name):
        location.add_note(note, name)
    return found if isinstance(found, bytes) else str(found)


def _describe_type(value: object) -> str:
    names = {bool: "true or false", list: "a list", dict: "an object", type(None): "nothing", str: "text"}
    return names.get(type(value), type(value).__name__)


LIST_PARSERS: dict[str, Callable[[Any, Location], Any]] = {
    "join": join_sentences,
    "references": parse_references,
}  # of a role that takes lists of texts
PARSERS: dict[str, Callable[[Any, Location], Any]] = {
    "text": parse_text,
    "texts": parse_texts,
    "line": parse_line,
    "label": parse_label,
    "labels": parse_labels,
    "number": parse_number,
    "words": parse_words,
    "tags": parse_tags,
    "image": parse_image,
    "answers": parse_answers,
}

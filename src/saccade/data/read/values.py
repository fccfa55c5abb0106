"""Raw values turned into what a role's kind promises; each refusal says what to do."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from saccade.data.read.picture import inside, refuse_broken
from saccade.data.read.squad import answers
from saccade.errors import DataError

MAX_WORD = 1_000  # characters of one word in a list of words


class Place(NamedTuple):
    """Where a value stands, so that an error can say so."""

    file: Path
    line: int
    column: str
    said: list[str] | None = None  # what there is to say of the values, beside errors

    def say(self, what: str, value: object) -> None:
        """Once for each thing to say."""
        if self.said is not None and not any(what in line for line in self.said):
            self.said.append(f"{self.file.name}: {what} (the first is {value}).")

    def bad(self, what: str, value: object, cure: str) -> DataError:
        return DataError(what, file=self.file, line=self.line, column=self.column, value=value, cure=cure)


def is_nothing(value: Any, kind: str) -> bool:
    """An empty cell, null or NaN; where a number should stand, a question mark too.

    >>> is_nothing(" ", "label"), is_nothing("?", "number"), is_nothing("?", "label"), is_nothing(0, "label")
    (True, True, False, False)
    """
    if isinstance(value, str):
        return value.strip().lower() in (("", "nan", "?") if kind == "number" else ("", "nan"))
    return value is None or (isinstance(value, float) and math.isnan(value))


def text(value: Any, place: Place) -> str:
    if type(value) is str:
        found = value.rstrip("\r\n")
        if found and not found.isspace():
            return found
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise place.bad("the text is missing", value, "fill it in or remove the record")
    if isinstance(value, list | Mapping | bool | np.ndarray):
        raise place.bad(f"text is needed, not {_kind(value)}", value, "write a string in quotes")
    if not str(value).strip():
        raise place.bad("the text is empty", value, "fill it in or remove the record")
    return str(value)


def texts(value: Any, place: Place) -> str | list[str]:
    """One text, or a list of several that say the same, such as the captions of a picture."""
    if isinstance(value, list | tuple | np.ndarray) and len(value):
        return [text(part, place) for part in value]
    return text(value, place)


def joined(value: Any, place: Place) -> str:
    """One text, or the sentences of one, of which some may be empty."""
    if not isinstance(value, list | tuple | np.ndarray) or not len(value):
        return text(value, place)
    place.say("lists of sentences are joined, with a space between them", f"one of {len(value)}")
    filled = [part for part in value if not (isinstance(part, str) and not part.strip())]
    return " ".join(text(part, place) for part in filled or value)


def kept(value: Any, place: Place) -> str | list[str]:
    """One text, or several of which any is right."""
    found = texts(value, place)
    if isinstance(found, str) or len(found) == 1:
        return found if isinstance(found, str) else found[0]
    place.say("of several right texts the first is learnt, and all count in the score", f"one of {len(found)}")
    return found


def line(value: Any, place: Place) -> str:
    """Running text: an empty line is a line."""
    if not isinstance(value, str):
        value = text(value, place)
    return value if value.endswith("\n") else value + "\n"


def label(value: Any, place: Place) -> str:
    cure = "write a label or remove the record"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise place.bad("the label is missing", value, cure)
    if isinstance(value, list | Mapping | np.ndarray):
        raise place.bad(
            f"one label is needed, not {_kind(value)}", value, "name one, or use the role labels for several"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    found = str(value).strip()
    if not found or found.lower() == "nan":
        raise place.bad("the label is missing", value, cure)
    return found


def labels(value: Any, place: Place) -> list[str]:
    """Several labels, or none: a list, or a string with | ; or , between them (the first of these that occurs)."""
    if value is None:
        return []
    if isinstance(value, str):
        mark = next((mark for mark in "|;," if mark in value), ",")
        value = [part for part in value.split(mark) if part.strip()]
    if not isinstance(value, list | tuple | np.ndarray):
        value = [value]
    return list(dict.fromkeys(label(part, place) for part in value))


def number(value: Any, place: Place) -> float:
    if isinstance(value, bool | list | Mapping) or value is None:
        raise place.bad(f"a number is needed, not {_kind(value)}", value, "write one number")
    try:
        found = float(value)
    except (ValueError, OverflowError):
        cure = "write it with a point and without a unit"
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value):
            cure = "write a point for the decimal comma"
        elif not str(value).strip():
            cure = "fill it in or remove the record"
        raise place.bad("a number is needed", value, cure) from None
    if not math.isfinite(found):
        raise place.bad("a finite number is needed", value, "fill it in or remove the record")
    return found


def words(value: Any, place: Place) -> list[str]:
    found = _strings(value, place, "words")
    for number, word in enumerate(found, 1):
        if len(word) > MAX_WORD:
            raise too_long(word, place, f"word {number}")
    return found


def too_long(word: str, place: Place, name: str = "the word") -> DataError:
    """What is said of a word that is none: a paragraph without spaces, a picture in base64, letters without end."""
    what = f"{name} has {len(word):,} characters; at most {MAX_WORD:,} are read as one word"
    return place.bad(what, word, "write spaces between words, shorten it, or remove it")


def tags(value: Any, place: Place) -> list[str]:
    return _strings(value, place, "tags")


def _strings(value: Any, place: Place, name: str) -> list[str]:
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple | np.ndarray):
        raise place.bad(
            f"a list of {name} is needed, not {_kind(value)}", value, f"write a list of {name}, one for each word"
        )
    if not len(value):
        raise place.bad(f"the list of {name} is empty", value, "fill it in or remove the record")
    found = [str(part) for part in value if isinstance(part, str | int | np.integer) and not isinstance(part, bool)]
    if len(found) != len(value) or not all(part.strip() for part in found):
        wrong = next((x for x in value if not isinstance(x, str | int | np.integer) or not str(x).strip()), value)
        raise place.bad(f"one of the {name} is empty or no string", wrong, f"write each of the {name} as a string")
    return found


def image(value: Any, place: Place) -> str | bytes | np.ndarray:
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
        found = inside(place.file.parent, value.strip(), place)
    else:
        raise place.bad("the path of a picture is needed", value, "write the picture's path, as seen from this file")
    for note in refuse_broken(found, place, name):
        place.say(note, name)
    return found if isinstance(found, bytes) else str(found)


def _kind(value: object) -> str:
    names = {bool: "true or false", list: "a list", dict: "an object", type(None): "nothing", str: "text"}
    return names.get(type(value), type(value).__name__)


LISTS: dict[str, Callable[[Any, Place], Any]] = {"joined": joined, "kept": kept}  # of a role that takes lists of texts
KINDS: dict[str, Callable[[Any, Place], Any]] = {
    "text": text,
    "texts": texts,
    "line": line,
    "label": label,
    "labels": labels,
    "number": number,
    "words": words,
    "tags": tags,
    "image": image,
    "answers": answers,
}

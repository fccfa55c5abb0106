"""JSON: an object a line, or one array of objects (perhaps under a key such as "data"), and SQuAD's nested one."""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_lines, read_whole_text
from saccade.data.read.squad import read_questions
from saccade.errors import DataError

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # the only way to write half a character
SPACES_AND_COMMAS = re.compile(r"[\s,]*")
NESTING_HINT = "keep objects at most a few levels deep"


def matches_json_lines(source: SourceFile, request: ReadRequest) -> bool:
    """Each line an object; a broken one still counts if the name says so."""
    first = next((line for line in source.sample_lines() if line.strip()), "")
    if not re.match(r'\s*\{\s*("|\}|$)', first):
        return False
    try:
        found = json.loads(first)
        wraps = any(isinstance(found.get(key), list) for key in ("data", "rows", "records", "examples"))
        return not (wraps and len(source.sample_lines()) == 1)  # one object around all records, on one line
    except (ValueError, RecursionError):
        return source.suffix in (".jsonl", ".ndjson") or first.rstrip().endswith("}")


def matches_json(source: SourceFile, request: ReadRequest) -> bool:
    """An array, or an object over several lines."""
    text = source.head[:4096].decode("utf-8", "replace").lstrip()
    begins = bool(re.match(r'\[\s*([\[{"\]]|$)|\{\s*("|\}|$)', text))
    return begins and (source.suffix == ".json" or ("{" in text and '"' in text))  # a sentence may begin with a bracket


def read_json_lines(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    request.notes.append(f"{source.path.name}: JSON lines.")
    for line, text in read_lines(source):
        if isinstance(text, DataError):
            yield text
        elif text.strip():
            yield _parse_line(source, line, text)


def _parse_line(source: SourceFile, line: int, text: str) -> Record | DataError:
    def bad(what: str, value: object, hint: str, at: int = 1) -> DataError:
        return DataError(what, file=source.path, line=line, column=f"(character {at})", value=value, hint=hint)

    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        hint = "the line is cut off: write the object whole, on one line" if cut else "write one JSON object a line"
        return bad(
            f"not JSON: {error.msg}", text[max(0, error.pos - 20) : error.pos + 20].rstrip("\n"), hint, error.colno
        )
    except RecursionError:
        return bad("JSON nested too deeply", text[:40], NESTING_HINT)
    except ValueError:  # an integer of thousands of digits
        return bad("not JSON: a number too long to be read", text[:40], "write numbers of at most a few hundred digits")
    if not isinstance(found, dict):
        return bad("an object is needed on each line", found, 'write {"text": ..., "label": ...}')
    if SURROGATE_ESCAPE.search(text) and _has_lone_surrogate(found):
        return bad("half a character (a lone surrogate)", text[:40], "write the character itself, in UTF-8")
    return Record(line, found)


def _has_lone_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def read_json(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """The objects of an array with the lines where they begin."""
    text = read_whole_text(source)
    start = SPACES_AND_COMMAS.match(text).end()  # type: ignore[union-attr]
    if text[start] == "{":
        key, start = _find_array(source, text)
        request.notes.append(f"{source.path.name}: JSON, the records are the array under {key!r}.")
    else:
        request.notes.append(f"{source.path.name}: JSON, an array of records.")
    found = _parse_elements(source, text, start)
    first = next(found, None)
    if isinstance(first, Record) and isinstance(first.fields.get("paragraphs"), list):
        found = chain.from_iterable(read_questions(source, article) for article in chain([first], found))
    elif first is not None:
        found = chain([first], found)
    yield from found


def _parse_elements(source: SourceFile, text: str, start: int) -> Iterator[Record | DataError]:
    decoder, at, line, counted = json.JSONDecoder(), start + 1, 1, 0
    while True:
        at = SPACES_AND_COMMAS.match(text, at).end()  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        if at >= len(text):
            hint = "the file is cut off: fetch it again or end it with ]"
            raise DataError("the array is never closed", file=source.path, line=line, value=text[-30:], hint=hint)
        try:
            found, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            cut = error.pos >= len(text) - 1 or "Unterminated" in error.msg
            hint = "the file is cut off: fetch it again" if cut else "correct it there"
            shown = text[max(at, error.pos - 20) : error.pos + 20]
            what = f"not JSON: {error.msg} (character {error.colno})"
            raise DataError(what, file=source.path, line=error.lineno, value=shown, hint=hint) from None
        except RecursionError:
            raise DataError(
                "JSON nested too deeply", file=source.path, line=line, value=text[at : at + 40], hint=NESTING_HINT
            ) from None
        except ValueError:
            shown, hint = text[at : at + 40], "write numbers of at most a few hundred digits"
            raise DataError(
                "a number too long to be read", file=source.path, line=line, value=shown, hint=hint
            ) from None
        if not isinstance(found, dict):
            hint = 'write [{"text": ..., "label": ...}, ...]'
            yield DataError("an object is needed for each record", file=source.path, line=line, value=found, hint=hint)
        elif "\\u" in text and _has_lone_surrogate(found):
            hint = "write the character itself, in UTF-8"
            yield DataError(
                "half a character (a lone surrogate)", file=source.path, line=line, value=text[at : at + 40], hint=hint
            )
        else:
            yield Record(line, found)
        at = end


def _find_array(source: SourceFile, text: str) -> tuple[str, int]:
    """The key of the first array of objects in one big object, and where the array begins."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        shown = text[max(0, error.pos - 20) : error.pos + 20]
        hint = "the file is cut off or is not JSON; fetch it again or correct it there"
        what = f"not JSON: {error.msg} (character {error.colno})"
        raise DataError(what, file=source.path, line=error.lineno, value=shown, hint=hint) from None
    except RecursionError:
        raise DataError(
            "JSON nested too deeply", file=source.path, line=1, value=text[:40], hint=NESTING_HINT
        ) from None
    except ValueError:
        hint = "write numbers of at most a few hundred digits"
        raise DataError("a number too long to be read", file=source.path, line=1, value=text[:40], hint=hint) from None
    for key, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            place = re.search(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:\s*\[", text)
            if place:
                return key, place.end() - 1
    hint = 'write an array of objects, or an object a line: {"text": ..., "label": ...}'
    keys = ", ".join(list(found)[:8])
    raise DataError("no array of records in this object", file=source.path, line=1, value=keys, hint=hint)

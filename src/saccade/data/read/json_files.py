"""JSON files: JSON lines, an array of objects (perhaps under a key such as "data"), and SQuAD's nested format."""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_lines, read_whole_text
from saccade.data.read.squad import read_questions
from saccade.errors import DataError

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
SPACES_AND_COMMAS = re.compile(r"[\s,]*")
NESTING_HINT = "keep objects at most a few levels deep"


def matches_json_lines(source: SourceFile, request: ReadRequest) -> bool:
    """Whether the first line is an object; an invalid one counts if the suffix is .jsonl or .ndjson."""
    first = next((line for line in source.sample_lines() if line.strip()), "")
    if not re.match(r'\s*\{\s*("|\}|$)', first):
        return False
    try:
        value = json.loads(first)
        wraps = any(isinstance(value.get(key), list) for key in ("data", "rows", "records", "examples"))
        return not (wraps and len(source.sample_lines()) == 1)  # a single object that contains all records
    except (ValueError, RecursionError):
        return source.suffix in (".jsonl", ".ndjson") or first.rstrip().endswith("}")


def matches_json(source: SourceFile, request: ReadRequest) -> bool:
    """Whether the file is an array, or an object over several lines."""
    text = source.head[:4096].decode("utf-8", "replace").lstrip()
    opens = bool(re.match(r'\[\s*([\[{"\]]|$)|\{\s*("|\}|$)', text))
    return opens and (source.suffix == ".json" or ("{" in text and '"' in text))  # a sentence may begin with a bracket


def read_json_lines(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    request.notes.append(f"{source.path.name}: JSON lines.")
    for line, text in read_lines(source):
        if isinstance(text, DataError):
            yield text
        elif text.strip():
            yield _parse_line(source, line, text)


def _parse_line(source: SourceFile, line: int, text: str) -> Record | DataError:
    def make_error(problem: str, value: object, hint: str, at: int = 1) -> DataError:
        return DataError(problem, file=source.path, line=line, column=f"(character {at})", value=value, hint=hint)

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        truncated = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        hint = (
            "the line is truncated: write the whole object on one line"
            if truncated
            else "write one JSON object per line"
        )
        excerpt = text[max(0, error.pos - 20) : error.pos + 20].rstrip("\n")
        return make_error(f"not JSON: {error.msg}", excerpt, hint, error.colno)
    except RecursionError:
        return make_error("JSON nested too deeply", text[:40], NESTING_HINT)
    except ValueError:  # an integer of thousands of digits
        return make_error("not JSON: a number is too long", text[:40], "write numbers of at most a few hundred digits")
    if not isinstance(value, dict):
        return make_error("each line has to be an object", value, 'write {"text": ..., "label": ...}')
    if SURROGATE_ESCAPE.search(text) and _has_lone_surrogate(value):
        return make_error("a lone surrogate is not a character", text[:40], "write the character itself, in UTF-8")
    return Record(line, value)


def _has_lone_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def read_json(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """The objects of an array, with the lines where they begin."""
    text = read_whole_text(source)
    start = SPACES_AND_COMMAS.match(text).end()  # type: ignore[union-attr]
    if text[start] == "{":
        key, start = _guess_array(text) if request.is_preview else _find_array(source, text)
        request.notes.append(f"{source.path.name}: JSON, the records are the array under {key!r}.")
    else:
        request.notes.append(f"{source.path.name}: JSON, an array of records.")
    records = _parse_elements(source, text, start, is_preview=request.is_preview)
    first = next(records, None)
    if isinstance(first, Record) and isinstance(first.fields.get("paragraphs"), list):
        records = chain.from_iterable(read_questions(source, article) for article in chain([first], records))
    elif first is not None:
        records = chain([first], records)
    yield from records


def _guess_array(text: str) -> tuple[str, int]:
    """The key and the position of the first array of objects in the beginning of an object."""
    found = re.search(r'"(\w+)"\s*:\s*\[\s*\{', text)
    return (found[1], text.index("[", found.end(1))) if found else ("", len(text))


def _parse_elements(
    source: SourceFile, text: str, start: int, *, is_preview: bool = False
) -> Iterator[Record | DataError]:
    decoder, at, line, counted = json.JSONDecoder(), start + 1, 1, 0
    while True:
        at = SPACES_AND_COMMAS.match(text, at).end()  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]" or (is_preview and at >= len(text)):
            return
        if at >= len(text):
            hint = "the file is truncated: download it again or end it with ]"
            raise DataError("the array is never closed", file=source.path, line=line, value=text[-30:], hint=hint)
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            truncated = error.pos >= len(text) - 1 or "Unterminated" in error.msg
            if truncated and is_preview:
                return
            hint = "the file is truncated: download it again" if truncated else "correct it there"
            excerpt = text[max(at, error.pos - 20) : error.pos + 20]
            problem = f"not JSON: {error.msg} (character {error.colno})"
            raise DataError(problem, file=source.path, line=error.lineno, value=excerpt, hint=hint) from None
        except RecursionError:
            raise DataError(
                "JSON nested too deeply", file=source.path, line=line, value=text[at : at + 40], hint=NESTING_HINT
            ) from None
        except ValueError:
            excerpt, hint = text[at : at + 40], "write numbers of at most a few hundred digits"
            raise DataError("a number is too long", file=source.path, line=line, value=excerpt, hint=hint) from None
        if not isinstance(value, dict):
            hint = 'write [{"text": ..., "label": ...}, ...]'
            yield DataError("each record has to be an object", file=source.path, line=line, value=value, hint=hint)
        elif "\\u" in text and _has_lone_surrogate(value):
            hint = "write the character itself, in UTF-8"
            yield DataError(
                "a lone surrogate is not a character", file=source.path, line=line, value=text[at : at + 40], hint=hint
            )
        else:
            yield Record(line, value)
        at = end


def _find_array(source: SourceFile, text: str) -> tuple[str, int]:
    """The key and the position of the first array of objects in an object."""
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        excerpt = text[max(0, error.pos - 20) : error.pos + 20]
        hint = "the file is truncated or is not JSON; download it again or correct it there"
        problem = f"not JSON: {error.msg} (character {error.colno})"
        raise DataError(problem, file=source.path, line=error.lineno, value=excerpt, hint=hint) from None
    except RecursionError:
        raise DataError(
            "JSON nested too deeply", file=source.path, line=1, value=text[:40], hint=NESTING_HINT
        ) from None
    except ValueError:
        hint = "write numbers of at most a few hundred digits"
        raise DataError("a number is too long", file=source.path, line=1, value=text[:40], hint=hint) from None
    for key, value in parsed.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            match = re.search(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:\s*\[", text)
            if match:
                return key, match.end() - 1
    hint = 'write an array of objects, or one object per line: {"text": ..., "label": ...}'
    keys = ", ".join(list(parsed)[:8])
    raise DataError("no array of records in this object", file=source.path, line=1, value=keys, hint=hint)

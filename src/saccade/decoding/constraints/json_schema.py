"""A JSON schema, read from a file or taken from Python, and refused by name where it cannot be kept to.

>>> load_schema({"type": "object", "properties": {"age": {"type": "integer", "minimun": 0}}})
Traceback (most recent call last):
saccade.errors.UsageError: The schema: at #/properties/age: the keyword 'minimun' is unknown; write minimum, if that is meant.

llguidance reads a schema as JSON Schema 2020-12, and refuses most of what it cannot keep to. What it would pass over in silence
is refused here: a keyword that it does not know, and one that its grammar does not hold to in every text (`minProperties`, where
a key may be written twice). Nothing is ever fetched: a `$ref` points into the schema itself. A schema comes from a stranger as
likely as from its user, so its size, its depth and what a single keyword can cost are bounded.
"""

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from saccade.decoding.constraints.matcher import PARSER_LIMITS, make_grammar
from saccade.decoding.constraints.regex_parser import parse_regex, shortest_match
from saccade.errors import DataError, UsageError

SchemaSource = Mapping[str, Any] | str | os.PathLike[str]

MAX_BYTES = 1_000_000
MAX_DEPTH = 100  # of lists and objects in each other
MAX_HINTS = 20
MAX_PROPERTIES = 400  # of one object; more are too many for llguidance to keep in mind at once
MAX_MULTIPLE = 10_000  # of `multipleOf`, its decimals counted as digits; it is a machine of so many states
GUIDANCE_OPTIONS = {
    "whitespace_pattern": r"\x20",
    "lenient": False,
    "coerce_one_of": False,
}  # one space, or none, between values

_LEAP_YEAR_PATTERN = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE_PATTERN = (
    r"(?:(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR_PATTERN}-02-29)"
)
_TIME_PATTERN = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
DATE_TIME_PATTERNS = {
    "date": f"^{_DATE_PATTERN}$",
    "time": f"^{_TIME_PATTERN}$",
    "date-time": f"^{_DATE_PATTERN}T{_TIME_PATTERN}$",
}  # without leap seconds

SCHEMA_KEYWORDS = ("items", "additionalProperties")  # keywords that hold a schema,
SCHEMA_LIST_KEYWORDS = ("prefixItems", "anyOf", "oneOf", "allOf")  # a list of them,
SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions")  # or some with names
VALUE_KEYWORDS = (
    *(
        "type",
        "enum",
        "const",
        "required",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "$ref",
    ),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minProperties", "maxProperties"),
)
ANNOTATION_KEYWORDS = (
    *(
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$id",
    ),
    *("$anchor", "contentEncoding", "contentMediaType", "contentSchema"),
)
UNSUPPORTED_KEYWORDS = (
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties"),
    *("additionalItems", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"),
)
SUPPORTED_KEYWORDS = (
    *SCHEMA_KEYWORDS,
    *SCHEMA_LIST_KEYWORDS,
    *SCHEMA_MAP_KEYWORDS,
    *VALUE_KEYWORDS,
    *ANNOTATION_KEYWORDS,
)


def load_schema(source: SchemaSource) -> dict[str, Any]:
    """The schema of a file, or the one that is given, once everything about it has been checked, as llguidance is to read it."""
    schema = _check_json(source, _read_json(source) if isinstance(source, (str, os.PathLike)) else source)
    for where, part in _subschemas(source, schema):
        _check_subschema(source, where, part)
        if (
            part.get("format") in DATE_TIME_PATTERNS
        ):  # llguidance writes 29 February in any year, and a leap second in any minute
            part["allOf"] = [*part.get("allOf", ()), {"pattern": DATE_TIME_PATTERNS[part.pop("format")]}]
    _check_with_llguidance(source, schema)
    return schema


def describe_schema(source: SchemaSource) -> str:
    """How a message names it."""
    return f"the schema {os.fspath(source)}" if isinstance(source, (str, os.PathLike)) else "the schema"


def to_grammar_rule(schema: Mapping[str, Any]) -> str:
    """The schema as a rule of a grammar."""
    return f"%json {json.dumps({**schema, 'x-guidance': GUIDANCE_OPTIONS})}"


def string_hints(schema: dict[str, Any]) -> list[str]:
    """The shortest texts of the patterns in a schema, as they stand between quotation marks.

    >>> string_hints({"items": {"pattern": "^x[0-9]{2}$"}, "prefixItems": [{"pattern": "(?=a)"}]})
    ['x00']
    """
    hints: dict[str, None] = {}
    for _, part in _subschemas(schema, schema):
        for pattern in (part.get("pattern"), *part.get("patternProperties", ())):
            try:
                text = shortest_match(parse_regex(str(pattern or "").removeprefix("^").removesuffix("$")))
            except UsageError:
                continue  # written otherwise than we read it; llguidance reads more
            hints[json.dumps(text, ensure_ascii=False)[1:-1]] = None
    return [hint for hint in hints if hint][:MAX_HINTS]


def _raise_schema_error(source: SchemaSource, problem: str, cure: str = "") -> NoReturn:
    """An error of the file, or of the call where there is none."""
    if isinstance(source, (str, os.PathLike)):
        raise DataError(problem, file=os.fspath(source), hint=cure)
    raise UsageError(f"The schema: {problem}{'; ' + cure if cure else ''}.")


def _read_json(source: str | os.PathLike[str]) -> object:
    path = Path(source)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            _raise_schema_error(
                source, f"a schema of {size:,} bytes; at most {MAX_BYTES:,} are read", "make it smaller"
            )
        return json.loads(
            path.read_bytes().decode("utf-8-sig"),
            parse_constant=lambda name: _raise_schema_error(source, f"{name} is no JSON"),
        )
    except OSError as error:
        _raise_schema_error(source, f"the schema cannot be read: {error.strerror}", "give the path of a JSON file")
    except json.JSONDecodeError as error:
        _raise_schema_error(
            source, f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}", "a schema is a JSON object"
        )
    except UnicodeDecodeError as error:
        _raise_schema_error(source, f"byte {error.start} is no UTF-8", "save the file as UTF-8")
    except RecursionError:
        _raise_schema_error(
            source, f"nested more than {MAX_DEPTH} deep", "make it flatter, with $ref where parts repeat"
        )
    except ValueError as error:  # an integer of more digits than Python reads
        _raise_schema_error(source, str(error))


def _check_json(source: SchemaSource, value: object) -> dict[str, Any]:
    """The schema as JSON would give it: an object, of a size and a depth that can be handled."""
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        what = f"a schema is a JSON object; got {type(value).__name__}"
        _raise_schema_error(source, what if value is not False else "`false` fits no value at all")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        _raise_schema_error(source, f"it is no JSON: {str(error).partition(' while ')[0]}")
    if len(text) > MAX_BYTES:
        _raise_schema_error(
            source, f"a schema of {len(text):,} bytes; at most {MAX_BYTES:,} are read", "make it smaller"
        )
    if _nesting_depth(text) > MAX_DEPTH:
        _raise_schema_error(
            source, f"nested more than {MAX_DEPTH} deep", "make it flatter, with $ref where parts repeat"
        )
    return json.loads(text)


def _nesting_depth(text: str) -> int:
    """How deep lists and objects stand in each other.

    >>> _nesting_depth('{"a]": [[1], "\\\\"["]}')
    3
    """
    depth = most = 0
    inside = skip = False
    for letter in text:
        if skip:
            skip = False
        elif inside:
            inside, skip = letter != '"', letter == "\\"
        elif letter == '"':
            inside = True
        elif letter in "[{":
            depth += 1
            most = max(most, depth)
        elif letter in "]}":
            depth -= 1
    return most


def _subschemas(source: SchemaSource, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and all that stand in it, each with its place; `true` and `false` aside."""
    todo: list[tuple[str, Any]] = [("#", schema)]
    while todo:
        where, part = todo.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            cure = "; a list of schemas is called prefixItems" if where.endswith("/items") else ""
            _raise_schema_error(
                source, f"at {where}: a schema is an object, true or false; got {type(part).__name__}{cure}"
            )
        yield where, part
        for key in (key for key in (*SCHEMA_KEYWORDS, *SCHEMA_LIST_KEYWORDS, *SCHEMA_MAP_KEYWORDS) if key in part):
            value = part[key]
            if key in SCHEMA_KEYWORDS:
                todo.append((f"{where}/{key}", value))
                continue
            kind = list if key in SCHEMA_LIST_KEYWORDS else dict
            if not isinstance(value, kind):
                _raise_schema_error(
                    source,
                    f"at {where}/{key}: {'a list' if kind is list else 'an object'} is needed; got {value!r}"[:200],
                )
            names = enumerate(value) if isinstance(value, list) else value.items()
            todo += [(f"{where}/{key}/{name}", other) for name, other in names]


def _check_subschema(source: SchemaSource, location: str, subschema: dict[str, Any]) -> None:
    """Refuse what cannot be kept to, or costs too much."""
    for key in subschema:
        if key in UNSUPPORTED_KEYWORDS:
            _raise_schema_error(
                source, f"at {location}: the keyword {key!r} cannot be enforced while a text is written", "leave it out"
            )
        if key not in SUPPORTED_KEYWORDS and not key.startswith("x-"):
            near = difflib.get_close_matches(key, SUPPORTED_KEYWORDS, 1)
            _raise_schema_error(
                source,
                f"at {location}: the keyword {key!r} is unknown",
                f"write {near[0]}, if that is meant" if near else "leave it out",
            )
    target = subschema.get("$ref", "#")
    if not isinstance(target, str) or not target.startswith("#"):
        _raise_schema_error(
            source, f"at {location}: $ref is {target!r}, and nothing is fetched", "copy what it names into $defs"
        )
    if len(subschema.get("properties", ())) > MAX_PROPERTIES:
        _raise_schema_error(
            source, f"at {location}: {len(subschema['properties']):,} properties; at most {MAX_PROPERTIES:,} are read"
        )
    _check_multiple_of(source, location, subschema.get("multipleOf"))
    _check_min_properties(source, location, subschema)


def _check_multiple_of(source: SchemaSource, location: str, value: object) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        digits = Decimal(str(value)).normalize().as_tuple().digits
        if int("".join(map(str, digits))) > MAX_MULTIPLE:
            _raise_schema_error(
                source, f"at {location}: multipleOf {value} has too many digits; at most {MAX_MULTIPLE:,} is kept to"
            )


def _check_min_properties(source: SchemaSource, location: str, subschema: dict[str, Any]) -> None:
    """Keys beside those that are listed may be written twice, so that there are fewer of them than it seems."""
    required = subschema.get("required", ())
    least = subschema.get("minProperties", 0)
    if isinstance(least, int) and least > max(1, len(required) if isinstance(required, list) else 0):
        _raise_schema_error(
            source,
            f"at {location}: minProperties {least} cannot be enforced beyond the keys that are required",
            "name the keys under required",
        )


def _check_with_llguidance(source: SchemaSource, schema: dict[str, Any]) -> None:
    """Let llguidance read it, which needs no tokenizer for that."""
    from llguidance import LLMatcher, LLParserLimits

    failed, messages = LLMatcher.validate_grammar_with_warnings(
        make_grammar(to_grammar_rule(schema)), limits=LLParserLimits(**PARSER_LIMITS)
    )
    if failed or messages:
        reason = messages[0].partition("JSON schema: ")[2].partition("\n")[0] or messages[0]
        _raise_schema_error(source, f"llguidance cannot use it: {reason[:300].rstrip('.')}")

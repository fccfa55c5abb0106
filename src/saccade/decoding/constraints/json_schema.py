"""Loading and checking of JSON schemas for structured output, from a file or from Python.

>>> load_schema({"type": "object", "properties": {"age": {"type": "integer", "minimun": 0}}})
Traceback (most recent call last):
saccade.errors.UsageError: The schema: at #/properties/age: the keyword 'minimun' is unknown; write minimum, if that is meant.

llguidance reads a schema as JSON Schema 2020-12, and refuses most of what it cannot enforce. What it would ignore
silently is refused here: unknown keywords, and keywords that its grammar does not enforce in every text (`minProperties`,
since a key may occur twice). Nothing is ever fetched: a `$ref` must point into the schema itself. A schema may come from
an untrusted source, so its size, its depth and the cost of each keyword are bounded.
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
MAX_DEPTH = 100  # nesting depth of lists and objects
MAX_HINTS = 20
MAX_PROPERTIES = 400  # properties of one object; llguidance runs into its limits with more
MAX_MULTIPLE = 10_000  # largest `multipleOf`, without its decimal point; it becomes an automaton with as many states
GUIDANCE_OPTIONS = {
    "whitespace_pattern": r"\x20",
    "lenient": False,
    "coerce_one_of": False,
}  # at most one space between values

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

SCHEMA_KEYWORDS = ("items", "additionalProperties")  # keywords whose value is a schema,
SCHEMA_LIST_KEYWORDS = ("prefixItems", "anyOf", "oneOf", "allOf")  # a list of schemas,
SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions")  # or named schemas
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
    """Load a schema from a file or a dictionary, check it, and return it in the form that llguidance needs."""
    schema = _check_json(source, _read_json(source) if isinstance(source, (str, os.PathLike)) else source)
    for where, part in _subschemas(source, schema):
        _check_subschema(source, where, part)
        if (
            part.get("format") in DATE_TIME_PATTERNS
        ):  # llguidance allows 29 February in every year, and a leap second in every minute
            part["allOf"] = [*part.get("allOf", ()), {"pattern": DATE_TIME_PATTERNS[part.pop("format")]}]
    _check_with_llguidance(source, schema)
    return schema


def describe_schema(source: SchemaSource) -> str:
    """The name of a schema in messages."""
    return f"the schema {os.fspath(source)}" if isinstance(source, (str, os.PathLike)) else "the schema"


def to_grammar_rule(schema: Mapping[str, Any]) -> str:
    """The schema as a rule of a Lark grammar of llguidance."""
    return f"%json {json.dumps({**schema, 'x-guidance': GUIDANCE_OPTIONS})}"


def string_hints(schema: dict[str, Any]) -> list[str]:
    """The shortest matches of the patterns in a schema, JSON-escaped and without quotation marks.

    >>> string_hints({"items": {"pattern": "^x[0-9]{2}$"}, "prefixItems": [{"pattern": "(?=a)"}]})
    ['x00']
    """
    hints: dict[str, None] = {}
    for _, part in _subschemas(schema, schema):
        for pattern in (part.get("pattern"), *part.get("patternProperties", ())):
            try:
                text = shortest_match(parse_regex(str(pattern or "").removeprefix("^").removesuffix("$")))
            except UsageError:
                continue  # llguidance supports more expressions than our parser
            hints[json.dumps(text, ensure_ascii=False)[1:-1]] = None
    return [hint for hint in hints if hint][:MAX_HINTS]


def _raise_schema_error(source: SchemaSource, problem: str, cure: str = "") -> NoReturn:
    """Raise an error that names the file, or a usage error if the schema was given as a dictionary."""
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
            parse_constant=lambda name: _raise_schema_error(source, f"{name} is not valid JSON"),
        )
    except OSError as error:
        _raise_schema_error(source, f"the schema cannot be read: {error.strerror}", "give the path of a JSON file")
    except json.JSONDecodeError as error:
        _raise_schema_error(
            source,
            f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}",
            "a schema is a JSON object",
        )
    except UnicodeDecodeError as error:
        _raise_schema_error(source, f"byte {error.start} is not UTF-8", "save the file as UTF-8")
    except RecursionError:
        _raise_schema_error(
            source, f"nested more than {MAX_DEPTH} levels deep", "make it flatter, with $ref for repeated parts"
        )
    except DataError:  # of the size, or of NaN: it names the file already
        raise
    except ValueError as error:  # an integer of more digits than Python reads
        _raise_schema_error(source, str(error))


def _check_json(source: SchemaSource, value: object) -> dict[str, Any]:
    """Check that a schema is a JSON object of bounded size and depth, and return it as JSON would give it."""
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        what = f"a schema is a JSON object; got {type(value).__name__}"
        _raise_schema_error(source, what if value is not False else "`false` allows no value")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        _raise_schema_error(source, f"it is not valid JSON: {str(error).partition(' while ')[0]}")
    if len(text) > MAX_BYTES:
        _raise_schema_error(
            source, f"a schema of {len(text):,} bytes; at most {MAX_BYTES:,} are read", "make it smaller"
        )
    if _nesting_depth(text) > MAX_DEPTH:
        _raise_schema_error(
            source, f"nested more than {MAX_DEPTH} levels deep", "make it flatter, with $ref for repeated parts"
        )
    return json.loads(text)


def _nesting_depth(text: str) -> int:
    """The nesting depth of lists and objects in a JSON text.

    >>> _nesting_depth('{"a]": [[1], "\\\\"["]}')
    3
    """
    depth = max_depth = 0
    in_string = is_escaped = False
    for character in text:
        if is_escaped:
            is_escaped = False
        elif in_string:
            in_string, is_escaped = character != '"', character == "\\"
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            max_depth = max(max_depth, depth)
        elif character in "]}":
            depth -= 1
    return max_depth


def _subschemas(source: SchemaSource, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema and all its subschemas except `true` and `false`, each with its location."""
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
    """Refuse keywords that cannot be enforced or cost too much."""
    for key in subschema:
        if key in UNSUPPORTED_KEYWORDS:
            _raise_schema_error(
                source, f"at {location}: the keyword {key!r} cannot be enforced during generation", "leave it out"
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
            source, f"at {location}: $ref is {target!r}, and external schemas are not fetched", "copy it into $defs"
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
                source, f"at {location}: multipleOf {value} has too many digits; at most {MAX_MULTIPLE:,} is supported"
            )


def _check_min_properties(source: SchemaSource, location: str, subschema: dict[str, Any]) -> None:
    """Refuse `minProperties` beyond the required keys: other keys may occur twice, and would be counted twice."""
    required = subschema.get("required", ())
    minimum = subschema.get("minProperties", 0)
    if isinstance(minimum, int) and minimum > max(1, len(required) if isinstance(required, list) else 0):
        _raise_schema_error(
            source,
            f"at {location}: minProperties {minimum} cannot be enforced beyond the required keys",
            "name the keys under required",
        )


def _check_with_llguidance(source: SchemaSource, schema: dict[str, Any]) -> None:
    """Let llguidance validate the schema, for which it needs no tokenizer."""
    from llguidance import LLMatcher, LLParserLimits

    failed, messages = LLMatcher.validate_grammar_with_warnings(
        make_grammar(to_grammar_rule(schema)), limits=LLParserLimits(**PARSER_LIMITS)
    )
    if failed or messages:
        reason = messages[0].partition("JSON schema: ")[2].partition("\n")[0] or messages[0]
        _raise_schema_error(source, f"llguidance cannot use it: {reason[:300].rstrip('.')}")

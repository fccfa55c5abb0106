"""JSON schemas with every supported keyword, alone and combined, for the tests of structured output."""

from itertools import combinations, product

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
FORMATS = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
PATTERNS = [
    "^[a-c]{2,4}$",
    "b+",
    "^x",
    "y$",
    "^(ab|cd)*$",
    "^\\d{3}-\\d{2}$",
    "^[^a-z]{2}$",
    "^a.b$",
    "\\w\\s\\w",
    "^é?ñ$",
    "",
]


def array_schema(items=None, **more):
    return {"type": "array", **({} if items is None else {"items": items}), **more}


def object_schema(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def closed_object(properties, required=()):
    return object_schema(properties, required, additionalProperties=False)


def strings():
    yield from ({"type": "string", "pattern": pattern} for pattern in PATTERNS)
    yield from ({"type": "string", "format": name} for name in FORMATS)
    for least, most in [(0, 0), (0, 1), (1, 1), (3, 3), (2, 5), (0, 40), (12, 30)]:
        yield {"type": "string", "minLength": least, "maxLength": most}
    yield {"type": "string", "minLength": 7}
    yield {"type": "string", "maxLength": 4}
    yield {"type": "string", "pattern": "^a*b*$", "minLength": 4, "maxLength": 6}
    yield {"type": "string", "pattern": "[0-9]", "maxLength": 3}


def numbers():
    for kind, (low, high) in product(["integer", "number"], [(0, 9), (-5, 5), (10, 10), (99, 1001), (-1000, -990)]):
        yield {"type": kind, "minimum": low, "maximum": high}
        if high - low > 1:
            yield {"type": kind, "exclusiveMinimum": low, "exclusiveMaximum": high}
    yield from ({"type": "number", "minimum": low, "maximum": low + 0.5} for low in (0.25, -1.75, 3.125))
    yield from ({"type": kind, key: 7} for kind in ("integer", "number") for key in ("minimum", "maximum"))
    yield from ({"type": "integer", "multipleOf": step} for step in (1, 2, 3, 7, 10, 25, 100))
    yield from ({"type": "integer", "multipleOf": 5, "minimum": low, "maximum": low + 20} for low in (0, -33, 1000))
    yield {"type": "number", "multipleOf": 0.5}
    yield {"type": "number", "multipleOf": 3}


def arrays():
    yield from (
        array_schema(items)
        for items in (STRING, INTEGER, {"enum": ["a", 1]}, array_schema(NULL), {"type": "boolean"}, True)
    )
    for least, most in [(0, 0), (1, 1), (2, 3), (0, 2), (4, 4)]:
        yield array_schema(NULL, minItems=least, maxItems=most)
        yield array_schema({"type": "integer", "minimum": 0, "maximum": 9}, minItems=least, maxItems=most)
    yield {"type": "array", "prefixItems": [STRING, INTEGER]}
    yield {"type": "array", "prefixItems": [STRING, INTEGER], "items": False}
    yield {"type": "array", "prefixItems": [{"const": "x"}], "items": NULL, "minItems": 3, "maxItems": 4}
    yield {"type": "array", "prefixItems": [NULL, NULL, NULL], "items": False, "minItems": 2}
    yield array_schema(array_schema(array_schema(INTEGER, maxItems=2), maxItems=2), maxItems=2)
    yield {"type": "array", "minItems": 2}


def objects():
    names = ["a", "b", "c"]
    for count in range(4):
        for required in combinations(names, count):
            yield closed_object({"a": STRING, "b": INTEGER, "c": {"type": "boolean"}}, required)
            yield object_schema({"a": STRING, "b": NULL, "c": array_schema(NULL)}, required)
    yield object_schema({"x y": NULL, 'quo"te': NULL, "é": NULL, "": NULL}, ["x y", 'quo"te', "é", ""])
    yield object_schema({}, ["free", "other"])
    yield from (
        object_schema({"a": NULL}, ["a"], additionalProperties=more) for more in (INTEGER, {"enum": ["v"]}, True)
    )
    yield {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 3}}
    yield {"type": "object", "patternProperties": {"^s_": STRING, "^i_": INTEGER}, "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^k[0-9]$": NULL}, "additionalProperties": False, "minProperties": 1}
    yield {"type": "object", "additionalProperties": NULL, "maxProperties": 2}
    yield object_schema({"a": NULL}, ["a"], additionalProperties=NULL, maxProperties=3)
    yield closed_object(
        {
            "deep": closed_object(
                {"deep": closed_object({"deep": closed_object({"end": NULL}, ["end"])}, ["deep"])}, ["deep"]
            )
        },
        ["deep"],
    )


def values():
    yield from ({"type": kind} for kind in TYPES)
    yield from ({"type": list(pair)} for pair in combinations(TYPES, 2))
    constants = [
        None,
        True,
        0,
        -1.5,
        "",
        "a\nb",
        'quo"te',
        "é€😀",
        "\x00\x1f\x7f",
        "</script>",
        [],
        [1, [2]],
        {},
        {"a": {"b": [None]}},
    ]
    yield from ({"const": value} for value in constants)
    yield {"enum": constants}
    yield from ({"enum": constants[n : n + 3]} for n in range(0, 12, 3))
    yield {"enum": [f"choice {n}" for n in range(300)]}
    yield {"type": "string", "enum": ["red", "green", 7]}
    yield {}
    yield {"title": "anything", "description": "at all", "default": 3, "examples": [1]}


def combined():
    yield {"anyOf": [STRING, INTEGER]}
    yield {"anyOf": [closed_object({"a": NULL}, ["a"]), closed_object({"b": NULL}, ["b"]), NULL]}
    yield {"oneOf": [STRING, INTEGER, NULL]}
    yield {
        "oneOf": [
            closed_object({"kind": {"const": kind}, "v": INTEGER}, ["kind", "v"]) for kind in ("circle", "square")
        ]
    }
    yield {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 12}]}
    yield {"allOf": [object_schema({"a": STRING}, ["a"]), object_schema({"b": INTEGER}, ["b"])]}
    yield {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 5}, {"pattern": "^[a-z]*$"}]}
    yield {
        "type": "object",
        "allOf": [{"required": ["a"]}],
        "properties": {"a": INTEGER},
        "additionalProperties": False,
    }
    yield {"anyOf": [{"minimum": 5}, {"type": "string"}], "type": ["integer", "string"]}
    yield array_schema(
        {"anyOf": [INTEGER, array_schema({"anyOf": [NULL, STRING]}, maxItems=2)]}, minItems=1, maxItems=3
    )


def pairs():
    """Objects and arrays that combine two simple schemas."""
    parts = [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": -2, "maximum": 40}, {"const": [None]}]
    parts += [array_schema({"enum": ["p", "q"]}, maxItems=2), closed_object({"k": {"type": "boolean"}}, ["k"])]
    for first, second in combinations(parts, 2):
        yield closed_object({"one": first, "other": second}, ["one"])
        yield array_schema({"anyOf": [first, second]}, minItems=1, maxItems=2)


def references():
    yield {"$defs": {"n": {"type": "integer", "minimum": 0}}, **closed_object({"x": {"$ref": "#/$defs/n"}}, ["x"])}
    yield {"definitions": {"s": {"enum": ["u", "v"]}}, **array_schema({"$ref": "#/definitions/s"}, minItems=2)}
    node = closed_object({"value": INTEGER, "next": {"anyOf": [NULL, {"$ref": "#/$defs/node"}]}}, ["value", "next"])
    yield {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    tree = closed_object({"leaf": {"type": "boolean"}, "branches": array_schema({"$ref": "#"})}, ["leaf", "branches"])
    yield tree
    yield {
        "$defs": {"a": array_schema({"$ref": "#/$defs/b"}), "b": array_schema({"$ref": "#/$defs/a"})},
        "$ref": "#/$defs/a",
    }
    yield {"$defs": {"json": {"anyOf": [NULL, STRING, array_schema({"$ref": "#/$defs/json"})]}}, "$ref": "#/$defs/json"}
    yield {"$defs": {"a/b": INTEGER, "c%d": STRING}, "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c%25d"}]}
    yield {"properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}}, "required": ["b"], "type": "object"}
    yield {"$ref": "#/$defs/s", "maxLength": 3, "$defs": {"s": STRING}}


def realistic():
    """Schemas as they occur in practice."""
    yield {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Person",
        **closed_object(
            {
                "name": {"type": "string", "minLength": 1, "maxLength": 20},
                "age": {"type": "integer", "minimum": 0, "maximum": 130},
                "email": {"type": "string", "format": "email"},
                "tags": array_schema({"type": "string", "pattern": "^[a-z]+$"}, maxItems=3),
            },
            ["name", "age"],
        ),
    }
    yield closed_object({"tool": {"enum": ["search", "add"]}, "arguments": {"type": "object"}}, ["tool", "arguments"])
    yield closed_object(
        {f"field_{n}": [STRING, INTEGER, NULL][n % 3] for n in range(12)}, [f"field_{n}" for n in range(0, 12, 2)]
    )
    point = array_schema({"type": "number", "minimum": -180, "maximum": 180}, minItems=2, maxItems=2)
    yield closed_object(
        {"type": {"const": "LineString"}, "coordinates": array_schema(point, minItems=2)}, ["type", "coordinates"]
    )


GROUPS = {"strings": strings, "numbers": numbers, "arrays": arrays, "objects": objects, "values": values}
GROUPS |= {"combined": combined, "pairs": pairs, "referring": references, "real": realistic}
SCHEMAS = {f"{name}-{number}": schema for name, make in GROUPS.items() for number, schema in enumerate(make())}

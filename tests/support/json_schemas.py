"""Schemas of every keyword that is kept to, alone and together: what the tests of structured output write to."""

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


def array(items=None, **more):
    return {"type": "array", **({} if items is None else {"items": items}), **more}


def obj(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def closed(properties, required=()):
    return obj(properties, required, additionalProperties=False)


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
    yield from (array(items) for items in (STRING, INTEGER, {"enum": ["a", 1]}, array(NULL), {"type": "boolean"}, True))
    for least, most in [(0, 0), (1, 1), (2, 3), (0, 2), (4, 4)]:
        yield array(NULL, minItems=least, maxItems=most)
        yield array({"type": "integer", "minimum": 0, "maximum": 9}, minItems=least, maxItems=most)
    yield {"type": "array", "prefixItems": [STRING, INTEGER]}
    yield {"type": "array", "prefixItems": [STRING, INTEGER], "items": False}
    yield {"type": "array", "prefixItems": [{"const": "x"}], "items": NULL, "minItems": 3, "maxItems": 4}
    yield {"type": "array", "prefixItems": [NULL, NULL, NULL], "items": False, "minItems": 2}
    yield array(array(array(INTEGER, maxItems=2), maxItems=2), maxItems=2)
    yield {"type": "array", "minItems": 2}


def objects():
    names = ["a", "b", "c"]
    for count in range(4):
        for required in combinations(names, count):
            yield closed({"a": STRING, "b": INTEGER, "c": {"type": "boolean"}}, required)
            yield obj({"a": STRING, "b": NULL, "c": array(NULL)}, required)
    yield obj({"x y": NULL, 'quo"te': NULL, "é": NULL, "": NULL}, ["x y", 'quo"te', "é", ""])
    yield obj({}, ["free", "other"])
    yield from (obj({"a": NULL}, ["a"], additionalProperties=more) for more in (INTEGER, {"enum": ["v"]}, True))
    yield {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 3}}
    yield {"type": "object", "patternProperties": {"^s_": STRING, "^i_": INTEGER}, "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^k[0-9]$": NULL}, "additionalProperties": False, "minProperties": 1}
    yield {"type": "object", "additionalProperties": NULL, "maxProperties": 2}
    yield obj({"a": NULL}, ["a"], additionalProperties=NULL, maxProperties=3)
    yield closed(
        {"deep": closed({"deep": closed({"deep": closed({"end": NULL}, ["end"])}, ["deep"])}, ["deep"])}, ["deep"]
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
    yield {"anyOf": [closed({"a": NULL}, ["a"]), closed({"b": NULL}, ["b"]), NULL]}
    yield {"oneOf": [STRING, INTEGER, NULL]}
    yield {"oneOf": [closed({"kind": {"const": kind}, "v": INTEGER}, ["kind", "v"]) for kind in ("circle", "square")]}
    yield {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 12}]}
    yield {"allOf": [obj({"a": STRING}, ["a"]), obj({"b": INTEGER}, ["b"])]}
    yield {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 5}, {"pattern": "^[a-z]*$"}]}
    yield {
        "type": "object",
        "allOf": [{"required": ["a"]}],
        "properties": {"a": INTEGER},
        "additionalProperties": False,
    }
    yield {"anyOf": [{"minimum": 5}, {"type": "string"}], "type": ["integer", "string"]}
    yield array({"anyOf": [INTEGER, array({"anyOf": [NULL, STRING]}, maxItems=2)]}, minItems=1, maxItems=3)


def pairs():
    """Two of the others in one."""
    parts = [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": -2, "maximum": 40}, {"const": [None]}]
    parts += [array({"enum": ["p", "q"]}, maxItems=2), closed({"k": {"type": "boolean"}}, ["k"])]
    for one, other in combinations(parts, 2):
        yield closed({"one": one, "other": other}, ["one"])
        yield array({"anyOf": [one, other]}, minItems=1, maxItems=2)


def referring():
    yield {"$defs": {"n": {"type": "integer", "minimum": 0}}, **closed({"x": {"$ref": "#/$defs/n"}}, ["x"])}
    yield {"definitions": {"s": {"enum": ["u", "v"]}}, **array({"$ref": "#/definitions/s"}, minItems=2)}
    node = closed({"value": INTEGER, "next": {"anyOf": [NULL, {"$ref": "#/$defs/node"}]}}, ["value", "next"])
    yield {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    tree = closed({"leaf": {"type": "boolean"}, "branches": array({"$ref": "#"})}, ["leaf", "branches"])
    yield tree
    yield {"$defs": {"a": array({"$ref": "#/$defs/b"}), "b": array({"$ref": "#/$defs/a"})}, "$ref": "#/$defs/a"}
    yield {"$defs": {"json": {"anyOf": [NULL, STRING, array({"$ref": "#/$defs/json"})]}}, "$ref": "#/$defs/json"}
    yield {"$defs": {"a/b": INTEGER, "c%d": STRING}, "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c%25d"}]}
    yield {"properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}}, "required": ["b"], "type": "object"}
    yield {"$ref": "#/$defs/s", "maxLength": 3, "$defs": {"s": STRING}}


def real():
    """Such as people write."""
    yield {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Person",
        **closed(
            {
                "name": {"type": "string", "minLength": 1, "maxLength": 20},
                "age": {"type": "integer", "minimum": 0, "maximum": 130},
                "email": {"type": "string", "format": "email"},
                "tags": array({"type": "string", "pattern": "^[a-z]+$"}, maxItems=3),
            },
            ["name", "age"],
        ),
    }
    yield closed({"tool": {"enum": ["search", "add"]}, "arguments": {"type": "object"}}, ["tool", "arguments"])
    yield closed(
        {f"field_{n}": [STRING, INTEGER, NULL][n % 3] for n in range(12)}, [f"field_{n}" for n in range(0, 12, 2)]
    )
    point = array({"type": "number", "minimum": -180, "maximum": 180}, minItems=2, maxItems=2)
    yield closed({"type": {"const": "LineString"}, "coordinates": array(point, minItems=2)}, ["type", "coordinates"])


GROUPS = {"strings": strings, "numbers": numbers, "arrays": arrays, "objects": objects, "values": values}
GROUPS |= {"combined": combined, "pairs": pairs, "referring": referring, "real": real}
SCHEMAS = {f"{name}-{number}": schema for name, make in GROUPS.items() for number, schema in enumerate(make())}

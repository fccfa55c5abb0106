"""JSON that fits its schema, always: by the package `jsonschema` as an oracle, over a table of schemas and a random model."""

import json
import re
import time
from datetime import datetime
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
import torch
from jsonschema import Draft202012Validator, FormatChecker

from saccade import generate as generate_text
from saccade.data import Batch, Text
from saccade.decoding import GenerationConfig, RegexConstraint, Sampler, generate_hypotheses
from saccade.decoding.constraints.json_schema import MAX_BYTES, MAX_DEPTH, MAX_PROPERTIES, load_schema
from saccade.decoding.constraints.processors import JsonSchemaConstraint
from saccade.decoding.loop import generate
from saccade.errors import DataError, ResourceError, UsageError
from saccade.models.build import new
from saccade.models.families import gpt2
from saccade.parts.state import State
from saccade.text.train import train_tokenizer
from support.json_schemas import SCHEMAS, array_schema, closed_object, object_schema

LETTERS = (
    'abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 {}[]":,.+-_@/\\ null true false é € 😀 < > ( ) ñ'
)
TEXTS = ['{"name": "the cat", "age": 12, "tags": ["a", "b"]}', '{"a": null, "b": true, "c": [1, 2.5, -3]}', LETTERS]
SIZES = {"bpe": 300, "unigram": 120, "wordpiece": 160, "words": 80}
CPU_SECONDS = 10.0  # of a hostile schema; measured, they take at most 2
CHECKER = FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])


@CHECKER.checks("date-time", raises=ValueError)
def is_moment(text):
    return bool(datetime.fromisoformat(text).tzinfo)


@CHECKER.checks("time", raises=ValueError)
def is_time(text):
    return bool(datetime.fromisoformat(f"2000-01-01T{text}").tzinfo)


@CHECKER.checks("duration")
def is_duration(text):
    return re.fullmatch(r"P(\d+W|(?=.)(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)", text) is not None


@CHECKER.checks("hostname")
def is_hostname(text):
    return len(text) < 254 and all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", part) for part in text.split("."))


@CHECKER.checks("uri", raises=ValueError)
def is_uri(text):
    return bool(urlsplit(text).scheme) and text.isascii() and not re.search(r'[\s<>"{}|\\^`]', text)


@cache
def tokenizer_of(kind):
    return train_tokenizer(TEXTS * 3, kind, SIZES.get(kind))


class Chance:
    """A writer that knows nothing, and may love some tokens."""

    def __init__(self, vocab, seed, loved=()):
        self.vocab, self.chance, self.loved = vocab, torch.Generator().manual_seed(seed), list(loved)

    def start(self, batch):
        return State(), batch.source

    def step(self, text, state):
        scores = 3 * torch.randn(*text.tokens.shape, self.vocab, generator=self.chance)
        scores[..., self.loved] += 20
        return scores


def written(schema, kind="bytes", *, limit=60, seed=0, rows=1, loved="", choose=None):
    """What a random model writes to a schema."""
    tokenizer = tokenizer_of(kind)
    loved = tokenizer.encode(loved, add_special_tokens=False).ids if loved else ()
    model, batch = Chance(tokenizer.vocab, seed, loved), Batch(Text.pad([[0]] * rows))
    given = {
        "stop_ids": tokenizer.eos_id,
        "max_new_tokens": limit,
        "processors": [JsonSchemaConstraint(schema, tokenizer)],
    }
    found = generate(model, batch, choose or Sampler(seed=seed), **given)
    assert all(len(row) <= limit for row in found)
    return [tokenizer.decode(row) for row in found]


def assert_valid(text, schema):
    value = json.loads(text)
    Draft202012Validator(schema, format_checker=CHECKER).validate(value)
    return value


def test_the_table_is_large_and_its_schemas_are_schemas():
    assert len(SCHEMAS) >= 200
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    text = json.dumps(list(SCHEMAS.values()))
    words = (
        "type enum const properties required additionalProperties patternProperties items prefixItems minItems maxItems"
    )
    words += " minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf anyOf oneOf allOf"
    words += " $ref $defs minProperties maxProperties"
    assert all(f'"{word}":' in text for word in words.split())


def test_the_oracle_refuses_what_does_not_fit():
    """The checks of formats that are written here, by hand."""
    for name, right, wrong in [
        ("date-time", "2024-02-29T23:59:59.5Z", "2023-02-29T00:00:00Z"),
        ("time", "23:59:59+01:00", "23:59:60Z"),
        ("date", "2024-02-29", "2100-02-29"),
        ("duration", "P1Y2M3DT4H", "P"),
        ("hostname", "a.b-c.de", "-a.b"),
        ("uri", "x:/y", "//no scheme"),
        ("ipv6", str(ip_address("::1")), "::g"),
    ]:
        assert CHECKER.conforms(right, name)
        assert not CHECKER.conforms(wrong, name)


@pytest.mark.parametrize(("number", "name"), list(enumerate(SCHEMAS)))
def test_what_is_written_parses_and_fits(number, name):
    """Greedy and drawn, each schema with one of the tokenizers that can write anything."""
    schema, kind = SCHEMAS[name], ("bytes", "characters", "bpe")[number % 3]
    limit = 200 if "field_11" in str(schema) else 60
    for text in written(schema, kind, limit=limit, seed=number):
        assert_valid(text, schema)
    for text in written(schema, kind, limit=limit, seed=number, choose=lambda scores: scores.argmax(-1)):
        assert_valid(text, schema)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "unigram", "wordpiece", "words"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_tokenizer_and_many_draws(kind, name):
    for seed in range(10):
        try:
            texts = written(SCHEMAS[name], kind, limit=(12, 60, 150)[seed % 3], seed=seed, rows=2)
        except UsageError as error:
            assert re.search("max_new_tokens is|can be generated with the tokens", str(error))  # noqa: PT017
            continue
        for text in texts:
            assert_valid(text, SCHEMAS[name])


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "words"])
def test_tokens_with_spaces_and_few_letters(kind):
    """A vocabulary that cannot write everything writes what it can, or says so."""
    wrote = 0
    for name in (
        "values-0",
        "values-1",
        "values-2",
        "arrays-0",
        "arrays-9",
        "objects-0",
        "strings-23",
        "combined-0",
        "values-7",
    ):
        try:
            texts = written(SCHEMAS[name], kind, rows=2)
        except UsageError as error:
            assert "can be generated with the tokens" in str(error)  # noqa: PT017
            continue
        wrote += 1
        for text in texts:
            assert_valid(text, SCHEMAS[name])
    assert wrote >= 5


def test_a_character_without_a_token_is_written_in_bytes():
    tokenizer = train_tokenizer(["abc"], "characters")
    rule = JsonSchemaConstraint({"const": {"é": "😀"}}, tokenizer)
    (row,) = generate(
        Chance(tokenizer.vocab, 1),
        Batch(Text.pad([[0]])),
        stop_ids=tokenizer.eos_id,
        max_new_tokens=60,
        processors=[rule],
    )
    assert json.loads(tokenizer.decode(row)) == {"é": "😀"}
    assert {"<0xC3>", "<0xA9>", "<0xF0>"} <= {tokenizer.id_to_token(token) for token in row}


AGE = {"type": "integer", "minimum": 0}
PERSON = closed_object(
    {"name": {"type": "string"}, "age": AGE, "tags": array_schema({"type": "string"})}, ["name", "age"]
)


@cache
def writer():
    tokenizer = tokenizer_of("bytes")
    torch.manual_seed(3)
    model = new("gpt2", gpt2.Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, max_positions=128)).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.5)
    model.tokenizer = tokenizer
    return model


WAYS = [
    *(
        GenerationConfig(),
        GenerationConfig(temperature=1.5),
        GenerationConfig(temperature=1.0, n_best=3),
        GenerationConfig(mbr_samples=3),
        GenerationConfig(contrastive_alpha=0.5),
    ),
    *(
        GenerationConfig(beams=3, n_best=3),
        GenerationConfig(beams=4, beam_groups=2, diversity_penalty=0.5),
        GenerationConfig(prompt_lookup=True),
    ),
]


def name_way(way):
    return "-".join(name for name, value in vars(way).items() if value != getattr(GenerationConfig(), name)) or "greedy"


@pytest.mark.parametrize("way", WAYS, ids=name_way)
def test_every_way_to_write_keeps_to_the_schema(way):
    tokenizer = tokenizer_of("bytes")
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("one", "two or three", "4")]
    settings = GenerationConfig(**{**vars(way), "schema": PERSON})
    found = generate_hypotheses(writer(), Batch(Text.pad(rows)), tokenizer, settings, max_new_tokens=50)
    assert len(found) == 3
    for row in found:
        for one in row:
            assert_valid(one.text, PERSON)


def test_speculation_writes_the_greedy_text_and_a_batch_what_each_writes_alone():
    tokenizer = tokenizer_of("bytes")
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("one", "one two one two", "x")]

    def texts(batch, **more):
        return [
            row[0].text
            for row in generate_hypotheses(
                writer(), batch, tokenizer, GenerationConfig(schema=PERSON, **more), max_new_tokens=40
            )
        ]

    plain = texts(Batch(Text.pad(rows)))
    assert plain == texts(Batch(Text.pad(rows)), prompt_lookup=True)
    assert plain == [texts(Batch(Text.pad([row])))[0] for row in rows]


def test_python_takes_a_dictionary_or_a_path_and_gives_the_json_alone(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON), encoding="utf-8")
    given = [
        generate_text(writer(), "Who?", decoding=GenerationConfig(schema=s), max_new_tokens=40)
        for s in (PERSON, path, str(path))
    ]
    assert given[0] == given[1] == given[2]
    assert_valid(given[0], PERSON)


@pytest.mark.parametrize("limit", [6, 7, 8, 9, 12, 20, 33])
def test_an_answer_is_never_cut_off(limit):
    """As short as the limit may be: the shortest is {"a":0}."""
    schema = closed_object({"a": {"type": "integer"}, "b": array_schema(array_schema({"type": "string"}))}, ["a"])
    if limit < 7:
        with pytest.raises(UsageError, match=r"fits the schema takes 7 tokens; max_new_tokens is 6. Raise it"):
            written(schema, limit=limit)
        return
    for seed in range(8):
        assert_valid(written(schema, limit=limit, seed=seed)[0], schema)


@pytest.mark.parametrize("loved", ["[", "{", '"', "1", " ", "a", '[{"', "\\", "-", ","])
@pytest.mark.parametrize("limit", [40, 90])
def test_what_a_model_loves_too_much_ends_in_time(loved, limit):
    """Brackets without end, digits, letters: all has to be closed with the last token."""
    assert_valid(written({}, limit=limit, loved=loved)[0], {})


def test_a_costly_choice_is_not_made_where_it_cannot_be_paid_for():
    """The object needs 240 tokens; with room for 100 only the string is left, with 400 the model has what it loves."""
    big = closed_object({f"key{n:02}": {"type": "null"} for n in range(20)}, [f"key{n:02}" for n in range(20)])
    schema = {"anyOf": [{"type": "string"}, big]}
    assert isinstance(assert_valid(written(schema, limit=100, loved="{")[0], schema), str)
    assert len(assert_valid(written(schema, limit=400, loved="{")[0], schema)) == 20


def test_all_texts_of_a_small_schema_are_written_and_no_others():
    schema = {"enum": ["a", "ab", 1, 12, None, [1]]}
    found = {written(schema, limit=6, seed=seed)[0] for seed in range(80)}
    assert found == {'"a"', '"ab"', "1", "12", "null", "[1]"} | {
        text for text in found if text.replace(" ", "") == "[1]"
    }


def nested(depth, part):
    for _ in range(depth):
        part = array_schema(part)
    return part


DEFS = {
    f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, array_schema({"$ref": f"#/$defs/d{n + 1}"})]} for n in range(40)
}
HOSTILE = {
    "deep": nested(45, {"type": "null"}),
    "deeper": nested(3_000, {"type": "null"}),
    "any of any of": {"$defs": DEFS | {"d40": {"type": "null"}}, "$ref": "#/$defs/d0"},
    "all of any of": {
        "allOf": [{"anyOf": [{"minLength": n}, {"maxLength": 99 + n}]} for n in range(25)],
        "type": "string",
    },
    "many choices": {"enum": [f"choice number {n}" for n in range(20_000)]},
    "too many choices": {"enum": [f"choice number {n}" for n in range(200_000)]},
    "itself": {"$ref": "#"},
    "a loop": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "all of itself": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}, "$ref": "#/$defs/a"},
    "no end": {"$defs": {"a": object_schema({"x": {"$ref": "#/$defs/a"}}, ["x"])}, "$ref": "#/$defs/a"},
    "exponential states": {"type": "string", "pattern": "^(a|b)*a(a|b){30}$"},
    "nested repetition": {"type": "string", "pattern": "^((a{0,100}){0,100}){0,100}$"},
    "long repetition": {"type": "string", "pattern": "^[a-z]{100000}$"},
    "unicode repetition": {"type": "string", "pattern": "^(\\w{1,50}\\s){1,50}$"},
    "long words": {"type": "string", "pattern": "|".join(f"word{n}x*" for n in range(8_000))},
    "long string": {"type": "string", "minLength": 1_000_000},
    "long array": array_schema({"type": "null"}, minItems=1_000_000),
    "long but optional": array_schema({"type": "null"}, maxItems=10_000_000),
    "many keys": object_schema({f"key{n}": {"type": "integer"} for n in range(MAX_PROPERTIES)}),
    "too many keys": object_schema({f"key{n}": {"type": "integer"} for n in range(5_000)}),
    "large multiples": {"type": "integer", "multipleOf": 999_983},
    "multiples": {"type": "integer", "multipleOf": 9_973},
    "wide range": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    "many objects": {"anyOf": [object_schema({f"p{n}": {"type": "string"}}, [f"p{n}"]) for n in range(1_500)]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_kept_to_in_bounded_time(name):
    began = time.process_time()
    try:
        (text,) = written(HOSTILE[name], limit=60)
    except (UsageError, ResourceError) as error:
        assert len(str(error)) < 600  # noqa: PT017
    else:
        if "many choices" not in name:
            assert_valid(text, HOSTILE[name])
        json.loads(text)
    assert time.process_time() - began < CPU_SECONDS


def test_nothing_is_fetched(monkeypatch):
    monkeypatch.setattr("socket.socket", None)
    for target in ("https://example.com/schema.json", "file:///etc/passwd", "other.json", 7):
        with pytest.raises(
            UsageError, match=r"at #/items: \$ref is .* external schemas are not fetched; copy it into \$defs"
        ):
            load_schema(array_schema({"$ref": target}))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"minimun": 3}, "at #: the keyword 'minimun' is unknown; write minimum, if that is meant"),
        (
            object_schema({"a": {"types": "string"}}),
            "at #/properties/a: the keyword 'types' is unknown; write type, if that is meant",
        ),
        ({"not": {}}, "the keyword 'not' cannot be enforced during generation; leave it out"),
        (
            {"$defs": {"x": array_schema(uniqueItems=True)}},
            "at #/$defs/x: the keyword 'uniqueItems' cannot be enforced",
        ),
        (
            array_schema([{"type": "null"}]),
            "at #/items: a schema is an object, true or false; got list; a list of schemas is called",
        ),
        ({"properties": []}, "at #/properties: an object is needed; got []"),
        ({"anyOf": {}}, "at #/anyOf: a list is needed"),
        ({"anyOf": [3]}, "at #/anyOf/0: a schema is an object, true or false; got int"),
        ({"type": "strin"}, "llguidance cannot use it: Invalid type: strin"),
        ({"type": "string", "minLength": -1}, "'minLength'"),
        ({"type": "string", "format": "phone"}, "Unknown format: phone"),
        ({"type": "string", "pattern": "(?=a)b"}, "llguidance cannot use it"),
        ({"type": "string", "pattern": "("}, "llguidance cannot use it"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"type": "string", "enum": [1]}, "Unsatisfiable"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, "oneOf"),
        (
            {"type": "object", "minProperties": 3},
            "minProperties 3 cannot be enforced beyond the required keys",
        ),
        ({"type": "integer", "multipleOf": 99_991}, "multipleOf 99991 has too many digits; at most 10,000"),
        ({"$ref": "#/$defs/missing"}, "llguidance cannot use it"),
        ({"const": float("nan")}, "it is not valid JSON"),
        ({"const": {1, 2}}, "it is not valid JSON"),
        ({"const": "x" * MAX_BYTES}, "at most 1,000,000 are read"),
        (nested(MAX_DEPTH, {}), "nested more than 100 levels deep"),
        (object_schema({str(n): {} for n in range(MAX_PROPERTIES + 1)}), "at #: 401 properties; at most 400 are read"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_to_is_refused_with_its_place(schema, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        GenerationConfig(schema=schema).check()


@pytest.mark.parametrize("key", ["lenient", "coerce_one_of", "whitespace_pattern"])
def test_options_inside_a_schema_change_nothing(key):
    """llguidance would read them from the schema itself."""
    schema = {"type": "string", "format": "phone", "x-guidance": {key: True if key != "whitespace_pattern" else "x"}}
    with pytest.raises(UsageError, match="Unknown format: phone"):
        load_schema(schema)


FILES = {
    "not JSON": (b'{"type": \n  strin}', "schema.json: line 2, column 3: not valid JSON: Expecting value"),
    "a list": (b"[1]", "a schema is a JSON object; got list"),
    "false": (b"false", "`false` allows no value"),
    "empty": (b"", "line 1, column 1: not valid JSON"),
    "not UTF-8": (b'{"const": "\xff"}', "byte 11 is not UTF-8"),
    "NaN": (b'{"const": NaN}', "NaN is not valid JSON"),
    "deep": (b"[" * 100_000, "nested more than 100 levels deep"),
    "long number": (b'{"const": ' + b"1" * 5_000 + b"}", "digits"),
    "large": (b" " * 50_000_000, "a schema of 50,000,000 bytes; at most 1,000,000 are read"),
    "unknown": (b'{"foo": 1}', "at #: the keyword 'foo' is unknown. Leave it out."),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_named(name, tmp_path):
    path = tmp_path / "schema.json"
    path.write_bytes(FILES[name][0])
    began = time.process_time()
    with pytest.raises(DataError, match=re.escape(FILES[name][1])) as caught:
        GenerationConfig(schema=path).check()
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1
    assert time.process_time() - began < CPU_SECONDS


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(DataError, match=r"the schema cannot be read: .* Give the path of a JSON file"):
            GenerationConfig(schema=str(path)).check()


def test_a_schema_says_all_that_may_be_written():
    others = {
        "regex": ("a", "it and --json-schema both constrain"),
        "choices": (("a",), "it and --json-schema both constrain"),
    }
    for name, (value, said) in others.items():
        with pytest.raises(UsageError, match=said):
            GenerationConfig(schema={}, **{name: value}).check()
    with pytest.raises(
        UsageError, match="--json-schema: the constraint decides where a text ends, and --stop would cut it"
    ):
        GenerationConfig(schema={}, stop=("b",)).check()


def test_a_grammar_that_becomes_too_complex_is_an_error_of_resources(monkeypatch):
    monkeypatch.setattr(
        "saccade.decoding.constraints.matcher.PARSER_LIMITS", {"max_lexer_states": 30, "verbose_errors": False}
    )
    rule = RegexConstraint("(a|b)*a(a|b){9}", tokenizer_of("bytes"))
    with pytest.raises(
        ResourceError, match=r"has become too complex for llguidance .* simplify the expression or the schema"
    ):
        generate(
            Chance(300, 0),
            Batch(Text.pad([[0]])),
            stop_ids=tokenizer_of("bytes").eos_id,
            max_new_tokens=60,
            processors=[rule],
        )

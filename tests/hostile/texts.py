"""Hostile tokenizer.json files: patterns that hang, lists without end, ids and tokens that are not there."""

from collections.abc import Callable
from typing import Any

from hostile.bombs import BOMBS, BROKEN
from hostile.case import Case, case, change, directory, edit, fifo, link, put, put_json

FILE = "tokenizer.json"
Spec = dict[str, Any]


def piece(part: str, value: Any) -> Callable[[Spec], object]:
    """Set one part of the file."""
    return lambda spec: spec.update({part: value})


def model(**fields: Any) -> Callable[[Spec], object]:
    """Set fields of the model."""
    return lambda spec: spec["model"].update(fields)


def split(pattern: str) -> Spec:
    """A pre-tokenizer that cuts at a pattern."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: Spec, content: str) -> Spec:
    """A normaliser that replaces."""
    return {"type": "Replace", "pattern": pattern, "content": content}


def nested(depth: int) -> Spec:
    """A sequence in a sequence in a sequence."""
    node: Spec = {"type": "Lowercase"}
    for _ in range(depth):
        node = {"type": "Sequence", "normalizers": [node]}
    return node


def added(**fields: Any) -> Callable[[Spec], object]:
    """One more added token."""
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return lambda spec: spec["added_tokens"].append({"id": 99, "content": "new", **usual, **fields})


def framing(**fields: Any) -> Callable[[Spec], object]:
    """Alter the post-processor."""
    return lambda spec: spec["post_processor"].update(fields)


def bpe(merges: Any, **fields: Any) -> Callable[[Spec], object]:
    """A BPE model over the same vocabulary."""

    def apply(spec: Spec) -> None:
        spec["model"] = {
            "type": "BPE",
            "vocab": spec["model"]["vocab"],
            "merges": merges,
            "unk_token": "[UNK]",
            **fields,
        }

    return apply


def unigram(vocab: Any, **fields: Any) -> Callable[[Spec], object]:
    """A Unigram model."""
    return lambda spec: spec.update({"model": {"type": "Unigram", "vocab": vocab, "unk_id": 0, **fields}})


def ids(token: str, number: Any) -> Callable[[Spec], object]:
    """Another id for one token of the vocabulary."""
    return lambda spec: spec["model"]["vocab"].update({token: number})


LONG = {"Sequence": {"id": "A", "type_id": 0}}
EDITS: dict[str, tuple[Callable[[Spec], object], tuple[str, ...]]] = {
    "2,000,000 merges": (bpe(["a a"] * 2_000_000), ("2,000,000 merges",)),
    "merges in a text": (bpe("a b"), ("merges",)),
    "merges of numbers": (bpe([1, 2]), ("merge",)),
    "a merge of three": (bpe([["a", "b", "c"]]), ("merge",)),
    "a merge of one": (bpe(["a"]), ("merge",)),
    "a merge of unknown tokens": (bpe(["xx yy"]), ("out of vocabulary",)),
    "a merge into nothing": (bpe(["a b"]), ("out of vocabulary",)),
    "a merge of lists": (bpe([[["a"], ["b"]]]), ("merge",)),
    "600,000 tokens": (model(vocab={f"t{i}": i for i in range(600_000)}), ("600,000 tokens",)),
    "no token": (model(vocab={}), ("empty",)),
    "a vocabulary in a text": (model(vocab="abc"), ("vocabulary",)),
    "a vocabulary of lists": (model(vocab=[["a"], ["b"]]), ("vocabulary",)),
    "an id that is negative": (ids("a", -1), ("'a'", "id")),
    "an id that is a fraction": (ids("a", 1.5), ("'a'", "id")),
    "an id that is a word": (ids("a", "one"), ("'a'", "id")),
    "an id that is null": (ids("a", None), ("'a'", "id")),
    "an id that is true": (ids("a", True), ("'a'", "id")),
    "an id of 2**32": (ids("a", 2**32), ("'a'", "id")),
    "an id of 10**30": (ids("a", 10**30), ("'a'", "id")),
    "an id beyond the model's": (ids("a", 4_999_999), ("4,999,999", "320")),
    "an id just beyond the model's": (ids("a", 320), ("320",)),
    "two tokens with one id": (ids("a", 7), ("id", "7")),
    "words of 10**9 letters": (model(max_input_chars_per_word=10**9), ("max_input_chars",)),
    "words of no letters, in words": (model(max_input_chars_per_word="x"), ("max_input_chars",)),
    "words of -1 letters": (model(max_input_chars_per_word=-1), ("max_input_chars",)),
    "an unknown token that is not there": (model(unk_token="[NOWHERE]"), ("[NOWHERE]",)),
    "an unknown kind of model": (model(type="Pickle"), ("pickle",)),
    "a kind of model in a list": (model(type=["BPE"]), ("type",)),
    "no model": (piece("model", None), ("model",)),
    "a model in a list": (piece("model", []), ("model",)),
    "added tokens in a text": (piece("added_tokens", "x"), ("added_tokens",)),
    "added tokens of numbers": (piece("added_tokens", [1]), ("added_tokens",)),
    "an added token without content": (piece("added_tokens", [{"id": 1}]), ("added_tokens",)),
    "an added token that is empty": (added(content=""), ("added",)),
    "an added token of 10 MB": (added(content="x" * 10**7), ("added",)),
    "an added token with another id": (added(content="[CLS]", id=77), ("[CLS]", "77")),
    "an added token twice": (lambda spec: [added(id=88)(spec), added(id=99)(spec)], ("'new'", "88", "99")),
    "added tokens with one id": (
        lambda spec: [added(id=98, content="one")(spec), added(id=98, content="two")(spec)],
        ("98",),
    ),
    "an added token with a negative id": (added(id=-5), ("-5",)),
    "an added token with an id of 10**12": (added(id=10**12), ("id",)),
    "an added token with an id in words": (added(id="x"), ("id",)),
    "an added token of the next id but one": (added(id=300), ("300",)),
    "150,000 added tokens": (
        lambda spec: [added(id=100 + i, content=f"n{i}")(spec) for i in range(150_000)],
        ("added tokens",),
    ),
    "half a character": (added(content="\ud800"), ("half a character",)),
    "a frame with an id of 10**6": (
        framing(
            special_tokens={
                "[CLS]": {"id": "[CLS]", "ids": [10**6], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
            }
        ),
        ("1,000,000",),
    ),
    "a frame with ids beyond counting": (
        framing(special_tokens={"[CLS]": {"id": "[CLS]", "ids": [2**40], "tokens": ["[CLS]"]}}),
        ("[SEP]",),
    ),
    "a frame with 500 ids for one token": (
        framing(special_tokens={n: {"id": n, "ids": [2] * 500, "tokens": [n] * 500} for n in ("[CLS]", "[SEP]")}),
        ("around",),
    ),
    "a frame with the text 900 times": (framing(single=[LONG] * 900), ("around",)),
    "a frame of tokens that are not there": (framing(single=[{"SpecialToken": {"id": "[X]", "type_id": 0}}]), ("[X]",)),
    "a frame in a text": (framing(single="$A:0", pair=7), ("PostProcessor",)),
    "BERT's frame with an id of 2**31": (
        piece("post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 2**31], "cls": ["[CLS]", 2]}),
        ("2,147,483,648",),
    ),
    "a frame without tokens": (
        piece("post_processor", {"type": "BertProcessing", "sep": [], "cls": []}),
        ("PostProcessor",),
    ),
    "frames 5,000 deep": (
        piece("post_processor", {"type": "Sequence", "processors": [{"type": "ByteLevel"}] * 5_000}),
        ("5,000",),
    ),
    "normalisers 50 deep": (piece("normalizer", nested(50)), ("deep",)),
    "normalisers 300 deep": (piece("normalizer", nested(300)), ("deep",)),
    "2,000 normalisers": (
        piece("normalizer", {"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 2_000}),
        ("2,000",),
    ),
    "a normaliser of an unknown kind": (piece("normalizer", {"type": "Exec", "code": "x"}), ("Normalizer",)),
    "a normaliser in a text": (piece("normalizer", "Lowercase"), ("Normalizer",)),
    "a normaliser that writes a megabyte": (piece("normalizer", replace({"String": "a"}, "x" * 2**20)), ("longer",)),
    "normalisers that double 20 times": (
        piece("normalizer", {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 20}),
        ("longer",),
    ),
    "a normaliser that puts a megabyte in front": (
        piece("normalizer", {"type": "Prepend", "prepend": "x" * 2**20}),
        ("longer",),
    ),
    "a normaliser from a broken table": (
        piece("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA/////w=="}),
        ("precompiled_charsmap",),
    ),
    "a normaliser from no table": (
        piece("normalizer", {"type": "Precompiled", "precompiled_charsmap": "!!"}),
        ("precompiled_charsmap",),
    ),
    "pieces of no length": (piece("pre_tokenizer", {"type": "FixedLength", "length": 0}), ("length",)),
    "a pre-tokenizer of an unknown kind": (
        piece("pre_tokenizer", {"type": "Python", "module": "os"}),
        ("PreTokenizer",),
    ),
    "a pre-tokenizer with words for flags": (
        piece("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": "x", "trim_offsets": 3}),
        ("boolean",),
    ),
    "a decoder of an unknown kind": (piece("decoder", {"type": "Evil"}), ("Decoder",)),
    "a decoder that writes a megabyte": (
        piece("decoder", {"type": "Replace", "pattern": {"String": "a"}, "content": "x" * 2**20}),
        ("longer",),
    ),
    "a decoder that hangs": (
        piece("decoder", {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}),
        ("repeats",),
    ),
    "scores that are words": (unigram([["a", "x"]]), ("score",)),
    "scores that are NaN": (unigram([["a", float("nan")], ["b", 0.0]]), ("score",)),
    "scores that are infinite": (unigram([["a", float("-inf")], ["b", float("inf")]]), ("score",)),
    "an unknown token beyond the list": (unigram([["a", 0.0]], unk_id=9), ("unk_id",)),
    "an unknown token that is negative": (unigram([["a", 0.0]], unk_id=-1), ("unk_id",)),
    "a version that is none": (piece("version", "9.9"), ("version",)),
}
TEXTS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("not json",)),
    "cut": ('{"version": "1.0", "model": {"vo', ("not json",)),
    "a list": ("[]", ("object",)),
    "null": ("null", ("object",)),
    "an empty object": ("{}", ("model",)),
    "50,000 lists deep": ("[" * 50_000 + "]" * 50_000, ("deep",)),
    "not UTF-8": (b'{"a": "\xff"}', ("utf-8",)),
    "a pickle": (b"\x80\x04\x95\0\0\0\0", ("utf-8",)),
    "a number of 5,000 digits": ('{"model": ' + "1" * 5_000 + "}", ("digits",)),
    "a key twice": ('{"model": 1, "model": 2}', ("twice",)),
    "a token twice": (
        '{"model": {"type": "WordLevel", "vocab": {"a": 0, "a": 1}, "unk_token": "a"}}',
        ("'a'", "twice"),
    ),
    "a byte order mark": ("\ufeff{}", ("bom",)),
}


def bombs() -> list[Case]:
    """Every pattern as a pre-tokenizer, and as a normaliser."""
    return [
        *(case(f"bomb: {n}", edit(FILE, piece("pre_tokenizer", split(p))), FILE, "pattern") for n, p in BOMBS.items()),
        *(
            case(
                f"bomb in a normaliser: {n}",
                edit(FILE, piece("normalizer", replace({"Regex": p}, ""))),
                FILE,
                "pattern",
            )
            for n, p in list(BOMBS.items())[::3]
        ),
        *(
            case(f"broken pattern: {n}", edit(FILE, piece("pre_tokenizer", split(p))), FILE, "Oniguruma")
            for n, p in BROKEN.items()
        ),
    ]


CASES = [
    *bombs(),
    *(case(f"tokenizer: {n}", edit(FILE, alter), FILE, *says) for n, (alter, says) in EDITS.items()),
    *(case(f"tokenizer is {n}", put(FILE, text), FILE, *says) for n, (text, says) in TEXTS.items()),
    case("tokenizer is a directory", directory(FILE), FILE, "regular"),
    case("tokenizer is a pipe", fifo(FILE), FILE, "regular"),
    case("tokenizer leads to a device", link(FILE, "/dev/zero"), FILE, "leads out"),
    case("tokenizer leads out", link(FILE, "../outside.json"), FILE, "leads out"),
    case("tokenizer of 70 MB", put(FILE, b" " * (70 << 20)), FILE, "bytes"),
    case(
        "tokenizer names code",
        put_json("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "evil.T"}}),
        "auto_map",
        loads=True,
    ),
    case(
        "special tokens that point nowhere",
        put_json("tokenizer_config.json", {"mask_token": "[NOWHERE]"}),
        "tokenizer_config.json",
        "[NOWHERE]",
        loads=True,
    ),
    case(
        "special tokens in numbers",
        put_json("special_tokens_map.json", {"mask_token": 7}),
        "special_tokens_map.json",
        "mask_token",
    ),
    case("special tokens in a list", put_json("special_tokens_map.json", []), "special_tokens_map.json", "object"),
    case(
        "special tokens lead out",
        link("special_tokens_map.json", "/etc/passwd"),
        "special_tokens_map.json",
        "leads out",
    ),
    case("added tokens with ids in words", put_json("added_tokens.json", {"x": "y"}), "added token", "id"),
    case("a longest text in words", change("tokenizer_config.json", model_max_length="x"), "model_max_length"),
    case("a longest text of NaN", change("tokenizer_config.json", model_max_length=float("nan")), "model_max_length"),
]

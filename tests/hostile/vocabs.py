"""Hostile vocabularies without a tokenizer.json (vocab.txt, merges.txt, SentencePiece), and hostile pooling of sentences."""

import json
from typing import Any

from hostile.bases import LETTERS, WORDS, pieces
from hostile.case import Write, both, case, change, directory, edit, fifo, link, put, put_json
from saccade.text.backends.sentencepiece_proto import encode_field

LIST = "\n".join(WORDS)
VOCAB: dict[str, tuple[Write, tuple[str, ...]]] = {
    "empty": (put("vocab.txt", ""), ("cls",)),
    "without special tokens": (put("vocab.txt", "\n".join(LETTERS)), ("cls",)),
    "not UTF-8": (put("vocab.txt", b"[PAD]\n\xff\xfe\n"), ("utf-8",)),
    "NULs": (put("vocab.txt", LIST.encode() + b"\n\0\n\0\0"), ("nul",)),
    "ten million lines": (
        put("vocab.txt", LIST.encode() + b"\n" + b"".join(b"%d\n" % i for i in range(10**7))),
        ("bytes",),
    ),
    "600,000 lines": (put("vocab.txt", LIST + "\n" + "\n".join(map(str, range(600_000)))), ("tokens",)),
    "one line of 5 MB": (put("vocab.txt", LIST + "\n" + "x" * 5_000_000), ("characters",)),
    "more words than the model": (put("vocab.txt", LIST + "\n" + "\n".join(f"w{i}" for i in range(400))), ("320",)),
    "a directory": (directory("vocab.txt"), ("regular",)),
    "a pipe": (fifo("vocab.txt"), ("regular",)),
    "a link out": (link("vocab.txt", "/etc/passwd"), ("leads out",)),
    "a pickle": (put("vocab.txt", b"\x80\x04\x95\xff"), ("utf-8",)),
}
MERGES: dict[str, tuple[Write, tuple[str, ...]]] = {
    "of one word": (put("merges.txt", "t\n"), ("merges.txt",)),
    "of three words": (put("merges.txt", "t h e\n"), ("merges.txt",)),
    "of unknown tokens": (put("merges.txt", "xx yy\n"), ("vocab.json", "out of vocabulary")),
    "into nothing": (put("merges.txt", "a b\n"), ("vocab.json", "out of vocabulary")),
    "2,000,000 times": (put("merges.txt", "t h\n" * 2_000_000), ("merges",)),
    "not UTF-8": (put("merges.txt", b"t \xff\n"), ("merges.txt", "utf-8")),
    "NULs": (put("merges.txt", b"\0 \0\n"), ("vocab.json", "out of vocabulary")),
    "a pipe": (fifo("merges.txt"), ("merges.txt", "regular")),
    "a link out": (link("merges.txt", "../outside.json"), ("merges.txt", "leads out")),
    "vocabulary is a list": (put_json("vocab.json", ["a"]), ("vocab.json", "object")),
    "vocabulary of words": (put_json("vocab.json", {"a": "b"}), ("vocab.json", "id")),
    "vocabulary of 2**40": (put_json("vocab.json", {"a": 2**40}), ("vocab.json", "id")),
    "vocabulary with one id twice": (edit("vocab.json", lambda v: v.update({"th": 0})), ("vocab.json", "id")),
    "vocabulary beyond the model": (edit("vocab.json", lambda v: v.update({"th": 999})), ("999", "320")),
    "vocabulary of nothing": (put_json("vocab.json", {}), ("vocab.json", "empty")),
    "vocabulary with a token twice": (put("vocab.json", '{"a": 0, "a": 1}'), ("vocab.json", "twice")),
}


PIECE = encode_field(1, encode_field(1, b"x") + encode_field(2, 0.0) + encode_field(3, 1))
WRONG: dict[str, bytes] = {
    "empty": b"",
    "garbage": bytes(range(256)) * 8,
    "zeros": b"\0" * 4096,
    "a length of 2**31": b"\x0a\xff\xff\xff\xff\x07" + b"x" * 10,
    "a length of 2**63": b"\x0a" + b"\xff" * 9 + b"\x01",
    "a length that never ends": b"\x0a" + b"\xff" * 100,
    "groups 100,000 deep": b"\x0b" * 100_000,
    "messages 5,000 deep": b"\x0a\x7f" * 5_000,
    "no unknown piece": PIECE,
    "two unknown pieces": pieces() + encode_field(1, encode_field(1, b"y") + encode_field(3, 2)),
    "a piece twice": pieces() + encode_field(1, encode_field(1, b"<unk>") + encode_field(3, 1)),
    "an empty piece": pieces() + encode_field(1, encode_field(1, b"") + encode_field(2, 0.0)),
    "a piece that is not UTF-8": pieces() + encode_field(1, encode_field(1, b"\xff\xfe") + encode_field(2, 0.0)),
    "a piece with a NUL": pieces() + encode_field(1, encode_field(1, b"a\0b") + encode_field(2, 0.0)),
    "a byte piece that is none": pieces() + encode_field(1, encode_field(1, b"<0xZZ>") + encode_field(3, 6)),
    "a table that ends early": pieces() + encode_field(3, encode_field(2, b"\xff\xff\xff\x7fabc")),
    "a table of garbage": pieces() + encode_field(3, encode_field(2, b"\0\x04\0\0" + bytes(range(256)) * 4 + b"abc\0")),
    "a table that leads out": pieces()
    + encode_field(3, encode_field(2, b"\0\x04\0\0" + b"\xff\xfb\xff\x7f" * 256 + b"abc\0")),
    "a table without text": pieces() + encode_field(3, encode_field(2, b"\0\x04\0\0" + b"\0\0\0\0" * 256)),
    "a text file": b"hello\n" * 100,
    "a pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94.",
}
SPIECE: dict[str, tuple[Write, tuple[str, ...]]] = {
    **{
        f"cut to {n} bytes": (put("spiece.model", pieces()[:n]), ("not a SentencePiece",))
        for n in (1, 5, 100, 1_000, len(pieces()) - 1)
    },
    **{f"is {name}": (put("spiece.model", content), ("not a SentencePiece",)) for name, content in WRONG.items()},
    "a directory": (directory("spiece.model"), ("regular",)),
    "a pipe": (fifo("spiece.model"), ("regular",)),
    "a link out": (link("spiece.model", "/etc/passwd"), ("leads out",)),
    "10**9 further ids": (change("tokenizer_config.json", extra_ids=10**9), ("extra_ids",)),
    "further ids in words": (change("tokenizer_config.json", extra_ids="x"), ("extra_ids",)),
}
MARIAN: dict[str, tuple[Write, tuple[str, ...]]] = {
    "a vocabulary of ids beyond the model": (
        edit("vocab.json", lambda v: v.update({"zz": 10_000})),
        ("10,000", "320"),
    ),
    "a vocabulary without an end": (edit("vocab.json", lambda v: v.pop("</s>")), ("eos",)),
    "two tokens with one id": (edit("vocab.json", lambda v: v.update({"zz": 5})), ("vocab.json", "id")),
    "a second vocabulary that is missing": (
        put_json("tokenizer_config.json", {"separate_vocabs": True}),
        ("target_vocab.json",),
    ),
    "a second side of garbage": (put("target.spm", b"garbage"), ("target.spm",)),
    "a second side that leads out": (link("target.spm", "../outside.json"), ("target.spm", "leads out")),
}
NORMAL = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
POOL, MODULES = "1_Pooling/config.json", "modules.json"


def module(kind: Any, path: Any = "1_Pooling") -> Write:
    """modules.json with one more module."""
    return put_json(MODULES, [*NORMAL, {"idx": 1, "name": "1", "path": path, "type": kind}])


def pooled(content: Any) -> Write:
    """1_Pooling/config.json with that value."""
    return both(directory("1_Pooling"), put(POOL, content if isinstance(content, bytes) else json.dumps(content)))


POOLS = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
LAYER, TANH = "2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Tanh"}
LENGTH, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"


def dense(content: Any) -> Write:
    """A dense layer behind the pooling, with that config and no weights."""
    listed = put_json(MODULES, [*NORMAL, POOLS, DENSE])
    return both(both(directory("2_Dense"), put_json(LAYER, content)), listed)


def beside(name: str, content: Any) -> Write:
    """A file of sentence-transformers, with a modules.json that has it read."""
    return both(put_json(MODULES, NORMAL), put_json(name, content))


POOLING: dict[str, tuple[Write, tuple[str, ...]]] = {
    "modules in an object": (put_json(MODULES, {"a": 1}), (MODULES, "list")),
    "modules in a text": (put(MODULES, "Normalize"), (MODULES, "not json")),
    "modules of numbers": (put_json(MODULES, [1, 2]), (MODULES,)),
    "modules 50,000 deep": (put(MODULES, "[" * 50_000), (MODULES, "deep")),
    "5,000 modules": (put_json(MODULES, NORMAL * 5_000), (MODULES, "5,000")),
    "a module of code": (module("evil.Module"), (MODULES, "evil.Module")),
    "a module of the system": (module("os.system"), (MODULES, "os.system")),
    "a module that is not supported": (module("sentence_transformers.models.LSTM", "1_LSTM"), (MODULES, "LSTM")),
    "a layer before any pooling": (module("sentence_transformers.models.Dense", "1_Dense"), (MODULES, "order")),
    "a layer without its weights": (
        both(directory("1_Pooling"), put_json(MODULES, [*NORMAL, POOLS, DENSE])),
        ("2_Dense", "cannot be read"),
    ),
    "a layer that leads out": (
        both(link("2_Dense", "../outside"), put_json(MODULES, [*NORMAL, POOLS, DENSE])),
        (LAYER, "leads out"),
    ),
    "a layer that names code": (dense({"activation_function": "os.system"}), (LAYER, "os.system")),
    "a layer of a billion": (dense({"in_features": 10**9, "out_features": 10**9} | TANH), ("model.safetensors",)),
    "a module of numbers": (module(7), (MODULES,)),
    "a module above": (module("sentence_transformers.models.Pooling", "../1_Pooling"), (MODULES, "../1_Pooling")),
    "a module at the root": (module("sentence_transformers.models.Pooling", "/etc"), (MODULES, "/etc")),
    "a module in a list": (module("sentence_transformers.models.Pooling", ["1_Pooling"]), (MODULES,)),
    "modules lead out": (link(MODULES, "/etc/passwd"), (MODULES, "leads out")),
    "modules are a pipe": (fifo(MODULES), (MODULES, "regular")),
    "pooling leads out": (both(directory("1_Pooling"), link(POOL, "/etc/passwd")), (POOL, "leads out")),
    "pooling's directory leads out": (link("1_Pooling", "../outside"), (POOL, "leads out")),
    "pooling is a list": (pooled([]), (POOL, "object")),
    "pooling in words": (pooled({"pooling_mode_cls_token": "yes"}), (POOL, "pooling_mode_cls_token")),
    "pooling of a thousand kinds": (pooled({"pooling_mode": ["cls"] * 1000}), (POOL, "pooling_mode")),
    "pooling of a list": (pooled({"pooling_mode": [["cls"]]}), (POOL, "pooling_mode")),
    "pooling that is not supported": (pooled({"pooling_mode_median_tokens": True}), (POOL, "median")),
    "a length in words": (beside(LENGTH, {"max_seq_length": "many"}), (LENGTH, "max_seq_length")),
    "a length of nothing": (beside(LENGTH, {"max_seq_length": 0}), (LENGTH, "max_seq_length")),
    "a length that never ends": (beside(LENGTH, {"max_seq_length": 10**30}), (LENGTH, "max_seq_length")),
    "letters in words": (beside(LENGTH, {"do_lower_case": "yes"}), (LENGTH, "do_lower_case")),
    "prompts in a list": (beside(PROMPTS, {"prompts": ["a"]}), (PROMPTS, "prompts")),
    "a prompt of 20,000 letters": (beside(PROMPTS, {"prompts": {"a": "a" * 20_000}}), (PROMPTS, "prompts")),
    "a prompt that is not there": (beside(PROMPTS, {"default_prompt_name": "a"}), (PROMPTS, "default_prompt_name")),
    "pooling is not UTF-8": (pooled(b"\xff"), (POOL, "utf-8")),
    "pooling of 20 MB": (pooled(b" " * (20 << 20)), (POOL, "bytes")),
    "pooling is a pipe": (both(directory("1_Pooling"), fifo(POOL)), (POOL, "regular")),
}
CASES = [
    *(case(f"vocab.txt: {n}", write, "vocab.txt", *says, base="vocab") for n, (write, says) in VOCAB.items()),
    *(case(f"merges: {n}", write, *says, base="merges") for n, (write, says) in MERGES.items()),
    *(case(f"spiece.model: {n}", write, "spiece.model", *says, base="pieces") for n, (write, says) in SPIECE.items()),
    *(case(f"marian: {n}", write, *says, base="marian") for n, (write, says) in MARIAN.items()),
    *(case(f"sentences: {n}", write, *says) for n, (write, says) in POOLING.items()),
    case(
        "further ids beyond the model",
        change("tokenizer_config.json", extra_ids=5_000),
        "special tokens",
        "420",
        base="pieces",
        loads=True,
    ),
    case(
        "a frame that is not there",
        change("tokenizer_config.json", cls_token="[NO]"),
        "vocab.txt",
        "[NO]",
        base="vocab",
    ),
]

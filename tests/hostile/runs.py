"""Hostile runs: a config.toml that is damaged or forged, a task that is not the model's, weights and files that lie."""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hostile.case import Case, Write, both, case, change, directory, drop, edit, fifo, header, link, put
from hostile.configs import TEXTS as JSON_TEXTS

FILE, MODEL, WEIGHTS = "config.toml", "model/config.json", "model/model.safetensors"
RUN: dict[str, Any] = {"task": "label", "data": [], "model": "", "family": "bert", "digest": "", "columns": {}}
TASK: dict[str, Any] = {
    "multi_label": False,
    "max_tokens": 16,
    "metric": "accuracy",
    "augment": "none",
    "labels": ["bad", "good"],
}


def toml(run: Any = RUN, task: Any = TASK) -> str:
    """A config.toml by hand; a value is written as JSON writes it, which TOML reads, and a text in angle brackets as it is."""

    def value(x: Any) -> str:
        if isinstance(x, dict):
            return "{" + ", ".join(f"{k} = {value(v)}" for k, v in x.items()) + "}"
        return x[1:-1] if isinstance(x, str) and x.startswith("<") else json.dumps(x)

    return f"run = {value(run)}\ntask = {value(task)}\n"


def runs(**fields: Any) -> Write:
    """Other values in [run]."""
    return put(FILE, toml(RUN | fields))


def tasks(**fields: Any) -> Write:
    """Other values in [task]."""
    return put(FILE, toml(task=TASK | fields))


def weights(alter: Any) -> Write:
    """Let a function alter the tensors of the model."""

    def write(home: Path) -> None:
        found = load_file(home / WEIGHTS)
        alter(found)
        save_file(found, home / WEIGHTS, {"format": "pt"})

    return write


def sparse(home: Path, gigabytes: int) -> None:
    """A file that holds almost nothing, and says that its tensors take gigabytes; the config says so too."""
    words = gigabytes * 2**30 // (4 * 16_384)
    content = (home / WEIGHTS).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    entries: dict[str, Any] = json.loads(content[8:end])
    at = 0
    for name, entry in entries.items():
        if name != "__metadata__":
            if name.endswith("word_embeddings.weight"):
                entry["shape"] = [words, 16_384]
            elif "shape" in entry:
                entry["shape"] = [16_384 if size == 12 else size for size in entry["shape"]]
            size = 4 * torch.Size(entry["shape"]).numel()
            entry["data_offsets"] = [at, at + size]
            at += size
    made = header(entries)
    with (home / WEIGHTS).open("wb") as file:
        file.write(made)
        file.truncate(len(made) + at)
    change(MODEL, hidden_size=16_384, vocab_size=words, num_attention_heads=4)(home)


def fill(name: str, value: float) -> Any:
    return lambda found: found[name].view(-1)[3:4].fill_(value)


def grow(found: Any) -> None:
    found["classifier.weight"].fill_(3e38)
    found["bert.pooler.dense.bias"].fill_(1e3)  # all of what the head reads becomes 1


def segments(spec: dict[str, Any]) -> None:
    for part in spec["post_processor"]["single"]:
        next(iter(part.values()))["type_id"] = 5


RUN_VALUES: dict[str, tuple[Any, str]] = {
    "task is a list": ({"task": ["label"]}, "run.task"),
    "task is a number": ({"task": 7}, "run.task"),
    "task is a table": ({"task": {"a": 1}}, "run.task"),
    "task is unknown": ({"task": "evil"}, "run.task"),
    "task is a path": ({"task": "../label"}, "run.task"),
    "task of a megabyte": ({"task": "label" * 200_000}, "run.task"),
    "task with an escape": ({"task": "\u001b]0;owned\u0007"}, "run.task"),
    "data is a text": ({"data": "/etc/passwd"}, "run.data"),
    "data are numbers": ({"data": [1, 2]}, "run.data"),
    "columns are a list": ({"columns": ["a"]}, "run.columns"),
    "columns are numbers": ({"columns": {"text": 3}}, "run.columns"),
    "digest is a number": ({"digest": 3}, "run.digest"),
    "model is a list": ({"model": []}, "run.model"),
    "family is a date": ({"family": "<1979-05-27>"}, "run.family"),
}
NUMBERS: dict[str, Any] = {
    "a word": "many",
    "a fraction": 1.5,
    "zero": 0,
    "negative": -1,
    "10**30": 10**30,
    "NaN": "<nan>",
    "Infinity": "<inf>",
    "true": True,
    "a list": [256],
    "a table": {"a": 1},
    "a date": "<1979-05-27T07:32:00Z>",
    "4,000,000 digits in hex": f"<0x{'f' * 1_000_000}>",
}
TASK_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    **{f"length is {name}": ({"max_tokens": value}, "task.max_tokens") for name, value in NUMBERS.items()},
    "many is a word": ({"multi_label": "yes"}, "task.multi_label"),
    "many is a number": ({"multi_label": 1}, "task.multi_label"),
    "metric is a number": ({"metric": 3}, "task.metric"),
    "metric is unknown": ({"metric": "evil"}, "task.metric"),
    "smoothing is a word": ({"label_smoothing": "x"}, "task.label_smoothing"),
    "smoothing is NaN": ({"label_smoothing": "<nan>"}, "task.label_smoothing"),
    "augment is unknown": ({"augment": "evil"}, "task.augment"),
    "augment is a list": ({"augment": ["none"]}, "task.augment"),
    "labels are a text": ({"labels": "bad"}, "task.labels"),
    "labels are numbers": ({"labels": [1, 2]}, "task.labels"),
}
TEXTS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "run is a text": ('run = "label"', ("'run'", "table")),
    "run is a number": ("run = 3", ("'run'", "table")),
    "run is many tables": ("[[run]]\n[[run]]", ("'run'", "table")),
    "[task] is a list": ("task = [1, 2]", ("'task'", "table")),
    "[task] is a word": ('task = "label"', ("'task'", "table")),
    "an unknown number": ("x = 3", ("'x'", "table")),
    "not closed": ("[run", (":1:", "not toml")),
    "JSON": ('{"run": {}}', (":1:", "not toml")),
    "a key twice": ("[run]\ntask = 'label'\ntask = 'tag'", (":3:", "not toml")),
    "a table twice": ("[run]\n[run]", (":2:", "not toml")),
    "10,000 lists": ("a = " + "[" * 10_000 + "]" * 10_000, ("deep",)),
    "10,000 lists that do not end": ("a = " + "[" * 10_000, ("deep",)),
    "10,000 tables": ("a = " + "{b = " * 10_000 + "1" + "}" * 10_000, ("deep",)),
    "100,000 parts of a key": ("a" + ".a" * 100_000 + " = 1", ("deep",)),
    "100,000 quoted parts of a key": ("a" + "." + '."a"' * 100_000 + " = 1", ("deep",)),
    "100,000 parts of a table": ("[a" + " . a" * 100_000 + "]", ("deep",)),
    "100,000 parts behind a comment": ('# "\na' + ".a" * 100_000 + " = 1", ("deep",)),
    "100 parts": ("a" + ".a" * 100 + " = 1", ("deep",)),
    "5,000 digits": ("a = " + "9" * 5_000, ("digits",)),
    "20 MB": ('a = "' + "x" * 20 * 2**20 + '"', ("bytes",)),
    "100 MB of nothing": (b" " * 100 * 2**20, ("bytes",)),
    "NULs": (b"\0" * 4096, ("not toml",)),
    "Latin-1": (b'a = "\xe9"', ("utf-8",)),
    "UTF-16": ('run = "x"'.encode("utf-16"), ("utf-8",)),
    "a pickle": (b"\x80\x02}q\0.", ("utf-8",)),
    "an escape": ("[run]\n\x1b]0;owned\x07 = 1", ("not toml",)),
}
OTHERS = ("regress", "language", "pretrain", "span", "tag", "translate", "summarize", "caption", "paint")

CASES = [
    *(case(f"run: {name}", runs(**fields), FILE, says, base="run") for name, (fields, says) in RUN_VALUES.items()),
    *(case(f"run: {name}", tasks(**fields), FILE, says, base="run") for name, (fields, says) in TASK_VALUES.items()),
    *(case(f"run: {name}", put(FILE, text), FILE, *says, base="run") for name, (text, says) in TEXTS.items()),
    *(
        case(
            f"run: a task that is not its own: {name}",
            put(FILE, toml(RUN | {"task": name}, {})),
            FILE,
            name,
            base="run",
        )
        for name in OTHERS
    ),
    *(
        case(f"run: another's task, {name}", put(FILE, toml(RUN | {"task": name}, {})), FILE, name, base="translator")
        for name in ("label", "pair", "tag", "span", "language", "caption", "paint", "regress", "pretrain")
    ),
    *(
        case(f"run: the model's config is {name}", put(MODEL, text), "config.json", *says, base="run")
        for name, (text, says) in JSON_TEXTS.items()
        if name in ("empty", "a list", "10,000 lists deep", "UTF-16")
    ),
    case("run: settings are a directory", directory(FILE), FILE, "regular", base="run"),
    case("run: settings are a pipe", fifo(FILE), FILE, "regular", base="run"),
    case("run: settings lead out", link(FILE, "../outside.toml"), FILE, "leads out", base="run"),
    case("run: settings lead to a device", link(FILE, "/dev/zero"), FILE, "leads out", base="run"),
    case("run: settings lead to memory", link(FILE, "/proc/self/mem"), FILE, "leads out", base="run"),
    case("run: settings lead to themselves", link(FILE, FILE), FILE, base="run"),
    case("run: settings lead nowhere", link(FILE, "nowhere"), FILE, base="run"),
    case("run: no model", drop("model"), "no model", base="run"),
    case("run: the model is a file", both(drop("model"), put("model", "x")), "no model", base="run"),
    case("run: the model is empty", both(drop("model"), directory("model")), "config.json", base="run"),
    case(
        "run: a weight is NaN",
        weights(fill("classifier.weight", float("nan"))),
        "head.score.weight",
        "not finite",
        base="run",
    ),
    case(
        "run: a weight of a layer is infinite",
        weights(fill("bert.encoder.layer.1.output.dense.weight", float("-inf"))),
        "layers.1.feedforward",
        "not finite",
        base="run",
    ),
    case(
        "run: segments beyond the model's", edit("model/tokenizer.json", segments), "segment", "tokenizer", base="run"
    ),
    case("run: 12 GB that are not there", lambda home: sparse(home, 12), "GB", "written", base="run"),
    case("run: 120 GB that are not there", lambda home: sparse(home, 120), "GB", "written", base="run"),
    case("run: weights that overflow", weights(grow), "not finite", base="run"),
    case(
        "run: a begin beyond the vocabulary",
        change(MODEL, decoder_start_token_id=10**6),
        "decoder_start_id",
        "vocabulary",
        base="translator",
    ),
    case("run: a negative begin", change(MODEL, decoder_start_token_id=-7), "decoder_start_id", base="translator"),
]
assert all(isinstance(one, Case) for one in CASES)

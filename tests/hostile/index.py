"""Hostile shard indexes: names that leave the directory, shards that are missing or lie, and far too many of them."""

import json
from pathlib import Path
from typing import Any

from hostile.case import Case, Write, both, case, change, directory, drop, entry, fifo, header, link, put, put_json
from hostile.weights import evil

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def naming(name: str) -> Write:
    """An index with one shard of that name."""
    return both(drop(WHOLE), put_json(INDEX, {"weight_map": {"a": name}}))


def shards(*, mapped: dict[str, str], first: dict[str, Any], second: dict[str, Any]) -> Write:
    """Two shards of 16 bytes each and an index over them."""
    return both(
        drop(WHOLE),
        put_json(INDEX, {"weight_map": mapped}),
        put(ONE, header(first, 16)),
        put(TWO, header(second, 16)),
    )


def many(home: Path, *, entries: int, files: int) -> None:
    """A very long index, written by hand since json would take a second."""
    lines = ",".join(f'"{i}":"{i % files}.safetensors"' for i in range(entries))
    (home / INDEX).write_text('{"weight_map":{' + lines + "}}", encoding="utf-8")


OUTSIDE = (  # what a name may look like that leads out of the directory, on any system
    "../outside.safetensors",
    "../../etc/passwd",
    "../" * 40 + "etc/passwd",
    "..",
    "../",
    "./..",
    ".",
    "./",
    "",
    " ",
    "/",
    "//",
    "/etc/passwd",
    "/etc/shadow",
    "/dev/zero",
    "/dev/stdin",
    "/dev/urandom",
    "/dev/tty",
    "/dev/fd/0",
    "/proc/self/mem",
    "/proc/self/environ",
    "/proc/self/fd/0",
    "/proc/1/root/etc/passwd",
    "/sys/kernel/notes",
    "/outside.safetensors",
    "//host/share/outside.safetensors",
    "\\\\host\\share\\outside.safetensors",
    "\\\\?\\C:\\outside.safetensors",
    "\\\\.\\PhysicalDrive0",
    "\\\\?\\UNC\\host\\share\\x.safetensors",
    "C:\\outside.safetensors",
    "C:outside.safetensors",
    "C:/outside.safetensors",
    "..\\outside.safetensors",
    "..\\..\\outside.safetensors",
    "a\\..\\..\\outside.safetensors",
    "a/../../outside.safetensors",
    "a/b.safetensors",
    "a/./b.safetensors",
    "./model.safetensors",
    "x.safetensors/..",
    "x.safetensors/../../outside.safetensors",
    "~/outside.safetensors",
    "~root/outside.safetensors",
    "$HOME/outside.safetensors",
    "%USERPROFILE%\\outside.safetensors",
    "file:///etc/passwd",
    "file:outside.safetensors",
    "http://localhost/outside.safetensors",
    "ftp://localhost/outside.safetensors",
    "s3://bucket/outside.safetensors",
    "data:,outside.safetensors",
    "model.safetensors\0",
    "\0.safetensors",
    "../outside\0.safetensors",
    "NUL.safetensors",
    "CON.safetensors",
    "COM1.safetensors",
    "aux.safetensors",
    "outside.safetensors:stream",
    "a\nb.safetensors",
    "a\x1b[2J.safetensors",
    "\u202egnp.safetensors",
    "\ud800.safetensors",
    "%2e%2e%2foutside.safetensors",
    "..%2foutside.safetensors",
    "\uff0e\uff0e\uff0foutside.safetensors",
    "....//outside.safetensors",
    "-rf.safetensors",
    "a" * 300 + ".safetensors",
    "a" * 100_000 + ".safetensors",
    "é" * 200 + ".safetensors",
    "model.safetensors.index.json",
    "config.json",
    "pytorch_model.bin",
    "missing.safetensors",
    "MODEL.SAFETENSORS",
)
KINDS: dict[str, Any] = {
    "a list": [],
    "empty": {},
    "a number": 7,
    "null": None,
    "a map in a list": {"weight_map": []},
    "a map of nothing": {"weight_map": {}},
    "a map to numbers": {"weight_map": {"a": 1}},
    "a map to null": {"weight_map": {"a": None}},
    "a map to lists": {"weight_map": {"a": [WHOLE]}},
    "a map to objects": {"weight_map": {"a": {"file": WHOLE}}},
    "a map in text": {"weight_map": WHOLE},
}
SHARDS: dict[str, tuple[Write, tuple[str, ...]]] = {
    "a tensor in the other shard": (
        shards(mapped={"a": TWO, "b": ONE}, first={"a": entry()}, second={"b": entry()}),
        (INDEX, "not in"),
    ),
    "a tensor in no shard": (
        shards(mapped={"a": ONE, "b": TWO, "c": TWO}, first={"a": entry()}, second={"b": entry()}),
        (INDEX, "not in"),
    ),
    "a tensor in two shards": (
        shards(
            mapped={"a": ONE, "b": TWO},
            first={"a": entry()},
            second={"a": entry(shape=[2], offsets=[0, 8]), "b": entry(shape=[2], offsets=[8, 16])},
        ),
        (TWO, "two files"),
    ),
    "a shard that is a pickle": (both(naming(ONE), put(ONE, evil())), (ONE, "pickle")),
    "a shard that is cut": (both(naming(ONE), put(ONE, header({"a": entry()}, 15))), (ONE, "offsets")),
    "a shard that is empty": (both(naming(ONE), put(ONE, b"")), (ONE, "safetensors")),
    "a shard that leads out": (both(naming(ONE), link(ONE, "../outside.safetensors")), (ONE, "leads out")),
    "a shard that leads to a device": (both(naming(ONE), link(ONE, "/dev/zero")), (ONE, "leads out")),
    "a shard that leads to itself": (both(naming(ONE), link(ONE, ONE)), (ONE, "cannot be read")),
    "a shard that is a directory": (both(naming(ONE), directory(ONE)), (ONE, "regular")),
    "a shard that is a pipe": (both(naming(ONE), fifo(ONE)), (ONE, "regular")),
    "a million entries": (lambda home: many(home, entries=10**6, files=10), (INDEX, "bytes")),
    "300,000 entries": (lambda home: many(home, entries=300_000, files=2), (INDEX, "300,000")),
    "50,000 shards": (lambda home: many(home, entries=50_000, files=50_000), (INDEX, "50,000")),
    "an index that leads out": (link(INDEX, "../outside.safetensors"), (INDEX, "leads out")),
    "an index that is a directory": (directory(INDEX), (INDEX, "regular")),
    "an index that is a pipe": (fifo(INDEX), (INDEX, "regular")),
    "an index that is cut": (put(INDEX, '{"weight_map": {"a"'), (INDEX, "not json")),
    "an index that is not text": (put(INDEX, b"\xff\xff"), (INDEX, "utf-8")),
    "an index that says a tensor twice": (
        put(INDEX, '{"weight_map": {"a": "model.safetensors", "a": "../outside.safetensors"}}'),
        (INDEX, "twice"),
    ),
    "an index of great depth": (put(INDEX, '{"weight_map":' * 20_000), (INDEX, "deep")),
    "an index over another model": (
        both(put(ONE, header({"a": entry()}, 16)), change(INDEX, weight_map={"a": ONE})),
        ("another model",),
    ),
}


def _named(name: str) -> Case:
    shown = json.dumps(name if len(name) < 60 else f"{name[:20]}… of {len(name)}")
    return case(f"index names {shown}", naming(name), ".safetensors")


CASES = [
    *map(_named, OUTSIDE),
    *(
        case(f"index is {name}", both(drop(WHOLE), put_json(INDEX, value)), INDEX, "needed")
        for name, value in KINDS.items()
    ),
    *(case(name, write, *says) for name, (write, says) in SHARDS.items()),
]

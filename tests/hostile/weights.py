"""Hostile weights: safetensors files that lie, that are cut, or that are something else altogether."""

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case, Write, both, case, directory, drop, entry, fifo, header, link, put, unix_socket

FILE = "model.safetensors"


def cut(where: Callable[[int, int], int]) -> Write:
    """Keep the first bytes; `where` is told the end of the header and the size of the file."""

    def write(home: Path) -> None:
        content = (home / FILE).read_bytes()
        end = 8 + struct.unpack("<Q", content[:8])[0]
        (home / FILE).write_bytes(content[: where(end, len(content))])

    return write


def rewrite(alter: Callable[[dict[str, Any]], object]) -> Write:
    """Alter the header and leave the bytes of the tensors as they are."""

    def write(home: Path) -> None:
        content = (home / FILE).read_bytes()
        end = 8 + struct.unpack("<Q", content[:8])[0]
        entries = json.loads(content[8:end])
        alter(entries)
        (home / FILE).write_bytes(header(entries) + content[end:])

    return write


def reshape(alter: Callable[[list[int]], list[int]]) -> Callable[[dict[str, Any]], object]:
    """Another shape for the table of words."""

    def apply(entries: dict[str, Any]) -> None:
        words = entries["embeddings.word_embeddings.weight"]
        words["shape"] = alter(words["shape"])

    return apply


def retype(dtype: str) -> Callable[[dict[str, Any]], object]:
    """Another type of the same size for every tensor."""

    def apply(entries: dict[str, Any]) -> None:
        for name in entries.keys() - {"__metadata__"}:
            entries[name]["dtype"] = dtype

    return apply


def rename(old: str, new: str) -> Callable[[dict[str, Any]], object]:
    """One tensor under another name."""
    return lambda entries: entries.update({new: entries.pop(old)})


def evil(mark: str = "ran") -> bytes:
    """A pickle that would run a program."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            import os

            return os.system, (f"touch {mark}",)

    return pickle.dumps({"a": Evil()}, protocol=2)


def zipped(home: Path, name: str) -> None:
    """The same in a zip archive, as torch writes its files."""
    with zipfile.ZipFile(home / name, "w") as archive:
        archive.writestr("archive/data.pkl", evil())


CUTS: dict[str, Callable[[int, int], int]] = {
    "empty": lambda end, size: 0,
    "1 byte": lambda end, size: 1,
    "7 bytes": lambda end, size: 7,
    "the length alone": lambda end, size: 8,
    "1 byte of header": lambda end, size: 9,
    "half the header": lambda end, size: end // 2,
    "all but 1 byte of header": lambda end, size: end - 1,
    "no tensors": lambda end, size: end,
    "1 byte of tensors": lambda end, size: end + 1,
    "half the tensors": lambda end, size: (end + size) // 2,
    "all but 1 byte": lambda end, size: size - 1,
}
LENGTHS = (0, 1, 3, 2**16, 2**20, 10**8, 10**8 + 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"hello, world", "not json"),
    "a list": (b"[]", "object"),
    "null": (b"null", "object"),
    "a number": (b"77", "object"),
    "a string": (b'"tensors"', "object"),
    "10,000 lists deep": (b"[" * 10_000 + b"]" * 10_000, "deep"),
    "100,000 objects deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
    "not UTF-8": (b'{"\xff\xfe": 1}', "utf-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "bom"),
    "NULs": (b"\0" * 64, "not json"),
    "not closed": (b'{"a": {"dtype": "F32"', "not json"),
    "two objects": (b"{} {}", "not json"),
    "a name twice, same place": (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        "twice",
    ),
    "a name twice, other place": (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        "twice",
    ),
    "a number of 5,000 digits": (b'{"a": ' + b"9" * 5_000 + b"}", "digits"),
    "metadata in a list": (b'{"__metadata__": [1]}', "metadata"),
    "metadata that is no text": (b'{"__metadata__": {"a": {"b": 1}}}', "metadata"),
}
ENTRIES: dict[str, tuple[Any, str]] = {
    "a tensor is a list": ([], "tensor a"),
    "a tensor is null": (None, "tensor a"),
    "a tensor is a number": (3, "tensor a"),
    "no type": ({"shape": [4], "data_offsets": [0, 16]}, "dtype"),
    "no shape": ({"dtype": "F32", "data_offsets": [0, 16]}, "shape"),
    "no offsets": ({"dtype": "F32", "shape": [4]}, "offsets"),
    "type 7": (entry(dtype=7), "dtype"),
    "type null": (entry(dtype=None), "dtype"),
    "type F99": (entry(dtype="F99"), "dtype"),
    "type in small letters": (entry(dtype="f32"), "dtype"),
    "type of Python objects": (entry(dtype="OBJECT"), "dtype"),
    "type empty": (entry(dtype=""), "dtype"),
    "shape is text": (entry(shape="4"), "shape"),
    "shape is a number": (entry(shape=4), "shape"),
    "shape is negative": (entry(shape=[-4]), "shape"),
    "shape of two negatives": (entry(shape=[-2, -2]), "shape"),
    "shape is a fraction": (entry(shape=[4.0]), "shape"),
    "shape is NaN": (entry(shape=[float("nan")]), "shape"),
    "shape is infinite": (entry(shape=[float("inf")]), "shape"),
    "shape holds true": (entry(shape=[True, 4]), "shape"),
    "shape holds null": (entry(shape=[None]), "shape"),
    "shape holds a list": (entry(shape=[[4]]), "shape"),
    "shape of 2**40": (entry(shape=[2**40]), "shape"),
    "shape of 2**63": (entry(shape=[2**63]), "shape"),
    "shape of 2**64 + 4": (entry(shape=[2**64 + 4]), "shape"),
    "shape whose product wraps to 4": (entry(shape=[2**32, 2**32, 4]), "shape"),
    "shape of 10**300": (entry(shape=[10**300]), "shape"),
    "shape of a thousand axes": (entry(shape=[1] * 1_000 + [4]), "shape"),
    "shape smaller than its bytes": (entry(shape=[3]), "shape"),
    "offsets of one": (entry(offsets=[0]), "offsets"),
    "offsets of three": (entry(offsets=[0, 8, 16]), "offsets"),
    "offsets negative": (entry(offsets=[-16, 0]), "offsets"),
    "offsets backwards": (entry(offsets=[16, 0]), "offsets"),
    "offsets as text": (entry(offsets=["0", "16"]), "offsets"),
    "offsets as fractions": (entry(offsets=[0.0, 16.0]), "offsets"),
    "offsets of NaN": (entry(offsets=[0, float("nan")]), "offsets"),
    "offsets null": (entry(offsets=None), "offsets"),
    "offsets past the end": (entry(offsets=[0, 10**12]), "offsets"),
    "offsets of 2**63": (entry(offsets=[2**63, 2**63 + 16]), "offsets"),
    "offsets into the header": (entry(offsets=[-8, 8]), "offsets"),
    "offsets after a gap": (entry(shape=[2], offsets=[8, 16]), "offsets"),
}
PAIRS: dict[str, tuple[dict[str, Any], int, str]] = {  # header, bytes of tensors, word
    "two tensors in one place": ({"a": entry(), "b": entry()}, 16, "offsets"),
    "two tensors that overlap": (
        {"a": entry(shape=[3], offsets=[0, 12]), "b": entry(shape=[2], offsets=[8, 16])},
        16,
        "offsets",
    ),
    "a tensor inside another": ({"a": entry(), "b": entry(shape=[1], offsets=[4, 8])}, 16, "offsets"),
    "a gap between two": (
        {"a": entry(shape=[1], offsets=[0, 4]), "b": entry(shape=[2], offsets=[8, 16])},
        16,
        "offsets",
    ),
    "bytes that belong to nobody": ({"a": entry(shape=[2], offsets=[0, 8])}, 16, "offsets"),
    "another model": ({"a": entry()}, 16, "another model"),
    "a name of 1 MB": ({"n" * 2**20: entry()}, 16, "name"),
    "200,001 tensors of nothing": ({f"t{i}": entry(shape=[0], offsets=[0, 0]) for i in range(200_001)}, 0, "tensors"),
    "no tensor at all": ({}, 0, "another model"),
    "metadata alone": ({"__metadata__": {"format": "pt"}}, 0, "another model"),
    "a name with control characters": ({"\x1b[31m\0\x07": entry()}, 16, "printable"),
}
WORDS, NORM = "embeddings.word_embeddings.weight", "embeddings.LayerNorm.weight"
ALTERED: dict[str, tuple[Write, tuple[str, ...]]] = {
    "words transposed": (rewrite(reshape(lambda s: s[::-1])), ("match", "instead of")),
    "words flat": (rewrite(reshape(lambda s: [s[0] * s[1]])), ("match", "instead of")),
    "words with an axis more": (rewrite(reshape(lambda s: [*s, 1])), ("match", "instead of")),
    "norm under another name": (
        rewrite(rename(NORM, "embeddings.LayerNorm.wait")),
        ("Missing from the files: 1", "LayerNorm.wait"),
    ),
    "norm in a layer that is not there": (rewrite(rename(NORM, "encoder.layer.99.output.dense.weight")), ("missing",)),
    "layer in Arabic digits": (
        rewrite(rename("encoder.layer.0.output.dense.bias", "encoder.layer.\u0660.output.dense.bias")),
        ("missing",),
    ),
    "whole numbers for weights": (rewrite(retype("I32")), ("floating", "int32")),
    "unsigned numbers for weights": (rewrite(retype("U32")), ("floating", "uint32")),
}
PLACES: dict[str, tuple[Write, str]] = {
    "a directory": (directory(FILE), "regular file"),
    "a pipe": (fifo(FILE), "regular file"),
    "a socket": (unix_socket(FILE), "regular file"),
    "a link to a device": (link(FILE, "/dev/zero"), "leads out"),
    "a link to nothing": (link(FILE, "/dev/null"), "leads out"),
    "a link to memory": (link(FILE, "/proc/self/mem"), "leads out"),
    "a link to the terminal": (link(FILE, "/dev/tty"), "model.safetensors"),
    "a link out": (link(FILE, "../outside.safetensors"), "leads out"),
    "a link out by two": (both(link("second", "../outside.safetensors"), link(FILE, "second")), "leads out"),
    "a link to the directory above": (link(FILE, ".."), "leads out"),
    "a link to itself": (link(FILE, FILE), "model.safetensors"),
    "a link to nowhere": (link(FILE, "nowhere"), "model.safetensors"),
    "two links in a ring": (both(link(FILE, "ring"), link("ring", FILE)), "model.safetensors"),
}


def pickles() -> list[Case]:
    """Pickles under every name: told by content, never read, and the way out is said."""
    names = ("pytorch_model.bin", "model.pt", "weights.pth", "last.ckpt", "adapter_model.bin")
    way = "saccade import --convert-pickle"
    return [
        *(case(f"pickle {n}", both(drop(FILE), put(n, evil())), n, "pickle", way) for n in names),
        *(
            case(f"zipped {n}", both(drop(FILE), lambda home, n=n: zipped(home, n)), n, "pickle", way)
            for n in ("pytorch_model.bin", "model.pt")
        ),
        case("pickle under the name of safetensors", put(FILE, evil()), FILE, "pickle"),
        case("archive under the name of safetensors", lambda home: zipped(home, FILE), FILE, "pickle"),
        case("a pipe under the name of a pickle", both(drop(FILE), fifo("pytorch_model.bin")), FILE, "no model"),
        case("text under the name of a pickle", both(drop(FILE), put("pytorch_model.bin", "cos\n")), FILE, "no model"),
        case("a directory of pickles", both(drop(FILE), directory("pytorch_model.bin")), FILE, "no model"),
        case("nothing but code", both(drop(FILE), put("modeling_evil.py", "raise SystemExit")), FILE, "no model"),
    ]


CASES = [
    *(case(f"cut to {name}", cut(where), FILE, "safetensors") for name, where in CUTS.items()),
    *(case(f"header of {size} bytes", put(FILE, struct.pack("<Q", size) + b"{}"), FILE, "header") for size in LENGTHS),
    *(case(f"header is {name}", put(FILE, header(text, 8)), FILE, says) for name, (text, says) in TEXTS.items()),
    *(case(name, put(FILE, header({"a": one}, 16)), FILE, says) for name, (one, says) in ENTRIES.items()),
    *(case(name, put(FILE, header(some, data)), says) for name, (some, data, says) in PAIRS.items()),
    *(case(name, write, *says) for name, (write, says) in ALTERED.items()),
    *(case(f"weights are {name}", write, FILE, says) for name, (write, says) in PLACES.items()),
    *pickles(),
]

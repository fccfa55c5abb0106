"""What a hostile directory is: a whole model of some kind, one writer that spoils it, and the words its refusal must hold."""

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Write = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """`says` are words of the error, in any order; `loads` means that the words stand in the report of a model that loads."""

    name: str
    write: Write
    says: tuple[str, ...]
    base: str = "bert"
    loads: bool = False


def case(name: str, write: Write, *says: str, base: str = "bert", loads: bool = False) -> Case:
    """The same, with the words one after the other."""
    return Case(name, write, says, base, loads)


def put(name: str, content: str | bytes) -> Write:
    """Write a file, in place of the one that is there."""
    return lambda home: (home / name).write_bytes(content.encode() if isinstance(content, str) else content)


def put_json(name: str, content: Any) -> Write:
    """The same for a value as JSON; NaN and Infinity are written as Python writes them."""
    return lambda home: put(name, json.dumps(content))(home)


def change(name: str, **fields: Any) -> Write:
    """Set some keys of a JSON file."""
    return lambda home: put_json(name, read(home, name) | fields)(home)


def edit(name: str, alter: Callable[[dict[str, Any]], object]) -> Write:
    """Let a function alter a JSON file in place."""

    def write(home: Path) -> None:
        found = read(home, name)
        alter(found)
        put_json(name, found)(home)

    return write


def read(home: Path, name: str) -> dict[str, Any]:
    """A JSON file of the directory; an empty object if there is none."""
    path = home / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def drop(*names: str) -> Write:
    """Take files away."""
    return lambda home: [remove(home / name) for name in names]


def remove(path: Path) -> None:
    """Take a file, a link or a directory away, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def both(*writes: Write) -> Write:
    """One after the other."""
    return lambda home: [write(home) for write in writes]


def link(name: str, target: str) -> Write:
    """A symbolic link in place of a file."""

    def write(home: Path) -> None:
        remove(home / name)
        (home / name).symlink_to(target)

    return write


def directory(name: str) -> Write:
    """A directory in place of a file."""

    def write(home: Path) -> None:
        remove(home / name)
        (home / name).mkdir()

    return write


def fifo(name: str) -> Write:
    """A pipe that nobody writes into: whoever opens it waits for ever."""

    def write(home: Path) -> None:
        remove(home / name)
        os.mkfifo(home / name)

    return write


def unix_socket(name: str) -> Write:
    """A socket in place of a file."""

    def write(home: Path) -> None:
        remove(home / name)
        before = os.getcwd()
        os.chdir(home)  # the address of a socket has about 100 characters
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(name)
        finally:
            os.chdir(before)

    return write


def header(entries: Any, data: int = 0) -> bytes:
    """A safetensors file: the length of its header, the header, and zeros; the header may be bytes already."""
    body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(body)) + body + b"\0" * data


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    """What a safetensors header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}

"""Other people's model directories, read with care: sizes are known before anything is allocated, names cannot leave the
directory, nothing names code, and pickles are refused."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

JSON_LIMIT = 2**24  # bytes; a real config has a few thousand, a real index a few million
NAMES_CODE = ("auto_map", "custom_pipelines", "trust_remote_code", "_target_")


def read_json(path: Path, *, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """A JSON object from a file of bounded size."""
    try:
        found = json.loads(read_text(path, limit=limit))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from error
    except RecursionError as error:
        raise ValueError(f"{path}: JSON nested too deeply to be a config.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: a JSON object is needed; found {type(found).__name__}.")
    return found


def read_text(path: Path, *, limit: int = JSON_LIMIT) -> str:
    """The text of an ordinary file of bounded size."""
    size = regular(path).stat().st_size
    if size > limit:
        raise ValueError(f"{path}: {size:,} bytes where at most {limit:,} make sense; this is no model config.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from error


def regular(path: Path, inside: Path | None = None) -> Path:
    """The path, if it is an ordinary file that stays inside its directory (or inside its own hub cache)."""
    home = (inside or path.parent).resolve()
    if home.parent.name == "snapshots":  # a hub cache keeps the files beside its snapshots and links to them
        home = home.parent.parent
    try:
        real = path.resolve(strict=True)
        mode = os.stat(real).st_mode
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error}).") from error
    if not real.is_relative_to(home):
        raise ValueError(f"{path}: leads out of the model directory, to {real}; copy the file there if you trust it.")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path}: is not an ordinary file.")
    return real


def tensor_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory: one, or the shards of an index."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(x, str) for x in named.values()):
            raise ValueError(f"{index}: `weight_map` from tensor names to file names is needed.")
        return [_shard(directory, name, index) for name in sorted(set(named.values()))]
    single = directory / "model.safetensors"
    if single.exists():
        return [regular(single, directory)]
    pickles = [p for p in sorted(directory.iterdir()) if p.suffix in (".bin", ".pt", ".pth", ".ckpt") and pickled(p)]
    if pickles:
        raise ValueError(
            f"{pickles[0]}: is a pickle, which can run code when it is read. "
            f"Turn it into safetensors first: saccade import --convert {directory} NEW_DIRECTORY"
        )
    raise ValueError(f"{directory}: has no model.safetensors; is this a model directory?")


def _shard(directory: Path, name: str, index: Path) -> Path:
    plain = name == os.path.basename(name) and name not in ("", ".", "..") and "\\" not in name and "\0" not in name
    if not plain or not name.endswith(".safetensors"):
        raise ValueError(f"{index}: {name!r} is no plain name of a .safetensors file in this directory.")
    return regular(directory / name, directory)


def pickled(path: Path) -> bool:
    """Told by content, not by name: a zip archive as torch writes it, or a bare pickle."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return start[:2] == b"PK" or (len(start) > 1 and start[0] == 0x80 and start[1] in range(2, 6))


def tensors(paths: list[Path]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of some files, mapped from disk rather than read; none may come twice."""
    seen: set[str] = set()
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    if name in seen:
                        raise ValueError(f"{path}: the tensor {name} stands in two files.")
                    seen.add(name)
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: not a whole safetensors file ({error}).") from error


def named_code(config: dict[str, Any]) -> list[str]:
    """The keys of a config that would have another program run code; here they are ignored, and said."""
    return [key for key in NAMES_CODE if key in config]

"""Reads untrusted model directories: sizes are checked before memory is allocated, paths cannot leave the directory, keys that
name code are ignored, and pickles are rejected."""

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from saccade.errors import ModelError
from saccade.models.foreign.unsupported_formats import describe_directory
from saccade.models.io.safetensors_header import is_pickle, read_header
from saccade.text.loading.safe_files import abbreviate, parse_json, parse_toml, resolve_inside

MAX_JSON_BYTES = 2**24  # a real config has a few thousand bytes, a real index a few million
MAX_TOML_BYTES = 2**21  # long files consist mostly of label names
MAX_INDEX_TENSORS, MAX_SHARDS = 100_000, 2_000  # the largest published indexes have about 60,000 and 200
CODE_KEYS = ("auto_map", "custom_pipelines", "trust_remote_code", "_target_")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
VARIANT_REGEX = r"model\.(?!safetensors)\w{1,40}\.safetensors|model\.safetensors\.index\.[\w-]{1,40}\.json"
MODULE_DIR_REGEX = r"\d+_[A-Za-z]+"  # where sentence-transformers stores a module, such as 1_Pooling
WINDOWS_RESERVED_NAMES = ("con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10)))


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES, inside: Path | None = None) -> dict[str, Any]:
    """Read a JSON object from a file of limited size."""
    content = parse_json(read_text(path, max_bytes=max_bytes, inside=inside), str(path))
    if not isinstance(content, dict):
        raise ModelError(f"{path}: a JSON object is needed; found {type(content).__name__}.")
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with the same limits on size and depth."""
    return parse_toml(read_text(path, max_bytes=MAX_TOML_BYTES), str(path))


def read_text(path: Path, *, max_bytes: int = MAX_JSON_BYTES, inside: Path | None = None) -> str:
    """Read the text of a regular file of limited size."""
    size = check_regular_file(path, inside).stat().st_size
    if size > max_bytes:
        raise ModelError(f"{path}: has {size:,} bytes; at most {max_bytes:,} are allowed, so this is not a config.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from error


def check_regular_file(path: Path, inside: Path | None = None) -> Path:
    """Return the path; raises ModelError unless it is a regular file inside its directory (or its hub cache)."""
    real = resolve_inside(path, inside or path.parent)
    if not stat.S_ISREG(real.stat().st_mode):
        raise ModelError(f"{path}: is not a regular file.")
    return real


def find_tensor_files(directory: Path, inside: Path | None = None) -> list[Path]:
    """The safetensors files of a directory: one, or the shards of an index; `inside` is the directory of the whole model."""
    home = inside or directory
    index = directory / "model.safetensors.index.json"
    if index.exists():
        return _read_index(directory, index)
    single = directory / "model.safetensors"
    if single.exists():
        return [check_regular_file(single, home)]
    variant = _find_variant(directory)
    if variant is not None:
        return _read_index(directory, variant) if variant.suffix == ".json" else [check_regular_file(variant, home)]
    pickles = find_pickles(directory)
    if pickles:
        raise ModelError(
            f"{pickles[0]}: a pickle, which can run code when it is loaded. "
            f"Convert it to safetensors first: saccade import --convert-pickle {home} NEW_DIRECTORY"
        )
    raise ModelError(
        describe_directory(directory) or f"{directory}: has no model.safetensors; is this a model directory?"
    )


def _find_variant(directory: Path) -> Path | None:
    """The weights of a variant, such as model.fp16.safetensors or its index, if there are no others."""
    if not directory.is_dir():
        return None
    variants = [path for path in sorted(directory.iterdir()) if re.fullmatch(VARIANT_REGEX, path.name, re.ASCII)]
    if len(variants) > 1:
        raise ModelError(
            f"{directory}: has {len(variants)} variants of its weights ({', '.join(path.name for path in variants[:4])}) and no "
            "model.safetensors; keep one of them."
        )
    return variants[0] if variants else None


def stat_files(paths: Iterable[Path]) -> dict[Path, tuple[int, int, int] | None]:
    """Size, modification time and inode of each file, to detect changes; None for a missing file."""
    stats: dict[Path, tuple[int, int, int] | None] = {}
    for path in paths:
        try:
            info = path.stat()
            stats[path] = info.st_size, info.st_mtime_ns, info.st_ino
        except OSError:
            stats[path] = None
    return stats


def _read_index(directory: Path, index: Path) -> list[Path]:
    """The shards that an index names; raises ModelError if one lacks a tensor that the index assigns to it."""
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(x, str) for x in names.values()):
        raise ModelError(f"{index}: a `weight_map` from tensor names to file names is needed.")
    shards: dict[str, set[str]] = {}
    for tensor, name in names.items():
        shards.setdefault(name, set()).add(tensor)
    if len(names) > MAX_INDEX_TENSORS or len(shards) > MAX_SHARDS:
        raise ModelError(
            f"{index}: {len(names):,} tensors in {len(shards):,} files; the limits are {MAX_INDEX_TENSORS:,} and {MAX_SHARDS:,}."
        )
    paths = []
    for name in sorted(shards):
        paths.append(_check_shard(directory, name, index))
        missing = sorted(shards[name] - read_header(paths[-1]).keys())
        if missing:
            raise ModelError(
                f"{index}: the tensor {abbreviate(missing[0])} is not in {name}; the index belongs to another model."
            )
    return paths


def _check_shard(directory: Path, name: str, index: Path) -> Path:
    plain = re.fullmatch(r"[A-Za-z0-9_][\w.+=-]{0,200}\.safetensors", name, re.ASCII)
    if plain is None or name.split(".")[0].lower() in WINDOWS_RESERVED_NAMES:
        raise ModelError(f"{index}: {abbreviate(name)} is not a plain name of a .safetensors file in this directory.")
    return check_regular_file(directory / name, directory)


def find_pickles(directory: Path) -> list[Path]:
    """The pickle files of a directory, by suffix and content."""
    return [p for p in sorted(directory.iterdir()) if p.suffix in PICKLE_SUFFIXES and p.is_file() and is_pickle(p)]


def iterate_tensors(paths: list[Path]) -> Iterator[tuple[str, Tensor]]:
    """Iterate over the tensors of some files, memory-mapped; raises ModelError for duplicate names."""
    seen: set[str] = set()
    for path in paths:
        for name in read_header(path):
            if name in seen:
                raise ModelError(f"{path}: the tensor {abbreviate(name)} is in two files.")
            seen.add(name)
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise ModelError(f"{path}: incomplete or damaged safetensors file ({error}).") from error


def find_code_keys(config: dict[str, Any]) -> list[str]:
    """The keys of a config, at any depth, that would make other programs run code; saccade ignores and reports them."""
    keys, stack = set(), [config]
    while stack:
        node = stack.pop()
        keys |= {key for key in CODE_KEYS if key in node}
        stack += [child for child in node.values() if isinstance(child, dict)]
    return sorted(keys)

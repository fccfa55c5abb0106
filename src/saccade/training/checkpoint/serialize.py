"""Serialization of checkpoints: tensors as safetensors, facts as JSON that round-trips exactly, small files with a checksum."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

SAFETENSORS_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def check_tensors(group: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError for tensors that safetensors cannot store, before anything is written."""
    for name, x in tensors.items():
        if name == "__metadata__" or not name.isprintable():
            raise ValueError(f"{group}: {name!r} cannot name a tensor in a safetensors file; use another name.")
        if x.dtype not in SAFETENSORS_DTYPES:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in SAFETENSORS_DTYPES)
            raise ValueError(
                f"{group}/{name} is {x.dtype}, which safetensors does not support; convert it to one of {known}."
            )
        if x.layout != torch.strided or x.is_meta:
            kind = "has no values (device meta)" if x.is_meta else f"is {x.layout}"
            raise ValueError(f"{group}/{name} {kind}; a dense tensor with values is needed.")


def safetensors_chunks(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """Yield a safetensors file in chunks without copying; the safetensors library would hold it in memory twice.

    Tensors that share memory are written separately, so each is loaded with its own memory.
    """
    yield memoryview(safetensors_header(tensors))
    for name in _sort_names(tensors):
        x = tensors[name].detach().cpu().resolve_neg().contiguous()
        if x.numel():
            flat = x.as_strided((x.numel(),), (1,))  # torch calls a single number contiguous whatever its stride
            yield flat.view(torch.uint8).numpy().data


def safetensors_header(tensors: Mapping[str, Tensor]) -> bytes:
    """The header of a safetensors file: its length, then the dtype, shape and offsets of every tensor."""
    table, start = {}, 0
    for name in _sort_names(tensors):
        x = tensors[name]
        end = start + x.numel() * x.element_size()
        table[name] = {"dtype": SAFETENSORS_DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # aligns the values to 8 bytes
    return len(text).to_bytes(8, "little") + text


def safetensors_size(tensors: Mapping[str, Tensor]) -> int:
    """The size in bytes of the file that `safetensors_chunks` yields."""
    return len(safetensors_header(tensors)) + sum(x.numel() * x.element_size() for x in tensors.values())


def _sort_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """The widest dtype first, so that all tensors are aligned; then by name, so that equal tensors give equal bytes."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which every float round-trips exactly; non-finite floats are written as strings. A tuple becomes a list.

    >>> to_json({"loss": 0.1, "best": float("inf"), "note": "text"})
    '{"loss": 0.1, "best": "float:inf", "note": "text"}'
    """
    return json.dumps(_encode_value(value, "facts"), indent=indent, allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """The inverse of `to_json`.

    >>> from_json('["float:-inf", "text:float:inf", 0.1]')
    [-inf, 'float:inf', 0.1]
    """
    return _decode_value(json.loads(text))


def _encode_value(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is {type(key).__name__}; JSON needs a string.")
        return {key: _encode_value(x, f"{where}.{key}") for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_value(x, f"{where}[{i}]") for i, x in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return f"float:{float(value)}"
    if isinstance(value, str):  # a string that looks like an encoded float is marked as text
        return f"text:{value}" if value.startswith(("float:", "text:")) else value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"{where} is {type(value).__name__}; expected numbers, strings, or lists and dictionaries of these."
    )


def _decode_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_value(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_decode_value(x) for x in value]
    if isinstance(value, str) and value.startswith("float:"):
        return float(value.removeprefix("float:"))
    return value.removeprefix("text:") if isinstance(value, str) else value


def dump_with_checksum(body: Mapping[str, Any]) -> bytes:
    """A JSON object with its own SHA-256, for files that no manifest covers."""
    digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()


def load_with_checksum(content: bytes) -> dict[str, Any]:
    """The inverse of `dump_with_checksum`; raises ValueError if a byte has changed.

    >>> load_with_checksum(dump_with_checksum({"step": 3}))
    {'step': 3}
    """
    try:
        body = json.loads(content)
        del body["sha256"]
        is_intact = dump_with_checksum(body) == content
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"incomplete: {len(content):,} bytes that are not JSON with a checksum") from error
    if not is_intact:
        raise ValueError("its contents do not match its checksum")
    return body

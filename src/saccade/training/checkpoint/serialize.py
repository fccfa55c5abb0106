"""What a checkpoint holds, as bytes: tensors as safetensors, facts as JSON that comes back exactly, sealed small files."""

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
    """Refuse what safetensors cannot hold, before anything is written."""
    for name, x in tensors.items():
        if name == "__metadata__" or not name.isprintable():
            raise ValueError(f"{group}: {name!r} cannot name a tensor in a safetensors file; use another name.")
        if x.dtype not in SAFETENSORS_DTYPES:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in SAFETENSORS_DTYPES)
            raise ValueError(
                f"{group}/{name} is {x.dtype}, which safetensors does not hold; convert it to one of {known}."
            )
        if x.layout != torch.strided or x.is_meta:
            kind = "has no values (device meta)" if x.is_meta else f"is {x.layout}"
            raise ValueError(f"{group}/{name} {kind}; a dense tensor with values is needed.")


def safetensors_chunks(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """A safetensors file, piece by piece and without copying, where the library would hold it in memory twice.

    Tensors that share memory are written one by one, so each comes back with its own.
    """
    yield memoryview(safetensors_header(tensors))
    for name in _sort_names(tensors):
        x = tensors[name].detach().cpu().resolve_neg().contiguous()
        if x.numel():
            flat = x.as_strided((x.numel(),), (1,))  # to torch a single number is contiguous whatever its stride
            yield flat.view(torch.uint8).numpy().data


def safetensors_header(tensors: Mapping[str, Tensor]) -> bytes:
    """The opening of a safetensors file: its own length, then where every tensor stands."""
    table, start = {}, 0
    for name in _sort_names(tensors):
        x = tensors[name]
        end = start + x.numel() * x.element_size()
        table[name] = {"dtype": SAFETENSORS_DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the values begin where a processor likes to read them
    return len(text).to_bytes(8, "little") + text


def safetensors_size(tensors: Mapping[str, Tensor]) -> int:
    """The bytes that `pieces` will yield."""
    return len(safetensors_header(tensors)) + sum(x.numel() * x.element_size() for x in tensors.values())


def _sort_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """The widest first, so that all stand aligned; then by name, so that equal tensors give equal bytes."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which every float comes back exactly; what is not finite is written as a string. A tuple becomes a list.

    >>> to_json({"loss": 0.1, "best": float("inf"), "note": "text"})
    '{"loss": 0.1, "best": "float:inf", "note": "text"}'
    """
    return json.dumps(_encode_value(value, "facts"), indent=indent, allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """What `to_json` was given.

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
    if isinstance(value, str):  # a string that looks like one of ours is marked as text
        return f"text:{value}" if value.startswith(("float:", "text:")) else value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"{where} is {type(value).__name__}; needed are numbers, strings, lists and dictionaries of these.")


def _decode_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_value(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_decode_value(x) for x in value]
    if isinstance(value, str) and value.startswith("float:"):
        return float(value.removeprefix("float:"))
    return value.removeprefix("text:") if isinstance(value, str) else value


def dump_with_checksum(body: Mapping[str, Any]) -> bytes:
    """A JSON object that carries its own SHA-256, for the files that no manifest vouches for."""
    digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()


def load_with_checksum(content: bytes) -> dict[str, Any]:
    """What was sealed, if not one byte has changed since; else ValueError.

    >>> load_with_checksum(dump_with_checksum({"step": 3}))
    {'step': 3}
    """
    try:
        body = json.loads(content)
        del body["sha256"]
        whole = dump_with_checksum(body) == content
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not whole, {len(content):,} bytes that are no sealed JSON") from error
    if not whole:
        raise ValueError("its contents do not agree with its seal")
    return body

"""llama2.c's own file (Karpathy 2023): seven numbers, then the weights of a LLaMA in float32, one kind after the other."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.errors import ModelError
from saccade.models.check_weights import check_fields
from saccade.models.families.llama import Config
from saccade.models.weight_map import RotaryPermutation, WeightMap, to_ours

HEADER = struct.Struct("<7i")  # width, inner, layers, heads, key heads, vocab (negative: untied), length
MAGIC = b"24ka"  # what later versions of the file begin with


def read_llama2c(path: str | Path) -> tuple[Config, dict[str, Tensor]]:
    """The config and the weights, in our names; the header is believed only as far as the file is long."""
    path = Path(path)
    config = _read_config(path)
    shapes = _tensor_shapes(config)
    angles = config.max_positions * (config.width // config.heads)  # cosines and sines of the rotary positions
    output = 0 if config.tie_embeddings else config.vocab * config.width
    numbers = sum(int(np.prod(shape, dtype=object)) for shape in shapes.values())  # as Python ints: a header may lie
    needed, size = HEADER.size + 4 * (numbers + angles + output), path.stat().st_size
    if size != needed and size != needed - 4 * angles:
        raise ModelError(f"{path} has {size} bytes, and its header ({config}) asks for {needed}; the file is damaged.")
    flat = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=HEADER.size))
    tensors, at = {}, 0
    for name, shape in shapes.items():
        part = flat[at : at + int(np.prod(shape))].view(shape)
        at += part.numel()
        if "{}" in name:
            tensors |= {name.format(number) + ".weight": one for number, one in enumerate(part)}
        else:
            tensors[f"{name}.weight"] = part
    if not config.tie_embeddings:
        tensors["output.weight"] = flat[-output:].view(config.vocab, config.width)
    read = to_ours(tensors, _weight_map(config))
    assert not read.unmapped, f"tensors without a line: {read.unmapped}"
    return config, read.tensors


def _read_config(path: Path) -> Config:
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if head.startswith(MAGIC):
        raise ModelError(
            f"{path} is a later version of llama2.c's file; export it with `--version 0`, which is read here."
        )
    if len(head) < HEADER.size:
        raise ModelError(f"{path} has {len(head)} bytes; the header of llama2.c's file alone takes {HEADER.size}.")
    width, inner, layers, heads, key_heads, vocab, length = HEADER.unpack(head)
    if min(width, inner, layers, heads, key_heads, abs(vocab), length) < 1:
        raise ModelError(
            f"{path} is not llama2.c's file: its header says {HEADER.unpack(head)}, and sizes are positive."
        )
    if width % heads or heads % key_heads or width // heads % 2:
        raise ModelError(
            f"{path} is damaged: {heads} heads of an even width and {key_heads} key heads do not share a width of {width}."
        )
    config = Config(
        vocab=abs(vocab),
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=key_heads,
        ffn_width=inner,
        max_positions=length,
        eps=1e-5,
        tie_embeddings=vocab > 0,
    )
    check_fields(config, f"{path}: ")  # a small file can claim thousands of layers, each of which takes time
    return config


def _tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """What the file holds, in its order; `{}` counts the layers."""
    width, inner, layers = config.width, config.ffn_width, config.layers
    keys = width // config.heads * (config.kv_heads or config.heads)
    return {
        "tok_embeddings": (config.vocab, width),
        "layers.{}.attention_norm": (layers, width),
        "layers.{}.attention.wq": (layers, width, width),
        "layers.{}.attention.wk": (layers, keys, width),
        "layers.{}.attention.wv": (layers, keys, width),
        "layers.{}.attention.wo": (layers, width, width),
        "layers.{}.ffn_norm": (layers, width),
        "layers.{}.feed_forward.w1": (layers, inner, width),
        "layers.{}.feed_forward.w2": (layers, width, inner),
        "layers.{}.feed_forward.w3": (layers, inner, width),
        "norm": (width,),
    }


def _weight_map(config: Config) -> WeightMap:
    """The names of the first LLaMA; its queries and keys turn neighbouring columns, ours turn halves."""
    return {
        "tok_embeddings": "words.vectors",
        "layers.{}.attention_norm": "stack.layers.{}.attention.norm",
        "layers.{}.attention.wq": RotaryPermutation("stack.layers.{}.attention.branch.query", config.heads),
        "layers.{}.attention.wk": RotaryPermutation(
            "stack.layers.{}.attention.branch.key", config.kv_heads or config.heads
        ),
        "layers.{}.attention.wv": "stack.layers.{}.attention.branch.value",
        "layers.{}.attention.wo": "stack.layers.{}.attention.branch.output",
        "layers.{}.ffn_norm": "stack.layers.{}.feedforward.norm",
        "layers.{}.feed_forward.w1": "stack.layers.{}.feedforward.branch.gate",
        "layers.{}.feed_forward.w2": "stack.layers.{}.feedforward.branch.down",
        "layers.{}.feed_forward.w3": "stack.layers.{}.feedforward.branch.up",
        "norm": "stack.leave",
        "output": "head.score",
    }

"""Reads llama2.c files (Karpathy 2023): a header of seven numbers, then the float32 weights of a LLaMA model."""

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
MAGIC = b"24ka"  # magic number of later versions


def read_llama2c(path: str | Path) -> tuple[Config, dict[str, Tensor]]:
    """Read config and weights, renamed to saccade's names; the header is checked against the size of the file."""
    path = Path(path)
    config = _read_config(path)
    shapes = _tensor_shapes(config)
    angles = config.max_positions * (config.width // config.heads)  # cosines and sines of the rotary positions
    output = 0 if config.tie_embeddings else config.vocab * config.width
    numbers = sum(
        int(np.prod(shape, dtype=object)) for shape in shapes.values()
    )  # Python ints, since a damaged header could overflow
    needed, size = HEADER.size + 4 * (numbers + angles + output), path.stat().st_size
    if size != needed and size != needed - 4 * angles:
        raise ModelError(f"{path} has {size} bytes, but its header ({config}) needs {needed}; the file is damaged.")
    flat = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=HEADER.size))
    tensors, offset = {}, 0
    for name, shape in shapes.items():
        x = flat[offset : offset + int(np.prod(shape))].view(shape)
        offset += x.numel()
        if "{}" in name:
            tensors |= {name.format(layer) + ".weight": weight for layer, weight in enumerate(x)}
        else:
            tensors[f"{name}.weight"] = x
    if not config.tie_embeddings:
        tensors["output.weight"] = flat[-output:].view(config.vocab, config.width)
    mapped = to_ours(tensors, _weight_map(config))
    assert not mapped.unmapped, f"tensors missing in the weight map: {mapped.unmapped}"
    return config, mapped.tensors


def _read_config(path: Path) -> Config:
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if head.startswith(MAGIC):
        raise ModelError(f"{path} is a later version of the llama2.c format; export it with `--version 0`.")
    if len(head) < HEADER.size:
        raise ModelError(f"{path} has {len(head)} bytes; the header of a llama2.c file alone has {HEADER.size}.")
    width, inner, layers, heads, key_heads, vocab, length = HEADER.unpack(head)
    if min(width, inner, layers, heads, key_heads, abs(vocab), length) < 1:
        raise ModelError(f"{path} is not a llama2.c file: its header {HEADER.unpack(head)} has sizes below 1.")
    if width % heads or heads % key_heads or width // heads % 2:
        raise ModelError(
            f"{path} is damaged: width {width} cannot be divided into {heads} heads of even width with {key_heads} key heads."
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
    check_fields(config, f"{path}: ")  # a small file can claim thousands of layers, which take time to build
    return config


def _tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The tensors in the order of the file; `{}` is the layer index."""
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
    """The weight map of the original LLaMA names; its rotary positions pair neighbouring columns, ours pair halves."""
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

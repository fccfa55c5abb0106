"""Operands that compiled operators must never be given: each of these is refused by an error of Python's.

Most of them have read or written beyond a buffer, or would, if nobody looked.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from saccade.engine.kernels.encoder_program import EmbeddingTables, EncoderProgram
from saccade.engine.kernels.matrix import PackedMatrix
from saccade.engine.native import ops
from saccade.engine.native.step_program import KVBufferRef, StepProgram
from sanitize.layouts import shift

B, H, G, K, D, W = 3, 4, 2, 7, 8, 12
META = torch.device("meta")


def norm(weight: Tensor | None = None, bias: Tensor | None = None, x: Tensor | None = None) -> Any:
    return ops.layer_norm(
        torch.randn(B, W) if x is None else x, torch.ones(W) if weight is None else weight, bias, 1e-5
    )


def packed(bias: Tensor | None = None) -> ops.Int8Tiles:
    return ops.Int8Tiles(torch.randn(5, W), bias)


def parts(**given: Any) -> dict[str, Any]:
    """What `attend` takes, with something else in some places."""
    keys, values = torch.randn(B, G, K, D), torch.randn(B, G, K, D)
    plain = {"q": torch.randn(B, H, D), "keys": keys, "values": values, "lengths": torch.tensor([1, 7, 3])}
    return plain | {"scale": 1.0} | given


def attend(**given: Any) -> Any:
    return ops.attend(**parts(**given))


def fresh(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(shape), torch.randn(shape)


def gather(origin: Tensor, length: int = 2, memory: Tensor | None = None) -> Any:
    return ops.gather(torch.randn(5, G, K, D) if memory is None else memory, origin, length)


def room(rows: int = B, **given: Any) -> KVBufferRef:
    keys, values = torch.randn(rows, G, K, D), torch.randn(rows, G, K, D)
    return KVBufferRef(**({"keys": keys, "values": values, "lengths": torch.tensor([1, 7, 3])} | given))


def look(rooms: list[KVBufferRef], *, writes: bool = True, number: int = 0) -> Any:
    """A chain of one attention."""
    width = (H + 2 * G * writes) * D
    chain = StepProgram(width)
    chain.attend(0, H, G, D, 1.0, buffer=number)
    return chain(torch.randn(B, width), rooms)


def origins(row: int = 0, *, last: bool = False) -> Tensor:
    """Each row in its own place, but for one place of the last row."""
    where = torch.arange(B, dtype=torch.int32)[:, None].repeat(1, K)
    where[2, 2 if last else 1] = row
    return where


def odd(x: Tensor) -> Tensor:
    """The same at an address that is no multiple of its size."""
    return shift(x, type("One", (), {"choice": lambda self, ways: ways[0]})())


def linked(build: Callable[[StepProgram], Any]) -> Any:
    chain = StepProgram(W)
    chain.linear(0, ops.Int8Tiles(torch.randn(13, W)))
    return build(chain)


def panels(bias: Tensor | None = None) -> PackedMatrix:
    return PackedMatrix(torch.randn(5, W), bias, "int8")


def encode(**given: Any) -> Any:
    """Five tokens of a program without layers, with seven words, nine positions and two segments."""
    program = EncoderProgram([], W, "float32", embedding=EmbeddingTables(*(torch.randn(n, W) for n in (7, 9, 2))))
    return program.encode(**({"lengths": [2, 3], "tokens": torch.zeros(5, dtype=torch.int32)} | given))


REFUSED: dict[str, Callable[[], Any]] = {
    "norm: a short bias": lambda: norm(bias=torch.zeros(1)),
    "norm: a bias of no numbers": lambda: norm(bias=torch.zeros(0)),
    "norm: a long bias": lambda: norm(bias=torch.zeros(W + 1)),
    "norm: a bias of doubles": lambda: norm(bias=torch.zeros(W, dtype=torch.float64)),
    "norm: a bias of halves": lambda: norm(bias=torch.zeros(W, dtype=torch.float16)),
    "norm: a bias elsewhere": lambda: norm(bias=torch.zeros(W, device=META)),
    "norm: a short weight": lambda: norm(weight=torch.ones(W - 1)),
    "norm: a weight elsewhere": lambda: norm(weight=torch.ones(W, device=META)),
    "norm: a single number": lambda: norm(x=torch.tensor(1.0)),
    "norm: doubles": lambda: norm(x=torch.zeros(B, W, dtype=torch.float64)),
    "norm: with a gradient": lambda: norm(x=torch.zeros(B, W, requires_grad=True)),
    "rms: a short weight": lambda: ops.rms_norm(torch.randn(B, W), torch.ones(3), 1e-6),
    "product: a short bias": lambda: packed(torch.zeros(1)),
    "product: no columns": lambda: ops.Int8Tiles(torch.zeros(5, 0)),
    "product: no rows": lambda: ops.Int8Tiles(torch.zeros(0, 5)),
    "product: a narrow input": lambda: packed()(torch.randn(B, W - 1)),
    "product: a single number": lambda: packed()(torch.tensor(1.0)),
    "product: input elsewhere": lambda: packed()(torch.zeros(B, W, device=META)),
    "product: something else to add": lambda: packed()(torch.randn(B, W), add=torch.randn(B, 4)),
    "product: doubles to add": lambda: packed()(torch.randn(B, W), add=torch.zeros(B, 5, dtype=torch.float64)),
    "best: one axis": lambda: packed().topk(torch.randn(W), 2),
    "best: three axes": lambda: packed().topk(torch.randn(2, B, W), 2),
    "best: fewer than none": lambda: packed().topk(torch.randn(B, W), -1),
    "attend: values elsewhere": lambda: attend(values=torch.zeros(B, G, K, D, device=META)),
    "attend: lengths elsewhere": lambda: attend(lengths=torch.zeros(B, dtype=torch.int64, device=META)),
    "attend: keep elsewhere": lambda: attend(keep=torch.ones(B, K, dtype=torch.bool, device=META)),
    "attend: queries elsewhere": lambda: attend(q=torch.zeros(B, H, D, device=META)),
    "attend: a short keep": lambda: attend(keep=torch.ones(B, K - 1, dtype=torch.bool)),
    "attend: fewer lengths": lambda: attend(lengths=torch.tensor([1, 2])),
    "attend: a length beyond": lambda: attend(lengths=torch.tensor([1, K + 1, 1])),
    "attend: a length below": lambda: attend(lengths=torch.tensor([1, -1, 1])),
    "attend: no place for what is fresh": lambda: attend(lengths=torch.tensor([1, 0, 1]), new_kv=fresh(B, G, D)),
    "attend: fewer values": lambda: attend(values=torch.randn(B - 1, G, K, D)),
    "attend: keys at an odd address": lambda: attend(keys=odd(torch.randn(B, G, K, D))),
    "attend: lengths at an odd address": lambda: attend(lengths=odd(torch.tensor([1, 7, 3]))),
    "attend: no heads to look at": lambda: attend(keys=torch.zeros(B, 0, K, D), values=torch.zeros(B, 0, K, D)),
    "attend: heads that do not divide": lambda: attend(q=torch.randn(B, 3, D)),
    "attend: narrow fresh keys": lambda: attend(new_kv=fresh(B, G, D - 1)),
    "attend: expanded memory that is written": lambda: attend(
        keys=torch.zeros(1, G, K, D).expand(B, -1, -1, -1),
        values=torch.zeros(1, G, K, D).expand(B, -1, -1, -1),
        new_kv=fresh(B, G, D),
    ),
    "gather: a row beyond": lambda: gather(torch.tensor([[0, 5]])),
    "gather: a row below": lambda: gather(torch.tensor([[0, -1]])),
    "gather: a place beyond": lambda: gather(torch.zeros(2, 50_000, dtype=torch.int32), 50_000),
    "gather: fewer than no places": lambda: gather(torch.zeros(2, K, dtype=torch.int32), -1),
    "gather: rows in floats": lambda: gather(torch.zeros(2, K)),
    "gather: a memory of three axes": lambda: gather(torch.zeros(2, K, dtype=torch.int32), memory=torch.zeros(5, K, D)),
    "chain: a room that is not there": lambda: look([room()], number=1),
    "chain: a room from the end": lambda: look([room()], number=-1),
    "chain: a length beyond": lambda: look([room(lengths=torch.tensor([1, 8, 3]))], writes=False),
    "chain: no place for what is fresh": lambda: look([room(lengths=torch.tensor([1, 0, 3]))]),
    "chain: a place in a row beyond": lambda: look([room(indirection=origins(B))]),
    "chain: a place in a row below": lambda: look([room(indirection=origins(-1))], writes=False),
    "chain: a place far away": lambda: look([room(indirection=origins(2**30))]),
    "chain: a place to write in another row": lambda: look([room(indirection=origins(1, last=True))]),
    "chain: origins elsewhere": lambda: room(indirection=torch.zeros(B, K, dtype=torch.int32, device=META)),
    "chain: fewer values than origins may say": lambda: room(5, values=torch.randn(B, G, K, D), indirection=origins()),
    "chain: rows that nobody shares": lambda: room(rows_per_source=0),
    "chain: expanded memory that is written": lambda: look(
        [room(keys=torch.zeros(1, G, K, D).expand(B, -1, -1, -1), values=torch.zeros(1, G, K, D).expand(B, -1, -1, -1))]
    ),
    "chain: half a gate": lambda: linked(lambda chain: chain.gate(1, "silu")),
    "chain: half a pair turned": lambda: linked(lambda chain: chain.rotate(1, 1, 5)),
    "chain: a result from the end": lambda: linked(lambda chain: chain.layer_norm(-1, torch.ones(13), None, 1e-5)),
    "chain: a result to come": lambda: linked(lambda chain: chain.layer_norm(2, torch.ones(13), None, 1e-5)),
    "chain: an unknown activation": lambda: linked(lambda chain: chain.linear(0, packed(), "tanh")),
    "chain: heads that do not divide": lambda: StepProgram(3 * D).attend(0, 3, 2, D, 1.0, buffer=0),
    "chain: no heads to look at": lambda: StepProgram(3 * D).attend(0, 3, 0, D, 1.0, buffer=0),
    "panels: a narrow input": lambda: panels()(torch.randn(B, W - 1)),
    "panels: something else to add": lambda: panels()(torch.randn(B, W), "none", torch.randn(B, 4)),
    "panels: doubles": lambda: panels()(torch.randn(B, W).double()),
    "panels: a short bias": lambda: panels(torch.zeros(1)),
    "panels: no columns": lambda: PackedMatrix(torch.zeros(5, 0), None, "int8"),
    "encoder: fewer tokens than lengths": lambda: encode(tokens=torch.zeros(4, dtype=torch.int32)),
    "encoder: tokens of 64 bits": lambda: encode(tokens=torch.zeros(5, dtype=torch.int64)),
    "encoder: a token beyond": lambda: encode(tokens=torch.full((5,), 7, dtype=torch.int32)),
    "encoder: a token below": lambda: encode(tokens=torch.full((5,), -1, dtype=torch.int32)),
    "encoder: a segment beyond": lambda: encode(segments=torch.full((5,), 2, dtype=torch.int32)),
    "encoder: fewer segments": lambda: encode(segments=torch.zeros(4, dtype=torch.int32)),
    "encoder: a length below": lambda: encode(lengths=[6, -1]),
    "encoder: more tokens than positions": lambda: encode(lengths=[10], tokens=torch.zeros(10, dtype=torch.int32)),
    "encoder: rows of a program that reads tokens": lambda: encode(tokens=None, rows=torch.randn(5, W)),
    "chain: one axis": lambda: linked(lambda chain: chain(torch.randn(W))),
}

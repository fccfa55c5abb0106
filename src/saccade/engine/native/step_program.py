"""A decoding step as one native call: a list of operators for one new token per row, run without Python code in between.

program = StepProgram(768)                                  # input (B, 768); every operator returns the index of its result
x = program.layer_norm(0, weight, bias, 1e-5)
x = program.attend(program.linear(x, joint), 12, 12, 64, 0.125, buffer=0)
x = program.linear(x, output, add=0)
program(new, [KVBufferRef(keys, values, lengths)])           # (B, 768) to (B, 768)
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.engine.int8_linear import ACTIVATION_CODES, Int8Tiles
from saccade.engine.native.check_args import (
    FLOAT,
    check_indirection_values,
    check_lengths,
    check_writable,
    make_contiguous,
    to_native_input,
)
from saccade.engine.native.library import library
from saccade.engine.native.reference_program import run_reference
from saccade.engine.native.step_ops import (
    ATTEND,
    GATE,
    INPUT,
    LAYER_NORM,
    LINEAR,
    NO_RESULT,
    OUTPUT,
    RMS_NORM,
    ROTATE,
    BoundKVBuffer,
    BoundOp,
    KVBufferRef,
    Op,
)

__all__ = ["KVBufferRef", "StepProgram"]


class StepProgram:
    """A list of native operators that is built once and run for every new token; input and output are (B, width)."""

    widths: list[int]
    ops: list[Op]

    def __init__(self, width: int) -> None:
        self.widths, self.ops = [width], list[Op]()
        self._bound_ops: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"widths": self.widths, "ops": self.ops, "_bound_ops": None}  # a copy has other addresses

    def _add_result(self, width: int) -> int:
        self._bound_ops = None
        self.widths.append(width)
        return len(self.widths) - 1

    def _result_width(self, x: int) -> int:
        """The width of a result; negative indices are refused, since the compiled code does not check them."""
        if not 0 <= x < len(self.widths):
            raise ValueError(f"This program has results 0 to {len(self.widths) - 1}; got {x}.")
        return self.widths[x]

    def linear(self, x: int, layer: Int8Tiles, activation: str = "none", add: int | None = None) -> int:
        """activation(x · weight + bias) + add."""
        if self._result_width(x) != layer.columns or (add is not None and self._result_width(add) != layer.rows):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this layer maps {layer.columns} to {layer.rows}.")
        code = _activation_code(activation)
        to = self._add_result(layer.rows)
        self.ops.append(Op(LINEAR, x, to, layer.rows, layer.columns, add, code, layer=layer))
        return to

    def layer_norm(self, x: int, weight: Tensor, bias: Tensor | None, eps: float) -> int:
        """Layer normalization."""
        return self._append_norm(LAYER_NORM, x, (weight,) if bias is None else (weight, bias), eps)

    def rms_norm(self, x: int, weight: Tensor, eps: float) -> int:
        """Root-mean-square norm."""
        return self._append_norm(RMS_NORM, x, (weight,), eps)

    def _append_norm(self, kind: int, x: int, tensors: tuple[Tensor, ...], eps: float) -> int:
        tensors = tuple(make_contiguous(t.detach().to("cpu", FLOAT, copy=True)) for t in tensors)
        if any(t.shape != (self._result_width(x),) for t in tensors):
            raise ValueError(f"Result {x} is {self.widths[x]} wide; this norm is {tuple(tensors[0].shape)}.")
        self.ops.append(Op(kind, x, to := self._add_result(self.widths[x]), self.widths[x], value=eps, tensors=tensors))
        return to

    def rotate(self, x: int, heads: int, head_width: int, *, interleaved: bool = False) -> int:
        """Rotate the first `heads` heads by each row's rotary angles, in place: x itself must not be used again."""
        if x == 0 or min(heads, head_width) < 1 or head_width % 2 or self._result_width(x) < heads * head_width:
            raise ValueError(
                f"Result {x}, {self.widths[x]} wide, cannot be rotated in place as {heads} x {head_width}."
            )
        self.ops.append(Op(ROTATE, x, x, self.widths[x], head_width, activation=int(interleaved), heads=heads))
        return x

    def gate(self, x: int, activation: str) -> int:
        """activation(first half) times the second half, as in a gated feed-forward."""
        half, odd = divmod(self._result_width(x), 2)
        if odd:
            raise ValueError(f"Result {x} is {self.widths[x]} wide; a gate needs two halves of equal width.")
        code = _activation_code(activation)
        self.ops.append(Op(GATE, x, to := self._add_result(half), half, activation=code))
        return to

    def attend(self, x: int, heads: int, kv_heads: int, head_width: int, scale: float, *, buffer: int) -> int:
        """Attention over KV buffer number `buffer`; a key and value that follow the queries in x are first written to it."""
        if self._result_width(x) not in (heads * head_width, (heads + 2 * kv_heads) * head_width):
            raise ValueError(
                f"Result {x} is {self.widths[x]} wide; {heads} + 2 x {kv_heads} heads of {head_width} are not."
            )
        if min(heads, kv_heads, head_width) < 1 or heads % kv_heads or buffer < 0:
            raise ValueError(
                f"{heads} heads of {head_width} cannot attend to {kv_heads} key-value heads of buffer {buffer}: heads must be "
                "a multiple of kv_heads, and buffers are numbered from 0."
            )
        to, numbers = (
            self._add_result(heads * head_width),
            {"heads": heads, "kv_heads": kv_heads, "buffer": buffer, "value": scale},
        )
        self.ops.append(Op(ATTEND, x, to, self.widths[x], head_width, **numbers))
        return to

    def __call__(self, x: Tensor, buffers: Sequence[KVBufferRef] = (), cos_sin: Tensor | None = None) -> Tensor:
        """Run the program on x (B, width); `cos_sin` (B, head width) has the cosines and then the sines of each row's angles."""
        x, cos_sin = to_native_input(x), None if cos_sin is None else to_native_input(cos_sin)
        self._check_inputs(x, buffers, cos_sin)
        compiled = library()
        if compiled is None:
            for step in self.ops:
                if step.kind == ATTEND:
                    self._check_buffer(step.buffer, buffers[step.buffer])
            return run_reference(self.ops, x, buffers, cos_sin)
        steps, count, scratch_width = self._bound_ops = self._bound_ops or self._bind_ops()
        b = x.size(0)
        scratch, out = torch.empty(scratch_width * b), torch.empty(b, self.widths[-1])
        c_buffers = (BoundKVBuffer * len(buffers))(*(buffer.c_struct for buffer in buffers))
        angles = None if cos_sin is None else cos_sin.data_ptr()
        ends = (x.data_ptr(), out.data_ptr(), b)
        bad = compiled.saccade_run_program(steps, count, c_buffers, angles, scratch.data_ptr(), *ends)
        if bad >= 0:
            self._check_buffer(bad, buffers[bad])
        return out

    def _check_buffer(self, index: int, buffer: KVBufferRef) -> None:
        """Check lengths and origins of a buffer; the compiled code only reports that one is out of range, this says which."""
        writes = any(step.kind == ATTEND and step.buffer == index and step.writes_kv for step in self.ops)
        check_lengths(buffer.lengths, buffer.keys.size(2), int(writes))
        if buffer.indirection is not None:
            check_indirection_values(buffer.indirection, buffer.lengths, len(buffer.keys), writes=writes)

    def _check_inputs(self, x: Tensor, buffers: Sequence[KVBufferRef], cos_sin: Tensor | None) -> None:
        """Check that all sizes fit together, which the compiled code does not."""
        if x.dim() != 2 or x.size(1) != self.widths[0] or not self.ops:
            raise ValueError(
                f"This program has {len(self.ops)} operators and takes (B, {self.widths[0]}); got {tuple(x.shape)}."
            )
        b = x.size(0)
        for step in self.ops:
            if step.kind == ATTEND:
                if step.buffer >= len(buffers):
                    raise ValueError(f"This program reads KV buffer {step.buffer}; got {len(buffers)} buffers.")
                buffer = buffers[step.buffer]
                if step.writes_kv:
                    check_writable(buffer.keys, buffer.values)
                kv_heads, head_width = buffer.shape
                if (kv_heads, head_width) != (step.kv_heads, step.columns) or (
                    len(buffer.lengths) * buffer.rows_per_source != b
                ):
                    raise ValueError(
                        f"KV buffer {step.buffer} has {len(buffer.lengths)} x {buffer.rows_per_source} rows of {kv_heads} heads "
                        f"of {head_width}; the program needs {b} rows of {step.kv_heads} heads of {step.columns}."
                    )
            if step.kind == ROTATE and (cos_sin is None or cos_sin.shape != (b, step.columns)):
                raise ValueError(f"This program rotates heads: give cos_sin of shape ({b}, {step.columns}).")

    def _bind_ops(self) -> tuple[Any, int, int]:
        """The operators as C structures, their number, and the scratch floats per row; the space of dead results is reused."""
        last_use = {x: n for n, step in enumerate(self.ops) for x in (step.x, step.add)}
        offsets: dict[int | None, int] = {None: NO_RESULT, 0: INPUT, len(self.widths) - 1: OUTPUT}
        used: dict[int, int] = {}  # start -> end of the results that are still needed
        scratch_width, c_ops = 0, []
        for n, step in enumerate(self.ops):
            if step.result not in offsets:
                offset = offsets[step.result] = _find_gap(used, self.widths[step.result])
                used[offset] = offset + self.widths[step.result]
                scratch_width = max(scratch_width, used[offset])
            c_ops.append(step.bind(offsets))
            for x in {step.x, step.add} - {None, step.result}:
                if last_use[x] == n:
                    used.pop(offsets[x], None)
        return (BoundOp * len(c_ops))(*c_ops), len(c_ops), scratch_width


def _find_gap(used: dict[int, int], width: int) -> int:
    """The lowest offset at which `width` floats are free."""
    offset = 0
    for start in sorted(used):
        if start - offset >= width:
            break
        offset = used[start]
    return offset


def _activation_code(activation: str) -> int:
    if activation not in ACTIVATION_CODES:
        raise ValueError(f"The native activations are {', '.join(ACTIVATION_CODES)}; got {activation!r}.")
    return ACTIVATION_CODES[activation]

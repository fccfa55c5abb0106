"""Reference implementation of `StepProgram`: runs its operators one by one, as step_program.cpp is defined to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.engine.native import ops, reference_ops
from saccade.engine.native.check_args import to_cache_dtype
from saccade.engine.native.step_ops import ATTEND, GATE, RMS_NORM, ROTATE, KVBufferRef, Op


def run_reference(steps: Sequence[Op], x: Tensor, buffers: Sequence[KVBufferRef], cos_sin: Tensor | None) -> Tensor:
    """Run all operators and return the last result; `cos_sin` is needed if one of them rotates."""
    results: dict[int | None, Tensor] = {0: x}
    acts = list(ops.ACTIVATION_CODES)
    for step in steps:
        x, act = results[step.x], acts[step.activation]
        if step.layer is not None:
            results[step.result] = step.layer(x, act, results.get(step.add))
        elif step.kind == ATTEND:
            results[step.result] = _attend(x, step, buffers[step.buffer])
        elif step.kind == ROTATE:
            assert cos_sin is not None, "the caller has checked it"
            results[step.result] = _rotate(x, step, cos_sin)
        elif step.kind == GATE:
            gate, up = x.chunk(2, dim=-1)
            results[step.result] = reference_ops.ACTIVATIONS[act](gate) * up
        elif step.kind == RMS_NORM:
            results[step.result] = ops.rms_norm(x, step.tensors[0], step.value)
        else:
            results[step.result] = ops.layer_norm(x, step.tensors[0], (*step.tensors, None)[1], step.value)
    return results[max(step.result for step in steps)]


def _attend(x: Tensor, step: Op, buffer: KVBufferRef) -> Tensor:
    h, g = step.heads, step.kv_heads
    parts = x.view(len(x), x.size(1) // step.columns, step.columns)  # (B, H or H + 2G, D)
    new_kv = None if parts.size(1) == h else (parts[:, h : h + g], parts[:, h + g :])
    keys, values, lengths, keep = buffer.keys, buffer.values, buffer.lengths, buffer.keep
    if buffer.indirection is not None:
        for cache, new in zip((keys, values), new_kv or (), strict=False):
            reference_ops.write_last(cache, to_cache_dtype(new, cache.dtype), lengths)
        keys, values = (ops.gather(cache, buffer.indirection, cache.size(2)) for cache in (keys, values))
        new_kv = None
    if buffer.rows_per_source > 1:
        keys, values, lengths = (t.repeat_interleave(buffer.rows_per_source, 0) for t in (keys, values, lengths))
        keep = None if keep is None else keep.repeat_interleave(buffer.rows_per_source, 0)
    return ops.attend(parts[:, :h], keys, values, lengths, step.value, keep, new_kv).flatten(1)


def _rotate(x: Tensor, step: Op, cos_sin: Tensor) -> Tensor:
    size = step.heads * step.columns
    heads = x[:, :size].view(len(x), step.heads, step.columns)
    cosine, sine = cos_sin[:, None].chunk(2, dim=-1)
    a, b = (heads[..., 0::2], heads[..., 1::2]) if step.activation else heads.chunk(2, dim=-1)
    pair = a * cosine - b * sine, b * cosine + a * sine
    rotated = torch.stack(pair, -1) if step.activation else torch.cat(pair, -1)
    return torch.cat([rotated.reshape(len(x), size), x[:, size:]], dim=1)

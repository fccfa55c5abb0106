"""Attention weights of one call of the attention interface of `transformers`, for some rows: what its kernels never return.

Functions are told apart by what they are, not by the name under which they are registered. Those of SDPA and of flash
attention are recomputed from their arguments; of a function that returns its weights, as each eager one does, they are used.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import ModelError

SDPA_FUNCTION, FLASH_FUNCTION = "sdpa_attention_forward", "flash_attention_forward"


@dataclass(frozen=True)
class InterfaceCall:
    """One call of an attention function with its arguments, and the weights that it returned, if it did."""

    function: Callable[..., Any]
    module: nn.Module
    query: Tensor  # (B, H, Q, D)
    key: Tensor  # (B, G, K, D): G heads, each of which serves H / G query heads
    value: Tensor  # (B, G, K, V)
    mask: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    output_weights: Tensor | None = None  # (B, H, Q, K)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all weights: (B, H, Q, K)."""
        if self.output_weights is not None:
            return tuple(self.output_weights.shape)
        return max(self.query.size(0), self.key.size(0)), self.query.size(1), self.query.size(2), self.key.size(2)

    def compute_weights(self, rows: Tensor) -> Tensor:
        """The weights of some query rows, (B, H, rows, K), in single precision or better; a row that may see nothing is zero."""
        rows = rows.to(self.query.device)
        if self.output_weights is not None:
            return self.output_weights.index_select(-2, rows)
        scores = self._compute_scores(rows)
        mask = self._make_sdpa_mask(rows) if is_sdpa(self.function) else self._make_flash_mask(rows)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        sinks = None if is_sdpa(self.function) else self.options.get("s_aux")
        if sinks is not None:  # attention sinks: a score of each head that takes its share and has no value
            sinks = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
            return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
        return scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)

    def _compute_scores(self, rows: Tensor) -> Tensor:
        """Scaled dot products, (B, H, rows, K); the keys of a group of heads are read once and never repeated."""
        precision = torch.promote_types(self.query.dtype, torch.float32)
        query = self.query.index_select(2, rows).to(precision)
        heads, groups = query.size(1), self.key.size(1)
        query = query.reshape(
            query.size(0), groups, heads // groups * len(rows), query.size(-1)
        )  # (B, G, H / G * rows, D)
        scale = self.options.get("scaling")
        scores = query @ self.key.to(precision).transpose(-1, -2) * (query.size(-1) ** -0.5 if scale is None else scale)
        scores = scores.reshape(scores.size(0), heads, len(rows), scores.size(-1))
        softcap = self.options.get("softcap")
        return scores if softcap is None else torch.tanh(scores / softcap) * softcap

    def _is_causal(self) -> bool:
        asked = self.options.get("is_causal")
        return bool(getattr(self.module, "is_causal", True) if asked is None else asked)

    def _make_sdpa_mask(self, rows: Tensor) -> Tensor | None:
        """What the kernel was given, for some rows: True where a key is seen, or numbers to add to the scores.

        A kernel without a mask is causal from the first key on, which is where a prefill of an empty static cache stands.
        """
        mask = self.mask if self.mask is None else _take_rows(self.mask, rows)
        if mask is None and self._is_causal() and self.query.size(2) > 1:
            mask = torch.arange(self.key.size(2), device=rows.device) <= rows[:, None]
        bias = self.options.get("position_bias")
        if bias is None:
            return mask
        bias = _take_rows(bias, rows)
        if mask is None:
            return bias
        return bias.masked_fill(~mask, torch.finfo(self.key.dtype).min) if mask.dtype == torch.bool else bias + mask

    def _make_flash_mask(self, rows: Tensor) -> Tensor | None:
        """True where a key is seen: causal up to the last query, within the sliding window, and no padding."""
        queries, keys = self.query.size(2), self.key.size(2)
        step = torch.arange(keys, device=rows.device) - (rows[:, None] + keys - queries)  # (rows, K), 0 on the diagonal
        mask = step <= 0 if self._is_causal() else torch.ones_like(step, dtype=torch.bool)
        window = self.options.get("sliding_window")
        if window is not None and keys > window:
            mask = mask & (step.abs() < window)
        if self.mask is None:
            return mask
        keep = self.mask.bool()  # (B, K)
        return mask & keep[:, None, None] & keep[:, -queries:][:, rows][:, None, :, None]


def is_sdpa(function: Callable[..., Any]) -> bool:
    """Whether a function is the one by which `transformers` calls the SDPA of torch."""
    return _is_from_transformers(function, SDPA_FUNCTION)


def is_fused(function: Callable[..., Any]) -> bool:
    """Whether a function returns no weights, and they can be recomputed from its arguments."""
    return is_sdpa(function) or _is_from_transformers(function, FLASH_FUNCTION)


def check_call(call: InterfaceCall, name: str) -> None:
    """A call whose weights are neither returned nor known from its arguments is refused by name."""
    where = f"{type(call.module).__name__} with the attention implementation {name!r}"
    cure = "Choose another before watching: model.set_attn_implementation('sdpa') or 'eager'"
    if type(call.options.get("cache")).__name__ == "PagedAttentionCache":
        raise ModelError(
            f"{where} reads a paged cache of continuous batching, which cannot be watched. Use model.generate"
        )
    if call.output_weights is not None:
        if call.output_weights.dim() != 4 or call.output_weights.size(-2) != call.query.size(2):
            raise ModelError(
                f"{where} returned weights {tuple(call.output_weights.shape)} for queries {tuple(call.query.shape)}. {cure}"
            )
        return
    if not is_fused(call.function):
        raise ModelError(f"{where} returns no weights, and saccade does not know how it computes them. {cure}")
    if not is_sdpa(call.function) and _is_packed(call):
        raise ModelError(f"{where} reads several texts packed into one row, which cannot be watched. {cure}")


def _is_packed(call: InterfaceCall) -> bool:
    if call.options.get("cu_seq_lens_q") is not None:
        return True
    positions = call.options.get("position_ids")
    return isinstance(positions, Tensor) and call.mask is None and bool((positions.diff(dim=-1) != 1).any())


def _is_from_transformers(function: Callable[..., Any], name: str) -> bool:
    return getattr(function, "__name__", "") == name and str(getattr(function, "__module__", "")).startswith(
        "transformers."
    )


def _take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a mask or bias (..., Q or 1, K)."""
    return x if x.dim() < 2 or x.size(-2) == 1 else x.index_select(-2, rows)

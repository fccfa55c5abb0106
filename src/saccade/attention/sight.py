"""The attention mask of one forward pass: the attention pattern of the model combined with the padding of the batch.

A `Sight` is built once per forward pass and shared by all layers, so each mask is computed once. A bool mask says which
keys may be attended to, a float bias is added to the scores; only `Sight.mask` combines the two into one tensor.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from saccade.attention.pattern import CAUSAL, FULL, Pattern

T = TypeVar("T")


class Bias(Protocol):
    """An additive bias of the scores, as a function of positions that broadcast: (..., Q, 1) and (..., 1, K)."""

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # (..., H, Q, K)
        ...


@dataclass
class Sight:
    """Which keys the queries may attend to, and with which bias.

    Without positions, the queries and the keys are the same full sequence, numbered from 0 over the real tokens.

    >>> Sight(CAUSAL, keep=torch.tensor([[False, True, True]])).mask(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    tensor([[[[-inf, -inf, -inf],
              [-inf, 0., -inf],
              [-inf, 0., 0.]]]])
    """

    pattern: Pattern
    q_pos: Tensor | None = None  # (B|1, Q)
    k_pos: Tensor | None = None  # (B|1, K)
    keep: Tensor | None = None  # (B, K) padding mask: True = real token; None = no padding
    bias: Bias | None = None
    query_keep: Tensor | None = None  # (B, Q) True = the query is a real token; for a full sequence, `keep` says so
    queries_are_last: bool = False  # the queries are the last positions of the keys, as in decoding with a KV cache
    cross: bool = False  # cross-attention: the keys come from another sequence than the queries
    document_ids: Tensor | None = None  # (B, K) which text of a packed row each key belongs to; None = one text per row
    query_document_ids: Tensor | None = None  # (B, Q) the same for queries; for a full sequence, `document_ids` says so
    global_tokens: Tensor | None = None  # (B, G) positions of global tokens for local attention; padded with -1
    noise: Tensor | None = None  # (B, H, Q, K) uniform in [0, 1): the random numbers of this call, drawn once
    cache: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.keep is not None and (self.keep.dtype != torch.bool or self.keep.dim() < 2):
            raise ValueError(
                f"keep is bool of shape (B, K), True for real tokens; got {self.keep.dtype} of shape {tuple(self.keep.shape)}."
            )

    @property
    def is_full_sequence(self) -> bool:
        """Whether the queries are the keys, from the first token on: no KV cache, no cross-attention."""
        return self.q_pos is None and self.k_pos is None and not self.cross

    @property
    def real_queries(self) -> Tensor | None:
        """(B, Q) which queries are real tokens; None if all are, or if that is unknown."""
        return self.keep if self.is_full_sequence else self.query_keep

    def get_or_make(self, name: Hashable, make: Callable[[], T]) -> T:
        """The cached value of that name; the first call makes it, later layers share it.

        A tensor that requires a gradient is not cached: gradient checkpointing must find the same graph in each layer.
        """
        if name in self.cache:
            return self.cache[name]  # type: ignore[return-value]
        value = make()
        if not (isinstance(value, Tensor) and value.requires_grad):
            self.cache[name] = value
        return value

    def restrict(self, pattern: Pattern) -> "Sight":
        """The same sight, restricted by one more pattern."""
        restricted = self.get_or_make(
            ("restrict", pattern), lambda: replace(self, pattern=self.pattern & pattern, noise=None, cache={})
        )
        return restricted if self.noise is None else replace(restricted, noise=self.noise)

    def select_queries(self, index: Tensor) -> "Sight":
        """The same sight for some of the queries only, so that watching a long sequence needs little memory."""
        q_pos, k_pos = self.q_pos, self.k_pos
        if self.is_full_sequence and (self.keep is not None or self.document_ids is not None):
            q_pos = k_pos = make_positions(self.keep, self.document_ids)
        query_ids = (
            None
            if self.document_ids is None
            else (self.document_ids if self.query_document_ids is None else self.query_document_ids)[:, index]
        )
        q_pos = index[None] if q_pos is None else q_pos[:, index]
        real = None if self.real_queries is None else self.real_queries[:, index]
        noise = None if self.noise is None else self.noise[:, :, index]
        return replace(
            self,
            q_pos=q_pos,
            k_pos=k_pos,
            query_keep=real,
            noise=noise,
            query_document_ids=query_ids,
            queries_are_last=False,
            cache={},
        )

    def broadcast_positions(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Query and key positions that broadcast: (B|1, 1, Q, 1) and (B|1, 1, 1, K)."""
        k_pos = self.k_pos
        if k_pos is None:
            is_plain = self.keep is None and self.document_ids is None
            k_pos = (
                torch.arange(k.size(2), device=k.device)[None]
                if is_plain
                else make_positions(self.keep, self.document_ids)
            )
        q_pos = self.q_pos
        if self.is_full_sequence and q.size(2) != k.size(2):
            raise ValueError(
                f"Got {q.size(2)} queries and {k.size(2)} keys, which cannot be the same tokens: pass the positions of both "
                "(q_pos, k_pos), or cross=True if the keys come from another sequence."
            )
        if q_pos is None:
            q_pos = k_pos if self.is_full_sequence else torch.arange(q.size(2), device=q.device)[None]
        return q_pos[:, None, :, None], k_pos[:, None, None, :]

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        """(B|1, H|1, Q|1, K|1) True where the query may attend to the key: pattern, packing and padding together."""
        visible = self.pattern.allows(*self.broadcast_positions(q, k))
        visible = visible[None, None] if visible.dim() == 2 else visible
        if self.document_ids is not None:  # packed texts do not attend to each other
            query_ids = self.document_ids if self.query_document_ids is None else self.query_document_ids
            visible = visible & (query_ids[:, None, :, None] == self.document_ids[:, None, None, :])
        return visible if self.keep is None else visible & self.keep[:, None, None, :]

    def mask(self, q: Tensor, k: Tensor) -> Tensor:
        """The additive mask, (B|1, H|1, Q|1, K|1): -inf where a key is hidden, elsewhere the bias, or 0 without one."""

        def make() -> Tensor:
            visible = self.allows(q, k)
            if self.bias is None:
                return torch.zeros(visible.shape, dtype=q.dtype, device=q.device).masked_fill(~visible, -math.inf)
            return self.bias(*self.broadcast_positions(q, k)).to(q.dtype).masked_fill(~visible, -math.inf)

        return self.get_or_make(
            ("mask", hashable_size(q.size(2)), hashable_size(k.size(2)), q.dtype, torch.is_grad_enabled()), make
        )

    def sdpa_is_causal(self, q: Tensor, k: Tensor) -> bool | None:
        """`is_causal` of PyTorch's SDPA kernel, if that flag expresses this sight; None if a mask is needed."""
        if self.keep is not None or self.bias is not None or self.document_ids is not None:
            return None
        if self.pattern == FULL:
            return False
        if self.pattern != CAUSAL:
            return None
        if self.queries_are_last and q.size(2) == 1:
            return False  # the newest token sees all the others
        # the kernel counts from the first key, so its flag is right only when nothing is remembered
        return True if self.is_full_sequence and q.size(2) == k.size(2) else None


def hashable_size(size: int) -> Hashable:
    """A size as part of a cache key; the symbolic sizes of `torch.export` (SymInt) cannot be hashed, but have a name."""
    return size if isinstance(size, int) else str(size)


def make_positions(keep: Tensor | None, document_ids: Tensor | None = None) -> Tensor:
    """Number the real tokens of each row from 0; padding repeats the number to its left (-1 before the first).

    In a packed row, the numbers restart at 0 with each text of `document_ids`.

    >>> make_positions(torch.tensor([[False, True, True, True], [True, True, False, False]])).tolist()
    [[-1, 0, 1, 2], [0, 1, 1, 1]]
    >>> make_positions(None, torch.tensor([[0, 0, 0, 1, 1]])).tolist()
    [[0, 1, 2, 0, 1]]
    """
    if keep is None:
        assert document_ids is not None, "without padding and packing, positions follow from the length alone"
        keep = torch.ones_like(document_ids, dtype=torch.bool)
    pos = keep.long().cumsum(-1) - 1
    if document_ids is None:
        return pos
    is_first = torch.ones_like(keep)
    is_first[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return pos - torch.where(is_first, pos, 0).cummax(-1).values

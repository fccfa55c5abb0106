"""What one stack may see in one forward pass: the pattern of the model and the padding of the batch, joined.

A `Sight` is built once per pass and shared by all layers, so masks are made once. Bool means *may look*, float means
*tilt*; `Sight.mask` is the only place where the two become one tensor.
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
    """A tilt of the scores, as a function of positions that are shaped to meet: (..., Q, 1) and (..., 1, K)."""

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # (..., H, Q, K)
        ...


@dataclass
class Sight:
    """What the queries may see of the keys.

    Without positions the row is *fresh*: the queries are the keys, counted from 0 over the real tokens.

    >>> Sight(CAUSAL, keep=torch.tensor([[False, True, True]])).mask(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    tensor([[[[-inf, -inf, -inf],
              [-inf, 0., -inf],
              [-inf, 0., 0.]]]])
    """

    pattern: Pattern
    q_pos: Tensor | None = None  # (B|1, Q)
    k_pos: Tensor | None = None  # (B|1, K)
    keep: Tensor | None = None  # (B, K) True = real token; None = all real
    bias: Bias | None = None
    query_keep: Tensor | None = None  # (B, Q) True = the query is a real token; a fresh row reads it off `keep`
    queries_are_last: bool = False  # the queries are the last of the keys
    cross: bool = False  # the keys are another sequence than the queries
    document_ids: Tensor | None = (
        None  # (B, K) the number of the text that a token is of, where a row holds several; None = one
    )
    query_document_ids: Tensor | None = None  # (B, Q) the same of the queries; a fresh row reads it off `document_ids`
    global_tokens: Tensor | None = (
        None  # (B, G) positions of tokens that a local mechanism lets everybody see; -1 fills up
    )
    noise: Tensor | None = None  # (B, H, Q, K) in [0, 1): the chance of this call, drawn once, for whoever needs it
    cache: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        if self.keep is not None and (self.keep.dtype != torch.bool or self.keep.dim() < 2):
            raise ValueError(
                f"keep is bool, (B, K), True for real tokens; got {self.keep.dtype} of shape {tuple(self.keep.shape)}."
            )

    @property
    def is_full_sequence(self) -> bool:
        """The queries are the keys, from the first token on: nothing is remembered from earlier."""
        return self.q_pos is None and self.k_pos is None and not self.cross

    @property
    def real_queries(self) -> Tensor | None:
        """(B, Q) which queries are real tokens; None = all, or not known."""
        return self.keep if self.is_full_sequence else self.query_keep

    def get_or_make(self, name: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, made at the first call and shared by all layers after it.

        What needs a gradient is made anew for each: recomputing a layer in backward must find the same graph.
        """
        if name in self.cache:
            return self.cache[name]  # type: ignore[return-value]
        made = make()
        if not (isinstance(made, Tensor) and made.requires_grad):
            self.cache[name] = made
        return made

    def restrict(self, pattern: Pattern) -> "Sight":
        """The same sight, narrowed by one more pattern."""
        narrow = self.get_or_make(
            ("within", pattern), lambda: replace(self, pattern=self.pattern & pattern, noise=None, cache={})
        )
        return narrow if self.noise is None else replace(narrow, noise=self.noise)

    def select_queries(self, index: Tensor) -> "Sight":
        """The same sight for some of the queries only: how watching a long text stays small."""
        q_pos, k_pos = self.q_pos, self.k_pos
        if self.is_full_sequence and (self.keep is not None or self.document_ids is not None):
            q_pos = k_pos = make_positions(self.keep, self.document_ids)
        q_parts = (
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
            query_document_ids=q_parts,
            queries_are_last=False,
            cache={},
        )

    def broadcast_positions(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Positions shaped to meet: (B|1, 1, Q, 1) and (B|1, 1, 1, K)."""
        k_pos = self.k_pos
        if k_pos is None:
            plain = self.keep is None and self.document_ids is None
            k_pos = (
                torch.arange(k.size(2), device=k.device)[None]
                if plain
                else make_positions(self.keep, self.document_ids)
            )
        q_pos = self.q_pos
        if self.is_full_sequence and q.size(2) != k.size(2):
            raise ValueError(
                f"{q.size(2)} queries and {k.size(2)} keys cannot be the same tokens: give the positions of both "
                "(q_pos, k_pos), or say cross=True if the keys are another sequence."
            )
        if q_pos is None:
            q_pos = k_pos if self.is_full_sequence else torch.arange(q.size(2), device=q.device)[None]
        return q_pos[:, None, :, None], k_pos[:, None, None, :]

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        """(B|1, H|1, Q|1, K|1) True where the query may look at the key: pattern and padding together."""
        seen = self.pattern.allows(*self.broadcast_positions(q, k))
        seen = seen[None, None] if seen.dim() == 2 else seen
        if self.document_ids is not None:  # texts that share a row do not see each other
            mine = self.document_ids if self.query_document_ids is None else self.query_document_ids
            seen = seen & (mine[:, None, :, None] == self.document_ids[:, None, None, :])
        return seen if self.keep is None else seen & self.keep[:, None, None, :]

    def mask(self, q: Tensor, k: Tensor) -> Tensor:
        """0 where looking is free, the bias where it is tilted, -inf where it is forbidden; (B|1, H|1, Q|1, K|1)."""

        def make() -> Tensor:
            seen = self.allows(q, k)
            if self.bias is None:
                return torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, -math.inf)
            return self.bias(*self.broadcast_positions(q, k)).to(q.dtype).masked_fill(~seen, -math.inf)

        return self.get_or_make(
            ("mask", hashable_size(q.size(2)), hashable_size(k.size(2)), q.dtype, torch.is_grad_enabled()), make
        )

    def sdpa_is_causal(self, q: Tensor, k: Tensor) -> bool | None:
        """The kernel's own causal flag where that says everything; None where it takes a mask."""
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
    """A size as part of a key; `torch.export` traces with sizes that are symbols (SymInt), which have no hash but a name."""
    return size if isinstance(size, int) else str(size)


def make_positions(keep: Tensor | None, document_ids: Tensor | None = None) -> Tensor:
    """Number the real tokens of each row from 0; padding repeats its left neighbour's number (-1 before the first).

    Where a row holds several texts, as `document_ids` says, the count begins again with each.

    >>> make_positions(torch.tensor([[False, True, True, True], [True, True, False, False]])).tolist()
    [[-1, 0, 1, 2], [0, 1, 1, 1]]
    >>> make_positions(None, torch.tensor([[0, 0, 0, 1, 1]])).tolist()
    [[0, 1, 2, 0, 1]]
    """
    if keep is None:
        assert document_ids is not None, "a row without padding and without parts is numbered by its length"
        keep = torch.ones_like(document_ids, dtype=torch.bool)
    pos = keep.long().cumsum(-1) - 1
    if document_ids is None:
        return pos
    begins = torch.ones_like(keep)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return pos - torch.where(begins, pos, 0).cummax(-1).values

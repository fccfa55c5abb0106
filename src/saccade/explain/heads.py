"""What each head does, in numbers and in a word: how widely it looks, how far, and at what.

The names come from a table of rules, the first that holds; each needs more than half of the weight, or a correlation. A head that
no rule fits is described by its own numbers instead. Names describe a habit on one input; they do not say that the answer depends
on it.
"""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.explain.looks import ATTENTION, Looks, Seen

MOSTLY = 0.5  # of the weight
NEAR = 2  # tokens to either side that count as near
LEAST = 0.1  # of the weight: a smaller share is not worth a word


@dataclass(frozen=True)
class Numbers:
    """What a head does on one input. Shares are of its weight, over all rows but the first, which often has no choice.

    `entropy` is in bits, `even` the share of what it could be at most (1: all keys it may see alike), `distance` in tokens.
    What cannot be told, such as the distance between a word and a cell of a picture, is nan. `steady` is how nearly the place
    looked at goes up with the place that looks, -1 to 1. `near` is the share within two tokens, and `near_if_even` what it would
    be for an even head; `special` is the share on tokens that stand for no text, `column` that on the one key that gets most,
    and `sharp` the mean of each row's largest weight.
    """

    entropy: float
    even: float
    distance: float
    first: float
    itself: float
    previous: float
    next: float
    punctuation: float
    separator: float
    steady: float
    near: float
    near_if_even: float
    special: float
    column: float
    sharp: float


@dataclass(frozen=True)
class Head:
    """One head: where it stands, its numbers, and the name that a rule gives it."""

    side: str
    layer: int
    kind: str
    head: int
    numbers: Numbers
    named: str = ""

    @property
    def title(self) -> str:
        return f"{self.side} layer {self.layer}, {self.kind}, head {self.head}".strip()


Rule = tuple[str, Callable[[Numbers, str], bool]]  # a name, and whether it holds of the numbers of a map of this kind
RULES: tuple[Rule, ...] = (
    ("previous token", lambda h, _: h.previous > MOSTLY),
    ("next token", lambda h, _: h.next > MOSTLY),
    ("self", lambda h, _: h.itself > MOSTLY),
    ("diagonal alignment", lambda h, kind: kind == "across" and h.steady > 0.8 and h.even < 0.8),
    ("reversed alignment", lambda h, kind: kind == "across" and h.steady < -0.8 and h.even < 0.8),
    ("first token", lambda h, _: h.first > MOSTLY),
    ("separator", lambda h, _: h.separator > MOSTLY),
    ("special tokens", lambda h, _: h.special > MOSTLY),
    ("punctuation", lambda h, _: h.punctuation > MOSTLY),
    ("the same token", lambda h, _: h.column > MOSTLY),
    ("broad", lambda h, _: h.even > 0.9),
    ("near", lambda h, _: h.near > max(MOSTLY, 1.25 * h.near_if_even)),
    ("one token each", lambda h, _: h.sharp > MOSTLY),
)
SHARES = {  # what a share of the weight is called where no rule holds
    "first": "first token",
    "itself": "self",
    "previous": "previous token",
    "next": "next token",
    "punctuation": "punctuation",
    "separator": "separator",
}


def heads(looks: Looks) -> list[Head]:
    """Every head of every attention; gates and channels have none."""
    return [head for seen in looks.maps if seen.kind in ATTENTION for head in heads_of(seen)]


def heads_of(seen: Seen) -> list[Head]:
    """The heads of one map, named."""
    weights = seen.dense()
    rest = weights[:, 1:] if weights.size(1) > 1 else weights
    entropy, even = _spread(rest)
    shares = _shares(rest, seen)
    out = []
    for place, number in enumerate(seen.heads):
        values = {name: float(share[place]) for name, share in shares.items()}
        values |= {"entropy": float(entropy[place]), "even": float(even[place]), "steady": _steady(weights[place])}
        out.append(_named(Head(seen.side, seen.layer, seen.kind, number, Numbers(**values))))
    return out


def _named(head: Head) -> Head:
    name = next((name for name, holds in RULES if holds(head.numbers, head.kind)), None)
    return replace(head, named=measured(head.numbers) if name is None else name)


def measured(numbers: Numbers) -> str:
    """A head that no rule fits, in its own numbers: its largest share, and over how many tokens it spreads.

    The latter is two to the power of the entropy: how many tokens an even head would look at to be as uncertain.
    """
    share, name = max((0.0 if math.isnan(x) else x, called) for x, called in _named_shares(numbers))
    spread = f"over {2**numbers.entropy:.1f} tokens"
    return f"{share:.0%} {name}, {spread}" if share >= LEAST else spread


def _named_shares(numbers: Numbers) -> list[tuple[float, str]]:
    return [(getattr(numbers, field), name) for field, name in SHARES.items()]


def _spread(weights: Tensor) -> tuple[Tensor, Tensor]:
    """The mean entropy of the rows in bits, and as a share of that of rows that are even, for each head."""
    plain = weights.clamp(min=0)
    plain = plain / plain.sum(-1, keepdim=True).clamp(min=1e-9)
    bits = -(plain * plain.clamp(min=1e-12).log2()).sum(-1)
    most = (plain > 0).sum(-1).clamp(min=2).log2()
    return bits.mean(-1), (bits / most).mean(-1)


def _shares(weights: Tensor, seen: Seen) -> dict[str, Tensor]:
    """How much of the weight falls on certain keys, for each head."""
    key = seen.key
    mark = torch.tensor([is_punctuation(name) for name in key.names])
    border = torch.tensor(key.special) & (torch.arange(len(key)) > 0) & (key.of in ("read", "given"))
    out = {
        "first": weights[..., 0].mean(-1),
        "punctuation": _on(weights, mark),
        "separator": _on(weights, border),
        "special": _on(weights, _special(seen)),
        "column": weights.mean(-2).amax(-1),
        "sharp": weights.amax(-1).mean(-1),
    }
    none = torch.full((len(weights),), math.nan)
    if seen.kind != "self" or len(seen.query) != len(key) or key.of == "cells":
        return out | dict.fromkeys(("distance", "itself", "previous", "next", "near", "near_if_even"), none)
    row = torch.arange(len(key) - weights.size(1), len(key))[:, None]
    step = torch.arange(len(key)) - row  # (Q, K): 0 on the diagonal, -1 one before it
    for name, where in (("itself", 0), ("previous", -1), ("next", 1)):
        out[name] = (weights * (step == where)).sum(-1).mean(-1)
    close = step.abs() <= NEAR
    seen_at_all = weights > 0
    out["near"] = (weights * close).sum(-1).mean(-1)
    out["near_if_even"] = ((seen_at_all & close).sum(-1) / seen_at_all.sum(-1).clamp(min=1)).mean(-1)
    return out | {"distance": (weights * step.abs()).sum(-1).mean(-1)}


def _special(seen: Seen) -> Tensor:
    """True for keys that stand for no text, such as [CLS]; of a picture or of numbers, for none."""
    return torch.tensor(seen.key.special) & (seen.key.of in ("read", "given", "written"))


def _on(weights: Tensor, keys: Tensor) -> Tensor:
    return (weights * keys).sum(-1).mean(-1)


def _steady(weights: Tensor) -> float:
    """The correlation of a row's number with the mean place that it looks at."""
    queries, keys = weights.shape
    if queries < 3 or keys < 2:
        return math.nan
    places = weights @ torch.arange(keys, dtype=weights.dtype)
    both = torch.stack([torch.arange(queries, dtype=weights.dtype), places])
    return 0.0 if places.std() < 1e-6 else torch.corrcoef(both)[0, 1].item()


def is_punctuation(name: str) -> bool:
    """Whether a token is punctuation and nothing else.

    >>> is_punctuation(" ,"), is_punctuation("don't"), is_punctuation("[SEP]")
    (True, False, False)
    """
    letters = name.strip(" ▁Ġ")
    return bool(letters) and all(unicodedata.category(letter)[0] in "PS" for letter in letters)


def links(seen: Seen, head: int, count: int = 3) -> list[tuple[str, str, float]]:
    """The strongest links of one head (by its place), from a token that looks to one that is looked at."""
    weights = seen.dense()[head]
    best = weights.flatten().topk(min(count, weights.numel()))
    places = [divmod(place, weights.size(1)) for place in best.indices.tolist()]
    return [(seen.rows[i], seen.columns[j], w) for (i, j), w in zip(places, best.values.tolist(), strict=True)]


def table(found: list[Head]) -> list[list[str]]:
    """The heads as lines of a table, under COLUMNS."""
    shown = lambda x: "–" if math.isnan(x) else f"{x:.2f}"
    return [[h.title, h.named, *(shown(getattr(h.numbers, name)) for name in NUMBERS)] for h in found]


NUMBERS = ("entropy", "distance", "first", "itself", "previous", "next", "punctuation", "separator")
COLUMNS = ("head", "what it does", "entropy, bits", *NUMBERS[1:])

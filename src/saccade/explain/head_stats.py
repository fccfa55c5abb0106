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

from saccade.explain.maps import ATTENTION_KINDS, TEXT_AXIS_KINDS, AttentionMap, AttentionMaps

MAJORITY_FRACTION = 0.5  # of the weight
MAX_NEAR_DISTANCE = 2  # tokens to either side that count as near
MIN_LABELED_FRACTION = 0.1  # of the weight: a smaller share is not worth a word


@dataclass(frozen=True)
class HeadMetrics:
    """What a head does on one input. Shares are of its weight, over all rows but the first, which often has no choice.

    `entropy` is in bits, `normalized_entropy` the share of what it could be at most (1: all keys it may see alike),
    `mean_distance` in tokens. What cannot be told, such as the distance between a word and a cell of a picture, is nan.
    `position_correlation` is how nearly the place looked at goes up with the place that looks, -1 to 1. `near_tokens` is the
    share within two tokens, and `near_tokens_if_uniform` what it would be for an even head; `special_tokens` is the share on
    tokens that stand for no text, `top_key` that on the one key that gets most, and `mean_max_weight` the mean of each row's
    largest weight.
    """

    entropy: float
    normalized_entropy: float
    mean_distance: float
    first_token: float
    same_position: float
    previous_token: float
    next_token: float
    punctuation_tokens: float
    separator_tokens: float
    position_correlation: float
    near_tokens: float
    near_tokens_if_uniform: float
    special_tokens: float
    top_key: float
    mean_max_weight: float


@dataclass(frozen=True)
class HeadStats:
    """One head: where it stands, its numbers, and the name that a rule gives it."""

    side: str
    layer: int
    kind: str
    head: int
    metrics: HeadMetrics
    label: str = ""

    @property
    def title(self) -> str:
        return f"{self.side} layer {self.layer}, {self.kind}, head {self.head}".strip()


LabelRule = tuple[
    str, Callable[[HeadMetrics, str], bool]
]  # a name, and whether it holds of the numbers of a map of this kind
LABEL_RULES: tuple[LabelRule, ...] = (
    ("previous token", lambda h, _: h.previous_token > MAJORITY_FRACTION),
    ("next token", lambda h, _: h.next_token > MAJORITY_FRACTION),
    ("self", lambda h, _: h.same_position > MAJORITY_FRACTION),
    (
        "diagonal alignment",
        lambda h, kind: kind == "cross" and h.position_correlation > 0.8 and h.normalized_entropy < 0.8,
    ),
    (
        "reversed alignment",
        lambda h, kind: kind == "cross" and h.position_correlation < -0.8 and h.normalized_entropy < 0.8,
    ),
    ("first token", lambda h, _: h.first_token > MAJORITY_FRACTION),
    ("separator", lambda h, _: h.separator_tokens > MAJORITY_FRACTION),
    ("special tokens", lambda h, _: h.special_tokens > MAJORITY_FRACTION),
    ("punctuation", lambda h, _: h.punctuation_tokens > MAJORITY_FRACTION),
    ("the same token", lambda h, _: h.top_key > MAJORITY_FRACTION),
    ("broad", lambda h, _: h.normalized_entropy > 0.9),
    ("near", lambda h, _: h.near_tokens > max(MAJORITY_FRACTION, 1.25 * h.near_tokens_if_uniform)),
    ("one token each", lambda h, _: h.mean_max_weight > MAJORITY_FRACTION),
)
FRACTION_LABELS = {  # what a share of the weight is called where no rule holds
    "first_token": "first token",
    "same_position": "self",
    "previous_token": "previous token",
    "next_token": "next token",
    "punctuation_tokens": "punctuation",
    "separator_tokens": "separator",
}


def compute_head_stats(attention_maps: AttentionMaps) -> list[HeadStats]:
    """Every head of every attention; gates and channels have none."""
    return [
        head for seen in attention_maps.maps if seen.kind in ATTENTION_KINDS for head in compute_map_head_stats(seen)
    ]


def compute_map_head_stats(attention_map: AttentionMap) -> list[HeadStats]:
    """The heads of one map, named."""
    weights = attention_map.to_dense()
    rest = weights[:, 1:] if weights.size(1) > 1 else weights
    entropy, even = _mean_entropy(rest)
    shares = _key_fractions(rest, attention_map)
    out = []
    for place, number in enumerate(attention_map.heads):
        values = {name: float(share[place]) for name, share in shares.items()}
        values |= {
            "entropy": float(entropy[place]),
            "normalized_entropy": float(even[place]),
            "position_correlation": _position_correlation(weights[place]),
        }
        out.append(
            _label_head(
                HeadStats(attention_map.side, attention_map.layer, attention_map.kind, number, HeadMetrics(**values))
            )
        )
    return out


def _label_head(head: HeadStats) -> HeadStats:
    name = next((name for name, holds in LABEL_RULES if holds(head.metrics, head.kind)), None)
    return replace(head, label=describe_metrics(head.metrics) if name is None else name)


def describe_metrics(metrics: HeadMetrics) -> str:
    """A head that no rule fits, in its own numbers: its largest share, and over how many tokens it spreads.

    The latter is two to the power of the entropy: how many tokens an even head would look at to be as uncertain.
    """
    share, name = max((0.0 if math.isnan(x) else x, called) for x, called in _labeled_fractions(metrics))
    spread = f"over {2**metrics.entropy:.1f} tokens"
    return f"{share:.0%} {name}, {spread}" if share >= MIN_LABELED_FRACTION else spread


def _labeled_fractions(metrics: HeadMetrics) -> list[tuple[float, str]]:
    return [(getattr(metrics, field), name) for field, name in FRACTION_LABELS.items()]


def _mean_entropy(weights: Tensor) -> tuple[Tensor, Tensor]:
    """The mean entropy of the rows in bits, and as a share of that of rows that are even, for each head."""
    plain = weights.clamp(min=0)
    plain = plain / plain.sum(-1, keepdim=True).clamp(min=1e-9)
    bits = -(plain * plain.clamp(min=1e-12).log2()).sum(-1)
    most = (plain > 0).sum(-1).clamp(min=2).log2()
    return bits.mean(-1), (bits / most).mean(-1)


def _key_fractions(weights: Tensor, attention_map: AttentionMap) -> dict[str, Tensor]:
    """How much of the weight falls on certain keys, for each head."""
    key = attention_map.key
    mark = torch.tensor([is_punctuation(name) for name in key.names])
    border = (
        torch.tensor(key.special_tokens_mask) & (torch.arange(len(key)) > 0) & (key.kind in ("input", "decoder_input"))
    )
    out = {
        "first_token": weights[..., 0].mean(-1),
        "punctuation_tokens": _fraction_on(weights, mark),
        "separator_tokens": _fraction_on(weights, border),
        "special_tokens": _fraction_on(weights, _special_keys(attention_map)),
        "top_key": weights.mean(-2).amax(-1),
        "mean_max_weight": weights.amax(-1).mean(-1),
    }
    none = torch.full((len(weights),), math.nan)
    if attention_map.kind != "self" or len(attention_map.query) != len(key) or key.kind == "cells":
        unknown = (
            "mean_distance",
            "same_position",
            "previous_token",
            "next_token",
            "near_tokens",
            "near_tokens_if_uniform",
        )
        return out | dict.fromkeys(unknown, none)
    row = torch.arange(len(key) - weights.size(1), len(key))[:, None]
    step = torch.arange(len(key)) - row  # (Q, K): 0 on the diagonal, -1 one before it
    for name, where in (("same_position", 0), ("previous_token", -1), ("next_token", 1)):
        out[name] = (weights * (step == where)).sum(-1).mean(-1)
    close = step.abs() <= MAX_NEAR_DISTANCE
    seen_at_all = weights > 0
    out["near_tokens"] = (weights * close).sum(-1).mean(-1)
    out["near_tokens_if_uniform"] = ((seen_at_all & close).sum(-1) / seen_at_all.sum(-1).clamp(min=1)).mean(-1)
    return out | {"mean_distance": (weights * step.abs()).sum(-1).mean(-1)}


def _special_keys(attention_map: AttentionMap) -> Tensor:
    """True for keys that stand for no text, such as [CLS]; of a picture or of numbers, for none."""
    return torch.tensor(attention_map.key.special_tokens_mask) & (attention_map.key.kind in TEXT_AXIS_KINDS)


def _fraction_on(weights: Tensor, keys: Tensor) -> Tensor:
    return (weights * keys).sum(-1).mean(-1)


def _position_correlation(weights: Tensor) -> float:
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


def find_strongest_links(attention_map: AttentionMap, head_index: int, count: int = 3) -> list[tuple[str, str, float]]:
    """The strongest links of one head (by its place), from a token that looks to one that is looked at."""
    weights = attention_map.to_dense()[head_index]
    best = weights.flatten().topk(min(count, weights.numel()))
    places = [divmod(place, weights.size(1)) for place in best.indices.tolist()]
    return [
        (attention_map.query_names[i], attention_map.key_names[j], w)
        for (i, j), w in zip(places, best.values.tolist(), strict=True)
    ]


def make_table_rows(heads: list[HeadStats]) -> list[list[str]]:
    """The heads as lines of a table, under COLUMNS."""
    shown = lambda x: "–" if math.isnan(x) else f"{x:.2f}"
    return [[h.title, h.label, *(shown(getattr(h.metrics, name)) for name in TABLE_METRICS)] for h in heads]


TABLE_METRICS = (
    "entropy",
    "mean_distance",
    "first_token",
    "same_position",
    "previous_token",
    "next_token",
    "punctuation_tokens",
    "separator_tokens",
)
METRIC_COLUMNS = ("distance", "first", "itself", "previous", "next", "punctuation", "separator")
TABLE_COLUMNS = ("head", "what it does", "entropy, bits", *METRIC_COLUMNS)

"""Head statistics: the entropy of the attention weights of each head, their mean distance, where they go, and a label.

The label is that of the first matching rule of a table; a rule needs more than half of the weight, or a correlation. A head that
matches no rule is described by its numbers instead. Labels describe the head on one input; they do not mean that the prediction
depends on it.
"""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.explain.maps import ATTENTION_KINDS, TEXT_AXIS_KINDS, AttentionMap, AttentionMaps

MAJORITY_FRACTION = 0.5  # fraction of the weight that most rules need
MAX_NEAR_DISTANCE = 2  # tokens to either side that count as near
MIN_LABELED_FRACTION = 0.1  # smaller fractions of the weight are not part of a label


@dataclass(frozen=True)
class HeadMetrics:
    """The metrics of a head on one input, as means over all rows but the first, which often has only one key.

    `entropy` is in bits, `normalized_entropy` its fraction of the maximum (1: uniform over the visible keys), `mean_distance` in
    tokens. A metric that is undefined, such as the distance between a word and a cell of an image, is nan.
    `position_correlation` is the correlation of the index of a row with its mean attended position. The others are fractions of
    the weight: `near_tokens` within two tokens, `near_tokens_if_uniform` the same for uniform weights, `special_tokens` on tokens
    that stand for no text, `top_key` on the key with the most weight; `mean_max_weight` is the mean of the largest weight of each
    row.
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
    """A head with its side, layer and kind, its metrics, and its label."""

    side: str
    layer: int
    kind: str
    head: int
    metrics: HeadMetrics
    label: str = ""

    @property
    def title(self) -> str:
        return f"{self.side} layer {self.layer}, {self.kind}, head {self.head}".strip()


LabelRule = tuple[str, Callable[[HeadMetrics, str], bool]]  # a label, and whether metrics in a map of a kind match it
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
FRACTION_LABELS = {  # names of the fractions in the label of a head that matches no rule
    "first_token": "first token",
    "same_position": "self",
    "previous_token": "previous token",
    "next_token": "next token",
    "punctuation_tokens": "punctuation",
    "separator_tokens": "separator",
}


# metrics that need positions on one axis
POSITION_METRICS = (
    "mean_distance",
    "same_position",
    "previous_token",
    "next_token",
    "near_tokens",
    "near_tokens_if_uniform",
)


def compute_head_stats(attention_maps: AttentionMaps) -> list[HeadStats]:
    """The statistics of all heads of all attention maps; gates and channels have no heads."""
    return [head for m in attention_maps.maps if m.kind in ATTENTION_KINDS for head in compute_map_head_stats(m)]


def compute_map_head_stats(attention_map: AttentionMap) -> list[HeadStats]:
    """The statistics of the heads of one map."""
    weights = attention_map.to_dense()
    rows = weights[:, 1:] if weights.size(1) > 1 else weights
    entropy, normalized_entropy = _mean_entropy(rows)
    fractions = _key_fractions(rows, attention_map)
    heads = []
    for index, number in enumerate(attention_map.heads):
        values = {name: float(fraction[index]) for name, fraction in fractions.items()}
        values |= {
            "entropy": float(entropy[index]),
            "normalized_entropy": float(normalized_entropy[index]),
            "position_correlation": _position_correlation(weights[index]),
        }
        metrics = HeadMetrics(**values)
        heads.append(
            _label_head(HeadStats(attention_map.side, attention_map.layer, attention_map.kind, number, metrics))
        )
    return heads


def _label_head(head: HeadStats) -> HeadStats:
    label = next((label for label, matches in LABEL_RULES if matches(head.metrics, head.kind)), None)
    return replace(head, label=describe_metrics(head.metrics) if label is None else label)


def describe_metrics(metrics: HeadMetrics) -> str:
    """The label of a head that matches no rule: its largest fraction, and the number of tokens that it spreads over.

    That number is two to the power of the entropy: as many tokens as a uniform head with the same entropy attends to.
    """
    fraction, name = max((0.0 if math.isnan(x) else x, name) for x, name in _labeled_fractions(metrics))
    spread = f"over {2**metrics.entropy:.1f} tokens"
    return f"{fraction:.0%} {name}, {spread}" if fraction >= MIN_LABELED_FRACTION else spread


def _labeled_fractions(metrics: HeadMetrics) -> list[tuple[float, str]]:
    return [(getattr(metrics, field), name) for field, name in FRACTION_LABELS.items()]


def _mean_entropy(weights: Tensor) -> tuple[Tensor, Tensor]:
    """The mean entropy of the rows of each head, in bits and as a fraction of the entropy of uniform rows."""
    p = weights.clamp(min=0)
    p = p / p.sum(-1, keepdim=True).clamp(min=1e-9)
    bits = -(p * p.clamp(min=1e-12).log2()).sum(-1)
    max_bits = (p > 0).sum(-1).clamp(min=2).log2()
    return bits.mean(-1), (bits / max_bits).mean(-1)


def _key_fractions(weights: Tensor, attention_map: AttentionMap) -> dict[str, Tensor]:
    """The fractions of the weight on certain keys, for each head."""
    key = attention_map.key
    punctuation = torch.tensor([is_punctuation(name) for name in key.names])
    special = torch.tensor(key.special_tokens_mask) & (key.kind in ("input", "decoder_input"))
    fractions = {
        "first_token": weights[..., 0].mean(-1),
        "punctuation_tokens": _fraction_on(weights, punctuation),
        "separator_tokens": _fraction_on(weights, special & (torch.arange(len(key)) > 0)),
        "special_tokens": _fraction_on(weights, _special_keys(attention_map)),
        "top_key": weights.mean(-2).amax(-1),
        "mean_max_weight": weights.amax(-1).mean(-1),
    }
    if attention_map.kind != "self" or len(attention_map.query) != len(key) or key.kind == "cells":
        undefined = torch.full((len(weights),), math.nan)
        return fractions | dict.fromkeys(POSITION_METRICS, undefined)
    row = torch.arange(len(key) - weights.size(1), len(key))[:, None]
    offset = torch.arange(len(key)) - row  # (Q, K): 0 on the diagonal, -1 one before it
    for name, value in (("same_position", 0), ("previous_token", -1), ("next_token", 1)):
        fractions[name] = (weights * (offset == value)).sum(-1).mean(-1)
    near, visible = offset.abs() <= MAX_NEAR_DISTANCE, weights > 0
    fractions["near_tokens"] = (weights * near).sum(-1).mean(-1)
    fractions["near_tokens_if_uniform"] = ((visible & near).sum(-1) / visible.sum(-1).clamp(min=1)).mean(-1)
    return fractions | {"mean_distance": (weights * offset.abs()).sum(-1).mean(-1)}


def _special_keys(attention_map: AttentionMap) -> Tensor:
    """True for keys that stand for no text, such as [CLS]; never for cells of an image or for numbers."""
    return torch.tensor(attention_map.key.special_tokens_mask) & (attention_map.key.kind in TEXT_AXIS_KINDS)


def _fraction_on(weights: Tensor, keys: Tensor) -> Tensor:
    return (weights * keys).sum(-1).mean(-1)


def _position_correlation(weights: Tensor) -> float:
    """The correlation of the index of a row with its mean attended position."""
    queries, keys = weights.shape
    if queries < 3 or keys < 2:
        return math.nan
    means = weights @ torch.arange(keys, dtype=weights.dtype)
    both = torch.stack([torch.arange(queries, dtype=weights.dtype), means])
    return 0.0 if means.std() < 1e-6 else torch.corrcoef(both)[0, 1].item()


def is_punctuation(name: str) -> bool:
    """Whether a token is punctuation and nothing else.

    >>> is_punctuation(" ,"), is_punctuation("don't"), is_punctuation("[SEP]")
    (True, False, False)
    """
    letters = name.strip(" ▁Ġ")
    return bool(letters) and all(unicodedata.category(letter)[0] in "PS" for letter in letters)


def find_strongest_links(attention_map: AttentionMap, head_index: int, count: int = 3) -> list[tuple[str, str, float]]:
    """The largest weights of one head, as query, key and weight; `head_index` is the index of the head in the map."""
    weights = attention_map.to_dense()[head_index]
    largest = weights.flatten().topk(min(count, weights.numel()))
    indices = [divmod(index, weights.size(1)) for index in largest.indices.tolist()]
    return [
        (attention_map.query_names[i], attention_map.key_names[j], w)
        for (i, j), w in zip(indices, largest.values.tolist(), strict=True)
    ]


def make_table_rows(heads: list[HeadStats]) -> list[list[str]]:
    """The heads as rows of a table with TABLE_COLUMNS."""
    format_value = lambda x: "–" if math.isnan(x) else f"{x:.2f}"
    return [[h.title, h.label, *(format_value(getattr(h.metrics, name)) for name in TABLE_METRICS)] for h in heads]


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
METRIC_COLUMNS = ("distance", "first token", "itself", "previous", "next", "punctuation", "separator")
TABLE_COLUMNS = ("head", "label", "entropy, bits", *METRIC_COLUMNS)

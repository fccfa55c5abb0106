"""Attention maps as JSON for the page: everything but the weights, which are requested map by map."""

from typing import Any

from PIL import Image
from torch import Tensor

from saccade.explain.axis import Axis
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.word_alignment import align_words
from saccade.render.raster import image_to_data_url


def describe_look(look_id: int, attention_maps: AttentionMaps, shown_maps: AttentionMaps) -> dict[str, Any]:
    """Everything about a look but the weights; an axis that several maps share is included once."""
    axes: list[Axis] = []
    maps = []
    for raw, shown in zip(attention_maps.maps, shown_maps.maps, strict=True):
        axis_indices = []
        for axis in (shown.query, shown.key):
            if axis not in axes:
                axes.append(axis)
            axis_indices.append(axes.index(axis))
        maps.append(
            {
                "kind": shown.kind,
                "side": shown.side,
                "layer": shown.layer,
                "title": shown.title,
                "heads": shown.heads,
                "head_names": [shown.head_name(i) for i in range(len(shown.heads))],
                "query_axis": axis_indices[0],
                "key_axis": axis_indices[1],
                "is_pooled": raw.pooled,
                "has_value_norms": raw.value_norms is not None,
            }
        )
    image = attention_maps.image
    return {
        "look_id": look_id,
        "model": attention_maps.model,
        "answer": attention_maps.answer,
        "no_answer_reason": attention_maps.no_answer_reason,
        "generated_text": attention_maps.generated_text,
        "truncated_at": attention_maps.truncated_at,
        "max_output_tokens": attention_maps.max_output_tokens,
        "truncated_input_tokens": attention_maps.truncated_input_tokens,
        "texts": attention_maps.texts,
        "image": None if image is None else image_to_data_url(Image.fromarray(image.squeeze())),
        "most_informative": attention_maps.maps.index(attention_maps.most_informative()) if attention_maps.maps else 0,
        "axes": [describe_axis(axis) for axis in axes],
        "maps": maps,
        "alignment": describe_alignment(shown_maps),
    }


def describe_axis(axis: Axis) -> dict[str, Any]:
    """The tokens of an axis and the indices of its special tokens, such as [CLS]; axes without text have none."""
    special = (
        [i for i, is_special in enumerate(axis.special_tokens_mask) if is_special]
        if axis.kind in ("input", "decoder_input", "output")
        else []
    )
    if len(special) == len(axis):
        special = []  # the positions of the text are unknown, so special tokens are not distinguished
    return {
        "kind": axis.kind,
        "grid": axis.grid,
        "tokens": [token.name for token in axis.tokens],
        "special_tokens": special,
    }


def describe_alignment(attention_maps: AttentionMaps) -> dict[str, Any] | None:
    """The word alignment of a generated text with its source; None without cross-attention to a text."""
    if not any(one.kind == "cross" and one.key.kind == "input" for one in attention_maps.maps):
        return None
    alignment = align_words(attention_maps)
    return {
        "alignment_head": str(alignment.alignment_head),
        "source": alignment.source,
        "target": alignment.target,
        "weights": alignment.weights.tolist(),
        "pharaoh": alignment.to_pharaoh(),
    }


def special_token_fractions(attention_map: AttentionMap) -> list[tuple[float | None, float | None]]:
    """For each head, the share of special tokens in its attention weight and in its weight times value norm."""
    special = describe_axis(attention_map.key)["special_tokens"]
    weighted_norms = None if attention_map.value_norms is None else attention_map.weight_by_value_norm().weights
    fractions = [
        [None] * len(attention_map.heads) if values is None else _fractions_on(values, special)
        for values in (attention_map.to_dense(), weighted_norms)
    ]
    return list(zip(*fractions, strict=True))


def _fractions_on(weights: Tensor, keys: list[int]) -> list[float | None]:
    """The share of these keys in the weight of each head; None if there are none or weights are negative."""
    if not keys or bool((weights < 0).any()):
        return [None] * len(weights)
    return (weights[..., keys].sum((1, 2)) / weights.sum((1, 2)).clamp(min=1e-12)).tolist()

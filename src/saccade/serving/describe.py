"""A look as the page gets it: everything but the weights, which are asked for map by map."""

from typing import Any

from PIL import Image
from torch import Tensor

from saccade.explain.axis import Axis
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.word_alignment import align_words
from saccade.render.raster import image_to_data_url


def describe_look(look_id: int, attention_maps: AttentionMaps, shown_maps: AttentionMaps) -> dict[str, Any]:
    """Everything of a look but the weights, as it is shown; axes that maps share are told once."""
    axes: list[Axis] = []
    maps = []
    for raw, seen in zip(attention_maps.maps, shown_maps.maps, strict=True):
        sides = []
        for axis in (seen.query, seen.key):
            if axis not in axes:
                axes.append(axis)
            sides.append(axes.index(axis))
        maps.append(
            {
                "kind": seen.kind,
                "side": seen.side,
                "layer": seen.layer,
                "title": seen.title,
                "heads": seen.heads,
                "head_names": [seen.head_name(place) for place in range(len(seen.heads))],
                "query_axis": sides[0],
                "key_axis": sides[1],
                "is_pooled": raw.pooled,
                "has_value_norms": raw.value_norms is not None,
            }
        )
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
        "image": None
        if attention_maps.image is None
        else image_to_data_url(Image.fromarray(attention_maps.image.squeeze())),
        "most_informative": attention_maps.maps.index(attention_maps.most_informative()) if attention_maps.maps else 0,
        "axes": [describe_axis(axis) for axis in axes],
        "maps": maps,
        "alignment": describe_alignment(shown_maps),
    }


def describe_axis(axis: Axis) -> dict[str, Any]:
    """The names of an axis, and the numbers of the tokens that stand for no text, such as [CLS]; other axes have none."""
    special = (
        [i for i, one in enumerate(axis.special_tokens_mask) if one]
        if axis.kind in ("input", "decoder_input", "output")
        else []
    )
    if len(special) == len(axis):
        special = []  # nothing is known of the text, so nothing is special in it
    return {"kind": axis.kind, "grid": axis.grid, "tokens": [t.name for t in axis.tokens], "special_tokens": special}


def describe_alignment(attention_maps: AttentionMaps) -> dict[str, Any] | None:
    """Which word became which, where something was written from something that was read."""
    if not any(seen.kind == "cross" and seen.key.kind == "input" for seen in attention_maps.maps):
        return None
    found = align_words(attention_maps)
    return {
        "alignment_head": str(found.alignment_head),
        "source": found.source,
        "target": found.target,
        "weights": found.weights.tolist(),
        "pharaoh": found.to_pharaoh(),
    }


def special_token_fractions(attention_map: AttentionMap) -> list[tuple[float | None, float | None]]:
    """For each head the share of special tokens in all its weight, and in all it passes on (weight times value norm)."""
    special = describe_axis(attention_map.key)["special_tokens"]
    passed = None if attention_map.value_norms is None else attention_map.weight_by_value_norm().weights
    shares = [
        [None] * len(attention_map.heads) if x is None else _fractions_on(x, special)
        for x in (attention_map.to_dense(), passed)
    ]
    return list(zip(*shares, strict=True))


def _fractions_on(weights: Tensor, keys: list[int]) -> list[float | None]:
    """How much of each head's weight falls on some keys; None where weights may be negative, which have no shares."""
    if not keys or bool((weights < 0).any()):
        return [None] * len(weights)
    return (weights[..., keys].sum((1, 2)) / weights.sum((1, 2)).clamp(min=1e-12)).tolist()

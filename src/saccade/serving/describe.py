"""A look as the page gets it: everything but the weights, which are asked for map by map."""

from typing import Any

from PIL import Image
from torch import Tensor

from saccade.explain.align import align
from saccade.explain.axis import Axis
from saccade.explain.looks import Looks, Seen
from saccade.explain.raster import address


def describe_look(number: int, looks: Looks, shown: Looks) -> dict[str, Any]:
    """Everything of a look but the weights, as it is shown; axes that maps share are told once."""
    axes: list[Axis] = []
    maps = []
    for raw, seen in zip(looks.maps, shown.maps, strict=True):
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
                "called": [seen.called(place) for place in range(len(seen.heads))],
                "query": sides[0],
                "key": sides[1],
                "pooled": raw.pooled,
                "value_norms": raw.value_norms is not None,
            }
        )
    return {
        "look": number,
        "model": looks.model,
        "answer": looks.answer,
        "no_answer": looks.no_answer,
        "written": looks.written,
        "cut": looks.cut,
        "room": looks.room,
        "unread": looks.unread,
        "texts": looks.texts,
        "picture": None if looks.picture is None else address(Image.fromarray(looks.picture.squeeze())),
        "telling": looks.maps.index(looks.telling()) if looks.maps else 0,
        "axes": [describe_axis(axis) for axis in axes],
        "maps": maps,
        "aligned": describe_alignment(shown),
    }


def describe_axis(axis: Axis) -> dict[str, Any]:
    """The names of an axis, and the numbers of the tokens that stand for no text, such as [CLS]; other axes have none."""
    special = [i for i, one in enumerate(axis.special) if one] if axis.of in ("read", "given", "written") else []
    if len(special) == len(axis):
        special = []  # nothing is known of the text, so nothing is special in it
    return {"of": axis.of, "grid": axis.grid, "tokens": [t.name for t in axis.tokens], "special": special}


def describe_alignment(looks: Looks) -> dict[str, Any] | None:
    """Which word became which, where something was written from something that was read."""
    if not any(seen.kind == "across" and seen.key.of == "read" for seen in looks.maps):
        return None
    found = align(looks)
    return {
        "where": str(found.where),
        "source": found.source,
        "target": found.target,
        "weights": found.weights.tolist(),
        "pharaoh": found.pharaoh(),
    }


def special_shares(seen: Seen) -> list[tuple[float | None, float | None]]:
    """For each head the share of special tokens in all its weight, and in all it passes on (weight times value norm)."""
    special = describe_axis(seen.key)["special"]
    passed = None if seen.value_norms is None else seen.weigh_values().weights
    shares = [[None] * len(seen.heads) if x is None else _shares_on(x, special) for x in (seen.dense(), passed)]
    return list(zip(*shares, strict=True))


def _shares_on(weights: Tensor, keys: list[int]) -> list[float | None]:
    """How much of each head's weight falls on some keys; None where weights may be negative, which have no shares."""
    if not keys or bool((weights < 0).any()):
        return [None] * len(weights)
    return (weights[..., keys].sum((1, 2)) / weights.sum((1, 2)).clamp(min=1e-12)).tolist()

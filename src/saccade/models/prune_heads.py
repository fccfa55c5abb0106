"""Heads that are left out for good: projections cut down to the heads that are kept, and made whole again with zeros.

    smaller = remove_heads(model, {"stack.layers.0.attention.branch": {1, 3}})  # the others answer as if these said nothing
    unprune(smaller)                                        # the shape of its config: zeros where heads were

An attention goes by its name in the body. What is left of it stands in config.json under "kept_heads", as numbers of the heads
that its config speaks of, so that loading builds the smaller model; in the model itself heads are numbered anew, from 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from torch import nn

from saccade.attention import BigBird, LSHAttention
from saccade.errors import ModelError
from saccade.models.families.longformer import LocalGlobalAttention
from saccade.models.meta_init import meta_init
from saccade.models.model import Model
from saccade.parts.multihead_attention import Attention, JointHeadNorm
from saccade.text.loading.safe_files import abbreviate

KeptHeads = Mapping[str, Sequence[int]]  # name of an attention -> heads that are left


def remove_heads(model: Model, heads_to_remove: Mapping[str, Iterable[int]]) -> Model:
    """A copy without some heads, by the name of their attention in the body and as they are numbered now."""
    new = deepcopy(model)
    kept: dict[str, list[int]] = {}
    for name, heads in heads_to_remove.items():
        count = count_heads(_find_attentions(new.body, name)[0])
        beyond = sorted(set(heads) - set(range(count)))
        if beyond:
            raise ModelError(f"{name} has {count} heads, numbered from 0; asked to remove {beyond[0]}.")
        kept[name] = [head for head in range(count) if head not in set(heads)]
    prune(new.body, kept)
    for name, heads in kept.items():
        before = new.kept_heads.get(name, range(max(heads) + 1))
        new.kept_heads[name] = tuple(before[head] for head in heads)
    return new


def prune(body: nn.Module, kept_heads: KeptHeads) -> None:
    """Cut attentions down, in place, to the heads that are kept."""
    for name, heads in kept_heads.items():
        looks = _find_attentions(body, name)
        for look in looks:
            _check_prunable(name, look, heads)
        for look in looks:
            groups = _kv_heads_of(look, heads)
            _keep_head_rows(look.query, heads, look.head_width)
            if look.key is not look.query:
                _keep_head_rows(look.key, groups, look.head_width)
            _keep_head_rows(look.value, groups, look.value_width)
            if look.gate is not None:
                _keep_head_rows(look.gate.score, heads, look.gate.width)
            if isinstance(look.mechanism, LSHAttention):  # a rotation for each head
                look.mechanism.rotations = look.mechanism.rotations[:, list(heads)]
            look.kept_heads = (
                tuple(heads) if look.kept_heads is None else tuple(look.kept_heads[head] for head in heads)
            )
        _keep_head_columns(_find_output(body, name), heads, looks[0].value_width)


def unprune(model: Model) -> Model:
    """A copy in the shape that its config says, with zeros where heads were removed: it answers the same."""
    new = deepcopy(model)
    with meta_init():
        full = model.family.new_body(model.config)
    for name, heads in model.kept_heads.items():
        for look, wide in zip(_find_attentions(new.body, name), _find_attentions(full, name), strict=True):
            if isinstance(look.mechanism, LSHAttention):
                raise ModelError(f"The rotations of the heads that {name} has lost are gone; it is saved as it is.")
            groups = _kv_heads_of(wide, heads)
            _zero_fill_rows(look.query, heads, look.head_width, wide.query.out_features)
            if look.key is not look.query:
                _zero_fill_rows(look.key, groups, look.head_width, wide.key.out_features)
            _zero_fill_rows(look.value, groups, look.value_width, wide.value.out_features)
            if look.gate is not None and wide.gate is not None:
                _zero_fill_rows(look.gate.score, heads, look.gate.width, wide.gate.score.out_features)
            look.kept_heads = None
        wide = _find_output(full, name)
        _zero_fill_columns(
            _find_output(new.body, name), heads, _find_attentions(full, name)[0].value_width, wide.in_features
        )
    new.kept_heads = {}
    return new


def read_kept_heads(raw: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What a config.json says of the heads that are left; whatever is no table of numbers is refused."""
    told = raw.get("kept_heads", {})
    if not isinstance(told, dict):
        raise ModelError(f"kept = {abbreviate(told)} where a table of attentions and their heads is needed.")
    for name, heads in told.items():
        if not isinstance(heads, list) or not all(type(head) is int for head in heads):
            raise ModelError(f"kept.{abbreviate(name)} = {abbreviate(heads)} where a list of heads is needed.")
    return {name: tuple(heads) for name, heads in told.items()}


def count_heads(attention: Attention) -> int:
    """How many heads an attention has."""
    return attention.query.out_features // attention.head_width


def _find_attentions(body: nn.Module, name: str) -> list[Attention]:
    """The attention of that name; of Longformer's two looks, both."""
    try:
        part = body.get_submodule(name)
    except AttributeError:
        raise ModelError(f"The model has no attention {abbreviate(name)}.") from None
    if isinstance(part, LocalGlobalAttention):
        return [part.near, part.far]
    if not isinstance(part, Attention) or not isinstance(part.output, nn.Linear):
        raise ModelError(
            f"{abbreviate(name)} has no heads with projections of their own, so none can be removed; switch it off with "
            "saccade.explain.ablate.ablate_heads."
        )
    return [part]


def _find_output(body: nn.Module, name: str) -> nn.Linear:
    output = body.get_submodule(name).output
    assert isinstance(output, nn.Linear), "known since its looks are"
    return output


def _check_prunable(name: str, look: Attention, heads: Sequence[int]) -> None:
    """Say what cannot be cut so."""
    count = count_heads(look)
    if not heads:
        raise ModelError(f"{name} would be left without a head, and one is the least; leave one of its {count}.")
    if list(heads) != sorted(set(heads)) or not 0 <= heads[0] <= heads[-1] < count:
        raise ModelError(f"{name} has {count} heads, numbered from 0 and upwards; got {abbreviate(list(heads))}.")
    if isinstance(look.mechanism, BigBird):
        raise ModelError(
            f"{name} draws blocks for each of its {count} heads, so none can be removed; silence them instead "
            "(saccade.explain.ablate.zero_heads)."
        )
    if look.qk_norm is not None and any(isinstance(part, JointHeadNorm) for part in look.qk_norm.children()):
        raise ModelError(
            f"{name} normalizes the queries of all heads together, so none can be removed; silence them instead "
            "(saccade.explain.ablate.zero_heads)."
        )
    size = _heads_per_group(look)
    left = Counter(head // size for head in heads)
    if len(set(left.values())) > 1:
        raise ModelError(
            f"In {name}, {size} heads at a time share one key head ({', '.join(map(str, range(size)))} the first), and of those "
            f"that are left each group has as many; here {dict(sorted(left.items()))} of each are left. Remove whole groups, "
            "or as many heads of every group."
        )


def _heads_per_group(look: Attention) -> int:
    """How many heads share one key head."""
    return count_heads(look) // (look.key.out_features // look.head_width)


def _kv_heads_of(look: Attention, heads: Sequence[int]) -> list[int]:
    """The key heads that these heads look at."""
    return sorted({head // _heads_per_group(look) for head in heads})


def _keep_head_rows(layer: nn.Linear, heads: Sequence[int], width: int) -> None:
    """Of a projection into heads, those of some."""
    for name, x in list(layer.named_parameters()):
        made = x.detach().unflatten(0, (-1, width))[list(heads)].flatten(0, 1)
        setattr(layer, name, nn.Parameter(made, requires_grad=x.requires_grad))
    layer.out_features = len(heads) * width


def _keep_head_columns(layer: nn.Linear, heads: Sequence[int], width: int) -> None:
    """Of a projection out of heads, those of some."""
    x = layer.weight
    made = x.detach().unflatten(1, (-1, width))[:, list(heads)].flatten(1)
    layer.weight = nn.Parameter(made, requires_grad=x.requires_grad)
    layer.in_features = len(heads) * width


def _zero_fill_rows(layer: nn.Linear, heads: Sequence[int], width: int, size: int) -> None:
    """The way back: zeros for the heads between."""
    for name, x in list(layer.named_parameters()):
        made = x.new_zeros(size, *x.shape[1:])
        made.view(-1, width, *x.shape[1:])[list(heads)] = x.detach().unflatten(0, (-1, width))
        setattr(layer, name, nn.Parameter(made, requires_grad=x.requires_grad))
    layer.out_features = size


def _zero_fill_columns(layer: nn.Linear, heads: Sequence[int], width: int, size: int) -> None:
    x = layer.weight
    made = x.new_zeros(len(x), size)
    made.view(len(x), -1, width)[:, list(heads)] = x.detach().unflatten(1, (-1, width))
    layer.weight = nn.Parameter(made, requires_grad=x.requires_grad)
    layer.in_features = size

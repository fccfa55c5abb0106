"""Head pruning: removes attention heads from the projections, and restores the original shapes with zeros.

    smaller = remove_heads(model, {"stack.layers.0.attention.branch": {1, 3}})  # as if the output of these heads were zero
    unprune(smaller)                                        # the shapes of the config, with zeros for the pruned heads

Attentions are named by their path in the body. config.json has the remaining heads under "kept_heads", by their original index,
so that loading builds the smaller model; in the pruned model, heads are numbered from 0 again.
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

KeptHeads = Mapping[str, Sequence[int]]  # name of an attention -> remaining heads


def remove_heads(model: Model, heads_to_remove: Mapping[str, Iterable[int]]) -> Model:
    """A copy without some heads, given by attention name and current head index."""
    new = deepcopy(model)
    remaining: dict[str, list[int]] = {}
    for name, heads in heads_to_remove.items():
        count = count_heads(_find_attentions(new.body, name)[0])
        out_of_range = sorted(set(heads) - set(range(count)))
        if out_of_range:
            raise ModelError(f"{name} has {count} heads, numbered from 0; cannot remove head {out_of_range[0]}.")
        remaining[name] = [head for head in range(count) if head not in set(heads)]
    prune(new.body, remaining)
    for name, heads in remaining.items():
        previous = new.kept_heads.get(name, range(max(heads) + 1))
        new.kept_heads[name] = tuple(previous[head] for head in heads)
    return new


def prune(body: nn.Module, kept_heads: KeptHeads) -> None:
    """Prune attentions, in place, to the heads that are kept."""
    for name, heads in kept_heads.items():
        attentions = _find_attentions(body, name)
        for attention in attentions:
            _check_prunable(name, attention, heads)
        for attention in attentions:
            kv_heads = _kv_heads_of(attention, heads)
            _keep_head_rows(attention.query, heads, attention.head_width)
            if attention.key is not attention.query:
                _keep_head_rows(attention.key, kv_heads, attention.head_width)
            _keep_head_rows(attention.value, kv_heads, attention.value_width)
            if attention.gate is not None:
                _keep_head_rows(attention.gate.score, heads, attention.gate.width)
            if isinstance(attention.mechanism, LSHAttention):  # it has a rotation per head
                attention.mechanism.rotations = attention.mechanism.rotations[:, list(heads)]
            attention.kept_heads = (
                tuple(heads) if attention.kept_heads is None else tuple(attention.kept_heads[head] for head in heads)
            )
        _keep_head_columns(_find_output(body, name), heads, attentions[0].value_width)


def unprune(model: Model) -> Model:
    """A copy with the shapes of its config and zeros for pruned heads; its outputs are the same."""
    new = deepcopy(model)
    with meta_init():
        full = model.family.new_body(model.config)
    for name, heads in model.kept_heads.items():
        for attention, target in zip(_find_attentions(new.body, name), _find_attentions(full, name), strict=True):
            if isinstance(attention.mechanism, LSHAttention):
                raise ModelError(
                    f"{name} has LSH attention, whose pruned rotations cannot be restored; save the pruned model instead."
                )
            kv_heads = _kv_heads_of(target, heads)
            _zero_fill_rows(attention.query, heads, attention.head_width, target.query.out_features)
            if attention.key is not attention.query:
                _zero_fill_rows(attention.key, kv_heads, attention.head_width, target.key.out_features)
            _zero_fill_rows(attention.value, kv_heads, attention.value_width, target.value.out_features)
            if attention.gate is not None and target.gate is not None:
                _zero_fill_rows(attention.gate.score, heads, attention.gate.width, target.gate.score.out_features)
            attention.kept_heads = None
        target = _find_output(full, name)
        _zero_fill_columns(
            _find_output(new.body, name), heads, _find_attentions(full, name)[0].value_width, target.in_features
        )
    new.kept_heads = {}
    return new


def read_kept_heads(raw: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The remaining heads in config.json; raises ModelError unless they are a table of lists of numbers."""
    kept_heads = raw.get("kept_heads", {})
    if not isinstance(kept_heads, dict):
        raise ModelError(f"kept_heads = {abbreviate(kept_heads)}; a table of attentions and their heads is needed.")
    for name, heads in kept_heads.items():
        if not isinstance(heads, list) or not all(type(head) is int for head in heads):
            raise ModelError(f"kept_heads.{abbreviate(name)} = {abbreviate(heads)}; a list of head indices is needed.")
    return {name: tuple(heads) for name, heads in kept_heads.items()}


def count_heads(attention: Attention) -> int:
    """The number of heads of an attention."""
    return attention.query.out_features // attention.head_width


def _find_attentions(body: nn.Module, name: str) -> list[Attention]:
    """The attention with this name; for Longformer, the local and the global one."""
    try:
        module = body.get_submodule(name)
    except AttributeError:
        raise ModelError(f"The model has no attention {abbreviate(name)}.") from None
    if isinstance(module, LocalGlobalAttention):
        return [module.near, module.far]
    if not isinstance(module, Attention) or not isinstance(module.output, nn.Linear):
        raise ModelError(
            f"{abbreviate(name)} has no separate projections per head, so heads cannot be pruned; ablate them with "
            "saccade.explain.ablate.ablate_heads."
        )
    return [module]


def _find_output(body: nn.Module, name: str) -> nn.Linear:
    output = body.get_submodule(name).output
    assert isinstance(output, nn.Linear), "every prunable attention has a linear output"
    return output


def _check_prunable(name: str, attention: Attention, heads: Sequence[int]) -> None:
    """Raise ModelError if these heads cannot be kept."""
    count = count_heads(attention)
    if not heads:
        raise ModelError(f"{name} would have no heads left; keep at least one of its {count}.")
    if list(heads) != sorted(set(heads)) or not 0 <= heads[0] <= heads[-1] < count:
        raise ModelError(
            f"{name} has {count} heads, numbered from 0 in ascending order; got {abbreviate(list(heads))}."
        )
    if isinstance(attention.mechanism, BigBird):
        raise ModelError(
            f"{name} samples random blocks for all of its {count} heads, so none can be pruned; ablate them instead "
            "(saccade.explain.ablate.zero_heads)."
        )
    if attention.qk_norm is not None and any(isinstance(part, JointHeadNorm) for part in attention.qk_norm.children()):
        raise ModelError(
            f"{name} normalizes the queries of all heads together, so none can be pruned; ablate them instead "
            "(saccade.explain.ablate.zero_heads)."
        )
    size = _heads_per_group(attention)
    remaining = Counter(head // size for head in heads)
    if len(set(remaining.values())) > 1:
        raise ModelError(
            f"{name} has grouped-query attention: every {size} heads share a key-value head, and the same number of heads must "
            f"remain in each group; got {dict(sorted(remaining.items()))}. Remove whole groups, or as many heads of every group."
        )


def _heads_per_group(attention: Attention) -> int:
    """The number of heads that share a key-value head."""
    return count_heads(attention) // (attention.key.out_features // attention.head_width)


def _kv_heads_of(attention: Attention, heads: Sequence[int]) -> list[int]:
    """The key-value heads of these heads."""
    return sorted({head // _heads_per_group(attention) for head in heads})


def _keep_head_rows(layer: nn.Linear, heads: Sequence[int], width: int) -> None:
    """Keep the rows of some heads in an input projection."""
    for name, x in list(layer.named_parameters()):
        rows = x.detach().unflatten(0, (-1, width))[list(heads)].flatten(0, 1)
        setattr(layer, name, nn.Parameter(rows, requires_grad=x.requires_grad))
    layer.out_features = len(heads) * width


def _keep_head_columns(layer: nn.Linear, heads: Sequence[int], width: int) -> None:
    """Keep the columns of some heads in the output projection."""
    x = layer.weight
    columns = x.detach().unflatten(1, (-1, width))[:, list(heads)].flatten(1)
    layer.weight = nn.Parameter(columns, requires_grad=x.requires_grad)
    layer.in_features = len(heads) * width


def _zero_fill_rows(layer: nn.Linear, heads: Sequence[int], width: int, size: int) -> None:
    """The inverse of `_keep_head_rows`, with zeros for the pruned heads."""
    for name, x in list(layer.named_parameters()):
        filled = x.new_zeros(size, *x.shape[1:])
        filled.view(-1, width, *x.shape[1:])[list(heads)] = x.detach().unflatten(0, (-1, width))
        setattr(layer, name, nn.Parameter(filled, requires_grad=x.requires_grad))
    layer.out_features = size


def _zero_fill_columns(layer: nn.Linear, heads: Sequence[int], width: int, size: int) -> None:
    x = layer.weight
    filled = x.new_zeros(len(x), size)
    filled.view(len(x), -1, width)[:, list(heads)] = x.detach().unflatten(1, (-1, width))
    layer.weight = nn.Parameter(filled, requires_grad=x.requires_grad)
    layer.in_features = size

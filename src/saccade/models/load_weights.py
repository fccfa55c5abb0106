"""Tensors from files into a model that has shapes only, and a report of what is new and what is left over."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.errors import ModelError
from saccade.models.check_weights import check_finite
from saccade.models.family import Family
from saccade.models.label_names import LABELED_HEADS
from saccade.models.model import LoadReport, Model
from saccade.models.weight_map import WeightMap, is_mapped, to_ours

OLD_NORM_NAMES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}  # as the first BERT's files call them


@dataclass
class SortedTensors:
    """The tensors of some files, by what they are to a model."""

    tensors: dict[str, Tensor] = field(default_factory=dict)  # under our names
    unexpected: list[str] = field(default_factory=list)  # of a head that the model does not have
    unexpected_in_body: list[str] = field(default_factory=list)  # of a body, and without a place in this one


def load_tensors(
    model: Model,
    tensors: dict[str, Tensor],
    *,
    is_published: bool,
    stored_head: str | None,
    relabeled: bool,
    dtype: torch.dtype,
    directory: Path,
) -> None:
    """Put the `tensors` in their places; `stored_head` is the head that they belong to, which need not be the model's.

    Where the model was `relabeled`, a stored head with another number of labels is left for a new one.
    """
    wanted = dict(model.state_dict(keep_vars=True))
    sort = _sort_published if is_published else _sort_own
    read = sort(model, tensors, stored_head, wanted.keys())
    ours, left = read.tensors, read.unexpected
    wrong = [n for n, x in ours.items() if n in wanted and x.shape != wanted[n].shape]
    if relabeled and model.head_name in LABELED_HEADS:
        left += [n for n in wrong if n.startswith("head.score.")]
        ours = {n: x for n, x in ours.items() if n not in left}
        wrong = [n for n in wrong if n in ours]
    if wrong:
        said = [f"{n} is {tuple(ours[n].shape)}, {tuple(wanted[n].shape)} is needed" for n in wrong[:5]]
        raise ModelError(f"{directory}: the weights do not fit the config: {'; '.join(said)}.")
    tied = {id(p): n for n, p in reversed(wanted.items()) if n in ours}
    missing = [n for n, p in wanted.items() if n not in ours and id(p) not in tied]
    for name in [n for n in missing if _is_optional(model, n)]:  # built as zeros, and a file may leave them out
        missing.remove(name)
        ours[name] = torch.zeros(wanted[name].shape)
    _check_body(missing, read.unexpected_in_body, directory, model.family.name)
    same = {n: ours[tied[id(p)]] for n, p in wanted.items() if id(p) in tied} | ours
    ready = {n: x.to(dtype) if x.is_floating_point() else x for n, x in same.items() if n in wanted}
    check_finite(ready, directory)
    shared: dict[int, Tensor] = {}
    for name, p in wanted.items():  # tied parameters stay one
        if name in ready:
            made = shared.setdefault(id(p), nn.Parameter(ready[name]) if isinstance(p, nn.Parameter) else ready[name])
            _assign_tensor(model, name, made)
    _init_head(model, missing, dtype)
    model.extra_tensors = {n: x.to(dtype) for n, x in model.extra_tensors.items()}
    count = sum(p.numel() for p in model.body.parameters())
    loaded = f"{len(ready)} tensors, {count / 1e6:,.1f} M parameters, as {model.family.name} from {directory}"
    model.report = LoadReport(loaded, missing, left)


def _is_optional(model: Model, name: str) -> bool:
    return any(re.fullmatch(pattern, name.removeprefix("body.")) for pattern in model.family.optional_tensors)


def _check_body(missing: list[str], misplaced: list[str], directory: Path, family: str) -> None:
    """A head may be new, a body may not; and a body that has more than ours would compute something else."""
    gone = [n for n in missing if n.startswith("body.")]
    if gone or misplaced:
        raise ModelError(
            f"{directory}: the weights are not those of {family} as config.json describes it. In the files and without a place "
            f"in the model: {_list_names(misplaced)}. In the model and missing from the files: {_list_names(gone)}. "
            "Is it another family under this model_type, or an incomplete file?"
        )


def _list_names(names: list[str]) -> str:
    """How many there are, and the first of them."""
    few = ", ".join(name[:80] for name in names[:5])
    return f"{len(names):,} ({few}{', ...' if len(names) > 5 else ''})" if names else "none"


def _sort_own(model: Model, found: dict[str, Tensor], stored_head: str | None, wanted: Iterable[str]) -> SortedTensors:
    """Our own names need no change; those of another head are left."""
    known, read = set(wanted), SortedTensors()
    for name, x in found.items():
        if name.startswith("head.") and (stored_head != model.head_name or name not in known):
            read.unexpected.append(name)
        elif name in known:
            read.tensors[name] = x
        else:
            read.unexpected_in_body.append(name)
    return read


def _sort_published(
    model: Model, found: dict[str, Tensor], stored_head: str | None, wanted: Iterable[str]
) -> SortedTensors:
    """Published names to `body.` and `head.` of ours; and those without a line that hold something learned."""
    kind, known = model.family, set(wanted)
    assert kind.weight_map is not None, f"{kind.name} has no published form"
    full = _strip_prefix(found, kind.prefix)
    stripped = {name: found[theirs] for name, theirs in full.items()}
    body = to_ours(stripped, kind.weight_map(model.config))
    read = SortedTensors({f"body.{name}": x for name, x in body.tensors.items() if f"body.{name}" in known})
    read.unexpected_in_body = [full[theirs] for name, theirs in body.sources.items() if f"body.{name}" not in known]
    spare = kind.extra_tensors_for(model.config, model.head_name)
    model.extra_tensors = {n: stripped[n] for n in body.unmapped if n in spare}
    left = body.unmapped
    if model.head_name is not None:
        names = kind.heads[model.head_name].weight_map
        if stored_head not in (None, model.head_name):  # two heads may call their last layer the same
            names = {theirs: ours for theirs, ours in names.items() if theirs not in kind.heads[stored_head].weight_map}
        head = to_ours({name: stripped[name] for name in left}, _strip_map_prefix(names, kind))
        read.tensors |= {f"head.{name}": x for name, x in head.tensors.items() if f"head.{name}" in known}
        read.unexpected = [full[theirs] for name, theirs in head.sources.items() if f"head.{name}" not in known]
        left = head.unmapped
    beside = any(full[theirs] != theirs for theirs in body.sources.values())  # then a head has no prefix
    for name in left:
        if name in model.extra_tensors or any(re.fullmatch(pattern, name) for pattern in kind.ignored_tensors):
            continue
        of_head = (beside and full[name] == name) or _belongs_to_head(name, kind)
        (read.unexpected if of_head else read.unexpected_in_body).append(full[name])
    return read


def _strip_prefix(found: Iterable[str], prefix: str) -> dict[str, str]:
    """The names of files without the prefix of a body, and with today's names for a norm -> as they stand in the files."""
    full: dict[str, str] = {}
    for theirs in found:
        name = theirs.removeprefix(prefix)
        for old, new in OLD_NORM_NAMES.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        if name in full:
            raise ModelError(f"the tensors {full[name]} and {theirs} would both be {name}.")
        full[name] = theirs
    return full


def _strip_map_prefix(names: WeightMap, kind: Family) -> WeightMap:
    return {theirs.removeprefix(kind.prefix): ours for theirs, ours in names.items()}


def _belongs_to_head(name: str, kind: Family) -> bool:
    """Whether one of the heads that the family has calls a tensor so, or a head of another class may read it."""
    if any(re.fullmatch(pattern, name) for pattern in kind.pooler_tensors):
        return True
    return any(is_mapped(name, _strip_map_prefix(head.weight_map, kind)) for head in kind.heads.values())


def _assign_tensor(model: nn.Module, name: str, value: Tensor) -> None:
    path, leaf = name.rsplit(".", 1)
    owner = model.get_submodule(path)
    (owner._buffers if leaf in owner._buffers else owner._parameters)[leaf] = value  # type: ignore[index]


def _init_head(model: Model, missing: list[str], dtype: torch.dtype) -> None:
    """A head that the files do not have begins like any new layer."""
    for name in missing:
        shape = model.get_parameter(name).shape
        fresh = torch.zeros(shape, dtype=dtype)
        if len(shape) > 1:
            nn.init.normal_(fresh, std=0.02)
        elif name.endswith("weight"):
            fresh.fill_(1.0)  # a norm
        _assign_tensor(model, name, nn.Parameter(fresh))

"""Tensors from files into a model that has shapes only, and a report of what is new and what is left over."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.errors import ModelError
from saccade.models.family import Family
from saccade.models.labels import LABELLED
from saccade.models.model import Model, Report
from saccade.models.sound import check_finite
from saccade.models.weights import Names, has_line, to_ours

NORM = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}  # as the first BERT's files call them


@dataclass
class Sorted:
    """The tensors of some files, by what they are to a model."""

    ours: dict[str, Tensor] = field(default_factory=dict)  # under our names
    left: list[str] = field(default_factory=list)  # of a head that the model does not have
    misplaced: list[str] = field(default_factory=list)  # of a body, and without a place in this one


def fill(
    model: Model,
    found: dict[str, Tensor],
    *,
    published: bool,
    other: str | None,
    relabelled: bool,
    dtype: torch.dtype,
    directory: Path,
) -> None:
    """Put the `found` tensors in their places; `other` is the head that they belong to, which need not be the model's.

    Where the model was `relabelled`, a stored head with another number of labels is left for a new one.
    """
    wanted = dict(model.state_dict(keep_vars=True))
    sort = _sort_published if published else _sort_own
    read = sort(model, found, other, wanted.keys())
    ours, left = read.ours, read.left
    wrong = [n for n, x in ours.items() if n in wanted and x.shape != wanted[n].shape]
    if relabelled and model.kind in LABELLED:
        left += [n for n in wrong if n.startswith("head.score.")]
        ours = {n: x for n, x in ours.items() if n not in left}
        wrong = [n for n in wrong if n in ours]
    if wrong:
        said = [f"{n} is {tuple(ours[n].shape)}, {tuple(wanted[n].shape)} is needed" for n in wrong[:5]]
        raise ModelError(f"{directory}: the weights do not fit the config: {'; '.join(said)}.")
    tied = {id(p): n for n, p in reversed(wanted.items()) if n in ours}
    missing = [n for n, p in wanted.items() if n not in ours and id(p) not in tied]
    for name in [n for n in missing if _optional(model, n)]:  # built as zeros, and a file may leave them out
        missing.remove(name)
        ours[name] = torch.zeros(wanted[name].shape)
    _check_body(missing, read.misplaced, directory, model.family.name)
    same = {n: ours[tied[id(p)]] for n, p in wanted.items() if id(p) in tied} | ours
    ready = {n: x.to(dtype) if x.is_floating_point() else x for n, x in same.items() if n in wanted}
    check_finite(ready, directory)
    shared: dict[int, Tensor] = {}
    for name, p in wanted.items():  # tied parameters stay one
        if name in ready:
            made = shared.setdefault(id(p), nn.Parameter(ready[name]) if isinstance(p, nn.Parameter) else ready[name])
            _assign(model, name, made)
    _new_head(model, missing, dtype)
    model.carried = {n: x.to(dtype) for n, x in model.carried.items()}
    count = sum(p.numel() for p in model.body.parameters())
    loaded = f"{len(ready)} tensors, {count / 1e6:,.1f} M parameters, as {model.family.name} from {directory}"
    model.report = Report(loaded, missing, left)


def _optional(model: Model, name: str) -> bool:
    return any(re.fullmatch(pattern, name.removeprefix("body.")) for pattern in model.family.optional)


def _check_body(missing: list[str], misplaced: list[str], directory: Path, family: str) -> None:
    """A head may be new, a body may not; and a body that has more than ours would compute something else."""
    gone = [n for n in missing if n.startswith("body.")]
    if gone or misplaced:
        raise ModelError(
            f"{directory}: the weights are not those of {family} as config.json describes it. In the files and without a place "
            f"in the model: {_listed(misplaced)}. In the model and missing from the files: {_listed(gone)}. "
            "Is it another family under this model_type, or an incomplete file?"
        )


def _listed(names: list[str]) -> str:
    """How many there are, and the first of them."""
    few = ", ".join(name[:80] for name in names[:5])
    return f"{len(names):,} ({few}{', ...' if len(names) > 5 else ''})" if names else "none"


def _sort_own(model: Model, found: dict[str, Tensor], other: str | None, wanted: Iterable[str]) -> Sorted:
    """Our own names need no change; those of another head are left."""
    known, read = set(wanted), Sorted()
    for name, x in found.items():
        if name.startswith("head.") and (other != model.kind or name not in known):
            read.left.append(name)
        elif name in known:
            read.ours[name] = x
        else:
            read.misplaced.append(name)
    return read


def _sort_published(model: Model, found: dict[str, Tensor], other: str | None, wanted: Iterable[str]) -> Sorted:
    """Published names to `body.` and `head.` of ours; and those without a line that hold something learned."""
    kind, known = model.family, set(wanted)
    assert kind.names is not None, f"{kind.name} has no published form"
    full = _strip(found, kind.prefix)
    stripped = {name: found[theirs] for name, theirs in full.items()}
    body = to_ours(stripped, kind.names(model.config))
    read = Sorted({f"body.{name}": x for name, x in body.found.items() if f"body.{name}" in known})
    read.misplaced = [full[theirs] for name, theirs in body.sources.items() if f"body.{name}" not in known]
    spare = kind.spares(model.config, model.kind)
    model.carried = {n: stripped[n] for n in body.left if n in spare}
    left = body.left
    if model.kind is not None:
        names = kind.heads[model.kind].names
        if other not in (None, model.kind):  # two heads may call their last layer the same
            names = {theirs: ours for theirs, ours in names.items() if theirs not in kind.heads[other].names}
        head = to_ours({name: stripped[name] for name in left}, _bare(names, kind))
        read.ours |= {f"head.{name}": x for name, x in head.found.items() if f"head.{name}" in known}
        read.left = [full[theirs] for name, theirs in head.sources.items() if f"head.{name}" not in known]
        left = head.left
    beside = any(full[theirs] != theirs for theirs in body.sources.values())  # then a head has no prefix
    for name in left:
        if name in model.carried or any(re.fullmatch(pattern, name) for pattern in kind.ignored):
            continue
        of_head = (beside and full[name] == name) or _is_of_a_head(name, kind)
        (read.left if of_head else read.misplaced).append(full[name])
    return read


def _strip(found: Iterable[str], prefix: str) -> dict[str, str]:
    """The names of files without the prefix of a body, and with today's names for a norm -> as they stand in the files."""
    full: dict[str, str] = {}
    for theirs in found:
        name = theirs.removeprefix(prefix)
        for old, new in NORM.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        if name in full:
            raise ModelError(f"the tensors {full[name]} and {theirs} would both be {name}.")
        full[name] = theirs
    return full


def _bare(names: Names, kind: Family) -> Names:
    return {theirs.removeprefix(kind.prefix): ours for theirs, ours in names.items()}


def _is_of_a_head(name: str, kind: Family) -> bool:
    """Whether one of the heads that the family has calls a tensor so, or a head of another class may read it."""
    if any(re.fullmatch(pattern, name) for pattern in kind.pooler):
        return True
    return any(has_line(name, _bare(head.names, kind)) for head in kind.heads.values())


def _assign(model: nn.Module, name: str, value: Tensor) -> None:
    path, leaf = name.rsplit(".", 1)
    owner = model.get_submodule(path)
    (owner._buffers if leaf in owner._buffers else owner._parameters)[leaf] = value  # type: ignore[index]


def _new_head(model: Model, missing: list[str], dtype: torch.dtype) -> None:
    """A head that the files do not have begins like any new layer."""
    for name in missing:
        shape = model.get_parameter(name).shape
        fresh = torch.zeros(shape, dtype=dtype)
        if len(shape) > 1:
            nn.init.normal_(fresh, std=0.02)
        elif name.endswith("weight"):
            fresh.fill_(1.0)  # a norm
        _assign(model, name, nn.Parameter(fresh))

"""Tensors from files into a model that has shapes only, and a report of what is new and what is left over."""

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.models.labels import LABELLED
from saccade.models.model import Model, Report
from saccade.models.sound import check_finite
from saccade.models.weights import to_ours


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
    ours, left = _renamed(model, found, other) if published else _own(model, found, other)
    wanted = dict(model.state_dict(keep_vars=True))
    wrong = [n for n, x in ours.items() if n in wanted and x.shape != wanted[n].shape]
    if relabelled and model.kind in LABELLED:
        left += [n for n in wrong if n.startswith("head.score.")]
        ours = {n: x for n, x in ours.items() if n not in left}
        wrong = [n for n in wrong if n in ours]
    if wrong:
        said = [f"{n} is {tuple(ours[n].shape)}, {tuple(wanted[n].shape)} is needed" for n in wrong[:5]]
        raise ValueError(f"{directory}: the weights do not fit the config: {'; '.join(said)}.")
    left += [name for name in ours if name not in wanted]
    tied = {id(p): n for n, p in reversed(wanted.items()) if n in ours}
    missing = [n for n, p in wanted.items() if n not in ours and id(p) not in tied]
    for name in [n for n in missing if _optional(model, n)]:  # built as zeros, and a file may leave them out
        missing.remove(name)
        ours[name] = torch.zeros(wanted[name].shape)
    _whole(missing, left, directory)
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


def _whole(missing: list[str], left: list[str], directory: Path) -> None:
    """A head may be new, a body may not."""
    gone = [n for n in missing if n.startswith("body.")]
    if gone:
        raise ValueError(
            f"{directory}: {len(gone)} weights of the body are missing ({', '.join(gone[:6])}), and these have no place: "
            f"{', '.join(left[:6]) or 'none'}. Is it another family, or an incomplete file?"
        )


def _own(model: Model, found: dict[str, Tensor], other: str | None) -> tuple[dict[str, Tensor], list[str]]:
    """Our own names need no change; those of another head are left."""
    left = [] if other == model.kind else [name for name in found if name.startswith("head.")]
    return {name: x for name, x in found.items() if name not in left}, left


def _renamed(model: Model, found: dict[str, Tensor], other: str | None) -> tuple[dict[str, Tensor], list[str]]:
    """Published names to `body.` and `head.` of ours; and those without a line that hold something learned."""
    kind = model.family
    assert kind.names is not None, f"{kind.name} has no published form"
    stripped = {name.removeprefix(kind.prefix): x for name, x in found.items()}
    body = to_ours(stripped, kind.names(model.config))
    ours = {f"body.{name}": x for name, x in body.found.items()}
    spare = kind.spares(model.config, model.kind)
    model.carried = {n: stripped[n] for n in body.left if n in spare}
    left = [n for n in body.left if not any(re.fullmatch(pattern, n) for pattern in kind.ignored)]
    if model.kind is not None:
        names = kind.heads[model.kind].names
        if other not in (None, model.kind):  # two heads may call their last layer the same
            names = {theirs: ours for theirs, ours in names.items() if theirs not in kind.heads[other].names}
        plain = {theirs.removeprefix(kind.prefix): ours for theirs, ours in names.items()}
        head = to_ours({name: stripped[name] for name in body.left}, plain)
        ours |= {f"head.{name}": x for name, x in head.found.items()}
        left = [name for name in left if name in head.left]
    return ours, left


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

"""Loads tensors into a model on the meta device, and reports which weights are new and which are unused."""

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

OLD_NORM_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # of early BERT files


@dataclass
class SortedTensors:
    """The tensors of the files, sorted into those of the model and unexpected ones."""

    tensors: dict[str, Tensor] = field(default_factory=dict)  # under saccade's names
    unexpected: list[str] = field(default_factory=list)  # of a head that the model does not have
    unexpected_in_body: list[str] = field(default_factory=list)  # not part of this body


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
    """Load the tensors into the model; `stored_head` is the head in the files, which may differ from the model's.

    If the model was `relabeled`, a stored head with another number of labels is replaced by a new one.
    """
    expected = dict(model.state_dict(keep_vars=True))
    sort = _sort_published if is_published else _sort_own
    result = sort(model, tensors, stored_head, expected.keys())
    ours, unused = result.tensors, result.unexpected
    mismatched = [n for n, x in ours.items() if n in expected and x.shape != expected[n].shape]
    if relabeled and model.head_name in LABELED_HEADS:
        unused += [n for n in mismatched if n.startswith("head.score.")]
        ours = {n: x for n, x in ours.items() if n not in unused}
        mismatched = [n for n in mismatched if n in ours]
    if mismatched:
        shapes = [f"{n} has shape {tuple(ours[n].shape)} instead of {tuple(expected[n].shape)}" for n in mismatched[:5]]
        raise ModelError(f"{directory}: the weights do not match the config: {'; '.join(shapes)}.")
    tied = {id(p): n for n, p in reversed(expected.items()) if n in ours}
    missing = [n for n, p in expected.items() if n not in ours and id(p) not in tied]
    for name in [n for n in missing if _is_optional(model, n)]:  # initialized to zero, and missing in some files
        missing.remove(name)
        ours[name] = torch.zeros(expected[name].shape)
    _check_body(missing, result.unexpected_in_body, directory, model.family.name)
    with_tied = {n: ours[tied[id(p)]] for n, p in expected.items() if id(p) in tied} | ours
    loaded = {n: x.to(dtype) if x.is_floating_point() else x for n, x in with_tied.items() if n in expected}
    check_finite(loaded, directory)
    shared: dict[int, Tensor] = {}
    for name, p in expected.items():  # tied parameters stay tied
        if name in loaded:
            value = nn.Parameter(loaded[name]) if isinstance(p, nn.Parameter) else loaded[name]
            _assign_tensor(model, name, shared.setdefault(id(p), value))
    _init_head(model, missing, dtype)
    model.extra_tensors = {n: x.to(dtype) for n, x in model.extra_tensors.items()}
    count = sum(p.numel() for p in model.body.parameters())
    summary = f"{len(loaded)} tensors, {count / 1e6:,.1f} M parameters, as {model.family.name} from {directory}"
    model.report = LoadReport(summary, missing, unused)


def _is_optional(model: Model, name: str) -> bool:
    return any(re.fullmatch(pattern, name.removeprefix("body.")) for pattern in model.family.optional_tensors)


def _check_body(missing: list[str], unexpected: list[str], directory: Path, family: str) -> None:
    """Raise ModelError for missing or unexpected weights of the body; those of a head may be new."""
    missing_in_body = [n for n in missing if n.startswith("body.")]
    if missing_in_body or unexpected:
        raise ModelError(
            f"{directory}: the weights are not those of {family} with this config.json. Unexpected in the files: "
            f"{_list_names(unexpected)}. Missing from the files: {_list_names(missing_in_body)}. "
            "Check for another family under this model_type, or for incomplete files."
        )


def _list_names(names: list[str]) -> str:
    """The number of names, and the first of them."""
    few = ", ".join(name[:80] for name in names[:5])
    return f"{len(names):,} ({few}{', ...' if len(names) > 5 else ''})" if names else "none"


def _sort_own(
    model: Model, tensors: dict[str, Tensor], stored_head: str | None, expected: Iterable[str]
) -> SortedTensors:
    """Sort tensors saved by saccade, whose names need no change."""
    known, result = set(expected), SortedTensors()
    for name, x in tensors.items():
        if name.startswith("head.") and (stored_head != model.head_name or name not in known):
            result.unexpected.append(name)
        elif name in known:
            result.tensors[name] = x
        else:
            result.unexpected_in_body.append(name)
    return result


def _sort_published(
    model: Model, tensors: dict[str, Tensor], stored_head: str | None, expected: Iterable[str]
) -> SortedTensors:
    """Rename published tensors to `body.` and `head.` names, and sort out the unexpected ones."""
    family, known = model.family, set(expected)
    assert family.weight_map is not None, f"{family.name} has no published form"
    full = _strip_prefix(tensors, family.prefix)
    stripped = {name: tensors[theirs] for name, theirs in full.items()}
    body = to_ours(stripped, family.weight_map(model.config))
    result = SortedTensors({f"body.{name}": x for name, x in body.tensors.items() if f"body.{name}" in known})
    result.unexpected_in_body = [full[theirs] for name, theirs in body.sources.items() if f"body.{name}" not in known]
    extra = family.extra_tensors_for(model.config, model.head_name)
    model.extra_tensors = {n: stripped[n] for n in body.unmapped if n in extra}
    unmapped = body.unmapped
    if model.head_name is not None:
        head_map = family.heads[model.head_name].weight_map
        if stored_head not in (None, model.head_name):  # two heads may use the same name for their last layer
            head_map = {
                theirs: ours for theirs, ours in head_map.items() if theirs not in family.heads[stored_head].weight_map
            }
        head = to_ours({name: stripped[name] for name in unmapped}, _strip_map_prefix(head_map, family))
        result.tensors |= {f"head.{name}": x for name, x in head.tensors.items() if f"head.{name}" in known}
        result.unexpected = [full[theirs] for name, theirs in head.sources.items() if f"head.{name}" not in known]
        unmapped = head.unmapped
    is_prefixed = any(full[theirs] != theirs for theirs in body.sources.values())  # if so, heads have no prefix
    for name in unmapped:
        if name in model.extra_tensors or any(re.fullmatch(pattern, name) for pattern in family.ignored_tensors):
            continue
        is_of_head = (is_prefixed and full[name] == name) or _belongs_to_head(name, family)
        (result.unexpected if is_of_head else result.unexpected_in_body).append(full[name])
    return result


def _strip_prefix(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Names without the prefix of the body, and with current names of norms -> names in the files."""
    full_names: dict[str, str] = {}
    for theirs in names:
        name = theirs.removeprefix(prefix)
        for old, new in OLD_NORM_NAMES.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        if name in full_names:
            raise ModelError(f"the tensors {full_names[name]} and {theirs} both map to {name}.")
        full_names[name] = theirs
    return full_names


def _strip_map_prefix(names: WeightMap, kind: Family) -> WeightMap:
    return {theirs.removeprefix(kind.prefix): ours for theirs, ours in names.items()}


def _belongs_to_head(name: str, kind: Family) -> bool:
    """Whether the name belongs to a head of the family, or to the pooler."""
    if any(re.fullmatch(pattern, name) for pattern in kind.pooler_tensors):
        return True
    return any(is_mapped(name, _strip_map_prefix(head.weight_map, kind)) for head in kind.heads.values())


def _assign_tensor(model: nn.Module, name: str, value: Tensor) -> None:
    path, leaf = name.rsplit(".", 1)
    owner = model.get_submodule(path)
    (owner._buffers if leaf in owner._buffers else owner._parameters)[leaf] = value  # type: ignore[index]


def _init_head(model: Model, missing: list[str], dtype: torch.dtype) -> None:
    """Initialize the weights of a head that are missing in the files."""
    for name in missing:
        shape = model.get_parameter(name).shape
        weight = torch.zeros(shape, dtype=dtype)
        if len(shape) > 1:
            nn.init.normal_(weight, std=0.02)
        elif name.endswith("weight"):
            weight.fill_(1.0)  # a norm
        _assign_tensor(model, name, nn.Parameter(weight))

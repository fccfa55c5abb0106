"""Heads that the files of a model have and the loaded model does not: what the load report says of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from saccade.models.family import Family
from saccade.models.model import LoadReport, abbreviate_names
from saccade.models.weight_map import is_mapped
from saccade.text.loading.safe_files import abbreviate


def describe_dropped_heads(
    family: Family, report: LoadReport, raw: Mapping[str, Any], stored_head: str | None, tensor_names: Sequence[str]
) -> list[str]:
    """Lines for a report: which class a head is of that was left out, or how a head that config.json does not name is kept.

    `stored` are the names of all tensors in the files.
    """
    if not report.unexpected:
        return []
    given = raw.get("architectures")
    classes = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    known = {family.architecture, *(name for head in family.heads.values() for name in head.architectures)}
    foreign = [name for name in classes if name not in known]
    names = abbreviate_names(report.unexpected)
    if foreign:
        return [f"dropped    {names}: the head of {abbreviate(foreign[0])}, which is not built for {family.name}"]
    if stored_head is not None:
        return [f"dropped    {names}: no part of the head that config.json names ({stored_head})"]
    fitting = find_heads(family, report.unexpected, tensor_names)
    if not fitting:
        return [f"dropped    {names}: of a head that config.json does not name and that is not built for {family.name}"]
    ways = " or ".join(f'head="{name}" (saccade import --head {name})' for name in fitting)
    return [f"dropped    {names}: of a head that config.json does not name; {ways} keeps it"]


def count_outputs(family: Family, head: str | None, tensors: Mapping[str, Tensor]) -> int | None:
    """How many labels the head of published tensors tells apart, if there is one."""
    if head is None or family.weight_map is None:
        return None
    lines = [f"{theirs}.weight" for theirs, ours in family.get_head(head).weight_map.items() if ours == "score"]
    stored = next((tensors[name] for name in lines if name in tensors), None)
    return stored.size(0) if stored is not None and stored.dim() == 2 else None


def find_heads(family: Family, unexpected: Sequence[str], tensor_names: Sequence[str]) -> list[str]:
    """The heads that tensors which were left may be: of those with a line for one, the ones with most in the files."""
    fitting = [
        name for name, head in family.heads.items() if any(is_mapped(theirs, head.weight_map) for theirs in unexpected)
    ]
    names = [
        *tensor_names,
        *(family.prefix + theirs for theirs in tensor_names),
    ]  # a bare body is stored without its prefix
    counts = {name: sum(is_mapped(theirs, family.heads[name].weight_map) for theirs in names) for name in fitting}
    return [name for name in fitting if counts[name] == max(counts.values())]

"""Notes of the load report on stored heads that were not loaded."""

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
    """Notes on a head that was not loaded: the class that it belongs to, or how to load it.

    `tensor_names` are the names of all tensors in the files.
    """
    if not report.unexpected:
        return []
    architectures = raw.get("architectures")
    classes = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    known = {family.architecture, *(name for head in family.heads.values() for name in head.architectures)}
    foreign = [name for name in classes if name not in known]
    names = abbreviate_names(report.unexpected)
    if foreign:
        return [f"dropped    {names}: the head of {abbreviate(foreign[0])}, which {family.name} does not support"]
    if stored_head is not None:
        return [f"dropped    {names}: not part of the head named in config.json ({stored_head})"]
    fitting = find_heads(family, report.unexpected, tensor_names)
    if not fitting:
        return [
            f"dropped    {names}: of a head that is not named in config.json and that {family.name} does not support"
        ]
    options = " or ".join(f'head="{name}" (saccade import --head {name})' for name in fitting)
    return [f"dropped    {names}: of a head that is not named in config.json; load it with {options}"]


def count_outputs(family: Family, head: str | None, tensors: Mapping[str, Tensor]) -> int | None:
    """The number of outputs of a label head in published tensors, if there is one."""
    if head is None or family.weight_map is None:
        return None
    weight_names = [f"{theirs}.weight" for theirs, ours in family.get_head(head).weight_map.items() if ours == "score"]
    stored = next((tensors[name] for name in weight_names if name in tensors), None)
    return stored.size(0) if stored is not None and stored.dim() == 2 else None


def find_heads(family: Family, unexpected: Sequence[str], tensor_names: Sequence[str]) -> list[str]:
    """The heads to which unexpected tensors may belong: those that match one, with the most tensors in the files."""
    fitting = [
        name for name, head in family.heads.items() if any(is_mapped(theirs, head.weight_map) for theirs in unexpected)
    ]
    names = [
        *tensor_names,
        *(family.prefix + theirs for theirs in tensor_names),
    ]  # a body alone is stored without prefix
    counts = {name: sum(is_mapped(theirs, family.heads[name].weight_map) for theirs in names) for name in fitting}
    return [name for name in fitting if counts[name] == max(counts.values())]

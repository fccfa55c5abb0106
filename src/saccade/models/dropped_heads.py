"""Heads that the files of a model have and the loaded model does not: what the load report says of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from saccade.models.family import Family
from saccade.models.model import Report, shorten
from saccade.models.weights import has_line
from saccade.text.files import shown


def describe_dropped_heads(
    kind: Family, report: Report, raw: Mapping[str, Any], said: str | None, stored: Sequence[str]
) -> list[str]:
    """Lines for a report: which class a head is of that was left out, or how a head that config.json does not name is kept.

    `stored` are the names of all tensors in the files.
    """
    if not report.left:
        return []
    given = raw.get("architectures")
    classes = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    known = {kind.architecture, *(name for head in kind.heads.values() for name in head.classes)}
    foreign = [name for name in classes if name not in known]
    names = shorten(report.left)
    if foreign:
        return [f"dropped    {names}: the head of {shown(foreign[0])}, which is not built for {kind.name}"]
    if said is not None:
        return [f"dropped    {names}: no part of the head that config.json names ({said})"]
    fitting = find_heads(kind, report.left, stored)
    if not fitting:
        return [f"dropped    {names}: of a head that config.json does not name and that is not built for {kind.name}"]
    ways = " or ".join(f'head="{name}" (saccade import --head {name})' for name in fitting)
    return [f"dropped    {names}: of a head that config.json does not name; {ways} keeps it"]


def count_outputs(kind: Family, head: str | None, found: Mapping[str, Tensor]) -> int | None:
    """How many labels the head of published tensors tells apart, if there is one."""
    if head is None or kind.names is None:
        return None
    lines = [f"{theirs}.weight" for theirs, ours in kind.head(head).names.items() if ours == "score"]
    stored = next((found[name] for name in lines if name in found), None)
    return stored.size(0) if stored is not None and stored.dim() == 2 else None


def find_heads(kind: Family, left: Sequence[str], stored: Sequence[str]) -> list[str]:
    """The heads that tensors which were left may be: of those with a line for one, the ones with most in the files."""
    fitting = [name for name, head in kind.heads.items() if any(has_line(theirs, head.names) for theirs in left)]
    names = [*stored, *(kind.prefix + theirs for theirs in stored)]  # a bare body is stored without its prefix
    counts = {name: sum(has_line(theirs, kind.heads[name].names) for theirs in names) for name in fitting}
    return [name for name in fitting if counts[name] == max(counts.values())]

"""Heads and layers switched off: for a while, for good, and what the task's own score loses without each.

    with without(model, [switch]): ...                  # as if these heads had nothing to say
    for one in importance(task, model, examples): print(one)
    silence(model, switches)                            # the same for good: zeros, and the shape stays
    remove(model, switches).save("smaller")             # the same for good, and what they took is saved

A head that is off passes zeros to the output projection. Squeeze-and-excitation that is off lets all channels pass; a
recurrent layer that is off says nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.attention.mechanism import Mechanism
from saccade.attention.watch import watchable
from saccade.data import Example
from saccade.errors import UsageError
from saccade.explain.places import FAR, locate
from saccade.models import cut
from saccade.models.model import Model
from saccade.parts.multihead import Attention
from saccade.parts.squeeze import SqueezeExcite
from saccade.tasks.answering import answers
from saccade.tasks.metrics import resamples
from saccade.tasks.task import Task

ROUNDS = 40  # draws: enough for a standard error to a tenth of itself


@dataclass(frozen=True)
class Switch:
    """One head, or with no number all of a layer's; Longformer's two looks go together."""

    names: tuple[str, ...]  # of the modules
    kind: str  # self, across, gate, channel
    side: str
    layer: int
    head: int | None = None

    @property
    def name(self) -> str:
        """A name that stays the same from look to look: side, kind, layer and head."""
        return f"{self.side or 'all'}.{self.kind}.{self.layer}.{'all' if self.head is None else self.head}"

    def __str__(self) -> str:
        which = "whole" if self.head is None else f"head {self.head}"
        return f"{self.side} layer {self.layer}, {self.kind}, {which}".strip()


@dataclass(frozen=True)
class Importance:
    """What the score of a task loses without a head: the change, and where it lies with 95 % over other draws of examples."""

    switch: Switch
    metric: str
    score: float  # without it
    loss: float  # above 0: it was of use
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the interval keeps clear of nothing."""
        return self.low > 0

    def __str__(self) -> str:
        said = "matters" if self.matters else "harms" if self.high < 0 else "no sign that it matters"
        return f"{self.switch}: {self.metric} {self.score:.4g}, loses {self.loss:.4g} ({self.low:.4g} to {self.high:.4g}), {said}"


def switches(model: Model, *, layers: bool = False) -> list[Switch]:
    """Every head that can be switched off, or with `layers` every attention, gated layer and squeeze as a whole."""
    known = watchable(model)
    out: list[Switch] = []
    for name, module in known.items():
        if any(name.startswith(f"{other}.") for other in known) or FAR in name:
            continue
        count, kind, (side, number, _) = heads_of(model, name), _kind(module, name), locate(model, name)
        before = {one.names for one in out if (one.kind, one.side) == (kind, side)}
        layer = len(before) if number is None else number
        names = (name, name.replace(".near.", FAR)) if ".near." in name else (name,)
        many: Sequence[int | None] = [None] if layers or not isinstance(module, Mechanism) else range(count)
        out += [Switch(names, kind, side, layer, head) for head in many]
    return out


def _kind(module: nn.Module, name: str) -> str:
    if not isinstance(module, Mechanism):
        return "channel" if isinstance(module, SqueezeExcite) else "gate"
    return "across" if ".across." in name else "self"


def heads_of(model: nn.Module, name: str) -> int:
    """How many heads a mechanism has: those of the attention around it, or one."""
    around = model.get_submodule(name.rpartition(".")[0])
    return around.query.out_features // around.head_width if isinstance(around, Attention) else 1


@contextmanager
def without(model: nn.Module, off: Sequence[Switch]) -> Iterator[None]:
    """Run the model without some heads or layers; afterwards all is as it was."""
    by_name: dict[str, set[int | None]] = {}
    for switch in off:
        for name in switch.names:
            by_name.setdefault(name, set()).add(switch.head)
    known = watchable(model)
    missing = [name for name in by_name if name not in known]
    if missing:
        raise UsageError(f"The model has no {missing[0]} to switch off; `switches(model)` lists what it has.")
    placed = [known[name].register_forward_hook(_quiet(known[name], heads)) for name, heads in by_name.items()]
    try:
        yield
    finally:
        for handle in placed:
            handle.remove()


def _quiet(module: nn.Module, heads: set[int | None]) -> Callable[..., Tensor]:
    """What takes the place of a module's output while it is off."""

    def quiet(_: nn.Module, given: tuple[Any, ...], out: Tensor) -> Tensor:
        if isinstance(module, SqueezeExcite):
            return given[0]
        if None in heads or not isinstance(module, Mechanism):
            return torch.zeros_like(out)
        keep = torch.ones(out.size(1), dtype=out.dtype, device=out.device)  # out is (B, H, Q, D)
        keep[[head for head in heads if head is not None]] = 0
        return out * keep[:, None, None]

    return quiet


def importance(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    which: Sequence[Switch] | None = None,
    rounds: int = ROUNDS,
    told: Callable[[int, int], None] = lambda done, all: None,
) -> list[Importance]:
    """What the task's first score loses without each head or layer, the most useful first.

    The interval is 1.96 standard errors to both sides, by `rounds` draws of the examples with replacement, which are the
    same for the model with and without.
    """
    if not examples or rounds < 2:
        raise UsageError(
            f"{len(examples)} examples and {rounds} draws of them came; heads are judged by some examples and 2 draws or more."
        )
    chosen = list(switches(model)) + list(switches(model, layers=True)) if which is None else list(which)
    chosen = list(dict.fromkeys(chosen))
    found, asked = answers(task, model, examples)
    draws = [row for some in resamples(len(asked), rounds, 0) for row in some]
    whole, sign, name = _drawn(task, found, asked, draws)
    out = []
    for number, switch in enumerate(chosen, start=1):
        with without(model, [switch]):
            less, _ = answers(task, model, examples)
        part, _, _ = _drawn(task, less, asked, draws)
        change = sign * (whole - part)
        loss, error = float(change[0]), 1.96 * float(change[1:].std(ddof=1))
        out.append(Importance(switch, name, float(part[0]), loss, loss - error, loss + error))
        told(number, len(chosen))
    return sorted(out, key=lambda one: -one.loss)


def _drawn(
    task: Task, found: Sequence[Any], asked: Sequence[Example], draws: Sequence[np.ndarray]
) -> tuple[np.ndarray, int, str]:
    """The first score of all examples and then of each draw, whether more is better (1) or less (-1), and its name."""
    first = task.score(found, asked)[0]
    values = [first.value]
    for row in draws:
        values.append(task.score([found[i] for i in row], [asked[i] for i in row])[0].value)
    return np.array(values), 1 if first.better == "higher" else -1, first.name


def silence(model: Model, off: Sequence[Switch]) -> Model:
    """A copy without some heads for good: what the output projection takes from them is zero, shapes stay as they are."""
    new = deepcopy(model)
    for switch in off:
        for name in switch.names:
            output, width = _projection(new, name)
            heads = range(output.in_features // width) if switch.head is None else [switch.head]
            for head in heads:
                with torch.no_grad():
                    output.weight[:, head * width : (head + 1) * width] = 0
    return new


def remove(model: Model, off: Sequence[Switch]) -> Model:
    """A copy without some heads for good, and without their projections; those that are left are numbered anew, from 0."""
    gone: dict[str, set[int]] = {}
    for switch in off:
        name = switch.names[0].rpartition(".")[0].removesuffix(".near").removeprefix("body.")
        heads = range(heads_of(model, switch.names[0])) if switch.head is None else [switch.head]
        gone.setdefault(name, set()).update(heads)
    return cut.remove(model, gone)


def named(model: Model, name: str) -> Switch:
    """The head that a name means: LAYER.HEAD where that says enough, else with its kind and side before it."""
    known = [one for one in switches(model) if isinstance(one.head, int)]
    found = [one for one in known if one.name == name or one.name.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} can be {' or '.join(one.name for one in found)}; say which.")
    names = [one.name for one in known]
    few = ", ".join(names[:4]) + (f" to {names[-1]}" if len(names) > 4 else "")
    raise UsageError(f"The model has no head {name!r}; {f'its heads are {few}' if names else 'it has none at all'}.")


def _projection(model: Model, name: str) -> tuple[nn.Linear, int]:
    """The output projection behind a mechanism, and how many of its columns belong to one head."""
    around = model.get_submodule(name.rpartition(".")[0])
    if not isinstance(around, Attention):
        raise UsageError(f"{name} has no output projection, so it cannot be switched off for good; use `without`.")
    output = around.output
    if isinstance(output, nn.Identity):  # Longformer's looks share one
        output = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0]).output
    assert isinstance(output, nn.Linear)
    return output, around.value_width

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
from saccade.attention.watch import watchable_modules
from saccade.data import Example
from saccade.errors import UsageError
from saccade.explain.watched_modules import GLOBAL_BRANCH, locate_module
from saccade.metrics import resample_indices
from saccade.models.model import Model
from saccade.models.prune_heads import remove_heads
from saccade.parts.multihead_attention import Attention
from saccade.parts.squeeze_excite import SqueezeExcite
from saccade.tasks.base import Task
from saccade.tasks.predict import predict

DEFAULT_BOOTSTRAP_SAMPLES = 40  # draws: enough for a standard error to a tenth of itself


@dataclass(frozen=True)
class HeadRef:
    """One head, or with no number all of a layer's; Longformer's two looks go together."""

    module_names: tuple[str, ...]  # of the modules
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
class HeadImportance:
    """What the score of a task loses without a head: the change, and where it lies with 95 % over other draws of examples."""

    head_ref: HeadRef
    metric: str
    score: float  # without it
    score_drop: float  # above 0: it was of use
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the interval keeps clear of nothing."""
        return self.low > 0

    def __str__(self) -> str:
        said = "matters" if self.matters else "harms" if self.high < 0 else "no sign that it matters"
        return f"{self.head_ref}: {self.metric} {self.score:.4g}, loses {self.score_drop:.4g} ({self.low:.4g} to {self.high:.4g}), {said}"


def list_heads(model: Model, *, whole_layers: bool = False) -> list[HeadRef]:
    """Every head that can be switched off, or with `layers` every attention, gated layer and squeeze as a whole."""
    known = watchable_modules(model)
    out: list[HeadRef] = []
    for name, module in known.items():
        if any(name.startswith(f"{other}.") for other in known) or GLOBAL_BRANCH in name:
            continue
        count, kind, (side, number, _) = (
            count_heads(model, name),
            _module_kind(module, name),
            locate_module(model, name),
        )
        before = {one.module_names for one in out if (one.kind, one.side) == (kind, side)}
        layer = len(before) if number is None else number
        names = (name, name.replace(".near.", GLOBAL_BRANCH)) if ".near." in name else (name,)
        many: Sequence[int | None] = [None] if whole_layers or not isinstance(module, Mechanism) else range(count)
        out += [HeadRef(names, kind, side, layer, head) for head in many]
    return out


def _module_kind(module: nn.Module, name: str) -> str:
    if not isinstance(module, Mechanism):
        return "channel" if isinstance(module, SqueezeExcite) else "gate"
    return "cross" if ".across." in name else "self"


def count_heads(model: nn.Module, name: str) -> int:
    """How many heads a mechanism has: those of the attention around it, or one."""
    around = model.get_submodule(name.rpartition(".")[0])
    return around.query.out_features // around.head_width if isinstance(around, Attention) else 1


@contextmanager
def ablate_heads(model: nn.Module, head_refs: Sequence[HeadRef]) -> Iterator[None]:
    """Run the model without some heads or layers; afterwards all is as it was."""
    by_name: dict[str, set[int | None]] = {}
    for switch in head_refs:
        for name in switch.module_names:
            by_name.setdefault(name, set()).add(switch.head)
    known = watchable_modules(model)
    missing = [name for name in by_name if name not in known]
    if missing:
        raise UsageError(f"The model has no {missing[0]} to switch off; `switches(model)` lists what it has.")
    placed = [
        known[name].register_forward_hook(_make_zeroing_hook(known[name], heads)) for name, heads in by_name.items()
    ]
    try:
        yield
    finally:
        for handle in placed:
            handle.remove()


def _make_zeroing_hook(module: nn.Module, heads: set[int | None]) -> Callable[..., Tensor]:
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


def measure_head_importance(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    head_refs: Sequence[HeadRef] | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[HeadImportance]:
    """What the task's first score loses without each head or layer, the most useful first.

    The interval is 1.96 standard errors to both sides, by `rounds` draws of the examples with replacement, which are the
    same for the model with and without.
    """
    if not examples or bootstrap_samples < 2:
        raise UsageError(
            f"{len(examples)} examples and {bootstrap_samples} draws of them came; heads are judged by some examples and 2 draws or more."
        )
    chosen = (
        list(list_heads(model)) + list(list_heads(model, whole_layers=True)) if head_refs is None else list(head_refs)
    )
    chosen = list(dict.fromkeys(chosen))
    found, asked = predict(task, model, examples)
    draws = [row for some in resample_indices(len(asked), bootstrap_samples, 0) for row in some]
    whole, sign, name = _score_resamples(task, found, asked, draws)
    out = []
    for number, switch in enumerate(chosen, start=1):
        with ablate_heads(model, [switch]):
            less, _ = predict(task, model, examples)
        part, _, _ = _score_resamples(task, less, asked, draws)
        change = sign * (whole - part)
        loss, error = float(change[0]), 1.96 * float(change[1:].std(ddof=1))
        out.append(HeadImportance(switch, name, float(part[0]), loss, loss - error, loss + error))
        on_progress(number, len(chosen))
    return sorted(out, key=lambda one: -one.score_drop)


def _score_resamples(
    task: Task, answers: Sequence[Any], examples: Sequence[Example], resample_rows: Sequence[np.ndarray]
) -> tuple[np.ndarray, int, str]:
    """The first score of all examples and then of each draw, whether more is better (1) or less (-1), and its name."""
    first = task.score(answers, examples)[0]
    values = [first.value]
    for row in resample_rows:
        values.append(task.score([answers[i] for i in row], [examples[i] for i in row])[0].value)
    return np.array(values), 1 if first.better == "higher" else -1, first.name


def zero_heads(model: Model, head_refs: Sequence[HeadRef]) -> Model:
    """A copy without some heads for good: what the output projection takes from them is zero, shapes stay as they are."""
    new = deepcopy(model)
    for switch in head_refs:
        for name in switch.module_names:
            output, width = _output_projection(new, name)
            heads = range(output.in_features // width) if switch.head is None else [switch.head]
            for head in heads:
                with torch.no_grad():
                    output.weight[:, head * width : (head + 1) * width] = 0
    return new


def prune_heads(model: Model, head_refs: Sequence[HeadRef]) -> Model:
    """A copy without some heads for good, and without their projections; those that are left are numbered anew, from 0."""
    gone: dict[str, set[int]] = {}
    for switch in head_refs:
        name = switch.module_names[0].rpartition(".")[0].removesuffix(".near").removeprefix("body.")
        heads = range(count_heads(model, switch.module_names[0])) if switch.head is None else [switch.head]
        gone.setdefault(name, set()).update(heads)
    return remove_heads(model, gone)


def parse_head(model: Model, name: str) -> HeadRef:
    """The head that a name means: LAYER.HEAD where that says enough, else with its kind and side before it."""
    known = [one for one in list_heads(model) if isinstance(one.head, int)]
    found = [one for one in known if one.name == name or one.name.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} can be {' or '.join(one.name for one in found)}; say which.")
    names = [one.name for one in known]
    few = ", ".join(names[:4]) + (f" to {names[-1]}" if len(names) > 4 else "")
    raise UsageError(f"The model has no head {name!r}; {f'its heads are {few}' if names else 'it has none at all'}.")


def _output_projection(model: Model, name: str) -> tuple[nn.Linear, int]:
    """The output projection behind a mechanism, and how many of its columns belong to one head."""
    around = model.get_submodule(name.rpartition(".")[0])
    if not isinstance(around, Attention):
        raise UsageError(f"{name} has no output projection, so it cannot be switched off for good; use `without`.")
    output = around.output
    if isinstance(output, nn.Identity):  # Longformer's looks share one
        output = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0]).output
    assert isinstance(output, nn.Linear)
    return output, around.value_width

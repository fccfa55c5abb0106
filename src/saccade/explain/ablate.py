"""Head ablation, importance and pruning: switch off attention heads or layers, and measure how much the score of a task drops.

    with ablate_heads(model, head_refs): ...            # off inside the block
    for result in measure_head_importance(task, model, examples): print(result)
    zero_heads(model, head_refs)                        # a copy with zeros in the output projection, same shapes
    prune_heads(model, head_refs).save("smaller")       # a smaller copy without the parameters of these heads

An ablated head passes zeros to the output projection. Ablated squeeze-and-excitation passes all channels unchanged; an ablated
recurrent layer outputs zeros.
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

DEFAULT_BOOTSTRAP_SAMPLES = 40  # resamples: enough to know a standard error to about a tenth of its size


@dataclass(frozen=True)
class HeadRef:
    """One attention head, or a whole layer if `head` is None; Longformer's local and global attention count as one."""

    module_names: tuple[str, ...]
    kind: str  # self, cross, gate, channel
    side: str
    layer: int
    head: int | None = None

    @property
    def name(self) -> str:
        """A stable name of side, kind, layer and head, such as "encoder.self.0.3"."""
        return f"{self.side or 'all'}.{self.kind}.{self.layer}.{'all' if self.head is None else self.head}"

    def __str__(self) -> str:
        head = "all heads" if self.head is None else f"head {self.head}"
        return f"{self.side} layer {self.layer}, {self.kind}, {head}".strip()


@dataclass(frozen=True)
class HeadImportance:
    """How much the score of a task drops without a head, with a 95 % confidence interval over bootstrap samples of examples."""

    head_ref: HeadRef
    metric: str
    score: float  # without the head
    score_drop: float  # above 0: the head helps
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the confidence interval of the drop lies above zero."""
        return self.low > 0

    def __str__(self) -> str:
        verdict = "helps" if self.matters else "harms" if self.high < 0 else "no significant effect"
        interval = f"95 % CI {self.low:.4g} to {self.high:.4g}"
        return f"{self.head_ref}: {self.metric} {self.score:.4g} without it, drop {self.score_drop:.4g} ({interval}), {verdict}"


def list_heads(model: Model, *, whole_layers: bool = False) -> list[HeadRef]:
    """All heads that can be ablated; with `whole_layers` every attention, gated layer and squeeze-and-excitation as a whole."""
    modules = watchable_modules(model)
    refs: list[HeadRef] = []
    for name, module in modules.items():
        if any(name.startswith(f"{other}.") for other in modules) or GLOBAL_BRANCH in name:
            continue
        kind, (side, number, _) = _module_kind(module, name), locate_module(model, name)
        previous = {ref.module_names for ref in refs if (ref.kind, ref.side) == (kind, side)}
        layer = len(previous) if number is None else number
        names = (name, name.replace(".near.", GLOBAL_BRANCH)) if ".near." in name else (name,)
        is_whole = whole_layers or not isinstance(module, Mechanism)
        heads: Sequence[int | None] = [None] if is_whole else range(count_heads(model, name))
        refs += [HeadRef(names, kind, side, layer, head) for head in heads]
    return refs


def _module_kind(module: nn.Module, name: str) -> str:
    if not isinstance(module, Mechanism):
        return "channel" if isinstance(module, SqueezeExcite) else "gate"
    return "cross" if ".across." in name else "self"


def count_heads(model: nn.Module, name: str) -> int:
    """The number of heads of a mechanism: that of the attention module around it, or one."""
    parent = model.get_submodule(name.rpartition(".")[0])
    return parent.query.out_features // parent.head_width if isinstance(parent, Attention) else 1


@contextmanager
def ablate_heads(model: nn.Module, head_refs: Sequence[HeadRef]) -> Iterator[None]:
    """Ablate heads or layers inside the block; the model itself does not change."""
    heads_by_name: dict[str, set[int | None]] = {}
    for ref in head_refs:
        for name in ref.module_names:
            heads_by_name.setdefault(name, set()).add(ref.head)
    modules = watchable_modules(model)
    missing = [name for name in heads_by_name if name not in modules]
    if missing:
        raise UsageError(f"The model has no module {missing[0]} to ablate; `list_heads(model)` lists its heads.")
    handles = [
        modules[name].register_forward_hook(_make_zeroing_hook(modules[name], heads))
        for name, heads in heads_by_name.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _make_zeroing_hook(module: nn.Module, heads: set[int | None]) -> Callable[..., Tensor]:
    """A forward hook that replaces the output of the given heads of a module with zeros."""

    def zero_output(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
        if isinstance(module, SqueezeExcite):
            return args[0]
        if None in heads or not isinstance(module, Mechanism):
            return torch.zeros_like(out)
        keep = torch.ones(out.size(1), dtype=out.dtype, device=out.device)  # out is (B, H, Q, D)
        keep[[head for head in heads if head is not None]] = 0
        return out * keep[:, None, None]

    return zero_output


def measure_head_importance(
    task: Task,
    model: Model,
    examples: Sequence[Example],
    *,
    head_refs: Sequence[HeadRef] | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> list[HeadImportance]:
    """Measure how much the first score of the task drops without each head or layer, the most important first.

    The 95 % interval is the drop plus or minus 1.96 bootstrap standard errors, from `bootstrap_samples` samples of the examples
    with replacement; the ablated model is compared with the full one on the same samples.
    """
    if not examples or bootstrap_samples < 2:
        raise UsageError(
            f"Got {len(examples)} examples and {bootstrap_samples} bootstrap samples; head importance needs at least 1 example "
            "and 2 samples."
        )
    refs = list_heads(model) + list_heads(model, whole_layers=True) if head_refs is None else list(head_refs)
    refs = list(dict.fromkeys(refs))
    predictions, answered = predict(task, model, examples)
    resamples = [rows for chunk in resample_indices(len(answered), bootstrap_samples, 0) for rows in chunk]
    full_scores, sign, metric = _score_resamples(task, predictions, answered, resamples)
    results = []
    for done, ref in enumerate(refs, start=1):
        with ablate_heads(model, [ref]):
            ablated_predictions, _ = predict(task, model, examples)
        scores, _, _ = _score_resamples(task, ablated_predictions, answered, resamples)
        drops = sign * (full_scores - scores)
        drop, margin = float(drops[0]), 1.96 * float(drops[1:].std(ddof=1))
        results.append(HeadImportance(ref, metric, float(scores[0]), drop, drop - margin, drop + margin))
        on_progress(done, len(refs))
    return sorted(results, key=lambda result: -result.score_drop)


def _score_resamples(
    task: Task, answers: Sequence[Any], examples: Sequence[Example], resample_rows: Sequence[np.ndarray]
) -> tuple[np.ndarray, int, str]:
    """The first score of all examples and of each resample, 1 if higher is better or -1 if lower is, and its name."""
    first = task.score(answers, examples)[0]
    values = [first.value]
    for rows in resample_rows:
        values.append(task.score([answers[i] for i in rows], [examples[i] for i in rows])[0].value)
    return np.array(values), 1 if first.better == "higher" else -1, first.name


def zero_heads(model: Model, head_refs: Sequence[HeadRef]) -> Model:
    """Copy the model with the columns of these heads in the output projection set to zero; shapes do not change."""
    new = deepcopy(model)
    for ref in head_refs:
        for name in ref.module_names:
            output, width = _output_projection(new, name)
            heads = range(output.in_features // width) if ref.head is None else [ref.head]
            for head in heads:
                with torch.no_grad():
                    output.weight[:, head * width : (head + 1) * width] = 0
    return new


def prune_heads(model: Model, head_refs: Sequence[HeadRef]) -> Model:
    """Copy the model without these heads and their parameters; the remaining heads of a layer are renumbered from 0."""
    pruned: dict[str, set[int]] = {}
    for ref in head_refs:
        name = ref.module_names[0].rpartition(".")[0].removesuffix(".near").removeprefix("body.")
        heads = range(count_heads(model, ref.module_names[0])) if ref.head is None else [ref.head]
        pruned.setdefault(name, set()).update(heads)
    return remove_heads(model, pruned)


def parse_head(model: Model, name: str) -> HeadRef:
    """The head with this name: LAYER.HEAD if that is unique, else SIDE.KIND.LAYER.HEAD, such as "decoder.cross.3.0"."""
    heads = [ref for ref in list_heads(model) if isinstance(ref.head, int)]
    matches = [ref for ref in heads if ref.name == name or ref.name.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{name!r} is ambiguous; use {' or '.join(ref.name for ref in matches)}.")
    names = [ref.name for ref in heads]
    listed = ", ".join(names[:4]) + (f" to {names[-1]}" if len(names) > 4 else "")
    raise UsageError(f"The model has no head {name!r}; {f'its heads are {listed}' if names else 'it has no heads'}.")


def _output_projection(model: Model, name: str) -> tuple[nn.Linear, int]:
    """The output projection of a mechanism, and the number of its columns that belong to one head."""
    parent = model.get_submodule(name.rpartition(".")[0])
    if not isinstance(parent, Attention):
        raise UsageError(f"{name} has no output projection, so its weights cannot be set to zero; use `ablate_heads`.")
    output = parent.output
    if isinstance(output, nn.Identity):  # Longformer's local and global attention share one
        output = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0]).output
    assert isinstance(output, nn.Linear)
    return output, parent.value_width

"""`saccade.look` for a model of `transformers`: one forward pass with fused kernels, and the same maps as for models of saccade.

A forward pass without weights comes first. It records the shapes of all calls, so that layers, rows and the reducer can be chosen
before the pass whose weights are computed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from saccade.attention.hf.modules import list_attention_modules
from saccade.attention.watch import Look, ReducedWeights, Reducer, WeightChunks, watch
from saccade.decoding.config import GenerationConfig
from saccade.errors import ModelError
from saccade.explain.axis import Axis, make_numbered_axis
from saccade.explain.build_maps import Selection, build_maps
from saccade.explain.hf.inputs import HFInput, make_hf_input, make_patch_axis
from saccade.explain.look import (
    check_queries,
    choose_reducer,
    eval_mode,
    select_layers,
    stop_after_last_module,
    watch_groups,
)
from saccade.explain.maps import AttentionMaps
from saccade.explain.watched_modules import WatchedModule


@dataclass(frozen=True)
class ModuleCall:
    """One call of an attention module in a forward pass."""

    module_name: str
    number: int  # index among the calls of this module
    watched: WatchedModule


@dataclass
class SelectCalls:
    """A reducer that keeps some calls of a module, numbered from 0, and computes no weights for the others."""

    reduce: Reducer
    numbers: frozenset[int]
    count: int = field(default=0, init=False)

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        number, self.count = self.count, self.count + 1
        return self.reduce(chunks, axis, count) if number in self.numbers else (None, None)


def look_at_transformers_model(
    model: nn.Module, input: Any, tokenizer: Any, selection: Selection, decoding: GenerationConfig
) -> AttentionMaps:
    """The attention maps of a model of `transformers` for one input; see `saccade.look`."""
    with eval_mode(model):
        with watch(model):  # raises an error for a model that cannot be watched before its input is prepared
            pass
        hf_input = make_hf_input(model, input, tokenizer, decoding)
        with watch(model, list(list_attention_modules(model)), rows=[]) as shapes:
            model(**hf_input.arguments)
        calls = _list_calls(model, hf_input, shapes)
        by_name = {call.watched.name: call for call in calls}
        modules = select_layers([call.watched for call in calls], selection.layers)
        check_queries(modules, selection.queries)
        selection = replace(selection, reduce=selection.reduce or choose_reducer(modules, selection.queries))
        selected_calls = [by_name[module.name] for module in modules]
        with ExitStack() as stack:
            groups = [stack.enter_context(group) for group in _watch_calls(model, selected_calls, selection)]
            answer = _run_forward(model, hf_input, selected_calls)
    looks = [look for group in groups for look in _name_calls(group, by_name)]
    return AttentionMaps(
        str(getattr(model.config, "model_type", type(model).__name__)),
        tuple(build_maps(looks, modules, selection, ())),
        hf_input.texts,
        answer or hf_input.generated_text,
        hf_input.generated_text,
        hf_input.image,
        no_answer_reason="" if answer or hf_input.generated_text else _explain_no_answer(model),
        truncated_at=hf_input.truncated_at,
        truncated_input_tokens=hf_input.truncated_input_tokens,
    )


def _explain_no_answer(model: nn.Module) -> str:
    return f"{type(model).__name__} does not classify its input; call the model for its output"


def _list_calls(model: nn.Module, hf_input: HFInput, shapes: Sequence[Look]) -> list[ModuleCall]:
    """All calls of a forward pass in order, with their layers and the axes of their weights."""
    modules = list_attention_modules(model)
    one_side = len({modules[look.name].side for look in shapes}) == 1
    counts: dict[str, int] = {}
    groups: dict[tuple[str, str], int] = {}
    calls = []
    for look in shapes:
        module = modules[look.name]
        if look.shape[0] != 1:
            raise ModelError(
                f"{type(model).__name__} attends in {look.shape[0]} separate parts of its input in {look.name}, and a map needs "
                "the whole input. `with saccade.watch(model) as looks: model(...)` returns the weights of all parts."
            )
        number, counts[look.name] = counts.get(look.name, 0), counts.get(look.name, 0) + 1
        group = module.side, module.kind
        order, groups[group] = groups.get(group, 0), groups.get(group, 0) + 1
        query, key = _choose_axes(model, hf_input, module.side, module.kind, look.shape)
        kind = "image" if module.kind == "cross" and key.kind == "cells" else module.kind
        side = "" if one_side else module.side.replace("_", " ")
        watched = WatchedModule(look.name, kind, side, module.layer, query, key, can_select_queries=True)
        calls.append((ModuleCall(look.name, number, watched), order, group))
    return [_name_call(call, order, counts, groups[group], model) for call, order, group in calls]


def _name_call(call: ModuleCall, order: int, counts: dict[str, int], calls: int, model: nn.Module) -> ModuleCall:
    """Name a repeated call by its number; if all layers share one module, each call is a layer."""
    if counts[call.module_name] == 1:
        return call
    shared = calls == getattr(model.config, "num_hidden_layers", None)
    layer = order if shared else call.watched.layer
    return replace(call, watched=replace(call.watched, name=f"{call.module_name} call {call.number}", layer=layer))


def _choose_axes(model: nn.Module, hf_input: HFInput, side: str, kind: str, shape: Sequence[int]) -> tuple[Axis, Axis]:
    """The axes of queries and keys: those of a text or an image of the same length, else numbers."""
    patches = [make_patch_axis(model, hf_input.arguments, count) for count in shape[-2:]]
    text_first = not side.startswith("vision")
    sources = [[hf_input.input_axis, patch] if text_first else [patch] for patch in patches]
    if kind == "cross":
        return _match_axis([hf_input.output_axis], shape[-2]), _match_axis(sources[1], shape[-1])
    if side == "decoder" and hf_input.decoder_input_axis is not None:
        axes = [hf_input.decoder_input_axis]
        return _match_axis(axes, shape[-2]), _match_axis(axes, shape[-1])
    return _match_axis(sources[0], shape[-2]), _match_axis(sources[1], shape[-1])


def _match_axis(axes: Sequence[Axis | None], count: int) -> Axis:
    return next((axis for axis in axes if axis is not None and len(axis) == count), make_numbered_axis("units", count))


def _watch_calls(model: nn.Module, calls: Sequence[ModuleCall], selection: Selection) -> Iterator[Any]:
    """Yield a `watch` for all modules that are called once, and one for each module that is called repeatedly."""
    assert selection.reduce is not None, "the reducer has been chosen"
    repeated = {call.module_name for call in calls if call.watched.name != call.module_name}
    called_once = [call.watched for call in calls if call.module_name not in repeated]
    yield from watch_groups(model, called_once, selection, selection.reduce)
    for name in repeated:
        module_calls = [call for call in calls if call.module_name == name]
        rows = None
        if selection.queries is not None:
            rows = [row for row in selection.queries if all(row < len(call.watched.query) for call in module_calls)]
        numbers = frozenset(call.number for call in module_calls)
        yield watch(model, name, heads=selection.heads, rows=rows, reduce=SelectCalls(selection.reduce, numbers))


def _name_calls(looks: Sequence[Look], calls: dict[str, ModuleCall]) -> list[Look]:
    """Rename looks to the names of their calls."""
    counts: dict[str, int] = {}
    named = []
    for look in looks:
        number, counts[look.name] = counts.get(look.name, 0), counts.get(look.name, 0) + 1
        named.append(look if look.name in calls else replace(look, name=f"{look.name} call {number}"))
    return named


def _run_forward(model: nn.Module, hf_input: HFInput, calls: Sequence[ModuleCall]) -> str:
    """Run a forward pass and return the predicted class; without a classifier it stops after the last watched module."""
    labels = getattr(model.config, "id2label", None) or {}
    if not type(model).__name__.endswith("Classification"):
        once = all(call.watched.name == call.module_name for call in calls)
        with stop_after_last_module(model, [call.watched for call in calls] if once else []):
            model(**hf_input.arguments)
        return ""
    logits = getattr(model(**hf_input.arguments), "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(-1) < 2:
        return ""
    return str(labels.get(int(logits[0].argmax()), ""))

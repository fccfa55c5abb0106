"""`saccade.look` on a model of `transformers`: one forward pass with its fused kernels on, and maps as of our own models.

A pass without any weights comes first. It says what each module is called with, so that layers, rows and the size of what is
kept can be chosen before the pass whose weights are computed.
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
    """One call of an attention module in a pass."""

    module_name: str
    number: int  # of the calls of this module
    watched: WatchedModule


@dataclass
class SelectCalls:
    """A reducer that keeps some of the calls of a module, counted from 0, and computes no weights of the others."""

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
        with watch(model):  # refuses a model that cannot be watched before its input is read
            pass
        read = make_hf_input(model, input, tokenizer, decoding)
        with watch(model, list(list_attention_modules(model)), rows=[]) as sizes:
            model(**read.arguments)
        calls = _list_calls(model, read, sizes)
        by_name = {call.watched.name: call for call in calls}
        chosen = select_layers([call.watched for call in calls], selection.layers)
        check_queries(chosen, selection.queries)
        selection = replace(selection, reduce=selection.reduce or choose_reducer(chosen, selection.queries))
        with ExitStack() as stack:
            found = [
                stack.enter_context(each)
                for each in _watch_calls(model, [by_name[one.name] for one in chosen], selection)
            ]
            answer = _run_forward(model, read, [by_name[one.name] for one in chosen])
    looks = [look for some in found for look in _name_calls(some, by_name)]
    return AttentionMaps(
        str(getattr(model.config, "model_type", type(model).__name__)),
        tuple(build_maps(looks, chosen, selection, ())),
        read.texts,
        answer or read.generated_text,
        read.generated_text,
        read.image,
        no_answer_reason="" if answer or read.generated_text else _explain_no_answer(model),
        truncated_at=read.truncated_at,
        truncated_input_tokens=read.truncated_input_tokens,
    )


def _explain_no_answer(model: nn.Module) -> str:
    return f"{type(model).__name__} names no class for its input; call it for its output"


def _list_calls(model: nn.Module, read: HFInput, sizes: Sequence[Look]) -> list[ModuleCall]:
    """Every call of a pass in time, with its layer and the names of its rows and columns."""
    modules = list_attention_modules(model)
    one_side = len({modules[look.name].side for look in sizes}) == 1
    counts: dict[str, int] = {}
    groups: dict[tuple[str, str], int] = {}
    out = []
    for look in sizes:
        module = modules[look.name]
        if look.shape[0] != 1:
            raise ModelError(
                f"{type(model).__name__} attends in {look.shape[0]} parts of its input at a time in {look.name}, and a map is of "
                "the whole. `with saccade.watch(model) as looks: model(...)` has the weights of all parts."
            )
        number, counts[look.name] = counts.get(look.name, 0), counts.get(look.name, 0) + 1
        group = module.side, module.kind
        order, groups[group] = groups.get(group, 0), groups.get(group, 0) + 1
        query, key = _choose_axes(model, read, module.side, module.kind, look.shape)
        kind = "image" if module.kind == "cross" and key.kind == "cells" else module.kind
        side = "" if one_side else module.side.replace("_", " ")
        called = WatchedModule(look.name, kind, side, module.layer, query, key, can_select_queries=True)
        out.append((ModuleCall(look.name, number, called), order, group))
    return [_name_call(call, order, counts, groups[group], model) for call, order, group in out]


def _name_call(call: ModuleCall, order: int, counts: dict[str, int], calls: int, model: nn.Module) -> ModuleCall:
    """A module that several layers share is a layer of its own at each call; other repeated calls have a number."""
    if counts[call.module_name] == 1:
        return call
    shared = calls == getattr(model.config, "num_hidden_layers", None)
    layer = order if shared else call.watched.layer
    return replace(call, watched=replace(call.watched, name=f"{call.module_name} call {call.number}", layer=layer))


def _choose_axes(model: nn.Module, read: HFInput, side: str, kind: str, shape: Sequence[int]) -> tuple[Axis, Axis]:
    """The names of queries and keys: those of the text or image that has as many, else numbers."""
    patches = [make_patch_axis(model, read.arguments, count) for count in shape[-2:]]
    text_first = not side.startswith("vision")
    sources = [[read.input_axis, patch] if text_first else [patch] for patch in patches]
    if kind == "cross":
        return _match_axis([read.output_axis], shape[-2]), _match_axis(sources[1], shape[-1])
    if side == "decoder" and read.decoder_input_axis is not None:
        return _match_axis([read.decoder_input_axis], shape[-2]), _match_axis([read.decoder_input_axis], shape[-1])
    return _match_axis(sources[0], shape[-2]), _match_axis(sources[1], shape[-1])


def _match_axis(axes: Sequence[Axis | None], count: int) -> Axis:
    return next((axis for axis in axes if axis is not None and len(axis) == count), make_numbered_axis("units", count))


def _watch_calls(model: nn.Module, calls: Sequence[ModuleCall], selection: Selection) -> Iterator[Any]:
    """A watch for all modules that are called once, and one for each that is called again."""
    assert selection.reduce is not None, "it has been chosen"
    repeated = {call.module_name for call in calls if call.watched.name != call.module_name}
    yield from watch_groups(
        model, [call.watched for call in calls if call.module_name not in repeated], selection, selection.reduce
    )
    for name in repeated:
        mine = [call for call in calls if call.module_name == name]
        rows = None
        if selection.queries is not None:
            rows = [row for row in selection.queries if all(row < len(call.watched.query) for call in mine)]
        numbers = frozenset(call.number for call in mine)
        yield watch(model, name, heads=selection.heads, rows=rows, reduce=SelectCalls(selection.reduce, numbers))


def _name_calls(looks: Sequence[Look], calls: dict[str, ModuleCall]) -> list[Look]:
    """Looks with the names of their calls."""
    counts: dict[str, int] = {}
    out = []
    for look in looks:
        number, counts[look.name] = counts.get(look.name, 0), counts.get(look.name, 0) + 1
        out.append(look if look.name in calls else replace(look, name=f"{look.name} call {number}"))
    return out


def _run_forward(model: nn.Module, read: HFInput, calls: Sequence[ModuleCall]) -> str:
    """One pass, and the class that a classifier chooses; of other models the pass ends after the last chosen module."""
    labels = getattr(model.config, "id2label", None) or {}
    if not type(model).__name__.endswith("Classification"):
        once = all(call.watched.name == call.module_name for call in calls)
        with stop_after_last_module(model, [call.watched for call in calls] if once else []):
            model(**read.arguments)
        return ""
    logits = getattr(model(**read.arguments), "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(-1) < 2:
        return ""
    return str(labels.get(int(logits[0].argmax()), ""))

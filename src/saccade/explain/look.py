"""Attention maps of any model for one input: `saccade.look(model, input)`, for a text, a pair, an image, a record or a batch.

    looks = saccade.look("runs/reviews", "What a lovely film.")
    looks = saccade.look(model, ("the cat sat", "le chat était assis"))        # teacher forcing: source and target are given
    looks.select("cross", layers=[-1]).merge_subwords()[0].weights            # (heads, target words, source words)
    looks = saccade.look(hf_model, "What a lovely film.", tokenizer=tokenizer)  # a model of transformers

Weights are computed beside the fused kernels, so the output of the model does not change. A model that generates first
generates its output, as `GenerationConfig` says, and is then watched in one forward pass over that output.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from saccade.attention.hf.modules import find_transformers_model
from saccade.attention.watch import Downsample, KeepAll, Reducer, watch, watchable_modules
from saccade.data import Text
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError
from saccade.explain.axis import Axis
from saccade.explain.build_maps import Selection, build_maps
from saccade.explain.inputs import LookInput, RawInput, make_input, make_input_from_batch, open_with_task
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.target import DecoderTarget, make_target, max_output_tokens
from saccade.explain.watched_modules import MapAxes, WatchedModule, list_watched_modules
from saccade.keywords import check_keywords
from saccade.models.model import Model
from saccade.tasks.base import Item, Task
from saccade.tasks.predict import check_answers
from saccade.tasks.runs.run import task_from_model

MAX_UNPOOLED_WEIGHTS = 2**23  # weights per head, summed over all layers, above which maps are downsampled
POOLED_SIZE = 256  # rows and columns of a downsampled map
NO_HEAD_MESSAGE = "the model has no output head, so it only encodes its input"


@check_keywords
def look(
    model: Model | nn.Module | str | os.PathLike[str],
    input: RawInput,
    *,
    tokenizer: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    reduce: Reducer | None = None,
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> AttentionMaps:
    """Collect the attention maps of a model for one input, with its prediction.

    `model` is a Model or the path of a run. `input` is a text, two texts (a pair, or the source and the target of a model that
    generates), an image (file, array or Pillow image), a record of its task, or a Batch, of which the first row is used.
    `layers` (-1 is the last), `heads` and `queries` (row indices) select; `reduce` keeps less of each map (`TopK`,
    `Downsample`), and by default the maps of long inputs are downsampled to 256 x 256.

    `model` can also be a model of the package transformers (version 5 or later), with its `tokenizer` or processor; `input` is
    then a text, two texts, an image, or a mapping of the arguments of its forward pass. A decoder-only model is watched while
    it reads the text; with `GenerationConfig(max_new_tokens=...)` it continues the text first.
    """
    if isinstance(model, nn.Module) and not isinstance(model, Model) and find_transformers_model(model) is not None:
        from saccade.explain.hf.look import look_at_transformers_model  # it imports this module

        return look_at_transformers_model(model, input, tokenizer, Selection(layers, heads, queries, reduce), decoding)
    if tokenizer is not None:
        raise UsageError("tokenizer is for a model of transformers; a model of saccade has its own, so leave it out.")
    return look_at(make_input(*open_with_task(model), input), Selection(layers, heads, queries, reduce), decoding)


def look_at(
    look_input: LookInput,
    selection: Selection = Selection(),  # noqa: B008 - frozen
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> AttentionMaps:
    """Collect the attention maps of a model for an input that `make_input` has prepared."""
    with eval_mode(look_input.model):
        target = make_target(look_input, decoding) if look_input.is_autoregressive else None
        axes = _make_map_axes(look_input, target)
        modules = select_layers(list_watched_modules(look_input.model, axes), selection.layers)
        check_queries(modules, selection.queries)
        reduce = selection.reduce or choose_reducer(modules, selection.queries)
        with ExitStack() as stack:
            groups = [
                stack.enter_context(group) for group in watch_groups(look_input.model, modules, selection, reduce)
            ]
            answer = _run_forward(look_input, target, modules)
    maps = build_maps([look for group in groups for look in group], modules, selection, axes.global_positions)
    texts = look_input.texts if target is None or not target.text else _join_texts(look_input, target)
    text = "" if target is None else target.text
    image = look_input.image if target is None or target.image is None else target.image
    return AttentionMaps(
        look_input.model.family.name,
        tuple(maps),
        texts,
        answer or text,
        text,
        image,
        no_answer_reason="" if answer or text else _explain_no_answer(look_input, target),
        truncated_at=None if target is None else target.truncated_at,
        max_output_tokens=None if target is None else max_output_tokens(look_input),
        truncated_input_tokens=look_input.truncated_input_tokens,
    )


def _explain_no_answer(look_input: LookInput, target: DecoderTarget | None) -> str:
    """Why there is no prediction, as a clause to print in place of the prediction."""
    if target is not None:
        generates_text = look_input.model.capabilities.generates_text
        return "the generated text is empty" if generates_text else "the model generates an image, not a text"
    task = look_input.task or task_from_model(look_input.model)
    return NO_HEAD_MESSAGE if task is None else task.no_prediction_reason


def collect_attention_maps(task: Task, model: Model, item: Item, target: list[int] | None = None) -> list[AttentionMap]:
    """All attention maps for one item of a task, for the reports of training and evaluation.

    A model that generates text is watched while it reads the tokens `target`, by default the gold target of the item.
    """
    look_input = make_input_from_batch(task, model, task.batch([item]))
    if model.capabilities.is_autoregressive:
        ids = target if target is not None else [] if item.target is None else item.target.tolist()
        look_input = replace(look_input, target=tuple(ids) if ids or look_input.continues_input else (0,))
    return [m for m in look_at(replace(look_input, task=None)).maps if m.kind in ATTENTION_KINDS]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Run the model in evaluation mode without gradients, and restore the mode of every module afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _join_texts(look_input: LookInput, target: DecoderTarget) -> tuple[str, ...]:
    """The input texts and the generated text; a decoder-only model has both in one text."""
    if not look_input.continues_input:
        return (*look_input.texts, target.text)
    return (*look_input.texts[:-1], "".join([*look_input.texts[-1:], target.text]))


def _make_map_axes(look_input: LookInput, target: DecoderTarget | None) -> MapAxes:
    source = look_input.batch.source
    global_mask = source.global_mask if isinstance(source, Text) else None
    global_positions = (0,) if global_mask is None else tuple(global_mask[0].nonzero().flatten().tolist())
    if target is None:
        return MapAxes(look_input.input_axis, global_positions=global_positions)
    if look_input.continues_input:
        decoder_input = Axis(
            "decoder_input",
            (*look_input.input_axis.tokens, *target.start_axis.tokens, *target.axis.tokens),
            target.axis.grid,
        )
    else:
        decoder_input = Axis("decoder_input", (*target.start_axis.tokens, *target.axis.tokens[:-1]))
    return MapAxes(look_input.input_axis, decoder_input, target.axis, global_positions)


def select_layers(modules: list[WatchedModule], layers: Sequence[int] | None) -> list[WatchedModule]:
    """The modules of the given layers; negative numbers count from the last layer of each side and kind."""
    if layers is None:
        return modules
    last: dict[tuple[str, str], int] = {}
    for module in modules:
        last[module.kind, module.side] = max(module.layer, last.get((module.kind, module.side), 0))
    count = 1 + max(last.values(), default=0)
    unknown = [layer for layer in layers if not -count <= layer < count]
    if unknown:
        raise UsageError(f"Layer {unknown[0]} does not exist; the model has {count} layers, numbered from 0.")
    resolve = lambda module: {layer + 1 + last[module.kind, module.side] if layer < 0 else layer for layer in layers}
    return [module for module in modules if module.layer in resolve(module)]


def check_queries(modules: list[WatchedModule], queries: Sequence[int] | None) -> None:
    """Raise an error if no map has any of the selected rows; maps differ in length, so some maps may lack a row."""
    count = max((len(module.query) for module in modules), default=0)
    if queries is not None and count and (not queries or min(queries) < 0 or min(queries) >= count):
        got = f"Row {min(queries)} does not exist" if queries else "No rows are selected"
        raise UsageError(f"{got}; the maps have {count} rows, numbered from 0.")


def choose_reducer(modules: list[WatchedModule], queries: Sequence[int] | None) -> Reducer:
    """The default reducer: keep all weights, or downsample the maps if there are too many weights."""
    size = 0
    for module in modules:
        if module.kind in ATTENTION_KINDS:
            rows = len(module.query)
            if queries is not None and module.can_select_queries:
                rows = min(len(queries), rows)
            size += rows * len(module.key)
    return Downsample(POOLED_SIZE) if size > MAX_UNPOOLED_WEIGHTS else KeepAll()


def watch_groups(
    model: nn.Module, modules: list[WatchedModule], selection: Selection, reduce: Reducer
) -> Iterator[Any]:
    """Yield a `watch` for each group of modules with the same rows and the same reducer."""
    groups: dict[tuple[tuple[int, ...] | None, bool], list[str]] = {}
    for module in modules:
        rows = None
        if selection.queries is not None and module.can_select_queries:
            rows = tuple(row for row in selection.queries if row < len(module.query))
        groups.setdefault((rows, module.kind in ATTENTION_KINDS), []).append(module.name)
    for (rows, reduced), names in groups.items():
        heads = selection.heads if reduced else None
        yield watch(model, names, heads=heads, rows=rows, reduce=reduce if reduced else KeepAll())


class _StopForward(Exception):
    """Ends a forward pass after the last watched module."""


@contextmanager
def stop_after_last_module(model: nn.Module, modules: Sequence[WatchedModule]) -> Iterator[None]:
    """Stop a forward pass whose output is not needed after the last watched module, if each module is called once."""

    def stop(*args: object) -> None:
        raise _StopForward

    watchable = watchable_modules(model)
    called_once = all(module.can_select_queries for module in modules)
    last = watchable.get(modules[-1].name) if modules and called_once else None
    compiled = any(hasattr(part, "_orig_mod") for part in model.modules())  # a compiled graph cannot be left halfway
    handle = None if last is None or compiled else last.register_forward_hook(stop)
    try:
        with suppress(_StopForward):
            yield
    finally:
        if handle is not None:
            handle.remove()


def _run_forward(look_input: LookInput, target: DecoderTarget | None, modules: Sequence[WatchedModule]) -> str:
    """Run one forward pass over input and target; returns the prediction of a model that does not generate, else ""."""
    model, task = look_input.model, look_input.task
    batch = look_input.batch.to(next(model.parameters()).device)
    if target is None:
        if task is None or not batch.items or not task.predicts_per_example:
            with stop_after_last_module(model, modules):
                model(batch)
            return ""
        item, answers = batch.items[0], task.answer(model, batch)
        check_answers(answers)
        return str(task.to_prediction(task.merge_answers(answers, [item])[0], item.example))
    body = model.autoregressive_body
    state, start = body.start(batch)
    ids = target.ids if look_input.continues_input else target.ids[:-1]
    new = torch.tensor([ids], dtype=torch.long, device=start.tokens.device)
    body.hidden_states(Text(torch.cat([start.tokens, new], dim=1)), state)
    return ""

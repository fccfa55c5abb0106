"""`saccade.look(model, input)`: one call for every model, from a text or a picture to everything that looked at it.

    looks = saccade.look("runs/reviews", "What a lovely film.")
    looks = saccade.look(model, ("the cat sat", "le chat était assis"))        # what it would look at in writing this
    looks.select("cross", layers=[-1]).merge_subwords()[0].weights            # (heads, written, read)
    looks = saccade.look(hf_model, "What a lovely film.", tokenizer=tokenizer)  # a model of transformers

Weights are computed beside the fused kernels, whose answer stays as it is. A writer first writes, in any way that `Decoding`
knows, and is then watched while it reads what it wrote.
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
from saccade.models.model import Model
from saccade.tasks.base import Item, Task
from saccade.tasks.predict import check_answers
from saccade.tasks.runs.run import task_from_model

MAX_UNPOOLED_WEIGHTS = (
    2**23
)  # weights of one head over all layers that are kept as they are; beyond, a pooled picture of each map
POOLED_SIZE = 256  # of such a picture
NO_HEAD_MESSAGE = "the model has no output head, so it only encodes what it reads"


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
    """Where a model looks for one input, and what it answers.

    `model` is a Model or the path of a run. `input` is a text, two texts (a pair, or for a writer what it reads and what it is
    to write), a picture (file, array or Pillow image), a record as its task takes it, or a Batch, of which the first row
    counts. `layers` (-1 is the last), `heads` and `queries` (row numbers) choose; `reduce` keeps less of each map (`TopK`,
    `Downsample`), and by default long inputs are downsampled to 256 x 256 points.

    `model` can also be a model of the package transformers (version 5 or later), with its `tokenizer` or processor; `input` is
    then a text, two texts, an image, or a mapping of the arguments of its forward pass. A decoder-only model is looked at while
    it reads the text; with `GenerationConfig(max_new_tokens=...)` it continues the text first.
    """
    if isinstance(model, nn.Module) and not isinstance(model, Model) and find_transformers_model(model) is not None:
        from saccade.explain.hf.look import look_at_transformers_model  # which uses this module

        return look_at_transformers_model(model, input, tokenizer, Selection(layers, heads, queries, reduce), decoding)
    if tokenizer is not None:
        raise UsageError("tokenizer is for a model of transformers; a model of saccade has its own.")
    return look_at(make_input(*open_with_task(model), input), Selection(layers, heads, queries, reduce), decoding)


def look_at(
    look_input: LookInput,
    selection: Selection = Selection(),
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> AttentionMaps:
    """The same for a row that is ready."""
    with eval_mode(look_input.model):
        written = make_target(look_input, decoding) if look_input.is_autoregressive else None
        sides = _make_map_axes(look_input, written)
        chosen = select_layers(list_watched_modules(look_input.model, sides), selection.layers)
        check_queries(chosen, selection.queries)
        reduce = selection.reduce or choose_reducer(chosen, selection.queries)
        with ExitStack() as stack:
            looks = [stack.enter_context(each) for each in watch_groups(look_input.model, chosen, selection, reduce)]
            answer = _run_forward(look_input, written, chosen)
    seen = build_maps([one for some in looks for one in some], chosen, selection, sides.global_positions)
    texts = look_input.texts if written is None or not written.text else _join_texts(look_input, written)
    text = "" if written is None else written.text
    picture = look_input.image if written is None or written.image is None else written.image
    return AttentionMaps(
        look_input.model.family.name,
        tuple(seen),
        texts,
        answer or text,
        text,
        picture,
        no_answer_reason="" if answer or text else _explain_no_answer(look_input, written),
        truncated_at=None if written is None else written.truncated_at,
        max_output_tokens=None if written is None else max_output_tokens(look_input),
        truncated_input_tokens=look_input.truncated_input_tokens,
    )


def _explain_no_answer(look_input: LookInput, target: DecoderTarget | None) -> str:
    """Why a model says nothing, in words that can stand where an answer would."""
    if target is not None:
        paints = not look_input.model.capabilities.generates_text
        return "it paints a picture instead of writing" if paints else "the text that it wrote is empty"
    task = look_input.task or task_from_model(look_input.model)
    return NO_HEAD_MESSAGE if task is None else task.no_prediction_reason


def collect_attention_maps(task: Task, model: Model, item: Item, target: list[int] | None = None) -> list[AttentionMap]:
    """All attention maps for one item of a task, as reports draw them.

    A model that generates text is watched while it reads the tokens `target`, by default the gold target of the item.
    """
    look_input = make_input_from_batch(task, model, task.batch([item]))
    if model.capabilities.is_autoregressive:
        ids = target if target is not None else [] if item.target is None else item.target.tolist()
        look_input = replace(look_input, target=tuple(ids) if ids or look_input.continues_input else (0,))
    return [m for m in look_at(replace(look_input, task=None)).maps if m.kind in ATTENTION_KINDS]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode and without gradients, and afterwards every module in the mode that it had."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _join_texts(look_input: LookInput, target: DecoderTarget) -> tuple[str, ...]:
    """What was read and what was written; of a text that is continued, the whole."""
    if not look_input.continues_input:
        return (*look_input.texts, target.text)
    return (*look_input.texts[:-1], "".join([*look_input.texts[-1:], target.text]))


def _make_map_axes(look_input: LookInput, target: DecoderTarget | None) -> MapAxes:
    source = look_input.batch.source
    marked = source.global_mask if isinstance(source, Text) else None
    at = (0,) if marked is None else tuple(marked[0].nonzero().flatten().tolist())
    if target is None:
        return MapAxes(look_input.input_axis, global_positions=at)
    if look_input.continues_input:
        given = Axis(
            "decoder_input",
            (*look_input.input_axis.tokens, *target.start_axis.tokens, *target.axis.tokens),
            target.axis.grid,
        )
    else:
        given = Axis("decoder_input", (*target.start_axis.tokens, *target.axis.tokens[:-1]))
    return MapAxes(look_input.input_axis, given, target.axis, at)


def select_layers(modules: list[WatchedModule], layers: Sequence[int] | None) -> list[WatchedModule]:
    """The modules of the layers that are meant; of each side and kind, -1 is the last."""
    if layers is None:
        return modules
    last: dict[tuple[str, str], int] = {}
    for place in modules:
        last[place.kind, place.side] = max(place.layer, last.get((place.kind, place.side), 0))
    count = 1 + max(last.values(), default=0)
    beyond = [layer for layer in layers if not -count <= layer < count]
    if beyond:
        raise UsageError(f"There are {count} layers, numbered from 0; asked for {beyond[0]}.")
    meant = lambda place: {layer + 1 + last[place.kind, place.side] if layer < 0 else layer for layer in layers}
    return [place for place in modules if place.layer in meant(place)]


def check_queries(modules: list[WatchedModule], queries: Sequence[int] | None) -> None:
    """Maps have rows of their own number, so some may lack a row; one that none has is a mistake."""
    most = max((len(place.query) for place in modules), default=0)
    if queries is not None and most and (not queries or min(queries) < 0 or min(queries) >= most):
        asked = f"asked for {min(queries)}" if queries else "none was asked for"
        raise UsageError(f"There are {most} rows, numbered from 0; {asked}.")


def choose_reducer(modules: list[WatchedModule], queries: Sequence[int] | None) -> Reducer:
    """What is kept where nobody says: everything, unless the rows that are looked at make too much of it."""
    size = 0
    for place in modules:
        if place.kind in ATTENTION_KINDS:
            asked = (
                len(place.query)
                if queries is None or not place.can_select_queries
                else min(len(queries), len(place.query))
            )
            size += asked * len(place.key)
    return Downsample(POOLED_SIZE) if size > MAX_UNPOOLED_WEIGHTS else KeepAll()


def watch_groups(
    model: nn.Module, modules: list[WatchedModule], selection: Selection, reduce: Reducer
) -> Iterator[Any]:
    """A watch for each lot of modules that are asked for the same rows and in the same way."""
    lots: dict[tuple[tuple[int, ...] | None, bool], list[str]] = {}
    for place in modules:
        rows = None
        if selection.queries is not None and place.can_select_queries:
            rows = tuple(row for row in selection.queries if row < len(place.query))
        lots.setdefault((rows, place.kind in ATTENTION_KINDS), []).append(place.name)
    for (rows, reduced), names in lots.items():
        heads = selection.heads if reduced else None
        yield watch(model, names, heads=heads, rows=rows, reduce=reduce if reduced else KeepAll())


class _StopForward(Exception):
    """All that was to be seen has been seen."""


@contextmanager
def stop_after_last_module(model: nn.Module, modules: Sequence[WatchedModule]) -> Iterator[None]:
    """End a pass whose answer nobody waits for after the last module that is looked at, where each is asked once."""

    def stop(*given: object) -> None:
        raise _StopForward

    known = watchable_modules(model)
    last = known.get(modules[-1].name) if modules and all(place.can_select_queries for place in modules) else None
    compiled = any(hasattr(part, "_orig_mod") for part in model.modules())  # a graph is not left halfway
    placed = None if last is None or compiled else last.register_forward_hook(stop)
    try:
        with suppress(_StopForward):
            yield
    finally:
        if placed is not None:
            placed.remove()


def _run_forward(look_input: LookInput, target: DecoderTarget | None, modules: Sequence[WatchedModule]) -> str:
    """One pass over all there is, and the answer of a reader."""
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
    state, first = body.start(batch)
    ids = target.ids if look_input.continues_input else target.ids[:-1]
    new = torch.tensor([ids], dtype=torch.long, device=first.tokens.device)
    body.hidden_states(Text(torch.cat([first.tokens, new], dim=1)), state)
    return ""

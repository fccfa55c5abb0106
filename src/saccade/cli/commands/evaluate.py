"""`saccade evaluate RUN --data FILE`: scores of a model on labeled data, with confidence intervals."""

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, optional_argument
from saccade.cli.engine_flags import EngineFlags

if TYPE_CHECKING:
    from saccade.models.model import Model
    from saccade.tasks.runs.run import Run

OtherRunArgument = Annotated[str, tyro.conf.Positional, optional_argument("[OTHER]")]
BOOLEAN_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def main(
    run: RunArgument,
    other: OtherRunArgument = "",
    *,
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    overrides: Annotated[tuple[str, ...], optional_argument("NAME=VALUE", name="set")] = (),
    mistakes: Annotated[str, optional_argument("FILE")] = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags("off"),  # noqa: B008 - frozen
) -> int:
    """Evaluate a model on labeled data: scores with 95 % confidence intervals, the classes and the mistakes.

    saccade evaluate runs/reviews --data test.tsv --mistakes mistakes.csv

    Two models on the same data: which is better, by how much, and whether that may be chance (paired bootstrap):

    saccade evaluate runs/reviews runs/larger --data test.tsv

    A language model with at least 128 tokens of context before each scored token, and a neural cache of 4,000 tokens:

    saccade evaluate runs/stories --data test.txt --set eval_overlap=128 neural_cache=4000

    By default the plain PyTorch model is evaluated; --engine int8 evaluates the quantized one. Every score ends with its
    signature, which names the engine and, for language models, the window and the context. The window is that of training or,
    for a model without a run, its context length, up to 2,048 tokens; --set max_tokens=1024 sets another.

    Args:
        run: A run, or a model directory.
        other: Another run to compare with, on the same examples.
        data: Labeled data files; default: the held-out data of the run.
        columns: Columns of the data by role: text=review,label=stars. Default: the columns that training used.
        overrides: Task settings to change for the evaluation; saccade train TASK --help lists them.
        mistakes: All mistakes as a file, the most confident or the largest error first: .csv, .tsv, .jsonl or .parquet.
        json: Print everything as JSON: scores, classes, confusion matrix, baseline, mistakes and comparison.
        engine: Engine and device of inference.
    """
    from saccade.cli.exit_codes import run_command

    request = EvaluationRequest(run, other, data, columns, overrides, mistakes)
    return run_command("evaluate", lambda: _evaluate_run(request, json, engine))


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and the file of its mistakes."""

    run: str
    other: str
    data: tuple[str, ...]
    columns: str
    overrides: tuple[str, ...]
    mistakes: str


def _evaluate_run(request: EvaluationRequest, as_json: bool, engine: EngineFlags) -> int:
    from saccade.cli.inputs import open_run_for_task
    from saccade.data.read import parse_columns
    from saccade.progress import ProgressBar
    from saccade.tasks.runs.run import Run
    from saccade.training.evaluate import evaluate_run

    runs = [open_run_for_task(path) for path in (request.run, request.other) if path]
    _check_mistakes_file(request.mistakes, runs[0])
    for opened in runs:
        if request.overrides:
            opened.change_settings(parse_overrides(opened.task.config, request.overrides))

    def prepare(opened: Run) -> "Model":
        opened.model = engine.prepare(opened.model)
        return opened.model

    other, columns = runs[1] if len(runs) > 1 else None, parse_columns(request.columns)
    log = lambda line: print(line, file=sys.stderr)
    with ProgressBar() as bar:
        result = evaluate_run(
            runs[0], request.data, columns, other=other, prepare=prepare, log=log, on_progress=bar.update
        )
    if request.mistakes:
        result.mistakes.save(request.mistakes)
        log(f"saccade evaluate: wrote {len(result.mistakes):,} mistakes to {request.mistakes}")
    print(json_text.dumps(result.as_dict(), ensure_ascii=False) if as_json else result.report())
    return 0


def _check_mistakes_file(path: str, opened: "Run") -> None:
    """Raise an error if the mistakes could not be written, before the evaluation."""
    if not path:
        return
    from saccade.data.table_writer import check_table_path
    from saccade.errors import UsageError

    check_table_path(path)
    if not opened.task.has_mistakes:
        raise UsageError(
            f"--mistakes: an answer of {opened.task.name} is not right or wrong; saccade predict {opened.path} --data FILE "
            f"--out {path} writes the predictions beside the data."
        )


def parse_overrides(config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """Parse the NAME=VALUE settings of --set by the types of the task's config.

    >>> from saccade.tasks.language import Config
    >>> parse_overrides(Config(), ["neural_cache=4000"])
    {'neural_cache': 4000}
    >>> parse_overrides(Config(), ["augment=counterfactual"])
    {'augment': 'counterfactual'}
    """
    from saccade.suggest import suggest
    from saccade.training.events import RunRefused

    types, settings = get_type_hints(type(config)), {}
    for override in overrides:
        name, _, value = override.partition("=")
        if name not in types:
            raise RunRefused(f"--set {override}: the task has no setting {name!r}; {suggest(name, list(types))}")
        if get_origin(types[name]) is Literal:
            if value not in get_args(types[name]):
                raise RunRefused(f"--set {override}: {suggest(value, list(get_args(types[name])))}")
            settings[name] = value
            continue
        kind = next(item for item in get_args(types[name]) or (types[name],) if item is not type(None))
        try:
            settings[name] = BOOLEAN_WORDS[value.lower()] if kind is bool else kind(value)
            if kind is float and not isfinite(settings[name]):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            current = getattr(config, name)
            example = "" if current is None else f", such as {current!r}"
            raise RunRefused(f"--set {override}: {name} must be of type {kind.__name__}{example}.") from None
    return settings

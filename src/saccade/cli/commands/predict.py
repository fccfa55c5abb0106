"""`saccade predict RUN`, and the same call named as a person says it: label, tag, translate, summarize."""

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, TextArguments, optional_argument
from saccade.cli.engine_flags import EngineFlags
from saccade.cli.generate_texts import Inputs, print_generated_texts
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.models.model import Model
    from saccade.tasks.base import Task

ALIGN_HELP = "Word alignment: after each translation a tab and the aligned words, source-target: 0-0 1-2."
GOLD_ALIGNMENTS_HELP = (
    "Gold alignments for --align: a file (source, target, alignment); the head with the lowest error on it aligns."
)


@dataclass(frozen=True)
class FewShotFlags:
    """Few-shot prompting of a language model that was not trained for the task; no weights change."""

    few_shot: Annotated[str, optional_argument("FILE")] = ""
    """Few-shot examples: a file of labeled examples that is put before each text."""
    labels: Annotated[str, optional_argument("LABEL,...")] = ""
    """Labels to choose from, with or without examples: good,bad."""
    template: Annotated[str, optional_argument("TEMPLATE")] = ""
    """Prompt template of an example: "{text} is {label}.\\n"."""
    length_normalize: tyro.conf.FlagCreatePairsOff[bool] = False
    """Length normalization: compare labels by the mean log-probability of their tokens, not the sum."""
    calibrate: tyro.conf.FlagCreatePairsOff[bool] = False
    """Contextual calibration: subtract the score of each label after a content-free text."""


def main(
    run: RunArgument,
    text: TextArguments = (),
    *,
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    few_shot_flags: Annotated[FewShotFlags, tyro.conf.arg(name="")] = FewShotFlags(),
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
) -> int:
    """Predictions of a trained model, one line per text.

    saccade predict runs/reviews "What a lovely film." "Two hours of my life."

    saccade predict runs/reviews --data new.tsv --json > answers.jsonl

    echo "3 mai 2019" | saccade translate runs/dates

    Args:
        run: A run, or a model directory.
        text: Input texts. Default: one per line from standard input, or those of --data.
        data: Data files with texts, in any format that training reads.
        columns: Columns of the data by role: text=review. Default: the columns that training used.
        json: Print one JSON object per line.
        few_shot_flags: Few-shot prompting of a language model that was not trained for the task.
        engine: Engine and device of inference.
    """
    return print_predictions("predict", few_shot_flags, run, Inputs(text, data, columns), as_json=json, engine=engine)


def call(verb: str, argv: Sequence[str]) -> int:
    """The verb of a task: the same, for a run of that task only; those that write also take how to."""

    def named(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        return print_predictions(verb, verb, run, Inputs(text, data, columns), as_json=json, engine=engine)

    def writing(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        decoding: tyro.conf.OmitArgPrefixes[GenerationConfig] = GenerationConfig(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        return print_generated_texts(
            verb, run, Inputs(text, data, columns), as_json=json, decoding=decoding, engine=engine
        )

    def translating(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        align: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=ALIGN_HELP)] = False,
        gold_alignments: Annotated[str, optional_argument("FILE", help=GOLD_ALIGNMENTS_HELP)] = "",
        decoding: tyro.conf.OmitArgPrefixes[GenerationConfig] = GenerationConfig(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        asked = Inputs(text, data, columns)
        if align or gold_alignments:
            from saccade.cli.alignments import print_translations_with_alignments

            return print_translations_with_alignments(
                run, asked, as_json=json, decoding=decoding, engine=engine, gold_alignments=gold_alignments
            )
        return print_generated_texts(verb, run, asked, as_json=json, decoding=decoding, engine=engine)

    does = translating if verb == "translate" else writing if _generates_text(verb) else named
    does.__doc__ = (main.__doc__ or "").replace("saccade predict runs/reviews", f"saccade {verb} RUN")
    return tyro.cli(does, prog=f"saccade {verb}", args=list(argv))


def _generates_text(verb: str) -> bool:
    """Whether the task of a verb writes a text, so that there are ways to write; of those in the help it is known at once."""
    from saccade.cli import COMMANDS

    if verb in COMMANDS:
        return verb in ("translate", "summarize", "caption")
    from saccade.models.capabilities import Generates
    from saccade.tasks.registry import TASKS

    return any(kind.verb == verb and kind().needs.generates is Generates.TARGET for kind in TASKS)


def _open_model(
    run: str, task_or_few_shot: str | FewShotFlags, columns: str, engine: EngineFlags
) -> "tuple[Task, Model]":
    """The model in the form that is asked for, and its task: the one that the verb names, or what it is shown."""
    from saccade.cli.inputs import open_run_for_task

    found = open_run_for_task(run, task_or_few_shot if isinstance(task_or_few_shot, str) else None)
    task, found.model = found.task, engine.prepare(found.model)  # a plain model does not stay beside its fast form
    model = found.model
    if isinstance(task_or_few_shot, str) or task_or_few_shot == FewShotFlags():
        return task, model
    if any(role.kind == "image" for role in task.roles(())):
        raise UsageError(f"{run} was made to {task.name}; examples are shown to a model that reads and writes text.")
    from saccade.data.read import parse_columns
    from saccade.tasks.prompting.few_shot import Config, make_few_shot_task

    config = Config(task_or_few_shot.template, task_or_few_shot.length_normalize, task_or_few_shot.calibrate)
    labels = [label.strip() for label in task_or_few_shot.labels.split(",") if label.strip()]
    files = [task_or_few_shot.few_shot] if task_or_few_shot.few_shot else []
    return make_few_shot_task(model, files, labels=labels, columns=parse_columns(columns), config=config), model


def print_predictions(
    name: str, task_or_few_shot: str | FewShotFlags, run: str, inputs: Inputs, *, as_json: bool, engine: EngineFlags
) -> int:
    """Read, ask, print; `how` is the task that the run must be of, or what a writer is shown."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import read_examples
        from saccade.tasks.predict import check_answers, predict

        task, model = _open_model(run, task_or_few_shot, inputs.columns, engine)
        examples = read_examples(task, inputs.texts, inputs.data, inputs.columns)
        found, answered = predict(task, model, examples)
        check_answers(found)
        for line in task.notes:
            print(f"saccade {name}: {line}", file=sys.stderr)
        for given, example in zip(found, answered, strict=True):
            prediction = task.to_prediction(given, example)
            print(json_text.dumps(prediction.as_dict(), ensure_ascii=False) if as_json else prediction, flush=True)
        if not examples:
            print(f"saccade {name}: there was nothing to answer.", file=sys.stderr)
        return 0

    return run_command(name, work)

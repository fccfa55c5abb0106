"""`saccade predict RUN`, and the same command by the name of a task: label, tag, translate, summarize, caption."""

import json as json_text
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, TextArguments, optional_argument
from saccade.cli.engine_flags import EngineFlags
from saccade.cli.generate_texts import print_generated_texts, print_notes, write_prediction_file
from saccade.cli.prediction_flags import Inputs, PredictionFileFlags, PredictionFlags
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.models.model import Model
    from saccade.tasks.base import Task

ALIGN_HELP = "Word alignment: print a tab and source-target pairs (0-0 1-2) after each translation."
GOLD_ALIGNMENTS_HELP = "Gold alignments (source, target, alignment), to choose the head that aligns for --align."
SAMPLE_INPUTS = {  # command -> the input of the example in its help
    "label": '"What a lovely film."',
    "grade": '"What a lovely film."',
    "tag": '"Ada Lovelace lived in London."',
    "translate": '"3 mai 2019"',
    "summarize": "< reports.txt",
    "caption": "photo.jpg",
}


@dataclass(frozen=True)
class FewShotFlags:
    """Few-shot prompting of a language model that was not trained for the task; no weights change."""

    few_shot: Annotated[str, optional_argument("FILE")] = ""
    """Few-shot examples: a file of labeled examples to put before each text in the prompt."""
    labels: Annotated[str, optional_argument("LABEL,...")] = ""
    """Labels to choose from, such as good,bad, with or without few-shot examples."""
    template: Annotated[str, optional_argument("TEMPLATE")] = ""
    """Prompt template of an example, such as "{text} is {label}.\\n"; default: that of the task."""
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
    files: PredictionFileFlags = PredictionFlags(),  # noqa: B008 - frozen
    few_shot_flags: Annotated[FewShotFlags, tyro.conf.arg(name="")] = FewShotFlags(),
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
) -> int:
    """Predictions of a trained model, one line per text.

    saccade predict runs/reviews "What a lovely film." "Two hours of my life."

    saccade predict runs/reviews --data new.csv --out predictions.csv

    saccade predict runs/reviews --data new.tsv --json > predictions.jsonl

    echo "A dull plot." | saccade predict runs/reviews

    Args:
        run: A run, or a model directory.
        text: Input texts, or files with images or recordings. Default: one per line from standard input, or those of --data.
        data: Data files with inputs, in any format that training reads.
        columns: Columns of the data by role: text=review. Default: the columns that training used.
        json: Print one JSON object per line, with the id and the line of a record of --data.
        files: Output file, batch size, and handling of bad records.
        few_shot_flags: Few-shot prompting of a language model that was not trained for the task.
        engine: Engine and device of inference.
    """
    return print_predictions(
        "predict", few_shot_flags, run, Inputs(text, data, columns, files), as_json=json, engine=engine
    )


def call(verb: str, argv: Sequence[str]) -> int:
    """The command of a task: predict for runs of that task only; tasks that generate text have decoding flags, too."""

    def predict_task(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        files: PredictionFileFlags = PredictionFlags(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        return print_predictions(verb, verb, run, Inputs(text, data, columns, files), as_json=json, engine=engine)

    def generate_texts(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        files: PredictionFileFlags = PredictionFlags(),  # noqa: B008 - frozen
        decoding: tyro.conf.OmitArgPrefixes[GenerationConfig] = GenerationConfig(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        return print_generated_texts(
            verb, run, Inputs(text, data, columns, files), as_json=json, decoding=decoding, engine=engine
        )

    def translate(
        run: RunArgument,
        text: TextArguments = (),
        *,
        data: FileFlag = (),
        columns: ColumnsFlag = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        files: PredictionFileFlags = PredictionFlags(),  # noqa: B008 - frozen
        align: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=ALIGN_HELP)] = False,
        gold_alignments: Annotated[str, optional_argument("FILE", help=GOLD_ALIGNMENTS_HELP)] = "",
        decoding: tyro.conf.OmitArgPrefixes[GenerationConfig] = GenerationConfig(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
    ) -> int:
        inputs = Inputs(text, data, columns, files)
        if align or gold_alignments:
            from saccade.cli.alignments import print_translations_with_alignments

            return print_translations_with_alignments(
                run, inputs, as_json=json, decoding=decoding, engine=engine, gold_alignments=gold_alignments
            )
        return print_generated_texts(verb, run, inputs, as_json=json, decoding=decoding, engine=engine)

    command = translate if verb == "translate" else generate_texts if _generates_text(verb) else predict_task
    command.__doc__ = _make_docstring(verb)
    return tyro.cli(command, prog=f"saccade {verb}", args=list(argv))


def _make_docstring(verb: str) -> str:
    """The docstring of a command, from which tyro prints its help: description, examples, and the arguments of `main`."""
    from saccade.cli import COMMANDS

    description = COMMANDS.get(verb, "predictions of a trained model, one line per input")
    return f"""{description[0].upper()}{description[1:]}.

    saccade {verb} RUN {SAMPLE_INPUTS.get(verb, "TEXT")}

    saccade {verb} RUN --data new.csv --out predictions.csv

    saccade {verb} RUN --data new.tsv --json > predictions.jsonl

    Args:{(main.__doc__ or "").partition("Args:")[2]}"""


def _generates_text(verb: str) -> bool:
    """Whether the task of a command generates text; known for the commands of the help without importing the tasks."""
    from saccade.cli import COMMANDS

    if verb in COMMANDS:
        return verb in ("translate", "summarize", "caption")
    from saccade.models.capabilities import Generates
    from saccade.tasks.registry import TASKS

    return any(kind.verb == verb and kind().needs.generates is Generates.TARGET for kind in TASKS)


def _open_model(
    run: str, task_or_few_shot: str | FewShotFlags, columns: str, engine: EngineFlags
) -> "tuple[Task, Model]":
    """Open a run on the chosen engine, and return its task or a few-shot task, and its model."""
    from saccade.cli.inputs import open_run_for_task

    opened = open_run_for_task(run, task_or_few_shot if isinstance(task_or_few_shot, str) else None)
    task, opened.model = opened.task, engine.prepare(opened.model)  # replaces the plain model, to free its memory
    model = opened.model
    if isinstance(task_or_few_shot, str) or task_or_few_shot == FewShotFlags():
        return task, model
    from saccade.data.read import parse_columns
    from saccade.data.read.media_files import MEDIA
    from saccade.tasks.prompting.few_shot import Config, make_few_shot_task

    if any(role.kind in MEDIA for role in task.roles(())):
        raise UsageError(f"{run} is a model for {task.name}; few-shot prompting needs a language model.")
    config = Config(task_or_few_shot.template, task_or_few_shot.length_normalize, task_or_few_shot.calibrate)
    labels = [label.strip() for label in task_or_few_shot.labels.split(",") if label.strip()]
    files = [task_or_few_shot.few_shot] if task_or_few_shot.few_shot else []
    return make_few_shot_task(model, files, labels=labels, columns=parse_columns(columns), config=config), model


def print_predictions(
    name: str, task_or_few_shot: str | FewShotFlags, run: str, inputs: Inputs, *, as_json: bool, engine: EngineFlags
) -> int:
    """Print the predictions for the inputs; `task_or_few_shot` is the required task of the run, or the few-shot flags."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import iter_examples
        from saccade.tasks.runs.stream_predictor import StreamPredictor

        inputs.check_output(as_json=as_json)
        task, model = _open_model(run, task_or_few_shot, inputs.columns, engine)
        examples = iter_examples(task, inputs)
        if inputs.flags.out:
            return write_prediction_file(name, task, model, examples, inputs)
        count = 0
        for prediction in StreamPredictor(task, model, batch_size=inputs.flags.batch_size).iterate(examples):
            line = json_text.dumps(prediction.as_dict(), ensure_ascii=False) if as_json else prediction
            print(line, flush=True)
            count += 1
        print_notes(name, task, inputs, count)
        return 0

    return run_command(name, work)

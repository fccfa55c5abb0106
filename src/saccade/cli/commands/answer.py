"""`saccade answer RUN --context FILE|TEXT QUESTION...`: extractive question answering, a span of a text or no answer."""

import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, optional_argument
from saccade.cli.engine_flags import EngineFlags
from saccade.cli.prediction_flags import Inputs, PredictionFileFlags, PredictionFlags


def main(
    run: RunArgument,
    question: Annotated[tuple[str, ...], tyro.conf.Positional, optional_argument("[QUESTION ...]")] = (),
    *,
    context: Annotated[str, optional_argument("FILE|TEXT")] = "",
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    files: PredictionFileFlags = PredictionFlags(),  # noqa: B008 - frozen
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
) -> int:
    """Extractive question answering: print, for each question, a span of the text or no answer, and its probability.

    saccade answer runs/questions --context report.txt "Who wrote it?" "When?"

    saccade answer runs/questions --context "Ann has two boats." < questions.txt

    saccade answer runs/questions --data dev-v2.0.json --json > predictions.jsonl

    Args:
        run: A run of the task span, or a model directory with a span head.
        question: Questions about the text. Default: one per line from standard input, or those of --data.
        context: Text that the questions are about: a file, or the text itself.
        data: Data files with texts and questions, in any format that training reads.
        columns: Columns of the data by role: context=passage,question=query.
        json: Print one JSON object per line, with the character offsets of the answer and the next best answers.
        files: Output file, batch size, and handling of bad records.
        engine: Engine and device of inference.
    """
    from saccade.cli.commands.predict import print_predictions
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.errors import UsageError

        if bool(context) == bool(data) or (data and question):
            raise UsageError(
                "Give the text with --context FILE|TEXT and questions, or texts with their questions with --data FILE."
            )
        questions = question or tuple([line.strip() for line in sys.stdin if line.strip()] if context else [])
        text = _read_context(context) if context else ""
        if context and not questions:
            raise UsageError("There is no question; give it after the run, or one per line on standard input.")
        texts = [part for item in questions for part in (text, item)]
        return print_predictions(
            "answer", "span", run, Inputs(texts, data, columns, files), as_json=json, engine=engine
        )

    return run_command("answer", work)


def _read_context(context: str) -> str:
    """The text of the file of that name, or the argument itself."""
    from saccade.data.read.open_text import open_source, read_whole_text

    return read_whole_text(open_source(Path(context))) if os.path.isfile(context) else context

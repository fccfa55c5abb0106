"""`saccade answer RUN --context FILE|TEXT QUESTION...`: the words of a text that answer each question, or that there are none."""

import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from saccade.cli.engine import Engine


def main(
    run: tyro.conf.Positional[str],
    question: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    context: Annotated[str, tyro.conf.arg(metavar="FILE|TEXT")] = "",
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
) -> int:
    """Answers to questions about a text, one line for each: a piece of the text, or no answer, and how likely it is.

    saccade answer runs/questions --context report.txt "Who wrote it?" "When?"

    saccade answer runs/questions --context "Ann has two boats." < questions.txt

    saccade answer runs/questions --data dev-v2.0.json --json > answers.jsonl

    Args:
        run: A run of the task span, or any directory with a model that has its head.
        question: Questions; none, and no --data: one question a line from standard input.
        context: The text that is asked about: a file, or the text itself.
        data: Files with texts and questions, in any format that training reads.
        columns: Which column is what: context=passage,question=query.
        json: One JSON object a line, with the characters of the answer and the next best ones.
        engine: How the model computes.
    """
    from saccade.cli.predict import answer
    from saccade.cli.running import guarded
    from saccade.cli.writing import Asked

    def work() -> int:
        from saccade.cli.settings import Wrong

        if bool(context) == bool(data) or (data and question):
            raise Wrong("Say what is asked about: --context FILE|TEXT with questions, or --data FILE, which has both.")
        asked = question or tuple([line.strip() for line in sys.stdin if line.strip()] if context else [])
        text = _text(context) if context else ""
        if context and not asked:
            raise Wrong("There is no question; write it behind the run, or one a line on standard input.")
        texts = [part for one in asked for part in (text, one)]
        return answer("answer", "span", run, Asked(texts, data, columns), as_json=json, engine=engine)

    return guarded("answer", work)


def _text(context: str) -> str:
    """What stands in the file of that name, or the words themselves."""
    from saccade.data.read.source import open_source, whole_text

    return whole_text(open_source(Path(context))) if os.path.isfile(context) else context

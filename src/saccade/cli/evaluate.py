"""`saccade evaluate RUN --data FILE`: how good a model is on data with answers, with intervals."""

import json as json_text
import sys
from typing import Annotated

import tyro


def main(
    run: tyro.conf.Positional[str],
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Scores of a trained model on examples whose answers are known, with 95 % intervals.

    saccade evaluate runs/reviews --data test.tsv

    Args:
        run: A run, or any directory with a model.
        data: Files with questions and answers; none: the held-out part of what the run was trained on.
        columns: Which column is what: text=review,label=stars.
        json: Print JSON.
    """
    from saccade.cli.running import guarded

    return guarded("evaluate", lambda: _evaluate(run, data, columns, json))


def _evaluate(run: str, data: tuple[str, ...], columns: str, as_json: bool) -> int:
    from saccade.data.read import parse_columns, read
    from saccade.tasks.answering import evaluate
    from saccade.tasks.hidden import forgiving, left_out, scored
    from saccade.tasks.opening import open_run

    task, model = open_run(run)
    if data:
        named = parse_columns(columns) if columns else None
        examples = read(data, forgiving(task.roles(data)), columns=named).examples
    else:
        from saccade.training.job import held_out

        examples = held_out(run)
    examples, hidden = scored(task, examples)
    if hidden:
        print(f"saccade evaluate: {left_out(hidden, hidden + len(examples))}", file=sys.stderr)
    scores = evaluate(task, model, examples)
    if as_json:
        found = {"examples": len(examples), "hidden": hidden, "scores": [vars(score) for score in scores]}
        print(json_text.dumps(found))
    else:
        for score in scores:
            print(score)
    return 0

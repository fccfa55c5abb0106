"""`saccade evaluate RUN --data FILE`: how good a model is on data with answers, with intervals."""

import json as json_text
import sys
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from saccade.cli.engine import Engine

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.tasks.task import Task

SHOWN = 8  # labels listed
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def main(
    run: tyro.conf.Positional[str],
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    scored: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = (),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
) -> int:
    """Scores of a trained model on examples whose answers are known, with 95 % intervals.

    saccade evaluate runs/reviews --data test.tsv

    A language model that sees at least 128 tokens before each, and looks back at 4,000:

    $ saccade evaluate runs/stories --data test.txt --scored context=128 recall=4000

    Args:
        run: A run, or any directory with a model.
        data: Files with questions and answers; none: the held-out part of what the run was trained on.
        columns: Which column is what: text=review,label=stars.
        scored: Settings of the task (saccade train TASK --help names them) that scoring shall have other than training had.
        json: Print JSON.
        engine: How the model computes.
    """
    from saccade.cli.running import guarded

    return guarded("evaluate", lambda: _evaluate(run, data, columns, scored, json, engine))


def _evaluate(
    run: str, data: tuple[str, ...], columns: str, changes: tuple[str, ...], as_json: bool, engine: Engine
) -> int:
    from saccade.cli.asking import opened, tell
    from saccade.data.read import parse_columns, read
    from saccade.tasks.answering import evaluate
    from saccade.tasks.hidden import forgiving, left_out, scored

    task, model = opened(run)
    if changes:
        task, model = opened(run, changes=changed(task.config, changes))
    model = engine.ready(model)
    if data:
        named = parse_columns(columns) if columns else None
        table = read(data, forgiving(task.roles(data)), columns=named)
        tell(table.said)
        examples = table.examples
    else:
        from saccade.training.job import held_out

        examples = held_out(run)
    examples, hidden = scored(task, examples)
    if hidden:
        print(f"saccade evaluate: {left_out(hidden, hidden + len(examples))}", file=sys.stderr)
    if strange := unlearnt(task, examples):
        print(f"saccade evaluate: {strange}", file=sys.stderr)
    scores = evaluate(task, model, examples)
    if as_json:
        found = {"examples": len(examples), "hidden": hidden, "scores": [vars(score) for score in scores]}
        print(json_text.dumps(found))
    else:
        for score in scores:
            print(score)
    return 0


def changed(config: Any, changes: Sequence[str]) -> dict[str, Any]:
    """Settings of a task that are said anew as NAME=VALUE, by the kinds that they have.

    >>> from saccade.tasks.language import Config
    >>> changed(Config(), ["recall=4000"])
    {'recall': 4000}
    >>> changed(Config(), ["augment=swap"])
    {'augment': 'swap'}
    """
    from saccade.attention.table import nearest
    from saccade.training.events import Refused

    kinds, found = get_type_hints(type(config)), {}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in kinds:
            raise Refused(f"--scored {change}: the task has no setting {name!r}; {nearest(name, list(kinds))}")
        if get_origin(kinds[name]) is Literal:
            if value not in get_args(kinds[name]):
                raise Refused(f"--scored {change}: {nearest(value, list(get_args(kinds[name])))}")
            found[name] = value
            continue
        kind = next(one for one in get_args(kinds[name]) or (kinds[name],) if one is not type(None))
        try:
            found[name] = TRUTH[value.lower()] if kind is bool else kind(value)
            if kind is float and not isfinite(found[name]):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            usual = getattr(config, name)
            such = "" if usual is None else f", such as {usual!r}"
            raise Refused(f"--scored {change}: {name} is of the kind {kind.__name__}{such}.") from None
    return found


def unlearnt(task: "Task", examples: "Sequence[Example]") -> str:
    """What is said of rows whose labels the model never learnt, which count as wrong; an error where all are of that kind."""
    from saccade.data.item import DataError, several

    names = [role.name for role in task.roles(()) if role.kind in ("label", "labels")]
    golds = [[label for name in names for label in several(example[name])] for example in examples]
    strange = [[label for label in gold if label not in task.labels] for gold in golds]
    rows = sum(map(bool, strange))
    if not rows or not task.labels:
        return ""
    found = Counter(label for gold in strange for label in gold)
    listed = _some([f"{label} ({count:,})" for label, count in found.most_common()])
    knows = f"it knows {_some(task.labels)}"
    if rows < len(examples) or strange != golds:
        return (
            f"{rows:,} of {len(examples):,} rows have labels that the model never learnt, and count as wrong: "
            f"{listed}; {knows}."
        )
    raise DataError(
        f"the model never learnt any of the labels of these {rows:,} rows: {listed}; {knows}",
        file=examples[0].file,
        line=examples[0].line,
        column=names[0],
        value=golds[0][0],
        cure=f"name the column that has its labels with --columns {names[0]}=COLUMN, or give data that have them; "
        f"saccade train {task.name} --data {examples[0].file or 'FILE'} makes a model of these",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")

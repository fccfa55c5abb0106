"""`saccade evaluate RUN --data FILE`: how good a model is on data with answers, with intervals."""

import json as json_text
import sys
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from saccade.cli.engine import Engine

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def main(
    run: tyro.conf.Positional[str],
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    scored: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = (),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine("plain"),  # noqa: B008 - frozen
) -> int:
    """Scores of a trained model on examples whose answers are known, with 95 % intervals.

    saccade evaluate runs/reviews --data test.tsv

    A language model that sees at least 128 tokens before each, and looks back at 4,000:

    $ saccade evaluate runs/stories --data test.txt --scored context=128 recall=4000

    The scores are those of the model as it was trained; --engine int8 gives those of its fast form. Every score ends with its
    signature, which names the engine and, for language models, the window and the context. The window is the one that a run was
    trained with, or, for any other model, the context that it can read, up to 2,048 tokens; --scored length=1024 sets another.

    Args:
        run: A run, or any directory with a model.
        data: Files with questions and answers; none: the held-out part of what the run was trained on.
        columns: Which column is what: text=review,label=stars. Columns that training named need not be named again.
        scored: Settings of the task (saccade train TASK --help names them) that scoring shall have other than training had.
        json: Print JSON.
        engine: How the model computes.
    """
    from saccade.cli.running import guarded

    return guarded("evaluate", lambda: _evaluate(run, data, columns, scored, json, engine))


def _evaluate(
    run: str, data: tuple[str, ...], columns: str, changes: tuple[str, ...], as_json: bool, engine: Engine
) -> int:
    from saccade.cli.asking import opened
    from saccade.data.read import parse_columns
    from saccade.training.evaluate import evaluate_model

    task, model = opened(run)
    if changes:
        task, model = opened(run, changes=changed(task.config, changes))
    model = engine.ready(model)
    log = lambda line: print(line, file=sys.stderr)
    result = evaluate_model(task, model, data, parse_columns(columns), run=run, log=log)
    print(json_text.dumps(result.as_dict()) if as_json else result)
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

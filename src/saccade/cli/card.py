"""`saccade card RUN`: the model card, made of what the run and its people have written down."""

import json as json_text
from pathlib import Path

import tyro

from saccade.errors import UsageError


def main(
    run: tyro.conf.Positional[str],
    *,
    init: tyro.conf.FlagCreatePairsOff[bool] = False,
    check: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Write the card of a model: README.md beside its weights, and card.html beside its report.

    saccade card runs/reviews --init

    saccade card runs/reviews

    saccade card exported --check

    Exit code 0: written, or all is there; 4: --check found something missing, which is listed.

    Args:
        run: A run, or a directory with a model.
        init: Write statements.toml, the questions that only you can answer, with examples.
        check: Write nothing; say what the card, the statements and the audits still lack.
        json: Print JSON.
    """
    from saccade.cli.running import guarded

    return guarded("card", lambda: _card(run, init, check, json))


def _card(run: str, init: bool, check: bool, as_json: bool) -> int:
    from saccade.audit.card import carried, write_card
    from saccade.audit.records import model_of, open_records, task_of
    from saccade.audit.statements import write_template
    from saccade.cli.drawing import saying_missing_fonts
    from saccade.cli.settings import Wrong

    if init and check:
        raise Wrong("--init writes and --check does not; use one of them.")
    home, model = model_of(run)
    if init:
        return _written([write_template(home)], as_json)
    if check:
        return _check(run, as_json)
    if carried(model) is not None:
        raise UsageError(f"{run} was exported with its card; write a new one in the run that it came from.")
    with saying_missing_fonts("card"):
        written = write_card(open_records(run), task_of(run))
    return _written(written, as_json)


def _written(paths: list[Path], as_json: bool) -> int:
    if as_json:
        print(json_text.dumps({"written": [str(path) for path in paths]}))
        return 0
    for path in paths:
        print(f"written    {path}")
    return 0


def _check(run: str, as_json: bool) -> int:
    from saccade.audit.card import behind, carried, unlike
    from saccade.audit.records import model_of, open_records, task_of

    _, model = model_of(run)
    mark = carried(model)
    lines = behind(open_records(run), task_of(run)) if mark is None else unlike(model, mark)
    if as_json:
        print(json_text.dumps({"complete": not lines, "missing": lines}))
    elif lines:
        print("\n".join([f"The card of {run} is not complete:", *(f"  - {line}" for line in lines)]))
    else:
        print(f"{run}: audited, described, and its card says so.")
    return 4 if lines else 0

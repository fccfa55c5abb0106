"""`saccade card RUN`: the model card, from the records of the run, its statements and its audits."""

import json as json_text
from pathlib import Path

import tyro

from saccade.cli.argument_types import RunArgument
from saccade.errors import UsageError


def main(
    run: RunArgument,
    *,
    init: tyro.conf.FlagCreatePairsOff[bool] = False,
    check: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Write or check the model card: README.md next to the weights, and card.html next to the report.

    saccade card runs/reviews --init

    saccade card runs/reviews

    saccade card exported --check

    Exit code: 0 the card is written, or complete (--check); 4 --check found something missing.

    Args:
        run: A run, or a model directory.
        init: Write statements.toml: questions about the model that only you can answer, with examples.
        check: List what the card, the statements and the audits still lack; write nothing.
        json: Print the result as JSON.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("card", lambda: _write_or_check_card(run, init, check, json))


def _write_or_check_card(run: str, init: bool, check: bool, as_json: bool) -> int:
    from saccade.audit.card import read_card_digest, write_card
    from saccade.audit.run_records import find_model_directory, find_task, open_records
    from saccade.audit.statements import write_template
    from saccade.cli.font_warnings import report_missing_fonts

    if init and check:
        raise UsageError("--init writes statements.toml, and --check writes nothing; use one of them.")
    run_directory, model = find_model_directory(run)
    if init:
        return _print_paths([write_template(run_directory)], as_json)
    if check:
        return _check_card(run, as_json)
    if read_card_digest(model) is not None:
        raise UsageError(f"{run} was exported with its model card; write a new card in the original run.")
    with report_missing_fonts("card"):
        written = write_card(open_records(run), find_task(run))
    return _print_paths(written, as_json)


def _print_paths(paths: list[Path], as_json: bool) -> int:
    if as_json:
        print(json_text.dumps({"files": [str(path) for path in paths]}))
        return 0
    for path in paths:
        print(f"written    {path}")
    return 0


def _check_card(run: str, as_json: bool) -> int:
    from saccade.audit.card import card_mismatch, missing_for_release, read_card_digest
    from saccade.audit.run_records import find_model_directory, find_task, open_records

    _, model = find_model_directory(run)
    digest = read_card_digest(model)
    missing = missing_for_release(open_records(run), find_task(run)) if digest is None else card_mismatch(model, digest)
    if as_json:
        print(json_text.dumps({"complete": not missing, "missing": missing}))
    elif missing:
        print("\n".join([f"The model card of {run} is not complete:", *(f"  - {line}" for line in missing)]))
    else:
        print(f"The model card of {run} is complete: audits and statements are current.")
    return 4 if missing else 0

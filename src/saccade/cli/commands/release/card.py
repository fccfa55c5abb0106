"""`saccade card RUN`: the model card, from the records of the run, its statements and its audits."""

import json as json_text

import tyro

from saccade.cli.argument_types import RunArgument


def main(
    run: RunArgument,
    *,
    init: tyro.conf.FlagCreatePairsOff[bool] = False,
    check: tyro.conf.FlagCreatePairsOff[bool] = False,
    force: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Write or check the model card: README.md next to the weights, and card.html next to the report.

    saccade card runs/reviews --init

    saccade card runs/reviews

    saccade card exported --check

    The card reports what the run has recorded: task, data, sizes, scores with intervals, baseline, settings, time, hardware and
    audits. With --init, the questions that only a person can answer are written to statements.toml.

    Exit code: 0 if the card is written or, with --check, complete; 4 if --check finds something missing.

    Args:
        run: A run, or a model directory.
        init: Write the card, and statements.toml with questions to answer by hand.
        check: List what is still missing in the card, the statements and the audits; write nothing.
        force: Overwrite a card that was edited by hand; with --init, also edited statements.
        json: Print the result as JSON.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("card", lambda: _write_or_check_card(run, init, check, force, json))


def _write_or_check_card(run: str, init: bool, check: bool, force: bool, as_json: bool) -> int:
    from saccade.audit.card import make_card
    from saccade.cli.font_warnings import report_missing_fonts

    with report_missing_fonts("card"):
        card = make_card(run, init=init, check=check, force=force)
    if as_json:
        files = [str(path) for path in card.paths]
        print(json_text.dumps({"complete": not card.missing, "missing": card.missing} if check else {"files": files}))
    elif check and card.missing:
        print("\n".join([f"The model card of {run} is not complete:", *(f"  - {line}" for line in card.missing)]))
    elif check:
        print(f"The model card of {run} is complete: audits and statements are current.")
    else:
        for path in card.paths:
            print(f"written    {path}")
        if card.missing:
            print(f"missing    {len(card.missing)} points for an export; saccade card {run} --check lists them")
    return 4 if check and card.missing else 0

"""`saccade audit RUN`: bias and fairness audits of a model and its data, with confidence intervals and limitations."""

import json as json_text
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, optional_argument


@dataclass(frozen=True)
class AuditFlags:
    """Data of the audit, bad words, and the audit to compare with."""

    data: FileFlag = ()
    """Your own labeled data; default: the data of the run."""
    columns: ColumnsFlag = ""
    """Columns of the data by role: text=review,label=stars. Default: the columns that training used."""
    group_by: Annotated[str, optional_argument("COLUMN")] = ""
    """Disaggregated evaluation: also report scores for each value of this column of the data."""
    test_sentences: FileFlag = ()
    """Your own test sentences, in the format of the suite, such as CrowS-Pairs or StereoSet."""
    bad_words: Annotated[str, optional_argument("FILE")] = ""
    """Bad words that are never generated, in suites of generated text: a file with one word or phrase per line."""
    regard_classifier: Annotated[str, optional_argument("RUN")] = ""
    """Regard classifier: a run of saccade train label (negative, neutral, positive); default: the built-in one."""
    compare_to: Annotated[str, optional_argument("RUN|FILE")] = ""
    """Earlier audit to compare with: an audited run or its audit.json. Both results are shown in one table."""


def main(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|TASK")],
    *,
    suite: Annotated[tuple[str, ...], optional_argument("SUITE")] = (),
    inputs: Annotated[tyro.conf.OmitArgPrefixes[AuditFlags], tyro.conf.arg(name="input")] = AuditFlags(),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Bias and fairness audits: run the suites for the task of a model, and write the results to audit.json in its run.

    saccade audit runs/reviews

    saccade audit runs/reviews --suite counterfactual --data test.tsv --group-by country

    saccade audit label --data reviews.tsv

    saccade audit runs/after --compare-to runs/reviews

    Args:
        run: A run, a model directory, or the name of a task, to audit its data before training.
        suite: Suites to run, such as data, counterfactual or stereotypes; default: all that apply. `--suite list` lists them.
        inputs: Data of the audit, bad words, and the audit to compare with.
        json: Print the results as JSON.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("audit", lambda: _audit_run(run, suite, inputs, json))


def _audit_run(run: str, suite_names: tuple[str, ...], flags: AuditFlags, as_json: bool) -> int:
    from saccade.audit.audit_data import AuditInputs
    from saccade.audit.audit_report import format_comparison, format_suite_result
    from saccade.audit.run_audit import run_audit
    from saccade.cli.inputs import suggest_near_runs
    from saccade.data import parse_columns

    if suite_names == ("list",):
        return _list_suites(as_json)
    values: dict[str, Any] = asdict(flags) | {"columns": parse_columns(flags.columns)}
    print_result = lambda result: None if as_json else print(format_suite_result(result), flush=True)
    with suggest_near_runs(run):
        report = run_audit(run, suite_names, AuditInputs(**values), on_result=print_result)
    if as_json:
        print(json_text.dumps(report.as_dict(), ensure_ascii=False))
        return 0
    if report.comparison is not None:
        print(format_comparison(report.comparison))
    for line in report.format_missing()[: len(report.missing) if suite_names else None]:
        print(line)
    if report.path is not None:
        print(f"written    {report.path}")
    return 0


def _list_suites(as_json: bool) -> int:
    from saccade.audit.registry import SUITES

    if as_json:
        print(json_text.dumps({suite.name: suite.description for suite in SUITES}))
        return 0
    for suite in SUITES:
        print(f"{suite.name:<15} {suite.description}")
    return 0

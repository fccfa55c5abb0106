"""`saccade audit RUN`: what a model does to whom, measured, with intervals and with what the figures do not show."""

import json as json_text
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, optional_argument
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.audit.compare import AuditComparison
    from saccade.audit.fingerprints import Fingerprint
    from saccade.audit.suite import AuditSubject, AuditTable, Suite, SuiteResult
    from saccade.tasks.base import Task


@dataclass(frozen=True)
class AuditInputs:
    """Data of the audit, rules, and the audit to compare with."""

    data: FileFlag = ()
    """Your own labeled data; default: the data of the run."""
    columns: ColumnsFlag = ""
    """Columns of the data by role: text=review,label=stars. Default: the columns that training used."""
    group_by: Annotated[str, optional_argument("COLUMN")] = ""
    """Disaggregated evaluation: also report scores for each value of this column of the data."""
    test_sentences: FileFlag = ()
    """Your own test sentences, in the format of the suite, such as CrowS-Pairs or StereoSet."""
    bad_words: Annotated[str, optional_argument("FILE")] = ""
    """File of bad words, one word or phrase per line, that are never generated in suites of generated text."""
    regard_classifier: Annotated[str, optional_argument("RUN")] = ""
    """Regard classifier: a run of saccade train label (negative, neutral, positive); default: the built-in one."""
    compare_to: Annotated[str, optional_argument("RUN|FILE")] = ""
    """Earlier audit to compare with: an audited run or its audit.json. Both results are shown in one table."""


def main(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|TASK")],
    *,
    suite: Annotated[tuple[str, ...], optional_argument("SUITE")] = (),
    inputs: tyro.conf.OmitArgPrefixes[AuditInputs] = AuditInputs(),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Bias and fairness audits: run the suites that apply to the task of a model, and write the results to audit.json in its run.

    saccade audit runs/reviews

    saccade audit runs/reviews --suite counterfactual --data test.tsv --group-by country

    saccade audit label --data reviews.tsv

    saccade audit runs/after --compare-to runs/reviews

    Args:
        run: A run, a model directory, or the name of a task, whose data are audited before there is a model.
        suite: Suites to run, such as data, counterfactual or stereotypes; default: all that apply. `--suite list` lists them.
        inputs: Data of the audit, rules, and the audit to compare with.
        json: Print the results as JSON.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("audit", lambda: _audit_run(run, suite, inputs, json))


def _audit_run(run: str, suite_names: tuple[str, ...], inputs: AuditInputs, as_json: bool) -> int:
    from saccade.audit.fingerprints import AuditRecord
    from saccade.audit.registry import inapplicable_suites
    from saccade.audit.run_records import AuditFile, write_audits
    from saccade.cli.audit_compare import compare_with_earlier_audit, open_earlier_audit, suite_key

    if suite_names == ("list",):
        return _list_suites(as_json)
    if inputs.test_sentences and len(suite_names) != 1:
        raise UsageError("--test-sentences are for one suite; name it with --suite, such as --suite stereotypes.")
    before = open_earlier_audit(inputs.compare_to) if inputs.compare_to else None
    task, subject, mark = _make_subject(run, inputs)
    if before is not None and subject.model is None:
        raise UsageError(f"--compare-to compares two models, and {run} is a task; name a run.")
    suites, missing = _select_suites(run, suite_names, task, subject)
    found: dict[str, AuditRecord] = {}
    for suite in suites:
        finding = _run_suite(suite, subject)
        found[suite_key(finding)] = AuditRecord(finding, _fingerprint_suite(mark, suite, subject))
        if not as_json:
            _print_suite_result(finding)
    change = None if before is None else compare_with_earlier_audit(before, found, run)
    written = None if subject.model is None else write_audits(Path(run), AuditFile(found, missing, change))
    others = inapplicable_suites(task)
    if as_json:
        told = {"suites": {name: one.result.as_dict() for name, one in found.items()}, "not_run": missing}
        told |= {} if change is None else {"comparison": change.as_dict()}
        print(json_text.dumps(told | {"not_applicable": others, "file": written and str(written)}, ensure_ascii=False))
        return 0
    if change is not None:
        _print_comparison(change)
    for name, why in {**missing, **({} if suite_names else others)}.items():
        print(f"{name}: not run, as {why}.")
    if written is not None:
        print(f"written    {written}")
    return 0


def _list_suites(as_json: bool) -> int:
    from saccade.audit.registry import SUITES

    if as_json:
        print(json_text.dumps({suite.name: suite.description for suite in SUITES}))
        return 0
    for suite in SUITES:
        print(f"{suite.name:<15} {suite.description}")
    return 0


def _make_subject(run: str, inputs: AuditInputs) -> "tuple[Task, AuditSubject, Fingerprint]":
    """The model with its task and data, and a mark of both."""
    from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, Fingerprint, hash_weights
    from saccade.audit.run_records import find_model_directory
    from saccade.audit.suite import AuditSubject
    from saccade.cli.audit_compare import read_bad_words
    from saccade.cli.audit_data import load_audit_data
    from saccade.tasks.registry import TASKS
    from saccade.tasks.runs.run import Run, open_run

    sentences = tuple(map(Path, inputs.test_sentences))
    kind = next((entry for entry in TASKS if entry.name == run), None)
    if kind is not None and not Path(run).exists():
        opened, task, model, weights = Run(run), kind(), None, ""
    else:
        opened, weights = open_run(run), hash_weights(find_model_directory(run)[1])
        task, model = opened.task, opened.model
    data = load_audit_data(opened, task, inputs)
    mark = Fingerprint("") if data is None else data.fingerprint
    subject = AuditSubject(
        task, model, group_by=inputs.group_by, test_sentences=sentences, bad_words=read_bad_words(inputs.bad_words)
    )
    if inputs.regard_classifier:
        judge, who = (
            open_run(inputs.regard_classifier, "label"),
            inputs.regard_classifier,
        )  # of a name on the hub there is nothing else to say
        if Path(who).is_dir():
            who = f"{Path(who).resolve().name}, whose weights are {hash_weights(find_model_directory(who)[1])[:MAX_DIGEST_CHARACTERS_SHOWN]}"
        subject = replace(subject, regard_classifier=(judge.task, judge.model), classifier_name=who)
    if data is not None:
        subject = replace(subject, held_out=data.held_out, splits=data.splits)
    return task, subject, replace(mark, weights_digest=weights)


def _select_suites(
    run: str, suite_names: tuple[str, ...], task: "Task", subject: "AuditSubject"
) -> "tuple[list[Suite], dict[str, str]]":
    """The suites to run, and those that would apply but lack what they read."""
    from saccade.audit.registry import find_suite, suites_for

    try:
        suites = [find_suite(name) for name in suite_names] or suites_for(task)
    except ValueError as error:
        raise UsageError(str(error)) from None
    for suite in suites:
        if why := suite.not_applicable(task):
            raise UsageError(f"the suite {suite.name} does not apply to {run}: {why}.")
    suites = _add_disaggregated_suite(suites, subject)
    if subject.regard_classifier is not None and not any(suite.name == "regard" for suite in suites):
        raise UsageError(
            "--regard-classifier is for the suite regard, which is not among those that are run; add --suite regard."
        )
    if subject.bad_words and not (suite_names and all(suite.generates_text for suite in suites)):
        raise UsageError("--bad-words is for suites that read what a model writes; name them, such as --suite regard.")
    if subject.model is None:
        return [suite for suite in suites if suite.name == "data"], {}
    missing = {}
    for suite in suites:
        if "held_out" in suite.requires and not subject.held_out:
            raise UsageError(f"{run}: is no run, so it has no held-out data for the suite {suite.name}; give --data.")
        if "splits" in suite.requires and subject.splits is None:
            missing[suite.name] = "its training data are not here (give them with --data)"
    return [suite for suite in suites if suite.name not in missing], missing


def _add_disaggregated_suite(suites: "list[Suite]", subject: "AuditSubject") -> "list[Suite]":
    """The suites and, where none of them tells a column that was asked for, the one that does."""
    from saccade.audit.disaggregate import DisaggregatedSuite

    told = not subject.group_by or subject.model is None or any(suite.name == "counterfactual" for suite in suites)
    return suites if told else [*suites, DisaggregatedSuite()]


def _run_suite(suite: "Suite", subject: "AuditSubject") -> "SuiteResult":
    from saccade.progress import ProgressBar

    with ProgressBar() as waiting:
        return suite.run(replace(subject, on_progress=waiting.update))


def _fingerprint_suite(fingerprint: "Fingerprint", suite: "Suite", subject: "AuditSubject") -> "Fingerprint":
    """What a finding was made of: data only where the suite reads them, test sentences where it brings or takes them."""
    from saccade.audit.fingerprints import Fingerprint, fingerprint_data

    if suite.requires:
        return fingerprint
    if subject.test_sentences:
        return replace(
            fingerprint_data([str(path) for path in subject.test_sentences], {}, ""),
            weights_digest=fingerprint.weights_digest,
        )
    return Fingerprint(fingerprint.weights_digest, builtin_data_digest=suite.builtin_data_digest())


def _print_suite_result(result: "SuiteResult") -> None:
    """A finding for a person."""
    print(f"\n{result.suite}")
    for figure in result.estimates:
        print(f"  {figure}")
    for note in result.notes:
        print(f"  {note}")
    for grid in (*result.tables, *([result.examples] if result.examples else [])):
        _print_table(grid, max_rows=12)
    print(f"\n  Read against: {result.interpretation}\n  Not shown: {result.limitations}", flush=True)
    sys.stdout.flush()


def _print_table(table: "AuditTable", *, max_rows: int) -> None:
    print(f"\n  {table.title}")
    for row in (table.columns, *table.rows[:max_rows]):
        print("    " + "  ".join(cell if len(cell) < 60 else cell[:57] + "..." for cell in row))
    if len(table.rows) > max_rows:
        print(f"    and {len(table.rows) - max_rows} more in audit.json")


def _print_comparison(comparison: "AuditComparison") -> None:
    """Both audits beside each other, and the warning that belongs to them."""
    from saccade.audit.compare import COMPARISON_WARNING

    _print_table(comparison.table, max_rows=len(comparison.rows))
    for line in (*comparison.notes, COMPARISON_WARNING):
        print(f"  {line}", flush=True)

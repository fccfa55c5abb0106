"""`saccade audit RUN`: bias and fairness audits of a model and its data, with confidence intervals and limitations."""

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
    inputs: Annotated[tyro.conf.OmitArgPrefixes[AuditInputs], tyro.conf.arg(name="input")] = AuditInputs(),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Bias and fairness audits: run the suites that apply to the task of a model, and write the results to audit.json in its run.

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


def _audit_run(run: str, suite_names: tuple[str, ...], inputs: AuditInputs, as_json: bool) -> int:
    from saccade.audit.fingerprints import AuditRecord
    from saccade.audit.registry import inapplicable_suites
    from saccade.audit.run_records import AuditFile, write_audits
    from saccade.cli.audit_compare import compare_with_earlier_audit, open_earlier_audit, suite_key

    if suite_names == ("list",):
        return _list_suites(as_json)
    if inputs.test_sentences and len(suite_names) != 1:
        raise UsageError("--test-sentences needs one suite; name it with --suite, such as --suite stereotypes.")
    earlier = open_earlier_audit(inputs.compare_to) if inputs.compare_to else None
    task, subject, fingerprint = _make_subject(run, inputs)
    if earlier is not None and subject.model is None:
        raise UsageError(f"--compare-to compares two models, but {run} is a task; name a run.")
    suites, missing = _select_suites(run, suite_names, task, subject)
    records: dict[str, AuditRecord] = {}
    for suite in suites:
        result = _run_suite(suite, subject)
        records[suite_key(result)] = AuditRecord(result, _fingerprint_suite(fingerprint, suite, subject))
        if not as_json:
            _print_suite_result(result)
    comparison = None if earlier is None else compare_with_earlier_audit(earlier, records, run)
    written = None if subject.model is None else write_audits(Path(run), AuditFile(records, missing, comparison))
    inapplicable = inapplicable_suites(task)
    if as_json:
        report = {"suites": {name: record.result.as_dict() for name, record in records.items()}, "not_run": missing}
        report |= {} if comparison is None else {"comparison": comparison.as_dict()}
        report |= {"not_applicable": inapplicable, "file": written and str(written)}
        print(json_text.dumps(report, ensure_ascii=False))
        return 0
    if comparison is not None:
        _print_comparison(comparison)
    for name, reason in {**missing, **({} if suite_names else inapplicable)}.items():
        print(f"{name}: not run, because {reason}.")
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
    """Open the model with its task and data, and compute a fingerprint of both."""
    from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, Fingerprint, hash_weights
    from saccade.audit.run_records import find_model_directory
    from saccade.audit.suite import AuditSubject
    from saccade.cli.audit_compare import read_bad_words
    from saccade.cli.audit_data import load_audit_data
    from saccade.cli.inputs import suggest_near_runs
    from saccade.tasks.registry import TASKS
    from saccade.tasks.runs.run import Run, open_run

    sentences = tuple(map(Path, inputs.test_sentences))
    kind = next((entry for entry in TASKS if entry.name == run), None)
    if kind is not None and not Path(run).exists():
        opened, task, model, digest = Run(run), kind(), None, ""
    else:
        with suggest_near_runs(run):
            opened, digest = open_run(run), hash_weights(find_model_directory(run)[1])
        task, model = opened.task, opened.model
    data = load_audit_data(opened, task, inputs)
    fingerprint = Fingerprint("") if data is None else data.fingerprint
    subject = AuditSubject(
        task, model, group_by=inputs.group_by, test_sentences=sentences, bad_words=read_bad_words(inputs.bad_words)
    )
    if name := inputs.regard_classifier:
        classifier = open_run(name, "label")
        if Path(name).is_dir():  # a hub name identifies the model by itself
            weights = hash_weights(find_model_directory(name)[1])[:MAX_DIGEST_CHARACTERS_SHOWN]
            name = f"{Path(name).resolve().name} (weights {weights})"
        subject = replace(subject, regard_classifier=(classifier.task, classifier.model), classifier_name=name)
    if data is not None:
        subject = replace(subject, held_out=data.held_out, splits=data.splits)
    return task, subject, replace(fingerprint, weights_digest=digest)


def _select_suites(
    run: str, suite_names: tuple[str, ...], task: "Task", subject: "AuditSubject"
) -> "tuple[list[Suite], dict[str, str]]":
    """The suites to run, and the suites that apply but lack their data, with the reason."""
    from saccade.audit.registry import find_suite, suites_for

    try:
        suites = [find_suite(name) for name in suite_names] or suites_for(task)
    except ValueError as error:
        raise UsageError(str(error)) from None
    for suite in suites:
        if reason := suite.not_applicable(task):
            raise UsageError(f"The suite {suite.name} does not apply to {run}: {reason}.")
    suites = _add_disaggregated_suite(suites, subject)
    if subject.regard_classifier is not None and not any(suite.name == "regard" for suite in suites):
        raise UsageError("--regard-classifier needs the suite regard, which is not selected; add --suite regard.")
    if subject.bad_words and not (suite_names and all(suite.generates_text for suite in suites)):
        raise UsageError("--bad-words is for suites of generated text only; name them, such as --suite regard.")
    if subject.model is None:
        if subject.splits is None:
            raise UsageError(f"{run} is a task; name the data to audit with --data, or name a run.")
        return [suite for suite in suites if suite.name == "data"], {}
    missing = {}
    for suite in suites:
        if "held_out" in suite.requires and not subject.held_out:
            raise UsageError(f"{run}: no held-out data for the suite {suite.name}, as this is not a run; give --data.")
        if "splits" in suite.requires and subject.splits is None:
            missing[suite.name] = "the training data is not available (give it with --data)"
    return [suite for suite in suites if suite.name not in missing], missing


def _add_disaggregated_suite(suites: "list[Suite]", subject: "AuditSubject") -> "list[Suite]":
    """Add the disaggregated suite if --group-by is given and no other suite reports by group."""
    from saccade.audit.disaggregate import DisaggregatedSuite

    if not subject.group_by or subject.model is None or any(suite.name == "counterfactual" for suite in suites):
        return suites
    return [*suites, DisaggregatedSuite()]


def _run_suite(suite: "Suite", subject: "AuditSubject") -> "SuiteResult":
    from saccade.progress import ProgressBar

    with ProgressBar() as bar:
        return suite.run(replace(subject, on_progress=bar.update))


def _fingerprint_suite(fingerprint: "Fingerprint", suite: "Suite", subject: "AuditSubject") -> "Fingerprint":
    """The fingerprint of a result: weights, and the data, test sentences or built-in data that the suite has used."""
    from saccade.audit.fingerprints import Fingerprint, fingerprint_data

    if suite.requires:
        return fingerprint
    if subject.test_sentences:
        sentences = fingerprint_data([str(path) for path in subject.test_sentences], {}, "")
        return replace(sentences, weights_digest=fingerprint.weights_digest)
    return Fingerprint(fingerprint.weights_digest, builtin_data_digest=suite.builtin_data_digest())


def _print_suite_result(result: "SuiteResult") -> None:
    """Print a result as text: estimates, notes, tables, interpretation and limitations."""
    print(f"\n{result.suite}")
    for estimate in result.estimates:
        print(f"  {estimate}")
    for note in result.notes:
        print(f"  {note}")
    for table in (*result.tables, *([result.examples] if result.examples else [])):
        _print_table(table, max_rows=12)
    print(f"\n  Interpretation: {result.interpretation}\n  Limitations: {result.limitations}", flush=True)
    sys.stdout.flush()


def _print_table(table: "AuditTable", *, max_rows: int) -> None:
    print(f"\n  {table.title}")
    for row in (table.columns, *table.rows[:max_rows]):
        print("    " + "  ".join(cell if len(cell) < 60 else cell[:57] + "..." for cell in row))
    if len(table.rows) > max_rows:
        print(f"    and {len(table.rows) - max_rows} more rows in audit.json")


def _print_comparison(comparison: "AuditComparison") -> None:
    """Print both audits side by side, with notes and the warning about comparisons."""
    from saccade.audit.compare import COMPARISON_WARNING

    _print_table(comparison.table, max_rows=len(comparison.rows))
    for line in (*comparison.notes, COMPARISON_WARNING):
        print(f"  {line}", flush=True)

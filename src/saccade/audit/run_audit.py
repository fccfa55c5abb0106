"""Runs audit suites on a model and its data, and writes the results to audit.json: `saccade audit` and `Run.audit`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from saccade.audit.audit_data import AuditInputs, load_audit_data
from saccade.audit.audit_report import AuditReport
from saccade.audit.disaggregate import DisaggregatedSuite
from saccade.audit.earlier_audit import (
    compare_with_earlier_audit,
    open_earlier_audit,
    read_bad_words,
    suite_key,
)
from saccade.audit.fingerprints import (
    MAX_DIGEST_CHARACTERS_SHOWN,
    AuditRecord,
    Fingerprint,
    fingerprint_data,
    hash_weights,
)
from saccade.audit.registry import find_suite, inapplicable_suites, suites_for
from saccade.audit.run_records import AuditFile, find_model_directory, write_audits
from saccade.audit.suite import AuditSubject, Suite, SuiteResult
from saccade.errors import UsageError
from saccade.progress import ProgressBar
from saccade.tasks.base import Task
from saccade.tasks.registry import TASKS
from saccade.tasks.runs.run import Run, open_run


def run_audit(
    run: str | Path,
    suites: Sequence[str] = (),
    inputs: AuditInputs = AuditInputs(),  # noqa: B008 - frozen
    *,
    on_result: Callable[[SuiteResult], None] = lambda result: None,
    progress: bool = True,
) -> AuditReport:
    """Run the suites that apply to a run, or the given ones, and write the results to its audit.json.

    `run` may be the name of a task, to audit its data before training. `on_result` is called with each result as soon as it is
    known.
    """
    run = str(run)
    if inputs.test_sentences and len(suites) != 1:
        raise UsageError("--test-sentences needs one suite; name it with --suite, such as --suite stereotypes.")
    earlier = open_earlier_audit(inputs.compare_to) if inputs.compare_to else None
    task, subject, fingerprint = _make_subject(run, inputs)
    if earlier is not None and subject.model is None:
        raise UsageError(f"--compare-to compares two models, but {run} is a task; name a run.")
    selected, missing = _select_suites(run, suites, task, subject)
    records: dict[str, AuditRecord] = {}
    for suite in selected:
        with ProgressBar(enabled=progress) as bar:
            result = suite.run(replace(subject, on_progress=bar.update))
        records[suite_key(result)] = AuditRecord(result, _fingerprint_suite(fingerprint, suite, subject))
        on_result(result)
    comparison = None if earlier is None else compare_with_earlier_audit(earlier, records, run)
    path = None if subject.model is None else write_audits(Path(run), AuditFile(records, missing, comparison))
    results = {name: record.result for name, record in records.items()}
    return AuditReport(results, missing, inapplicable_suites(task), comparison, path)


def _make_subject(run: str, inputs: AuditInputs) -> tuple[Task, AuditSubject, Fingerprint]:
    """Open the model with its task and data, and compute a fingerprint of both."""

    sentences = tuple(map(Path, inputs.test_sentences))
    kind = next((entry for entry in TASKS if entry.name == run), None)
    if kind is not None and not Path(run).exists():
        opened, task, model, digest = Run(run), kind(), None, ""
    else:
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
    run: str, suite_names: Sequence[str], task: Task, subject: AuditSubject
) -> tuple[list[Suite], dict[str, str]]:
    """The suites to run, and the suites that apply but lack their data, with the reason."""
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


def _add_disaggregated_suite(suites: list[Suite], subject: AuditSubject) -> list[Suite]:
    """Add the disaggregated suite if --group-by is given and no other suite reports by group."""
    if not subject.group_by or subject.model is None or any(suite.name == "counterfactual" for suite in suites):
        return suites
    return [*suites, DisaggregatedSuite()]


def _fingerprint_suite(fingerprint: Fingerprint, suite: Suite, subject: AuditSubject) -> Fingerprint:
    """The fingerprint of a result: weights, and the data, test sentences or built-in data that the suite has used."""
    if suite.requires:
        return fingerprint
    if subject.test_sentences:
        sentences = fingerprint_data([str(path) for path in subject.test_sentences], {}, "")
        return replace(sentences, weights_digest=fingerprint.weights_digest)
    return Fingerprint(fingerprint.weights_digest, builtin_data_digest=suite.builtin_data_digest())

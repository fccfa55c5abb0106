"""The sections of a model card; those on data have the headings that public summaries of training data ask for."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from saccade import __version__
from saccade.audit.card_figure import read_card_figure
from saccade.audit.card_format import CardBlock, CardSection
from saccade.audit.compare import COMPARISON_WARNING
from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, AuditRecord, count_weights
from saccade.audit.registry import inapplicable_suites
from saccade.audit.run_records import RunRecords
from saccade.audit.statements import NOT_STATED, QUESTIONS, STATEMENTS_FILE, Question
from saccade.audit.stats import score_interval
from saccade.audit.suite import AuditTable, Estimate, SuiteResult
from saccade.render.page import CodeBlock, FactList, Heading
from saccade.tasks.base import Task
from saccade.tasks.counterfactual_augment import SWAP_ORDER
from saccade.tasks.runs.checkpoint_facts import training_machine, training_minutes

DEFAULT_CORE_WATTS = 10.0  # power of a busy core, unless the statements give another value
MAX_EXAMPLES_SHOWN = 6  # examples shown for each suite
MODALITIES = {
    "text": "text",
    "texts": "text",
    "line": "text",
    "words": "text",
    "image": "images",
    "audio": "recordings",
    "numbers": "numbers",
}


def make_card_sections(records: RunRecords, task: Task | None) -> list[CardSection]:
    """All sections in the order of the card."""
    return [
        CardSection("Model", (_model_facts(records, task),)),
        CardSection("Use", (_statement_facts(records, "model", ("intended_use", "out_of_scope")),)),
        CardSection(
            "Training data",
            (FactList((*_data_facts(records, task).entries, *_statement_facts(records, "data").entries)),),
        ),
        CardSection("Harms", (_statement_facts(records, "harm"),)),
        CardSection("Scores", tuple(_score_blocks(records))),
        CardSection("Audits", tuple(_audit_blocks(records, task))),
        CardSection("Training and compute", tuple(_training_blocks(records))),
        CardSection("Attention", tuple(_attention_blocks(records))),
        CardSection("Settings and reproduction", tuple(_reproduction_blocks(records))),
    ]


def _statement_facts(records: RunRecords, table: str, names: tuple[str, ...] = ()) -> FactList:
    """The answers to the questions of a table, or to some of them, in their order."""
    questions = [
        question for question in QUESTIONS if question.table == table and (not names or question.name in names)
    ]
    return FactList(tuple((question.title, _format_statement(records, question)) for question in questions))


def _format_statement(records: RunRecords, question: Question) -> str:
    """The answer to a question; a blank names the entry of statements.toml that only a person can fill in."""
    if records.statements.get(question.table, question.name) is None:
        return f"{NOT_STATED}; only a person can say, in {STATEMENTS_FILE}: [{question.table}] {question.name}"
    return records.statements.format_answer(question.table, question.name)


def _model_facts(records: RunRecords, task: Task | None) -> FactList:
    run, result, format_answer = records.settings.get("run", {}), records.result, records.statements.format_answer
    config = records.config.get("saccade", {})
    family = (
        result.get("family")
        or run.get("family")
        or config.get("family")
        or records.config.get("model_type")
        or NOT_STATED
    )
    count = result.get("parameters")
    size = (
        f"{count:,}"
        if isinstance(count, int)
        else f"{count_weights(records.model_directory):,} values in the weight files"
    )
    roles = () if task is None else task.roles(())
    modalities = dict.fromkeys(MODALITIES.get(role.kind, "") for role in roles)
    return FactList(
        (
            ("Provider", format_answer("model", "provider")),
            ("Task", f"{task.name}: {task.description}" if task else "none: a base model without a head"),
            ("Modality", ", ".join(filter(None, modalities)) or NOT_STATED),
            ("Architecture", str(family)),
            ("Parameters", size),
            ("Initial weights", _initial_weights(run, records.base_license)),
            ("Languages", format_answer("model", "languages")),
            ("License", format_answer("model", "license")),
            ("Weights", f"SHA-256 {records.weights_digest}"),
            ("Trained with", f"saccade {result['version']}" if "version" in result else NOT_STATED),
        )
    )


def _initial_weights(run: Mapping[str, Any], base_license: str) -> str:
    """The model that training started from, with its license if that is known."""
    model = run.get("model", "")
    if not model:
        return "random" if run else NOT_STATED
    return f"the model {model}{f', whose license is {base_license}' if base_license else ''}"


def _data_facts(records: RunRecords, task: Task | None) -> FactList:
    run, counts = records.settings.get("run", {}), records.result.get("examples", {})
    sample = f"saccade's built-in sample {task.sample}" if run and task else NOT_STATED
    files = ", ".join(run.get("data", ())) or sample
    examples = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    facts = [("Files", files), ("Hash", run.get("digest", NOT_STATED)), ("Examples", examples or NOT_STATED)]
    if augmentation := run.get("augmentation", {}):
        facts.append(("Data augmentation", _describe_augmentation(augmentation)))
    return FactList(tuple(facts))


def _describe_augmentation(augmentation: Mapping[str, Any]) -> str:
    if SWAP_ORDER in augmentation:
        return f"all {augmentation[SWAP_ORDER]:,} pairs were trained on in both orders (task.augment)"
    counts = ", ".join(f"{name} {count:,}" for name, count in augmentation.items() if name != "lexicon") or "none"
    return f"counterfactual copies of training examples (task.augment), by dimension: {counts}"


def _score_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if not records.scores:
        yield NOT_STATED
        return
    rows = tuple(
        (split, score.name, f"{score.value:.4g}", "{:.4g} to {:.4g}".format(*score_interval(score)), f"{score.count:,}")
        for split, score in records.scores
    )
    yield AuditTable("", ("data", "score", "value", "95 % CI", "examples"), rows)
    for split, baseline in records.result.get("baselines", {}).items():
        yield f"Baseline on {split}: {baseline['description']} reaches {baseline['name']} {baseline['value']:.4g}."
    yield from records.result.get("notes", ())
    yield "Confidence intervals (CI) are bootstrapped over the held-out examples; they do not extend to other data."
    if note := records.run.selection_note:
        yield note


def _audit_blocks(records: RunRecords, task: Task | None) -> Iterator[CardBlock]:
    for name, audited in records.audits.items():
        yield from _suite_blocks(name, audited)
    if records.comparison is not None and records.comparison.weights_digest == records.weights_digest:
        yield Heading("Comparison with an earlier audit")
        yield records.comparison.table
        yield " ".join([*records.comparison.notes, COMPARISON_WARNING])
    for name, reason in records.missing.items():
        yield f"The suite {name} was not run: {reason}."
    for name, reason in inapplicable_suites(task).items():
        yield f"The suite {name} does not apply: {reason}."
    if not records.audits:
        yield "No suite has been run on this model."


def _suite_blocks(name: str, audit: AuditRecord) -> Iterator[CardBlock]:
    result, fingerprint = audit.result, audit.fingerprint
    yield Heading(f"Suite {name}")
    if result.estimates:
        yield AuditTable("", ("metric", "value", "95 % CI", "cases", "baseline"), _estimate_rows(result))
    else:
        yield "The suite was run, but there was nothing that it could measure."
    yield f"Interpretation: {result.interpretation}"
    if result.notes:
        yield " ".join(note if note.endswith(".") else f"{note}." for note in result.notes)
    yield from result.tables
    if result.examples is not None:
        examples = result.examples
        yield AuditTable(examples.title, examples.columns, examples.rows[:MAX_EXAMPLES_SHOWN])
    yield f"Limitations: {result.limitations}"
    data = f" and data {fingerprint.data_digest[:MAX_DIGEST_CHARACTERS_SHOWN]}" if fingerprint.data_digest else ""
    weights = fingerprint.weights_digest[:MAX_DIGEST_CHARACTERS_SHOWN]
    yield f"Measured by saccade {audit.version} on weights {weights}{data}."


def _estimate_rows(result: SuiteResult) -> tuple[tuple[str, ...], ...]:
    def format_baseline(estimate: Estimate) -> str:
        if estimate.baseline is None:
            return "–"
        return f"{estimate.baseline:.3g}, {'significant' if estimate.is_significant else 'not significant'}"

    return tuple(
        (one.name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.count:,}", format_baseline(one))
        for one in result.estimates
    )


def _training_blocks(records: RunRecords) -> Iterator[CardBlock]:
    result = records.result
    steps = f"{result['steps']:,}, ended by {result['stop_reason']}" if result else NOT_STATED
    minutes = training_minutes(records.checkpoint_facts)
    facts = [("Steps", steps), ("CPU time", NOT_STATED), ("Energy", NOT_STATED)]
    if records.cpu_seconds is not None:
        stated = records.statements.get("computing", "watts")
        watts = float(stated) if isinstance(stated, int | float) else DEFAULT_CORE_WATTS
        origin = "as stated by the provider" if stated else "the default, as no value is stated"
        kwh = records.cpu_seconds * watts / 3.6e6
        energy = f"{kwh:.3g} kWh: an estimate, not a measurement, at {watts:g} watts per busy core ({origin})"
        processes = result.get("processes", 1)
        process = f", of the first of {processes} processes" if processes > 1 else ""
        facts[1:] = [
            ("CPU time", f"{records.cpu_seconds:,.1f} seconds in training steps{process}"),
            ("Energy", f"{energy}; memory, disks, cooling and other devices are not included"),
        ]
    facts[1:1] = [
        ("Time", NOT_STATED if minutes is None else f"{minutes:.1f} minutes"),
        ("Hardware", training_machine(records.checkpoint_facts) or NOT_STATED),
    ]
    yield FactList(tuple(facts))


def _attention_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if (records.directory / "report.html").is_file():
        yield "report.html in the run has its training curves, its worst predictions and attention maps."
    if (figure := read_card_figure(records)) is not None:
        yield figure
    yield CodeBlock('saccade look DIRECTORY "a text" --html looks.html')
    yield "In Python, all attention weights of a forward pass can be recorded:"
    yield CodeBlock(
        "import saccade\n\n"
        'model = saccade.load("DIRECTORY")\n'
        "with saccade.watch(model) as looks:\n"
        '    saccade.encode(model, ["a text"])  # or model(batch)\n'
        "print([(look.name, look.weights.shape) for look in looks])"
    )


def _reproduction_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if not records.settings:
        yield f"How it was trained is {NOT_STATED}: the model was trained elsewhere and imported."
        return
    yield f"With saccade {records.result.get('version', __version__)}, the same data, and these settings as run.toml:"
    run = dict(records.settings["run"])
    del run["family" if run["model"] else "model"]  # a pretrained model has its family
    yield CodeBlock(tomli_w.dumps({**records.settings, "run": run}))
    yield CodeBlock("saccade train run.toml --out runs/again")

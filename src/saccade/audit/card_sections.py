"""What stands on a model card, section by section, under the headings that public summaries of training data ask for."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from saccade import __version__
from saccade.audit.card_figure import read_card_figure
from saccade.audit.compare import COMPARISON_WARNING
from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, AuditRecord, count_weights
from saccade.audit.registry import inapplicable_suites
from saccade.audit.render import CardBlock, CardSection
from saccade.audit.run_records import RunRecords
from saccade.audit.statements import NOT_STATED, QUESTIONS
from saccade.audit.stats import score_interval
from saccade.audit.suite import AuditTable, Estimate, SuiteResult
from saccade.render.page import CodeBlock, FactList, Heading
from saccade.tasks.base import Task
from saccade.tasks.counterfactual_augment import SWAP_ORDER

DEFAULT_CORE_WATTS = 10.0  # of a busy core, where nobody states another
MAX_EXAMPLES_SHOWN = 6  # of a suite that are shown
MODALITIES = {
    "text": "text",
    "texts": "text",
    "line": "text",
    "words": "text",
    "image": "images",
    "numbers": "numbers",
}


def make_card_sections(records: RunRecords, task: Task | None) -> list[CardSection]:
    """All sections in order."""
    return [
        CardSection("The model", (_model_facts(records, task),)),
        CardSection("Use", (_statement_facts(records, "model", ("intended_use", "out_of_scope")),)),
        CardSection(
            "Training data",
            (FactList((*_data_facts(records, task).entries, *_statement_facts(records, "data").entries)),),
        ),
        CardSection("Harms", (_statement_facts(records, "harm"),)),
        CardSection("Scores", tuple(_score_blocks(records))),
        CardSection("Audits", tuple(_audit_blocks(records, task))),
        CardSection("Training and its cost", tuple(_training_blocks(records))),
        CardSection("Looking inside", tuple(_attention_blocks(records))),
        CardSection("Settings, and making it again", tuple(_reproduction_blocks(records))),
    ]


def _statement_facts(records: RunRecords, table: str, names: tuple[str, ...] = ()) -> FactList:
    """The answers of a table, in the order of the questions."""
    asked = [one for one in QUESTIONS if one.table == table and (not names or one.name in names)]
    return FactList(tuple((one.title, records.statements.format_answer(table, one.name)) for one in asked))


def _model_facts(records: RunRecords, task: Task | None) -> FactList:
    run, result, told = records.settings.get("run", {}), records.result, records.statements.format_answer
    own = records.config.get("saccade", {})
    family = (
        result.get("family") or run.get("family") or own.get("family") or records.config.get("model_type") or NOT_STATED
    )
    count = result.get("parameters")
    size = (
        f"{count:,}" if isinstance(count, int) else f"{count_weights(records.model_directory):,} numbers in its files"
    )
    roles = () if task is None else task.roles(())
    kinds = dict.fromkeys(MODALITIES.get(role.kind, "") for role in roles)
    return FactList(
        (
            ("Provider", told("model", "provider")),
            ("Task", f"{task.name}: {task.description}" if task else "none: a body without a head"),
            ("Modality", ", ".join(filter(None, kinds)) or NOT_STATED),
            ("Architecture", str(family)),
            ("Parameters", size),
            ("Begun from", _initial_weights(run)),
            ("Languages", told("model", "languages")),
            ("Licence", told("model", "license")),
            ("Weights", f"SHA-256 {records.weights_digest}"),
            ("Made with", f"saccade {result['version']}" if "version" in result else NOT_STATED),
        )
    )


def _initial_weights(run: Mapping[str, Any]) -> str:
    model = run.get("model", "")
    return f"the model {model}" if "/" in model else "new weights" if run else NOT_STATED


def _data_facts(records: RunRecords, task: Task | None) -> FactList:
    run, counts = records.settings.get("run", {}), records.result.get("examples", {})
    files = ", ".join(run.get("data", ())) or (f"saccade's own sample {task.sample}" if run and task else NOT_STATED)
    told = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    facts = [("Files", files), ("Hash", run.get("digest", NOT_STATED)), ("Examples", told or NOT_STATED)]
    if twins := run.get("augmentation", {}):
        facts.append(("Twins", _describe_augmentation(twins)))
    return FactList(tuple(facts))


def _describe_augmentation(augmentation: Mapping[str, Any]) -> str:
    if SWAP_ORDER in augmentation:
        return f"all {augmentation[SWAP_ORDER]:,} pairs were learnt in both orders (task.augment)"
    made = ", ".join(f"{name} {count:,}" for name, count in augmentation.items() if name != "lexicon") or "none"
    return f"swapped twins of training examples were learnt beside them (task.augment): {made}"


def _score_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if not records.scores:
        yield NOT_STATED
        return
    rows = tuple(
        (split, one.name, f"{one.value:.4g}", "{:.4g} to {:.4g}".format(*score_interval(one)), f"{one.count:,}")
        for split, one in records.scores
    )
    yield AuditTable("", ("data", "score", "value", "95 % interval", "examples"), rows)
    yield "The intervals come from drawing the held-out examples again; they say nothing of other data."


def _audit_blocks(records: RunRecords, task: Task | None) -> Iterator[CardBlock]:
    for name, audited in records.audits.items():
        yield from _suite_blocks(name, audited)
    if records.comparison is not None and records.comparison.weights_digest == records.weights_digest:
        yield Heading("What was done about it")
        yield records.comparison.table
        yield " ".join([*records.comparison.notes, COMPARISON_WARNING])
    for name, why in records.missing.items():
        yield f"The suite {name} was not run: {why}."
    for name, why in inapplicable_suites(task).items():
        yield f"The suite {name} does not apply: {why}."
    if not records.audits:
        yield "No suite has been run on this model."


def _suite_blocks(name: str, audited: AuditRecord) -> Iterator[CardBlock]:
    found = audited.result
    yield Heading(f"Suite {name}")
    if found.estimates:
        yield AuditTable("", ("figure", "value", "95 % interval", "cases", "read against"), _estimate_rows(found))
    else:
        yield "It was run, and found nothing that it could measure."
    yield f"How to read it: {found.interpretation}"
    if found.notes:
        yield " ".join(note if note.endswith(".") else f"{note}." for note in found.notes)
    yield from found.tables
    if found.examples is not None:
        shown = found.examples
        yield AuditTable(shown.title, shown.columns, shown.rows[:MAX_EXAMPLES_SHOWN])
    yield f"What it does not show: {found.limitations}"
    data = (
        f" and data {audited.fingerprint.data_digest[:MAX_DIGEST_CHARACTERS_SHOWN]}"
        if audited.fingerprint.data_digest
        else ""
    )
    yield f"Made by saccade {audited.version} of weights {audited.fingerprint.weights_digest[:MAX_DIGEST_CHARACTERS_SHOWN]}{data}."


def _estimate_rows(found: SuiteResult) -> tuple[tuple[str, ...], ...]:
    def against(one: Estimate) -> str:
        if one.baseline is None:
            return "–"
        return f"{one.baseline:.3g}, {'apart' if one.is_significant else 'not told apart'}"

    return tuple(
        (one.name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.count:,}", against(one))
        for one in found.estimates
    )


def _training_blocks(records: RunRecords) -> Iterator[CardBlock]:
    result = records.result
    steps = f"{result['steps']:,}, ended by {result['stop_reason']}" if result else NOT_STATED
    facts = [("Steps", steps), ("CPU time", NOT_STATED), ("Energy", NOT_STATED)]
    if records.cpu_seconds is not None:
        stated = records.statements.get("computing", "watts")
        watts = float(stated) if isinstance(stated, int | float) else DEFAULT_CORE_WATTS
        how = "as stated by the provider" if stated else "assumed, as none are stated"
        energy = f"{records.cpu_seconds * watts / 3.6e6:.3g} kWh: an estimate, not a measurement, at {watts:g} watts a busy core"
        processes = result.get("processes", 1)
        several = f", of the first of {processes} processes" if processes > 1 else ""
        facts[1:] = [
            ("CPU time", f"{records.cpu_seconds:,.1f} seconds in the steps of training{several}"),
            ("Energy", f"{energy} ({how}); memory, disks, cooling and other devices are not in it"),
        ]
    yield FactList(tuple(facts))


def _attention_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if (records.directory / "report.html").is_file():
        yield "report.html in the run has its curves, its worst answers and pictures of where it looked."
    if (drawn := read_card_figure(records)) is not None:
        yield drawn
    yield CodeBlock('saccade look DIRECTORY "a text" --html looks.html')
    yield "In Python, every weight of attention can be read while the model answers:"
    yield CodeBlock(
        "import saccade\n\n"
        'model = saccade.load("DIRECTORY")\n'
        "with saccade.watch(model) as looks:\n"
        '    saccade.encode(model, ["a text"])  # or model(batch)\n'
        "print([(look.name, look.weights.shape) for look in looks])"
    )


def _reproduction_blocks(records: RunRecords) -> Iterator[CardBlock]:
    if not records.settings:
        yield f"How it was trained is {NOT_STATED}: it came to saccade as it is."
        return
    yield f"With saccade {records.result.get('version', __version__)}, the same data and these settings as run.toml:"
    run = dict(records.settings["run"])
    run["model"] = run["model"] or run["family"]
    yield CodeBlock(tomli_w.dumps({**records.settings, "run": run}))
    yield CodeBlock("saccade train run.toml --out runs/again")

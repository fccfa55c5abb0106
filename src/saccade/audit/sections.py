"""What stands on a model card, section by section, under the headings that public summaries of training data ask for."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from saccade import __version__
from saccade.audit.change import WARNING
from saccade.audit.inside import picture
from saccade.audit.marks import SHORT, Audited, weights_size
from saccade.audit.records import Records
from saccade.audit.render import Code, Facts, Head, Part, Section
from saccade.audit.statements import BLANK, QUESTIONS
from saccade.audit.stats import bounds
from saccade.audit.suite import Figure, Finding, Grid
from saccade.audit.table import reasons
from saccade.tasks.task import Task
from saccade.tasks.twins import ORDER

WATTS = 10.0  # of a busy core, where nobody states another
EXAMPLES = 6  # of a suite that are shown
MODALITIES = {
    "text": "text",
    "texts": "text",
    "line": "text",
    "words": "text",
    "image": "pictures",
    "numbers": "numbers",
}


def sections(records: Records, task: Task | None) -> list[Section]:
    """All sections in order."""
    return [
        Section("The model", (_model(records, task),)),
        Section("Use", (_answers(records, "model", ("use", "beyond")),)),
        Section("Training data", (Facts(_data(records, task).pairs + _answers(records, "data").pairs),)),
        Section("Harms", (_answers(records, "harm"),)),
        Section("Scores", tuple(_scores(records))),
        Section("Audits", tuple(_audits(records, task))),
        Section("Training and its cost", tuple(_training(records))),
        Section("Looking inside", tuple(_inside(records))),
        Section("Settings, and making it again", tuple(_again(records))),
    ]


def _answers(records: Records, table: str, names: tuple[str, ...] = ()) -> Facts:
    """The answers of a table, in the order of the questions."""
    asked = [one for one in QUESTIONS if one.table == table and (not names or one.name in names)]
    return Facts(tuple((one.title, records.statements.told(table, one.name)) for one in asked))


def _model(records: Records, task: Task | None) -> Facts:
    run, result, told = records.settings.get("run", {}), records.result, records.statements.told
    own = records.config.get("saccade", {})
    family = result.get("family") or run.get("family") or own.get("family") or records.config.get("model_type") or BLANK
    count = result.get("parameters")
    size = f"{count:,}" if isinstance(count, int) else f"{weights_size(records.model):,} numbers in its files"
    roles = () if task is None else task.roles(())
    kinds = dict.fromkeys(MODALITIES.get(role.kind, "") for role in roles)
    return Facts(
        (
            ("Provider", told("model", "provider")),
            ("Task", f"{task.name}: {task.said}" if task else "none: a body without a head"),
            ("Modality", ", ".join(filter(None, kinds)) or BLANK),
            ("Architecture", str(family)),
            ("Parameters", size),
            ("Begun from", _beginning(run)),
            ("Languages", told("model", "languages")),
            ("Licence", told("model", "licence")),
            ("Weights", f"SHA-256 {records.weights}"),
            ("Made with", f"saccade {result['version']}" if "version" in result else BLANK),
        )
    )


def _beginning(run: Mapping[str, Any]) -> str:
    model = run.get("model", "")
    return f"the model {model}" if "/" in model else "new weights" if run else BLANK


def _data(records: Records, task: Task | None) -> Facts:
    run, counts = records.settings.get("run", {}), records.result.get("examples", {})
    files = ", ".join(run.get("data", ())) or (f"saccade's own sample {task.sample}" if run and task else BLANK)
    told = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    facts = [("Files", files), ("Hash", run.get("digest", BLANK)), ("Examples", told or BLANK)]
    if twins := run.get("twins", {}):
        facts.append(("Twins", _twins(twins)))
    return Facts(tuple(facts))


def _twins(twins: Mapping[str, Any]) -> str:
    if ORDER in twins:
        return f"all {twins[ORDER]:,} pairs were learnt in both orders (task.augment)"
    made = ", ".join(f"{name} {count:,}" for name, count in twins.items() if name != "lexicon") or "none"
    return f"swapped twins of training examples were learnt beside them (task.augment): {made}"


def _scores(records: Records) -> Iterator[Part]:
    if not records.scores:
        yield BLANK
        return
    rows = tuple(
        (split, one.name, f"{one.value:.4g}", "{:.4g} to {:.4g}".format(*bounds(one)), f"{one.count:,}")
        for split, one in records.scores
    )
    yield Grid("", ("data", "score", "value", "95 % interval", "examples"), rows)
    yield "The intervals come from drawing the held-out examples again; they say nothing of other data."


def _audits(records: Records, task: Task | None) -> Iterator[Part]:
    for name, audited in records.audits.items():
        yield from _audit(name, audited)
    if records.change is not None and records.change.weights == records.weights:
        yield Head("What was done about it")
        yield records.change.grid
        yield " ".join([*records.change.notes, WARNING])
    for name, why in records.missing.items():
        yield f"The suite {name} was not run: {why}."
    for name, why in reasons(task).items():
        yield f"The suite {name} does not apply: {why}."
    if not records.audits:
        yield "No suite has been run on this model."


def _audit(name: str, audited: Audited) -> Iterator[Part]:
    found = audited.finding
    yield Head(f"Suite {name}")
    if found.figures:
        yield Grid("", ("figure", "value", "95 % interval", "cases", "read against"), _figures(found))
    else:
        yield "It was run, and found nothing that it could measure."
    yield f"How to read it: {found.baseline}"
    if found.notes:
        yield " ".join(note if note.endswith(".") else f"{note}." for note in found.notes)
    yield from found.grids
    if found.examples is not None:
        shown = found.examples
        yield Grid(shown.title, shown.heads, shown.rows[:EXAMPLES])
    yield f"What it does not show: {found.limits}"
    data = f" and data {audited.mark.data[:SHORT]}" if audited.mark.data else ""
    yield f"Made by saccade {audited.version} of weights {audited.mark.weights[:SHORT]}{data}."


def _figures(found: Finding) -> tuple[tuple[str, ...], ...]:
    def against(one: Figure) -> str:
        if one.baseline is None:
            return "–"
        return f"{one.baseline:.3g}, {'apart' if one.apart else 'not told apart'}"

    return tuple(
        (one.name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.count:,}", against(one))
        for one in found.figures
    )


def _training(records: Records) -> Iterator[Part]:
    result = records.result
    steps = f"{result['steps']:,}, ended by {result['why']}" if result else BLANK
    facts = [("Steps", steps), ("CPU time", BLANK), ("Energy", BLANK)]
    if records.seconds is not None:
        stated = records.statements.get("computing", "watts")
        watts = float(stated) if isinstance(stated, int | float) else WATTS
        how = "as stated by the provider" if stated else "assumed, as none are stated"
        energy = (
            f"{records.seconds * watts / 3.6e6:.3g} kWh: an estimate, not a measurement, at {watts:g} watts a busy core"
        )
        processes = result.get("processes", 1)
        several = f", of the first of {processes} processes" if processes > 1 else ""
        facts[1:] = [
            ("CPU time", f"{records.seconds:,.1f} seconds in the steps of training{several}"),
            ("Energy", f"{energy} ({how}); memory, disks, cooling and other devices are not in it"),
        ]
    yield Facts(tuple(facts))


def _inside(records: Records) -> Iterator[Part]:
    if (records.home / "report.html").is_file():
        yield "report.html in the run has its curves, its worst answers and pictures of where it looked."
    if (drawn := picture(records)) is not None:
        yield drawn
    yield Code('saccade look DIRECTORY "a text" --html looks.html')
    yield "In Python, every weight of attention can be read while the model answers:"
    yield Code(
        "import saccade\n\n"
        'model = saccade.load("DIRECTORY")\n'
        "with saccade.watch(model) as looks:\n"
        '    saccade.encode(model, ["a text"])  # or model(batch)\n'
        "print([(look.name, look.weights.shape) for look in looks])"
    )


def _again(records: Records) -> Iterator[Part]:
    if not records.settings:
        yield f"How it was trained is {BLANK}: it came to saccade as it is."
        return
    yield f"With saccade {records.result.get('version', __version__)}, the same data and these settings as run.toml:"
    run = dict(records.settings["run"])
    run["model"] = run["model"] or run["family"]
    yield Code(tomli_w.dumps({**records.settings, "run": run}))
    yield Code("saccade train run.toml --out runs/again")

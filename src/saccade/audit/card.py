"""The model card: a README.md with front matter, built from a run's own records; what they do not say is not stated."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open

from saccade.audit.gate import lacking, unaudited, undescribed
from saccade.audit.inside import draw
from saccade.audit.records import README, Records
from saccade.audit.render import Opening, Section, Value, front_matter, html, markdown
from saccade.audit.sections import sections
from saccade.audit.stats import bounds
from saccade.explain.page import write_page
from saccade.models.files import tensor_files
from saccade.models.save import NOTICE
from saccade.tasks.task import Task

DONE, NOT_AUDITED, NOT_DESCRIBED = "Audited and described.", "Not audited.", "Not described."  # how a card opens


def title_of(records: Records) -> str:
    found = records.statements.get("model", "name")
    return str(found) if found else records.home.resolve().name


def opening(records: Records, task: Task | None, reason: str = "") -> Opening:
    """The first lines of a card: what was done, and what was not."""
    audits, statements = unaudited(records, task), undescribed(records)
    why = f" It was exported all the same, for this reason: {reason}" if reason else ""
    if not (audits or statements):
        names = ", ".join(records.audits) or "none, as no suite applies to this task"
        return Opening(DONE, f"The suites: {names}. Both are below, with what they do not show.{why}")
    head = NOTICE if audits and statements else NOT_AUDITED if audits else NOT_DESCRIBED
    return Opening(head, f"What is missing: {'; '.join([*statements, *audits])}.{why}")


def is_open(text: str) -> bool:
    """Whether a card says of itself that something is missing."""
    body = text.split("---\n", 2)[-1] if text.startswith("---\n") else text
    return not body.lstrip().startswith(f"**{DONE}**")


def build(records: Records, task: Task | None, reason: str = "") -> str:
    """The whole README.md."""
    made = sections(records, task)
    return front_matter(_front(records, task)) + markdown(title_of(records), opening(records, task, reason), made)


def write_card(records: Records, task: Task | None) -> list[Path]:
    """README.md beside the weights, with a picture of where the model looks, and card.html beside the report."""
    drawn = draw(records, task)
    readme, web = records.model / README, records.home / "card.html"
    made: Sequence[Section] = sections(records, task)
    write_page(readme, build(records, task))
    write_page(web, html(title_of(records), opening(records, task), made))
    return [readme, web] if drawn is None else [readme, drawn, web]


def carried(directory: Path) -> str | None:
    """The hash of the card with which weights were exported; None where they carry none."""
    with safe_open(tensor_files(directory)[0], "pt") as file:
        return (file.metadata() or {}).get("card")


def unlike(directory: Path, mark: str) -> list[str]:
    """What is wrong with the card of an exported directory, whose weights carry the mark of one."""
    path = directory / README
    if not path.is_file():
        return [f"{path} is missing; export the model again"]
    text = path.read_text(encoding="utf-8")
    if hashlib.sha256(text.encode()).hexdigest() != mark:
        return [f"{path} is not the card with which these weights were exported; export the model again"]
    return [
        f"{path} says that the model is not audited or not described; do both in its run and export it again"
    ] * is_open(text)


def behind(records: Records, task: Task | None) -> list[str]:
    """What a card for a release lacks: statements, audits, and itself as the records have it now."""
    lines = lacking(records, task)
    path = records.model / README
    if not path.is_file() or path.read_text(encoding="utf-8") != build(records, task):
        lines.append(f"{path} is not what the records say now; saccade card {records.home} writes it anew")
    return lines


def _front(records: Records, task: Task | None) -> dict[str, Value]:
    """What the hub reads; nothing that is not known."""
    statements = records.statements
    values: dict[str, Value] = {
        "library_name": "saccade",
        "tags": ["saccade"] if task is None else ["saccade", task.name],
    }
    if kind := _pipeline(task):
        values["pipeline_tag"] = kind
    if languages := statements.get("model", "languages"):
        assert isinstance(languages, list)
        values["language"] = languages
    if licence := statements.get("model", "licence"):
        values["license"] = str(licence)
    if results := _results(records, task):
        values["model-index"] = [{"name": title_of(records), "results": results}]
    return values


def _pipeline(task: Task | None) -> str:
    """What the hub calls a task; "" where it has no name for it."""
    return "feature-extraction" if task is None else task.hub_pipeline


def _results(records: Records, task: Task | None) -> list[dict[str, Value]]:
    """The scores in the form of the hub's leaderboards, each with its split and its interval in words."""
    sample = "" if task is None else f"saccade's own sample {task.sample}"
    name, kind = ", ".join(Path(file).name for file in records.data) or sample, _pipeline(task) or "other"
    metrics: dict[str, list[dict[str, Value]]] = {}
    for split, score in records.scores:
        if math.isfinite(score.value):
            told = "{} (95 % interval {:.4g} to {:.4g})".format(score.name, *bounds(score))
            metrics.setdefault(split, []).append({"type": score.name, "value": score.value, "name": told})
    return [
        {"task": {"type": kind}, "dataset": {"name": name, "type": "custom", "split": split}, "metrics": found}
        for split, found in metrics.items()
    ]

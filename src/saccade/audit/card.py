"""The model card: a README.md with front matter, built from a run's own records; what they do not say is not stated."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open

from saccade.audit.card_figure import write_card_figure
from saccade.audit.card_sections import make_card_sections
from saccade.audit.gate import missing_items, missing_statements, missing_suites
from saccade.audit.render import (
    CardBanner,
    CardSection,
    FrontMatterValue,
    render_front_matter,
    render_html,
    render_markdown,
)
from saccade.audit.run_records import README_FILE, RunRecords
from saccade.audit.stats import score_interval
from saccade.models.io.model_dir import find_tensor_files
from saccade.models.save import UNAUDITED_NOTICE
from saccade.render.page import write_page
from saccade.tasks.base import Task

AUDITED_AND_DESCRIBED, NOT_AUDITED, NOT_DESCRIBED = (
    "Audited and described.",
    "Not audited.",
    "Not described.",
)  # how a card opens


def card_title(records: RunRecords) -> str:
    found = records.statements.get("model", "name")
    return str(found) if found else records.directory.resolve().name


def make_banner(records: RunRecords, task: Task | None, reason: str = "") -> CardBanner:
    """The first lines of a card: what was done, and what was not."""
    audits, statements = missing_suites(records, task), missing_statements(records)
    why = f" It was exported all the same, for this reason: {reason}" if reason else ""
    if not (audits or statements):
        names = ", ".join(records.audits) or "none, as no suite applies to this task"
        return CardBanner(
            AUDITED_AND_DESCRIBED, f"The suites: {names}. Both are below, with what they do not show.{why}"
        )
    head = UNAUDITED_NOTICE if audits and statements else NOT_AUDITED if audits else NOT_DESCRIBED
    return CardBanner(head, f"What is missing: {'; '.join([*statements, *audits])}.{why}")


def is_incomplete(text: str) -> bool:
    """Whether a card says of itself that something is missing."""
    body = text.split("---\n", 2)[-1] if text.startswith("---\n") else text
    return not body.lstrip().startswith(f"**{AUDITED_AND_DESCRIBED}**")


def build_card(records: RunRecords, task: Task | None, reason: str = "") -> str:
    """The whole README.md."""
    made = make_card_sections(records, task)
    return render_front_matter(_front_matter_values(records, task)) + render_markdown(
        card_title(records), make_banner(records, task, reason), made
    )


def write_card(records: RunRecords, task: Task | None) -> list[Path]:
    """README.md beside the weights, with a picture of where the model looks, and card.html beside the report."""
    drawn = write_card_figure(records, task)
    readme, web = records.model_directory / README_FILE, records.directory / "card.html"
    made: Sequence[CardSection] = make_card_sections(records, task)
    write_page(readme, build_card(records, task))
    write_page(web, render_html(card_title(records), make_banner(records, task), made))
    return [readme, web] if drawn is None else [readme, drawn, web]


def read_card_digest(directory: Path) -> str | None:
    """The hash of the card with which weights were exported; None where they carry none."""
    with safe_open(find_tensor_files(directory)[0], "pt") as file:
        return (file.metadata() or {}).get("card")


def card_mismatch(directory: Path, card_digest: str) -> list[str]:
    """What is wrong with the card of an exported directory, whose weights carry the mark of one."""
    path = directory / README_FILE
    if not path.is_file():
        return [f"{path} is missing; export the model again"]
    text = path.read_text(encoding="utf-8")
    if hashlib.sha256(text.encode()).hexdigest() != card_digest:
        return [f"{path} is not the card with which these weights were exported; export the model again"]
    return [
        f"{path} says that the model is not audited or not described; do both in its run and export it again"
    ] * is_incomplete(text)


def missing_for_release(records: RunRecords, task: Task | None) -> list[str]:
    """What a card for a release lacks: statements, audits, and itself as the records have it now."""
    lines = missing_items(records, task)
    path = records.model_directory / README_FILE
    if not path.is_file() or path.read_text(encoding="utf-8") != build_card(records, task):
        lines.append(f"{path} is not what the records say now; saccade card {records.directory} writes it anew")
    return lines


def _front_matter_values(records: RunRecords, task: Task | None) -> dict[str, FrontMatterValue]:
    """What the hub reads; nothing that is not known."""
    statements = records.statements
    values: dict[str, FrontMatterValue] = {
        "library_name": "saccade",
        "tags": ["saccade"] if task is None else ["saccade", task.name],
    }
    if kind := _pipeline_tag(task):
        values["pipeline_tag"] = kind
    if languages := statements.get("model", "languages"):
        assert isinstance(languages, list)
        values["language"] = languages
    if model_license := statements.get("model", "license"):
        values["license"] = str(model_license)
    if results := _model_index(records, task):
        values["model-index"] = [{"name": card_title(records), "results": results}]
    return values


def _pipeline_tag(task: Task | None) -> str:
    """What the hub calls a task; "" where it has no name for it."""
    return "feature-extraction" if task is None else task.hub_pipeline


def _model_index(records: RunRecords, task: Task | None) -> list[dict[str, FrontMatterValue]]:
    """The scores in the form of the hub's leaderboards, each with its split and its interval in words."""
    sample = "" if task is None else f"saccade's own sample {task.sample}"
    name, kind = ", ".join(Path(file).name for file in records.data) or sample, _pipeline_tag(task) or "other"
    metrics: dict[str, list[dict[str, FrontMatterValue]]] = {}
    for split, score in records.scores:
        if math.isfinite(score.value):
            told = "{} (95 % interval {:.4g} to {:.4g})".format(score.name, *score_interval(score))
            metrics.setdefault(split, []).append({"type": score.name, "value": score.value, "name": told})
    return [
        {"task": {"type": kind}, "dataset": {"name": name, "type": "custom", "split": split}, "metrics": found}
        for split, found in metrics.items()
    ]

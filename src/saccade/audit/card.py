"""The model card: a README.md with front matter, built from the records of a run; what they lack is "not stated"."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from saccade.audit.card_figure import write_card_figure
from saccade.audit.card_format import (
    CardBanner,
    CardSection,
    FrontMatterValue,
    render_front_matter,
    render_html,
    render_markdown,
)
from saccade.audit.card_sections import make_card_sections
from saccade.audit.gate import missing_items, missing_statements, missing_suites
from saccade.audit.run_records import README_FILE, RunRecords, find_model_directory, find_task, open_records
from saccade.audit.statements import STATEMENTS_FILE, write_template
from saccade.audit.stats import score_interval
from saccade.errors import ModelError, UsageError
from saccade.models.io.model_dir import find_tensor_files
from saccade.models.save import DEFAULT_README, UNAUDITED_NOTICE
from saccade.render.page import write_page
from saccade.tasks.base import Task

CARD_MARK = "\n<!-- written by saccade card; an edit by hand is noticed by this digest of the text: "
# the headlines of the banner
AUDITED_AND_DESCRIBED, NOT_AUDITED, NOT_DESCRIBED = "Audited and described.", "Not audited.", "Not described."


def card_title(records: RunRecords) -> str:
    """The stated name of the model, or the name of its directory."""
    name = records.statements.get("model", "name")
    return str(name) if name else records.directory.resolve().name


def make_banner(records: RunRecords, task: Task | None, reason: str = "") -> CardBanner:
    """The first lines of a card: whether the model is audited and described, and what is missing."""
    audits, statements = missing_suites(records, task), missing_statements(records)
    exported = f" It was exported anyway, for this reason: {reason}" if reason else ""
    if not (audits or statements):
        names = ", ".join(records.audits) or "none, as no suite applies to this task"
        text = f"Audit suites: {names}. The statements and the audits are below, with their limitations.{exported}"
        return CardBanner(AUDITED_AND_DESCRIBED, text)
    headline = UNAUDITED_NOTICE if audits and statements else NOT_AUDITED if audits else NOT_DESCRIBED
    return CardBanner(headline, f"Missing: {'; '.join([*statements, *audits])}.{exported}")


def is_incomplete(text: str) -> bool:
    """Whether the banner of a card says that audits or statements are missing."""
    body = text.split("---\n", 2)[-1] if text.startswith("---\n") else text
    return not body.lstrip().startswith(f"**{AUDITED_AND_DESCRIBED}**")


def build_card(records: RunRecords, task: Task | None, reason: str = "") -> str:
    """The complete README.md; `reason` is that of an export without audits or statements."""
    sections = make_card_sections(records, task)
    text = render_markdown(card_title(records), make_banner(records, task, reason), sections)
    return _mark(render_front_matter(_front_matter_values(records, task)) + text)


@dataclass(frozen=True)
class Card:
    """A model card: its text, the files that were written, and what it still lacks for an export."""

    text: str
    paths: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text.split("---\n", 2)[-1]


def make_card(
    run: str | Path,
    *,
    init: bool = False,
    check: bool = False,
    force: bool = False,
) -> Card:
    """Write the model card of a run: README.md and an attention map next to the weights, and card.html next to the report.

    Args:
        run: A run, or a model directory.
        init: Also write statements.toml, with the questions that only a person can answer.
        check: Write nothing; `missing` says what the card still lacks.
        force: Overwrite a card or statements that a person has edited.
    """
    if check and (init or force):
        raise UsageError("--check writes nothing, and --init and --force write files; use one of them.")
    directory, model = find_model_directory(run)
    digest = read_card_digest(model)
    if check and digest is not None:
        readme = model / README_FILE
        text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
        return Card(text, missing=tuple(card_mismatch(model, digest)))
    if digest is not None:
        raise UsageError(f"{run} was exported with its model card; write a new card in the original run.")
    task, paths = find_task(run), []
    if not (check or force):
        check_card_is_unchanged(model / README_FILE)
    if init:
        paths = [write_template(directory, force=force)]
    records = open_records(run)
    if not check:
        paths += write_card(records, task)
    return Card(build_card(records, task), tuple(paths), tuple(missing_for_release(records, task)))


def check_card_is_unchanged(readme: Path) -> None:
    """Raise an error for a README.md that a person has edited since it was written."""
    if not readme.is_file():
        return
    text = readme.read_text(encoding="utf-8", errors="replace")
    if text != DEFAULT_README and text != _mark(text.rpartition(CARD_MARK)[0]):
        raise ModelError(
            f"{readme}: the card has been edited since it was written. Put the text into {STATEMENTS_FILE}, from which the card "
            "is written, or overwrite the card with --force (in Python, force=True)."
        )


def _mark(text: str) -> str:
    """The text of a card with a last line by which a later edit is noticed."""
    return f"{text}{CARD_MARK}{hashlib.sha256(text.encode()).hexdigest()[:16]} -->\n"


def write_card(records: RunRecords, task: Task | None) -> list[Path]:
    """Write README.md and an attention map next to the weights, and card.html next to the report; returns the paths."""
    figure = write_card_figure(records, task)
    readme, page = records.model_directory / README_FILE, records.directory / "card.html"
    sections: Sequence[CardSection] = make_card_sections(records, task)
    write_page(readme, build_card(records, task))
    write_page(page, render_html(card_title(records), make_banner(records, task), sections))
    return [readme, page] if figure is None else [readme, figure, page]


def read_card_digest(directory: Path) -> str | None:
    """The hash of the card with which weights were exported, from their metadata; None if there is none."""
    with safe_open(find_tensor_files(directory)[0], "pt") as file:
        return (file.metadata() or {}).get("card")


def card_mismatch(directory: Path, card_digest: str) -> list[str]:
    """Errors in the card of an exported model whose weights carry `card_digest`; empty if it is the card of the export."""
    path = directory / README_FILE
    if not path.is_file():
        return [f"{path} is missing; export the model again"]
    text = path.read_text(encoding="utf-8")
    if hashlib.sha256(text.encode()).hexdigest() != card_digest:
        return [f"{path} is not the card with which these weights were exported; export the model again"]
    return [
        f"{path} says that the model is not audited or not described; audit and describe its run and export it again"
    ] * is_incomplete(text)


def missing_for_release(records: RunRecords, task: Task | None) -> list[str]:
    """What a release lacks: statements, audits, or a card that matches the current records."""
    lines = missing_items(records, task)
    path = records.model_directory / README_FILE
    if not path.is_file() or path.read_text(encoding="utf-8") != build_card(records, task):
        lines.append(f"{path} does not match the current records; saccade card {records.directory} updates it")
    return lines


def _front_matter_values(records: RunRecords, task: Task | None) -> dict[str, FrontMatterValue]:
    """The metadata that the Hugging Face hub reads; unknown values are left out."""
    statements = records.statements
    values: dict[str, FrontMatterValue] = {
        "library_name": "saccade",
        "tags": ["saccade"] if task is None else ["saccade", task.name],
    }
    if pipeline := _pipeline_tag(task):
        values["pipeline_tag"] = pipeline
    if languages := statements.get("model", "languages"):
        assert isinstance(languages, list)
        values["language"] = languages
    if model_license := statements.get("model", "license"):
        values["license"] = str(model_license)
    if results := _model_index(records, task):
        values["model-index"] = [{"name": card_title(records), "results": results}]
    return values


def _pipeline_tag(task: Task | None) -> str:
    """The hub's name for a task; "" if it has none."""
    return "feature-extraction" if task is None else task.hub_pipeline


def _model_index(records: RunRecords, task: Task | None) -> list[dict[str, FrontMatterValue]]:
    """The scores as the hub's `model-index`: metrics by split, with the confidence interval in the name of the metric."""
    sample = "" if task is None else f"saccade's built-in sample {task.sample}"
    dataset, pipeline = ", ".join(Path(file).name for file in records.data) or sample, _pipeline_tag(task) or "other"
    metrics: dict[str, list[dict[str, FrontMatterValue]]] = {}
    for split, score in records.scores:
        if math.isfinite(score.value):
            name = "{} (95 % confidence interval {:.4g} to {:.4g})".format(score.name, *score_interval(score))
            metrics.setdefault(split, []).append({"type": score.name, "value": score.value, "name": name})
    return [
        {"task": {"type": pipeline}, "dataset": {"name": dataset, "type": "custom", "split": split}, "metrics": values}
        for split, values in metrics.items()
    ]

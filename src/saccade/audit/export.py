"""Exports a model with its model card, after the gate: `saccade export` and `Run.export`."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saccade.audit.card import build_card
from saccade.audit.card_figure import CARD_FIGURE_FILE
from saccade.audit.gate import GateHints, check_gate
from saccade.audit.run_records import find_task, open_records
from saccade.errors import ModelError, UsageError
from saccade.models.io import hub
from saccade.models.load import load
from saccade.models.model import Model
from saccade.models.prune_heads import unprune
from saccade.models.save import save
from saccade.suggest import suggest

ExportFormat = Literal["auto", "hf"]
EXPORT_FORMATS = ("auto", "hf")
PRUNED_NOTE = "pruned     heads are written as zeros, so that the weights have the published shape"


@dataclass(frozen=True)
class Export:
    """An exported model: its directory, notes about what was written, and the class of transformers that loads it."""

    directory: Path
    notes: tuple[str, ...]
    architecture: str  # "" if only saccade loads it

    @property
    def loaders(self) -> str:
        """The programs that can load the exported model."""
        if not self.architecture:
            return "saccade only: there is no published format for it"
        return f"saccade, and transformers as {self.architecture}"


def export_model(
    run: str | Path,
    directory: str | Path,
    *,
    format: ExportFormat = "auto",
    head: str | None = None,
    unaudited: str | None = None,
    hints: GateHints | None = None,
) -> Export:
    """Export a model as a directory with its model card; raises `ExportRefused` without statements and current audits.

    Args:
        run: A run, a model directory, or a hub name.
        directory: Output directory, which must not exist yet.
        format: "hf" requires the published format, which transformers loads; "auto" takes saccade's own where there is none.
        head: Head to export with the body: lm, label, tag or span; body exports none. Default: the head of the model.
        unaudited: Reason to export without audit or statements; the model card states it.
        hints: How the error names what satisfies the gate; default: as commands.
    """
    directory = Path(directory)
    if format not in EXPORT_FORMATS:
        raise UsageError(f"format is {format!r}; {suggest(str(format), EXPORT_FORMATS)}")
    if directory.exists():
        raise UsageError(f"{directory} already exists; name a new directory.")
    if unaudited is not None and not unaudited.strip():
        raise UsageError("--unaudited is blank; give the reason to export without audit or statements.")
    card, figure = _build_card(str(run), unaudited, hints)
    model = load(run, head=head)
    notes = [str(model.report)]
    _check_format(model, format)
    if model.kept_heads and model.family.is_published(
        model.config
    ):  # the format has one number of heads for all layers
        model = unprune(model)
        notes.append(PRUNED_NOTE)
    save(model, directory, card=card)
    if figure is not None:
        shutil.copyfile(figure, directory / figure.name)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return Export(directory, tuple(notes), str(next(iter(config.get("architectures") or []), "")))


def _check_format(model: Model, format: ExportFormat) -> None:
    """Raise an error if transformers is to load a model that has no published format."""
    if format == "hf" and not model.family.is_published(model.config):
        raise ModelError(
            f"{model.family.name} with these settings has no published format, so transformers cannot load it. "
            "Export it with format auto, for saccade, or train another family, such as bert, gpt2, t5 or vit."
        )


def _build_card(run: str, reason: str | None, hints: GateHints | None) -> tuple[str, Path | None]:
    """The model card and its figure; without a reason, the audits and the statements must be complete."""
    path = hub.fetch(run) if hub.is_repo_id(run) and not Path(run).exists() else run
    records, task = open_records(path), find_task(path)
    if reason is None:
        check_gate(records, task, hints)
    figure = records.model_directory / CARD_FIGURE_FILE
    return build_card(records, task, reason or ""), figure if figure.is_file() else None

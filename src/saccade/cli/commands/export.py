"""`saccade export RUN DIR`: export a model with its model card as a directory that other programs can load."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import tyro

from saccade.cli.argument_types import RunArgument, optional_argument


def main(
    run: RunArgument,
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    *,
    head: Annotated[str | None, optional_argument("HEAD")] = None,
    unaudited: Annotated[str | None, optional_argument("REASON")] = None,
) -> int:
    """Export a model as a directory: config, safetensors, tokenizer and model card, in the published format if there is one.

    saccade export runs/mine exported

    An export needs both statements (saccade card RUN --init) and a current audit (saccade audit RUN). Without them it ends with
    exit code 4 and a list of what is missing.

    Args:
        run: A run, a model directory, or a hub name.
        directory: Output directory, which must not exist yet.
        head: Head to export with the body: lm, label, tag or span; body exports none. Default: the head of the model.
        unaudited: Reason to export without audit or statements; the model card states it.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("export", lambda: _export_run(run, directory, head, unaudited))


def _export_run(run: str, directory: Path, head: str | None, reason: str | None) -> int:
    from saccade.errors import UsageError
    from saccade.models.load import load
    from saccade.models.prune_heads import unprune
    from saccade.models.save import save

    if directory.exists():
        raise UsageError(f"{directory} already exists; name a new directory.")
    if reason is not None and not reason.strip():
        raise UsageError("--unaudited is blank; give the reason to export without audit or statements.")
    card, figures = _build_card(run, reason)
    model = load(run, head=head)
    print(model.report)
    if model.kept_heads and model.family.is_published(
        model.config
    ):  # the format has one number of heads for all layers
        model = unprune(model)
        print("pruned     heads are written as zeros, so that the weights have the published shape")
    print(f"written    {save(model, directory, card=card)}")
    for path in figures:
        shutil.copyfile(path, directory / path.name)
    print(f"loads in   {_describe_compatibility(directory)}")
    if reason:
        message = f"{directory} was exported without audit or statements; its model card gives your reason."
        print(f"saccade export: {message}", file=sys.stderr)
    return 0


def _describe_compatibility(directory: Path) -> str:
    """The programs that can load the exported model, by its config."""
    classes = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("architectures")
    return (
        f"saccade, and transformers as {classes[0]}" if classes else "saccade only: there is no published format for it"
    )


def _build_card(run: str, reason: str | None) -> tuple[str, list[Path]]:
    """The model card and its figures; without a reason, the audit and the statements must be complete."""
    from saccade.audit.card import build_card
    from saccade.audit.card_figure import CARD_FIGURE_FILE
    from saccade.audit.gate import check_gate
    from saccade.audit.run_records import find_task, open_records
    from saccade.models.io import hub

    path = hub.fetch(run) if hub.is_repo_id(run) and not Path(run).exists() else run
    records, task = open_records(path), find_task(path)
    if reason is None:
        check_gate(records, task)
    figure = records.model_directory / CARD_FIGURE_FILE
    return build_card(records, task, reason or ""), [figure] if figure.is_file() else []

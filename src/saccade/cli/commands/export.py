"""`saccade export RUN DIR`: a model as a directory that other programs read, with a card that answers for it."""

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

    An export needs both statements (saccade card RUN --init) and a current audit (saccade audit RUN). Without them it is refused
    with exit code 4 and a list of what is missing.

    Args:
        run: A run, a model directory, or a hub name.
        directory: Output directory, which must not exist yet.
        head: Head to export with the body: lm, label, tag or span; body exports none. Default: the head of the model.
        unaudited: Export without audit or statements, for this reason, which the model card states.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("export", lambda: _export_run(run, directory, head, unaudited))


def _export_run(run: str, directory: Path, head: str | None, reason: str | None) -> int:
    from saccade.errors import UsageError
    from saccade.models.load import load
    from saccade.models.prune_heads import unprune
    from saccade.models.save import save

    if directory.exists():
        raise UsageError(f"{directory} exists already; name a new directory.")
    if reason is not None and not reason.strip():
        raise UsageError("--unaudited is blank; say in a few words why the model goes out without audit or statements.")
    card, beside = _build_card(run, reason)
    model = load(run, head=head)
    print(model.report)
    if model.kept_heads and model.family.is_published(model.config):  # others know one number of heads for all layers
        model = unprune(model)
        print("zeros      stand where heads were removed, so that the shape is the published one")
    print(f"written    {save(model, directory, card=card)}")
    for path in beside:
        shutil.copyfile(path, directory / path.name)
    print(f"loads in   {_describe_compatibility(directory)}")
    if reason:
        print(f"saccade export: {directory} is not answered for; its card gives your reason.", file=sys.stderr)
    return 0


def _describe_compatibility(directory: Path) -> str:
    """Which programs read what was written, as its config says."""
    classes = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("architectures")
    return f"saccade, and transformers as {classes[0]}" if classes else "saccade alone: nobody has published this form"


def _build_card(run: str, reason: str | None) -> tuple[str, list[Path]]:
    """The card that goes with the model, and its pictures; a model that lacks something goes out only for a reason."""
    from saccade.audit.card import build_card
    from saccade.audit.card_figure import CARD_FIGURE_FILE
    from saccade.audit.gate import check_gate
    from saccade.audit.run_records import find_task, open_records
    from saccade.models.io import hub

    where = hub.fetch(run) if hub.is_repo_id(run) and not Path(run).exists() else run
    records, task = open_records(where), find_task(where)
    if reason is None:
        check_gate(records, task)
    return build_card(records, task, reason or ""), [
        path for path in [records.model_directory / CARD_FIGURE_FILE] if path.is_file()
    ]

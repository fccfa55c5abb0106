"""`saccade export RUN DIR`: export a model with its model card as a directory that other programs can load."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from saccade.cli.argument_types import RunArgument, optional_argument


def main(
    run: RunArgument,
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    *,
    format: Literal["auto", "hf"] = "auto",
    head: Annotated[str | None, optional_argument("HEAD")] = None,
    unaudited: Annotated[str | None, optional_argument("REASON")] = None,
) -> int:
    """Export a model as a directory: config, safetensors, tokenizer and model card, in the published format if there is one.

    saccade export runs/mine exported

    An export needs completed statements (saccade card RUN --init) and a current audit (saccade audit RUN). If one of them is
    missing, the command says so, names the commands to run, and ends with exit code 4.

    Args:
        run: A run, a model directory, or a hub name.
        directory: Output directory, which must not exist yet.
        format: File format: auto is that of Hugging Face, or saccade's own for families without one; hf refuses such families.
        head: Head to export with the body: lm, label, tag or span; body exports none. Default: the head of the model.
        unaudited: Reason for an export without audit or statements, which the model card then states.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("export", lambda: _export_run(run, directory, format, head, unaudited))


def _export_run(run: str, directory: Path, format: Literal["auto", "hf"], head: str | None, reason: str | None) -> int:
    from saccade.audit.export import export_model
    from saccade.audit.gate import GateHints

    hints = GateHints.for_commands(Path(run), directory)
    export = export_model(run, directory, format=format, head=head, unaudited=reason, hints=hints)
    for note in export.notes:
        print(note)
    print(f"written    {export.directory}")
    print(f"loads in   {export.loaders}")
    if reason:
        message = f"{directory} was exported without audit or statements; its model card gives your reason."
        print(f"saccade export: {message}", file=sys.stderr)
    return 0

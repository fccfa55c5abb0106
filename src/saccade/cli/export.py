"""`saccade export RUN DIR`: a model as a directory that other programs read."""

import sys
from pathlib import Path

import tyro


def main(run: tyro.conf.Positional[str], directory: tyro.conf.Positional[Path], *, head: str | None = None) -> int:
    """Write a model as a directory: config, safetensors and tokenizer, in the published form where the family has one.

    saccade export runs/mine exported

    Args:
        run: A run, a model directory, or a name on the hub.
        directory: Where to write it; it must not exist yet.
        head: Write this head beside the body (words, label, tag or span), or body for none; without it, the head it has.
    """
    from saccade.models.load import load
    from saccade.models.save import save

    if directory.exists():
        print(f"saccade export: {directory} exists already; name a new directory.", file=sys.stderr)
        return 2
    try:
        model = load(run, head=head)
        print(model.report)
        print(f"written    {save(model, directory)}")
    except ValueError as error:
        print(f"saccade export: {error}", file=sys.stderr)
        return 4
    return 0

"""`saccade export RUN DIR`: a model as a directory that other programs read, with a card that answers for it."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import tyro


def main(
    run: tyro.conf.Positional[str],
    directory: tyro.conf.Positional[Path],
    *,
    head: str | None = None,
    unaudited: Annotated[str | None, tyro.conf.arg(metavar="REASON")] = None,
) -> int:
    """Write a model as a directory: config, safetensors, tokenizer and card, in the published form where the family has one.

    saccade export runs/mine exported

    A model goes out with both statements (saccade card RUN --init) and a current audit (saccade audit RUN). One that lacks
    them is refused with exit code 4 and a list of what it lacks.

    Args:
        run: A run, a model directory, or a name on the hub.
        directory: Where to write it; it must not exist yet.
        head: Write this head beside the body (words, label, tag or span), or body for none; without it, the head it has.
        unaudited: Write it all the same, for this reason, which its card will carry.
    """
    from saccade.cli.running import guarded

    return guarded("export", lambda: _export(run, directory, head, unaudited))


def _export(run: str, directory: Path, head: str | None, reason: str | None) -> int:
    from saccade.cli.settings import Wrong
    from saccade.models.cut import whole
    from saccade.models.load import load
    from saccade.models.save import save

    if directory.exists():
        raise Wrong(f"{directory} exists already; name a new directory.")
    if reason is not None and not reason.strip():
        raise Wrong("--unaudited is blank; say in a few words why the model goes out without audit or statements.")
    card, beside = _card(run, reason)
    model = load(run, head=head)
    print(model.report)
    if model.kept and model.family.published(model.config):  # others know one number of heads for all layers
        model = whole(model)
        print("zeros      stand where heads were removed, so that the shape is the published one")
    print(f"written    {save(model, directory, card=card)}")
    for path in beside:
        shutil.copyfile(path, directory / path.name)
    print(f"loads in   {_readers(directory)}")
    if reason:
        print(f"saccade export: {directory} is not answered for; its card gives your reason.", file=sys.stderr)
    return 0


def _readers(directory: Path) -> str:
    """Which programs read what was written, as its config says."""
    classes = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("architectures")
    return f"saccade, and transformers as {classes[0]}" if classes else "saccade alone: nobody has published this form"


def _card(run: str, reason: str | None) -> tuple[str, list[Path]]:
    """The card that goes with the model, and its pictures; a model that lacks something goes out only for a reason."""
    from saccade.audit.card import build
    from saccade.audit.gate import check_gate
    from saccade.audit.inside import FILE
    from saccade.audit.records import open_records, task_of
    from saccade.models import hub

    where = hub.fetch(run) if hub.is_name(run) and not Path(run).exists() else run
    records, task = open_records(where), task_of(where)
    if reason is None:
        check_gate(records, task)
    return build(records, task, reason or ""), [path for path in [records.model / FILE] if path.is_file()]

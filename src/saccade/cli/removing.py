"""`saccade look RUN --remove LAYER.HEAD --out DIR`: a smaller model, which answers as if some of its heads said nothing."""

import json as json_text
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.models.model import Model

SETTINGS = "config.toml"


def removed(run: str, names: Sequence[str], out: str, *, as_json: bool) -> int:
    """Write the smaller model to a new directory, and say what became of its size."""
    from saccade.cli.settings import Wrong
    from saccade.explain.ablate import named, remove
    from saccade.models.load import load

    if not out:
        raise Wrong("--remove writes a smaller model; name a new directory for it with --out.")
    if Path(out).exists():
        raise Wrong(f"{out} exists already; name a new directory with --out.")
    model = load(run)
    chosen = [named(model, name) for some in names for name in some.split(",") if name]
    smaller = remove(model, chosen)
    whole_run = Path(run, SETTINGS).is_file()
    smaller.save(Path(out, "model") if whole_run else Path(out))
    if whole_run:  # what it was trained for, and on
        shutil.copy(Path(run, SETTINGS), Path(out, SETTINGS))
    sizes = {"parameters": (parameters(model), parameters(smaller)), "bytes": (weight(run), weight(out))}
    if as_json:
        print(json_text.dumps({"removed": [one.name for one in chosen], "out": out} | sizes))
        return 0
    print(f"removed    {', '.join(map(str, chosen))}")
    for what, (before, after) in sizes.items():
        print(f"{what:<10} {before:,} to {after:,} ({after / before - 1:+.1%})")
    print(f"written    {out}; saccade evaluate {out} says what it has lost, saccade train --model {out} trains it on")
    return 0


def parameters(model: "Model") -> int:
    """How many numbers a model has learnt."""
    return sum(p.numel() for p in model.parameters())


def weight(run: str) -> int:
    """How many bytes the weights of a run or a model directory take."""
    from saccade.models.files import tensor_files
    from saccade.models.load import local

    return sum(path.stat().st_size for path in tensor_files(local(run)))

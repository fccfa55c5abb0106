"""`saccade look RUN --prune LAYER.HEAD --out DIR`: a smaller model, which answers as if some of its heads said nothing."""

import json as json_text
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.models.model import Model

CONFIG_FILE = "config.toml"


def write_pruned_model(run: str, head_names: Sequence[str], out: str, *, as_json: bool) -> int:
    """Write the smaller model to a new directory, and say what became of its size."""
    from saccade.errors import UsageError
    from saccade.explain.ablate import parse_head, prune_heads
    from saccade.models.load import load

    if not out:
        raise UsageError("--prune writes a smaller model; name a new directory for it with --out.")
    if Path(out).exists():
        raise UsageError(f"{out} exists already; name a new directory with --out.")
    model = load(run)
    chosen = [parse_head(model, name) for some in head_names for name in some.split(",") if name]
    smaller = prune_heads(model, chosen)
    whole_run = Path(run, CONFIG_FILE).is_file()
    smaller.save(Path(out, "model") if whole_run else Path(out))
    if whole_run:  # what it was trained for, and on
        shutil.copy(Path(run, CONFIG_FILE), Path(out, CONFIG_FILE))
    sizes = {
        "parameters": (count_parameters(model), count_parameters(smaller)),
        "bytes": (count_weight_bytes(run), count_weight_bytes(out)),
    }
    if as_json:
        print(json_text.dumps({"pruned": [one.name for one in chosen], "out": out} | sizes))
        return 0
    print(f"removed    {', '.join(map(str, chosen))}")
    for what, (before, after) in sizes.items():
        print(f"{what:<10} {before:,} to {after:,} ({after / before - 1:+.1%})")
    print(f"written    {out}; saccade evaluate {out} says what it has lost, saccade train --model {out} trains it on")
    return 0


def count_parameters(model: "Model") -> int:
    """How many numbers a model has learnt."""
    return sum(p.numel() for p in model.parameters())


def count_weight_bytes(run: str) -> int:
    """How many bytes the weights of a run or a model directory take."""
    from saccade.models.io.model_dir import find_tensor_files
    from saccade.models.load import resolve_model_dir

    return sum(path.stat().st_size for path in find_tensor_files(resolve_model_dir(run)))

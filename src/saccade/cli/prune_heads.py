"""`saccade look RUN --prune LAYER.HEAD --out DIR`: head pruning, which writes a smaller model without some heads."""

import json as json_text
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.models.model import Model

CONFIG_FILE = "config.toml"


def write_pruned_model(run: str, head_names: Sequence[str], out: str, *, as_json: bool) -> int:
    """Write the pruned model to a new directory, and print its size before and after."""
    from saccade.errors import UsageError
    from saccade.explain.ablate import parse_head, prune_heads
    from saccade.models.load import load

    if not out:
        raise UsageError("--prune writes a smaller model; name a new directory for it with --out.")
    if Path(out).exists():
        raise UsageError(f"{out} already exists; name a new directory with --out.")
    model = load(run)
    heads = [parse_head(model, name) for names in head_names for name in names.split(",") if name]
    pruned = prune_heads(model, heads)
    is_run = Path(run, CONFIG_FILE).is_file()
    pruned.save(Path(out, "model") if is_run else Path(out))
    if is_run:  # task, data and settings of training
        shutil.copy(Path(run, CONFIG_FILE), Path(out, CONFIG_FILE))
    sizes = {
        "parameters": (count_parameters(model), count_parameters(pruned)),
        "bytes": (count_weight_bytes(run), count_weight_bytes(out)),
    }
    if as_json:
        print(json_text.dumps({"pruned": [head.name for head in heads], "out": out} | sizes))
        return 0
    print(f"removed    {', '.join(map(str, heads))}")
    for quantity, (before, after) in sizes.items():
        print(f"{quantity:<10} {before:,} to {after:,} ({after / before - 1:+.1%})")
    print(
        f"written    {out}; saccade evaluate {out} measures its score, saccade train TASK --model {out} fine-tunes it"
    )
    return 0


def count_parameters(model: "Model") -> int:
    """The number of parameters of a model."""
    return sum(p.numel() for p in model.parameters())


def count_weight_bytes(run: str) -> int:
    """The size in bytes of the weight files of a run or a model directory."""
    from saccade.models.io.model_dir import find_tensor_files
    from saccade.models.load import resolve_model_dir

    return sum(path.stat().st_size for path in find_tensor_files(resolve_model_dir(run)))

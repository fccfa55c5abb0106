"""What has to be true of a stored model before it is used: ids that have a vector, weights that are numbers and fit in memory."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.heap import available
from saccade.models.model import Model


def check_begin(config: Any, path: Path) -> None:
    """The token that every target begins with is one of the target's vocabulary."""
    sizes = {item.name: getattr(config, item.name) for item in fields(config)}
    vocab, begin = sizes.get("target_vocab") or sizes.get("vocab"), sizes.get("begin")
    if begin is not None and vocab is not None and not 0 <= begin < vocab:
        raise ValueError(
            f"{path}: begin = {begin:,} is no token of a vocabulary of {vocab:,}; ids go up to {vocab - 1:,}."
        )


def check_memory(model: Model, size: int, directory: Path) -> None:
    """Raise MemoryError, which says how much is needed and how much there is, before the weights are read.

    `size` is the number of bytes of one parameter.
    """
    needed = size * sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    free = available()
    if free is not None and needed > free:
        raise MemoryError(
            f"{directory}: the weights need {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        )


def check_finite(weights: Mapping[str, Tensor], directory: Path) -> None:
    """No weight is NaN or infinite: whatever such a model answers means nothing."""
    # a sum is one pass without a copy; one that overflows is looked into
    odd = [name for name, x in weights.items() if x.is_floating_point() and not x.sum().isfinite()]
    bad = {name: int((~weights[name].isfinite()).sum()) for name in odd}
    bad = {name: count for name, count in bad.items() if count}
    if bad:
        listed = ", ".join(f"{name} ({count:,} of {weights[name].numel():,})" for name, count in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(
            f"{directory}: weights that are not finite numbers (NaN or infinite): {listed}{more}. "
            "The training diverged or the file is damaged; use an earlier checkpoint, or fetch the file again."
        )


def copy_weights(model: Model) -> Model:
    """The same model with weights in memory of its own; `load` maps those of float32 from the file.

    A mapped file that is cut short while it is in use ends the process (SIGBUS), and one that is overwritten changes the model.
    """
    copies: dict[Any, Tensor] = {}  # weights that are the same place in the file stay one
    for x in (*model.parameters(), *model.buffers()):
        place = x.data_ptr(), x.shape, x.stride()
        if place not in copies:
            copies[place] = x.data.clone()
        x.data = copies[place]
    model.carried = {name: x.clone() for name, x in model.carried.items()}
    return model


def check_segments(model: Model, directory: Path) -> None:
    """The tokenizer gives no segment, or token type, that the model has no vector for; of two texts, where it has several."""
    segments = next(
        (getattr(model.config, item.name) for item in fields(model.config) if item.name == "segments"), None
    )
    if segments is None or model.tokenizer is None:
        return
    given = [model.tokenizer.encode("a").segments, model.tokenizer.encode("a", "a").segments if segments > 1 else []]
    highest = max((one for some in given for one in some), default=0)
    if highest >= segments:
        raise ValueError(
            f"{directory}: the tokenizer gives the segment (token type) {highest}, and the model has vectors for {segments}, "
            "counted from 0; the tokenizer is another model's."
        )

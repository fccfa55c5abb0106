"""Where a model looked while it read or wrote one example: maps with the tokens as names of rows and columns."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.attention.watch import Look, watch
from saccade.data import Batch, Text
from saccade.models.model import Model
from saccade.tasks.task import Item, Task


@dataclass(frozen=True)
class Seen:
    """One module's weights for one example, (H, Q, K), with names for queries and keys."""

    name: str
    weights: Tensor
    rows: list[str]
    columns: list[str]

    @property
    def mean(self) -> Tensor:
        """Over all heads, (Q, K)."""
        return self.weights.mean(0)

    def sharpest(self) -> int:
        """The head whose rows are spread the least (the lowest entropy)."""
        spread = -(self.weights * self.weights.clamp(min=1e-12).log()).sum(-1).mean(-1)
        return int(spread.argmin())


def seen(task: Task, model: Model, item: Item, target: list[int] | None = None) -> list[Seen]:
    """Every attention of a model over one example; a writer is watched while it writes `target`, or the item's own."""
    batch = task.batch([item])
    words = target if target is not None else None if item.target is None else item.target.tolist()
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    try:
        with torch.no_grad(), watch(model.body) as looks:
            if task.writes:
                _write(model, batch.to(device), words or [])
            else:
                model(batch.to(device))
    finally:
        model.train(training)
    return _named(looks, _tokens(model, item), _written(model, words))


def _write(model: Model, batch: Batch, words: list[int]) -> None:
    body: Any = model.body
    state, first = body.start(batch)
    new = torch.tensor([words[:-1]], dtype=torch.long, device=first.tokens.device)
    body.think(Text(torch.cat([first.tokens, new], dim=1)), state)


def _tokens(model: Model, item: Item) -> list[str]:
    if item.source.ndim > 1:
        return []
    return [model.tokenizer.token(int(id)) for id in item.source]


def _written(model: Model, words: list[int] | None) -> list[str]:
    return [] if words is None else [model.tokenizer.target.token(int(id)) for id in words]


def _named(looks: list[Look], source: list[str], target: list[str]) -> list[Seen]:
    """Looks of one name are one after the other in time; then each axis gets the names of what it runs over."""
    joined: dict[str, list[Tensor]] = {}
    for look in looks:
        if look.weights is None:
            continue
        if look.axes == ("batch", "head", "query", "key"):
            joined.setdefault(look.name, []).append(look.weights[0].float().cpu())
        if look.axes == ("batch", "head", "query", "row", "column"):  # the cells of a picture, row by row
            joined.setdefault(look.name, []).append(look.weights[0].flatten(-2).float().cpu())
    out = []
    for name, parts in joined.items():
        if len({part.shape[-1] for part in parts}) > 1:
            continue  # a writer that was asked step by step: its keys grow
        weights = torch.cat(parts, dim=-2)
        rows = _names(weights.size(-2), source, target, writes=bool(target))
        columns = _names(weights.size(-1), source, target, writes=False if "across" in name else bool(target))
        out.append(Seen(name, weights, rows, columns))
    return out


def _names(size: int, source: list[str], target: list[str], *, writes: bool) -> list[str]:
    """Tokens where their number fits, else numbers: the cells of a picture."""
    for names in (target, source) if writes else (source, target):
        if len(names) == size:
            return names
    return [str(i) for i in range(size)]

"""How much of a source has been looked at while something is written, and the penalty for what has not (arXiv 1609.08144)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from saccade.attention import watch
from saccade.attention.watch import Look, watchable_modules
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

MIN_COVERAGE = 1e-9  # of a look: what was never looked at is punished, but not without end


class NoCoverage:
    """Nothing is asked for, and nothing is watched."""

    def start(self, state: State, times: int) -> None:
        """Take note of the first step, and let each row become so many."""

    def add_step(self) -> None:
        """Take note of one more step."""

    def reorder(self, rows: Tensor) -> None:
        """Let the rows change places."""

    def penalties(self) -> list[float] | None:
        """The penalty of each row as it stands; None: there is none."""
        return None


class Coverage(NoCoverage):
    """The weight times the sum of log(min(1, looks)) over the source, looks being the mean of all that looks across.

    The looks that chose a token count from that token on, so a text is judged by all its tokens.
    """

    def __init__(self, looks: list[Look], weight: float):
        self.looks, self.weight = looks, weight
        self.attention_sum = self.keep = torch.empty(0)

    def start(self, state: State, times: int) -> None:
        self.attention_sum = self._newest_attention().repeat_interleave(times, dim=0)  # (B, K)
        keep = state.get("memory_keep")
        real = torch.ones_like(self.attention_sum, dtype=torch.bool)
        self.keep = real if keep is None else keep.flatten(1).repeat_interleave(times, dim=0)

    def add_step(self) -> None:
        self.attention_sum = self.attention_sum + self._newest_attention()

    def reorder(self, rows: Tensor) -> None:
        self.attention_sum, self.keep = self.attention_sum[rows], self.keep[rows]

    def penalties(self) -> list[float]:
        seen = self.attention_sum.clamp(MIN_COVERAGE, 1.0).log()
        return (self.weight * torch.where(self.keep, seen, 0.0).sum(-1)).tolist()

    def _newest_attention(self) -> Tensor:
        """Where the newest token looked, (B, K), and forget what was seen."""
        maps = [look.weights.flatten(3)[:, :, -1].mean(1) for look in self.looks if look.weights is not None]
        self.looks.clear()
        return torch.stack(maps).mean(0)


@contextmanager
def watch_coverage(model: AutoregressiveModel, weight: float) -> Iterator[NoCoverage]:
    """Watch what looks across, if coverage has a weight; a model in which nothing does is refused."""
    if not weight:
        yield NoCoverage()
        return
    names = watchable_modules(model) if isinstance(model, nn.Module) else {}
    across = [name for name in names if "across" in name.split(".")]
    if not across or not isinstance(model, nn.Module):
        raise UsageError(
            f"Coverage is about what is looked at of a source, and no part of this {type(model).__name__} looks across at one; "
            "leave coverage at 0, or take a model that reads with an encoder."
        )
    with watch(model, across) as looks:
        yield Coverage(looks, weight)

"""Coverage penalty of beam search for source tokens that got little cross-attention (Wu et al. 2016, arXiv 1609.08144)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from saccade.attention import watch
from saccade.attention.watch import Look, watchable_modules
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

MIN_COVERAGE = 1e-9  # lower bound of the attention that a token has received, which keeps its logarithm finite


class NoCoverage:
    """No coverage penalty: nothing is recorded."""

    def start(self, state: State, times: int) -> None:
        """Record the first step, and repeat each row `times` times."""

    def add_step(self) -> None:
        """Record one more step."""

    def reorder(self, rows: Tensor) -> None:
        """Select and reorder rows."""

    def penalties(self) -> list[float] | None:
        """The current penalty of each row; None without a penalty."""
        return None


class Coverage(NoCoverage):
    """The weight times the sum of log(min(1, attention)) over the source, with the mean attention of all cross-attentions.

    The attention that produced a token counts from that token on, so that a finished text includes all of its steps.
    """

    looks: list[Look]
    weight: float
    attention_sum: Tensor
    keep: Tensor

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
        log_coverage = self.attention_sum.clamp(MIN_COVERAGE, 1.0).log()
        return (self.weight * torch.where(self.keep, log_coverage, 0.0).sum(-1)).tolist()

    def _newest_attention(self) -> Tensor:
        """The cross-attention of the newest token, (B, K); clears the recorded looks."""
        maps = [look.weights.flatten(3)[:, :, -1].mean(1) for look in self.looks if look.weights is not None]
        self.looks.clear()
        return torch.stack(maps).mean(0)


@contextmanager
def watch_coverage(model: AutoregressiveModel, weight: float) -> Iterator[NoCoverage]:
    """Watch the cross-attentions of a model, if the penalty has a weight; a model without cross-attention is refused."""
    if not weight:
        yield NoCoverage()
        return
    names = watchable_modules(model) if isinstance(model, nn.Module) else {}
    across = [name for name in names if "across" in name.split(".")]
    if not across or not isinstance(model, nn.Module):
        raise UsageError(
            f"The coverage penalty needs cross-attention to a source, which this {type(model).__name__} does not have; leave it "
            "at 0, or use an encoder-decoder."
        )
    with watch(model, across) as looks:
        yield Coverage(looks, weight)

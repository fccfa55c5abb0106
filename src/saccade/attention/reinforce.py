"""Hard attention: look at one key only, drawn by chance, and learn from reward.

Mnih et al. 2014 (arXiv 1406.6247); the hard branch of Xu et al. 2015 (arXiv 1502.03044). A draw has no gradient, but its
log-probability has one: REINFORCE (Williams 1992) raises the log-probability of draws that were rewarded above a baseline.

    with draws(model) as log:
        answer = model(batch)
    loss = reinforce(log, reward=score(answer), baseline=running_mean)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from saccade.attention.normalizer import Hard


@contextmanager
def record_draws(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the log-probability of every draw made inside, one (B, H, Q) tensor for each call of a hard mechanism."""
    hard = [module for module in model.modules() if isinstance(module, Hard)]
    if not hard:
        raise ValueError(
            f"{type(model).__name__} draws nothing: none of its mechanisms has the normaliser Hard. "
            "Build one with ScaledDot(normaliser=Hard()), or take 'hard' from MECHANISMS."
        )
    log: list[Tensor] = []
    before = [module.recorder for module in hard]
    try:
        for module in hard:
            module.recorder = log.append
        yield log
    finally:
        for module, recorder in zip(hard, before, strict=True):
            module.recorder = recorder


def reinforce_loss(log: Sequence[Tensor], reward: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """The loss whose gradient is REINFORCE's: -(reward - baseline) · log-probability, a mean over the batch.

    `reward` has one number for each row of the batch. A good baseline is the mean reward so far: it leaves the expected
    gradient as it is and takes most of its noise away.

    >>> log = [torch.tensor([[[-0.5, -0.25]], [[-1.0, -1.0]]])]  # two rows, one head, two queries
    >>> reinforce_loss(log, reward=torch.tensor([1.0, 0.0]), baseline=0.5)
    tensor(-0.3125)
    """
    if not log:
        raise ValueError("No draws were collected: run the model in training mode, with gradients, inside `draws`.")
    total = torch.stack([entry.flatten(1).sum(1) for entry in log]).sum(0)  # (B,)
    if reward.shape != total.shape:
        raise ValueError(f"One reward for each row is needed, {tuple(total.shape)}; got {tuple(reward.shape)}.")
    return -((reward - baseline).detach() * total).mean()

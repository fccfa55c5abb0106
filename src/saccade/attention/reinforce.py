"""Hard attention: sample a single key, and train by REINFORCE.

Mnih et al. 2014 (arXiv 1406.6247); the hard branch of Xu et al. 2015 (arXiv 1502.03044). A sample has no gradient, but its
log-probability has one: REINFORCE (Williams 1992) raises the log-probability of samples whose reward exceeds a baseline.

    with record_draws(model) as log_probabilities:
        output = model(batch)
    loss = reinforce_loss(log_probabilities, reward=score(output), baseline=running_mean)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from saccade.attention.normalizer import Hard


@contextmanager
def record_draws(model: nn.Module) -> Iterator[list[Tensor]]:
    """Record the log-probability of every sampled key in the block, one (B, H, Q) tensor per call of a hard mechanism."""
    hard = [module for module in model.modules() if isinstance(module, Hard)]
    if not hard:
        raise ValueError(
            f"{type(model).__name__} has no hard attention: none of its mechanisms has the normalizer Hard. "
            "Build one with ScaledDot(normalizer=Hard()), or take 'hard' from MECHANISMS."
        )
    log_probabilities: list[Tensor] = []
    previous = [module.recorder for module in hard]
    try:
        for module in hard:
            module.recorder = log_probabilities.append
        yield log_probabilities
    finally:
        for module, recorder in zip(hard, previous, strict=True):
            module.recorder = recorder


def reinforce_loss(log_probabilities: Sequence[Tensor], reward: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """The REINFORCE loss: -(reward - baseline) · log-probability, averaged over the batch.

    `reward` has one number per row of the batch. A good baseline is the running mean of the reward: it keeps the expected
    gradient and reduces its variance.

    >>> log_probabilities = [torch.tensor([[[-0.5, -0.25]], [[-1.0, -1.0]]])]  # two rows, one head, two queries
    >>> reinforce_loss(log_probabilities, reward=torch.tensor([1.0, 0.0]), baseline=0.5)
    tensor(-0.3125)
    """
    if not log_probabilities:
        raise ValueError(
            "No sampled keys were recorded: run the model in training mode, with gradients enabled, inside `record_draws`."
        )
    total = torch.stack([entry.flatten(1).sum(1) for entry in log_probabilities]).sum(0)  # (B,)
    if reward.shape != total.shape:
        raise ValueError(
            f"reward needs one number per row, shape {tuple(total.shape)}; got shape {tuple(reward.shape)}."
        )
    return -((reward - baseline).detach() * total).mean()

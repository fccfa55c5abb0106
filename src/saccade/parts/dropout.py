"""Dropout that is fast on CPUs.

On CPUs other than Intel's, PyTorch draws one random number per entry on a single core, which takes longer than the layer norm and
the activation of a narrow model together. Here one 64-bit draw gives four 16-bit numbers, which is enough to decide whether an
entry is dropped. (On Intel CPUs, MKL draws on all cores; which of the two is faster there was not measured.)
"""

import torch
from torch import Tensor, nn

PROBABILITY_STEPS = 2**16  # the dropout probability is rounded to a multiple of 1 / PROBABILITY_STEPS


class Dropout(nn.Dropout):
    """Dropout: in training, entries become 0 with probability p, others are scaled by 1 / (1 - p) (Srivastava et al. 2014)."""

    def forward(self, input: Tensor) -> Tensor:
        drop_steps = round(self.p * PROBABILITY_STEPS)
        if (
            not self.training
            or not 0 < drop_steps < PROBABILITY_STEPS
            or input.device.type != "cpu"
            or torch.compiler.is_compiling()
        ):
            return super().forward(input)
        return input * dropout_mask(input, drop_steps)


def dropout_mask(x: Tensor, drop_steps: int) -> Tensor:
    """The factor of each entry of x: 0 with probability drop_steps / PROBABILITY_STEPS, else the scale that keeps the mean."""
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    uniform = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform, from -PROBABILITY_STEPS / 2
    return (
        (uniform >= drop_steps - PROBABILITY_STEPS // 2)
        .to(x.dtype)
        .mul_(PROBABILITY_STEPS / (PROBABILITY_STEPS - drop_steps))
    )

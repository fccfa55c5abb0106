"""Dropout that takes little time on a processor.

On processors other than Intel's PyTorch draws one number after the other, one for each entry, which takes longer than the layer
norm and the activation of a narrow model together. Four numbers of sixteen bits are had from one draw, and whether an entry stays
needs no more. (On Intel's its library MKL draws on all cores; which is faster there was not measured.)
"""

import torch
from torch import Tensor, nn

PROBABILITY_STEPS = 2**16  # a share is rounded to so many


class Dropout(nn.Dropout):
    """Some entries become 0 in training, and the others larger, so that the mean stays (Srivastava et al. 2014)."""

    def forward(self, input: Tensor) -> Tensor:
        gone = round(self.p * PROBABILITY_STEPS)
        if (
            not self.training
            or not 0 < gone < PROBABILITY_STEPS
            or input.device.type != "cpu"
            or torch.compiler.is_compiling()
        ):
            return super().forward(input)
        return input * dropout_mask(input, gone)


def dropout_mask(x: Tensor, drop_steps: int) -> Tensor:
    """For each entry of x 0, in `gone` of STEPS cases, or by how much it grows."""
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    luck = draws.view(torch.int16)[: x.numel()].view(x.shape)  # from -STEPS / 2 up, all as likely
    return (
        (luck >= drop_steps - PROBABILITY_STEPS // 2)
        .to(x.dtype)
        .mul_(PROBABILITY_STEPS / (PROBABILITY_STEPS - drop_steps))
    )

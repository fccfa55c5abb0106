"""The simpler simple recurrent unit, which takes the place of self-attention in a decoder: one gate, one matrix, no keys.

Kim et al. 2019 (aclanthology.org/D19-5632): f = σ(Ax + b), c' = f·c + (1 - f)·Wx, h = relu(c'). What a step costs and what it
remembers do not grow with the text.
"""

import torch
from torch import Tensor, nn

from saccade.attention import Sight
from saccade.attention.mechanism import Watcher
from saccade.parts.position import Rotation
from saccade.parts.state import State


class SSRU(nn.Module):
    """(B, L, W) to (B, L, W), left to right; its gate can be watched, and padding does not move what it remembers.

    >>> from saccade.attention import CAUSAL
    >>> unit = SSRU(1)
    >>> _ = [nn.init.ones_(p) for p in unit.write.parameters()], [nn.init.zeros_(p) for p in unit.forget.parameters()]
    >>> unit(torch.tensor([[[8.0], [0.0], [-2.0]]]), Sight(CAUSAL)).flatten().tolist()  # half is kept, half is new
    [4.0, 2.0, 0.0]
    """

    watcher: Watcher | None = None
    axes = ("batch", "time", "gate", "unit")
    gates = ("forget",)

    def __init__(self, width: int):
        super().__init__()
        self.write = nn.Linear(width, width, bias=False)
        self.forget = nn.Linear(width, width)

    def forward(
        self, x: Tensor, sight: Sight, *, rotation: Rotation | None = None, state: State | None = None
    ) -> Tensor:
        """Called as an `Attention` is: of the sight only the padding matters, and places have nothing to turn."""
        if not x.size(1):
            return x
        forget, new = self.forget(x).sigmoid(), self.write(x)  # (B, L, W)
        if sight.keep is not None:
            real = sight.keep[:, -x.size(1) :, None]  # the newest tokens are the last of all
            forget, new = torch.where(real, forget, 1.0), torch.where(real, new, 0.0)
        if self.watcher is not None:
            maps = forget[:, :, None]
            self.watcher(lambda rows: maps.index_select(1, rows.to(x.device)), maps.shape)
        memory = None if state is None else state.get("memory")
        cells = scan(forget, (1 - forget) * new, torch.zeros_like(new[:, 0]) if memory is None else memory)
        if state is not None:
            state.put("memory", cells[:, -1])
        return cells.relu()


def scan(forget: Tensor, add: Tensor, memory: Tensor) -> Tensor:
    """All the values (B, L, W) of memory = keep · memory + add; the matrices are behind us, so a loop is quick."""
    out = []
    for kept, added in zip(forget.unbind(1), add.unbind(1), strict=True):
        memory = kept * memory + added
        out.append(memory)
    return torch.stack(out, dim=1)

"""SSRU (simpler simple recurrent unit): a recurrent layer with one gate that replaces self-attention in a decoder.

Kim et al. 2019 (aclanthology.org/D19-5632): f = σ(Ax + b), c' = f·c + (1 - f)·Wx, h = relu(c'). The time of a step and the size
of its state do not grow with the length of the text.
"""

import torch
from torch import Tensor, nn

from saccade.attention import Sight
from saccade.attention.mechanism import Watcher
from saccade.parts.position import Rotation
from saccade.parts.state import State


class SSRU(nn.Module):
    """An SSRU layer, (B, L, W) to (B, L, W), left to right; its gate can be watched, and padding leaves the state unchanged.

    >>> from saccade.attention import CAUSAL
    >>> unit = SSRU(1)
    >>> _ = [nn.init.ones_(p) for p in unit.write.parameters()], [nn.init.zeros_(p) for p in unit.forget.parameters()]
    >>> unit(torch.tensor([[[8.0], [0.0], [-2.0]]]), Sight(CAUSAL)).flatten().tolist()  # half of the state is kept, half is new
    [4.0, 2.0, 0.0]
    """

    watcher: Watcher | None = None
    axes = ("batch", "time", "gate", "unit")
    gates = ("forget",)

    def __init__(self, width: int):
        super().__init__()
        self.write: nn.Linear = nn.Linear(width, width, bias=False)
        self.forget: nn.Linear = nn.Linear(width, width)

    def forward(
        self, x: Tensor, sight: Sight, *, rotation: Rotation | None = None, state: State | None = None
    ) -> Tensor:
        """The interface of `Attention`; only the padding of the sight is used, and `rotation` is ignored."""
        if not x.size(1):
            return x
        forget, new = self.forget(x).sigmoid(), self.write(x)  # (B, L, W)
        if sight.keep is not None:
            real = sight.keep[:, -x.size(1) :, None]  # the new tokens are the last columns
            forget, new = torch.where(real, forget, 1.0), torch.where(real, new, 0.0)
        if self.watcher is not None:
            maps = forget[:, :, None]
            self.watcher(lambda rows: maps.index_select(1, rows.to(x.device)), maps.shape)
        cell = None if state is None else state.get("memory")
        cells = scan(forget, (1 - forget) * new, torch.zeros_like(new[:, 0]) if cell is None else cell)
        if state is not None:
            state.put("memory", cells[:, -1])
        return cells.relu()


def scan(forget: Tensor, add: Tensor, cell: Tensor) -> Tensor:
    """The cell states (B, L, W) of cell = forget · cell + add; elementwise, so a Python loop is fast enough."""
    cells = []
    for forget_t, add_t in zip(forget.unbind(1), add.unbind(1), strict=True):
        cell = forget_t * cell + add_t
        cells.append(cell)
    return torch.stack(cells, dim=1)

"""A stack of layers: an encoder is one that sees everything, a decoder one that sees the past."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from saccade.attention import FULL, Pattern, Sight
from saccade.errors import ModelError
from saccade.parts.layer import Layer, Scene
from saccade.parts.position import Position
from saccade.parts.state import State


class Stack(nn.Module):
    """Layers under one pattern and one position scheme; `enter` and `leave` hold what differs at the two ends."""

    def __init__(
        self,
        layers: Iterable[Layer],
        pattern: Pattern,
        position: Position | None = None,
        enter: nn.Module | None = None,
        leave: nn.Module | None = None,
    ):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.pattern = pattern
        self.position = position or Position()
        self.enter = enter or nn.Identity()
        self.leave = leave or nn.Identity()

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None = None,
        state: State | None = None,
        *,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        marked: Tensor | None = None,
        parts: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, W) to (B, L, W'); with a `state` x continues what was read before, and `keep` is about x alone.

        `marked` (B, G) are positions of tokens that a local mechanism lets everybody see; `parts` (B, L) numbers the texts of
        a row that holds several, which do not see each other.
        """
        clock = State() if state is None else state
        before = clock.mark()
        clock.advance((x.size(0), x.size(1)), keep, parts)
        pos = clock.q_pos.to(x.device)
        try:
            self._room(clock, pos)
        except ValueError:
            clock.rewind(before)  # what was refused was not read
            raise
        x = self.enter(self.position.place(x, pos))
        scene = Scene(clock.sight(self.pattern, self.position.bias(), x.device), self.position.turning(pos))
        scene.sight.marked = marked
        if memory is not None:
            scene.memory, scene.memory_sight = memory, Sight(FULL, keep=memory_keep, cross=True)
        for number, layer in enumerate(self.layers):
            x = layer(x, scene, None if state is None else state.at(f"{number}"))
        return self.leave(x)

    def _room(self, clock: State, pos: Tensor) -> None:
        """A fixed number of positions is a fixed maximum length; say so before an index fails."""
        limit = self.position.limit
        if limit is not None and clock.length > limit and not torch.compiler.is_compiling():
            longest = int(pos.max()) + 1
            if longest > limit:
                raise ModelError(
                    f"This model has {limit} positions and the text has {longest} tokens; shorten the text, resize the "
                    "positions (`position.resized`), or choose a scheme without a limit (sinusoidal, rotary, alibi)."
                )

"""A stack of layers: an encoder is one that sees everything, a decoder one that sees the past."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from saccade.attention import FULL, Bias, Layout, Pattern, Sight
from saccade.errors import ModelError
from saccade.parts.layer import Layer, LayerContext
from saccade.parts.position import PerLayerPosition, Position
from saccade.parts.state import State

S = TypeVar("S")
T = TypeVar("T")


class Stack(nn.Module):
    """Layers under a pattern and a position scheme, one for all or a list with one for each layer.

    `enter` and `leave` hold what differs at the two ends.
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        pattern: Pattern | Sequence[Pattern],
        position: Position | Sequence[Position] | None = None,
        enter: nn.Module | None = None,
        leave: nn.Module | None = None,
    ):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.patterns = self._one_per_layer([pattern] * len(self.layers) if isinstance(pattern, Pattern) else pattern)
        if position is None or isinstance(position, Position):
            self.position = position or Position()
        else:
            self.position = PerLayerPosition(self._one_per_layer(position))
        self.enter = enter or nn.Identity()
        self.leave = leave or nn.Identity()

    def forward(
        self,
        x: Tensor,
        layout: Layout | None = None,
        state: State | None = None,
        *,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, W) to (B, L, W'); with a `state` x continues what was read before, and the `layout` is about x alone.

        Texts that share a row do not see each other.
        """
        layout = Layout() if layout is None else layout
        clock = State() if state is None else state
        before = clock.snapshot()
        clock.advance((x.size(0), x.size(1)), layout.keep, layout.document_ids)
        pos = clock.q_pos.to(x.device)
        try:
            self._check_length(clock, pos)
        except ValueError:
            clock.restore(before)  # what was refused was not read
            raise
        x = self.enter(self.position.add_to_input(x, pos))
        scenes = self.make_contexts(pos, lambda pattern, bias: clock.make_sight(pattern, bias, x.device))
        across = None if memory is None else Sight(FULL, keep=memory_keep, cross=True)
        for scene in scenes:
            scene.sight.global_tokens, scene.memory, scene.memory_sight = layout.global_tokens, memory, across
        for number, layer in enumerate(self.layers):
            x = layer(x, scenes[number], None if state is None else state.at(f"{number}"))
        return self.leave(x)

    def make_contexts(self, pos: Tensor, sight: Callable[[Pattern, Bias | None], Sight]) -> list[LayerContext]:
        """What each layer sees and how it turns at these positions."""
        return self.build_per_layer(
            lambda pattern, scheme: LayerContext(sight(pattern, scheme.bias()), scheme.rotation_at(pos))
        )

    def build_per_layer(self, make: Callable[[Pattern, Position], T]) -> list[T]:
        """What `make` makes of the pattern and the scheme of each layer, once for all layers in which they are the same."""
        made: list[tuple[Pattern, Position, T]] = []
        found, position = [], self.position
        for number, pattern in enumerate(self.patterns):
            scheme = position.for_layer(number)
            for one, other, old in made:
                if other is scheme and (one is pattern or one == pattern):
                    found.append(old)
                    break
            else:
                made.append((pattern, scheme, make(pattern, scheme)))
                found.append(made[-1][2])
        return found

    def _one_per_layer(self, items: Sequence[S]) -> tuple[S, ...]:
        if len(items) != len(self.layers):
            raise ValueError(
                f"{len(items)} patterns or schemes for {len(self.layers)} layers; give one for all, or one each."
            )
        return tuple(items)

    def _check_length(self, clock: State, pos: Tensor) -> None:
        """A fixed number of positions is a fixed maximum length; say so before an index fails."""
        limit = self.position.max_positions
        if limit is not None and clock.length > limit and not torch.compiler.is_compiling():
            longest = int(pos.max()) + 1
            if longest > limit:
                raise ModelError(
                    f"This model has {limit} positions and the text has {longest} tokens; shorten the text, resize the "
                    "positions (`position.resize`), or choose a scheme without a limit (sinusoidal, rotary, alibi)."
                )

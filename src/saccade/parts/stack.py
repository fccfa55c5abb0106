"""A stack of transformer layers: an encoder with full attention, a decoder with causal attention."""

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
    """Transformer layers with an attention pattern and a position scheme, each one for all layers or a list with one per layer.

    `enter` and `leave` are applied before the first and after the last layer, such as an embedding norm or a final norm.
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
        self.layers: nn.ModuleList = nn.ModuleList(layers)
        self.patterns: tuple[Pattern, ...] = self._one_per_layer(
            [pattern] * len(self.layers) if isinstance(pattern, Pattern) else pattern
        )
        if position is None or isinstance(position, Position):
            self.position = position or Position()
        else:
            self.position: Position = PerLayerPosition(self._one_per_layer(position))
        self.enter: nn.Module | nn.Identity = enter or nn.Identity()
        self.leave: nn.Module | nn.Identity = leave or nn.Identity()

    def forward(
        self,
        x: Tensor,
        layout: Layout | None = None,
        state: State | None = None,
        *,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
    ) -> Tensor:
        """Run the layers, x (B, L, W) to (B, L, W'). With a `state` (KV cache), x continues the tokens before it.

        The `layout` describes x alone. Packed texts, which share a row, do not attend to each other.
        """
        layout = Layout() if layout is None else layout
        cache = State() if state is None else state
        before = cache.snapshot()
        cache.advance((x.size(0), x.size(1)), layout.keep, layout.document_ids)
        pos = cache.q_pos.to(x.device)
        try:
            self._check_length(cache, pos)
        except ValueError:
            cache.restore(before)  # tokens that are refused leave the state unchanged
            raise
        x = self.enter(self.position.add_to_input(x, pos))
        contexts = self.make_contexts(pos, lambda pattern, bias: cache.make_sight(pattern, bias, x.device))
        memory_sight = None if memory is None else Sight(FULL, keep=memory_keep, cross=True)
        for context in contexts:
            context.sight.global_tokens = layout.global_tokens
            context.memory, context.memory_sight = memory, memory_sight
        for index, layer in enumerate(self.layers):
            x = layer(x, contexts[index], None if state is None else state.at(f"{index}"))
        return self.leave(x)

    def make_contexts(self, pos: Tensor, sight: Callable[[Pattern, Bias | None], Sight]) -> list[LayerContext]:
        """The sight and the rotation of each layer at these positions."""
        return self.build_per_layer(
            lambda pattern, scheme: LayerContext(sight(pattern, scheme.bias()), scheme.rotation_at(pos))
        )

    def build_per_layer(self, make: Callable[[Pattern, Position], T]) -> list[T]:
        """`make(pattern, scheme)` of each layer; layers with the same pattern and scheme share one value."""
        distinct: list[tuple[Pattern, Position, T]] = []
        values, position = [], self.position
        for index, pattern in enumerate(self.patterns):
            scheme = position.for_layer(index)
            for known_pattern, known_scheme, value in distinct:
                if known_scheme is scheme and (known_pattern is pattern or known_pattern == pattern):
                    values.append(value)
                    break
            else:
                distinct.append((pattern, scheme, make(pattern, scheme)))
                values.append(distinct[-1][2])
        return values

    def _one_per_layer(self, items: Sequence[S]) -> tuple[S, ...]:
        if len(items) != len(self.layers):
            raise ValueError(
                f"Got {len(items)} patterns or schemes for {len(self.layers)} layers; give one for all layers, or one per layer."
            )
        return tuple(items)

    def _check_length(self, cache: State, pos: Tensor) -> None:
        """Raise an error if the text exceeds the number of positions, before an index is out of range."""
        limit = self.position.max_positions
        if limit is not None and cache.length > limit and not torch.compiler.is_compiling():
            longest = int(pos.max()) + 1
            if longest > limit:
                raise ModelError(
                    f"This model has {limit} positions and the text has {longest} tokens; shorten the text, resize the "
                    "positions (`position.resize`), or choose a scheme without a limit (sinusoidal, rotary, alibi)."
                )

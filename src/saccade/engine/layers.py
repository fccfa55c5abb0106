"""Optimized transformer layers, with a decoding step for one new token per row."""

from torch import Tensor, nn

from saccade.engine.sublayers import FastSublayer, StepContext
from saccade.parts.layer import Layer, LayerContext
from saccade.parts.state import State


class FastLayer(Layer):
    """A layer of optimized sublayers; a sublayer without an optimized form is called as it is."""

    def step(self, x: Tensor, step_context: StepContext, path: str, context: LayerContext | None) -> Tensor:
        """Decode one new token per row, (B, W); `context` is set where self-attention has no fast step."""
        if context is None:
            x = self.attention.step(x, step_context, f"{path}attention.")  # type: ignore[operator]
        else:
            state = step_context.kv_cache.at(f"{path}attention")
            x = self.attention(
                step_context.scatter_active(x)[:, None], context.sight, rotation=context.rotation, state=state
            )[:, 0]
            x = step_context.select_active(x).contiguous()
        if self.across is not None:
            x = self.across.step(x, step_context, f"{path}across.")  # type: ignore[operator]
        return self.feedforward.step(x, step_context, path)  # type: ignore[operator]


class FastParallelLayer(FastLayer):
    """A parallel layer: attention and feed-forward, both in their optimized form, read the same normalized input."""

    attention: FastSublayer  # pyright: ignore[reportIncompatibleVariableOverride]
    feedforward: FastSublayer  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, attention: nn.Module, feedforward: nn.Module, norm: nn.Module):
        super().__init__(attention, feedforward)  # type: ignore[arg-type]
        self.norm = norm

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        attention_state, normed = None if state is None else state.at("attention"), self.norm(x)
        x = self.attention.forward_with_residual(
            normed, x, context.sight, rotation=context.rotation, state=attention_state
        )
        return self.feedforward.forward_with_residual(normed, x)

    def step(self, x: Tensor, step_context: StepContext, path: str, context: LayerContext | None) -> Tensor:
        normed = self.norm(x)
        if context is None:
            x = self.attention.step_with_residual(normed, x, step_context, f"{path}attention.")
        else:
            inputs = (step_context.scatter_active(rows)[:, None] for rows in (normed, x))
            state = step_context.kv_cache.at(f"{path}attention")
            x = self.attention.forward_with_residual(*inputs, context.sight, rotation=context.rotation, state=state)
            x = x[:, 0]
            x = step_context.select_active(x).contiguous()
        return self.feedforward.step_with_residual(normed, x, step_context, path)

"""The layers of a transformer in their fast form."""

from torch import Tensor, nn

from saccade.engine.sublayers import FastSublayer, StepContext
from saccade.parts.layer import Layer, LayerContext
from saccade.parts.state import State


class FastLayer(Layer):
    """A layer of fast sublayers; one that has no fast form is called as it is."""

    def step(self, x: Tensor, step_context: StepContext, path: str, context: LayerContext | None) -> Tensor:
        """One new token a row, (B, W); the `context` is for a self-attention that must be asked in the usual way."""
        if context is None:
            x = self.attention.step(x, step_context, f"{path}attention.")  # type: ignore[operator]
        else:
            own = step_context.kv_cache.at(f"{path}attention")
            x = self.attention(
                step_context.scatter_active(x)[:, None], context.sight, rotation=context.rotation, state=own
            )[:, 0]
            x = step_context.select_active(x).contiguous()
        if self.across is not None:
            x = self.across.step(x, step_context, f"{path}across.")  # type: ignore[operator]
        return self.feedforward.step(x, step_context, path)  # type: ignore[operator]


class FastParallelLayer(FastLayer):
    """A layer whose two branches, both in their fast form, read the same input: each adds to what the other gives."""

    attention: FastSublayer
    feedforward: FastSublayer

    def __init__(self, attention: nn.Module, feedforward: nn.Module, norm: nn.Module):
        super().__init__(attention, feedforward)  # type: ignore[arg-type]
        self.norm = norm

    def forward(self, x: Tensor, context: LayerContext, state: State | None = None) -> Tensor:
        own, normed = None if state is None else state.at("attention"), self.norm(x)
        x = self.attention.forward_with_residual(normed, x, context.sight, rotation=context.rotation, state=own)
        return self.feedforward.forward_with_residual(normed, x)

    def step(self, x: Tensor, step_context: StepContext, path: str, context: LayerContext | None) -> Tensor:
        normed = self.norm(x)
        if context is None:
            x = self.attention.step_with_residual(normed, x, step_context, f"{path}attention.")
        else:
            both = (step_context.scatter_active(rows)[:, None] for rows in (normed, x))
            own = step_context.kv_cache.at(f"{path}attention")
            x = self.attention.forward_with_residual(*both, context.sight, rotation=context.rotation, state=own)[:, 0]
            x = step_context.select_active(x).contiguous()
        return self.feedforward.step_with_residual(normed, x, step_context, path)

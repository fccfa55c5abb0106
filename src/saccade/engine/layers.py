"""The layers of a transformer in their fast form."""

from torch import Tensor, nn

from saccade.engine.sublayers import Around, Now
from saccade.parts.layer import Layer, Scene
from saccade.parts.state import State


class FastLayer(Layer):
    """A layer of fast sublayers; one that has no fast form is called as it is."""

    def next(self, x: Tensor, now: Now, path: str, scene: Scene | None) -> Tensor:
        """One new token a row, (B, W); the `scene` is for a self-attention that must be asked in the usual way."""
        if scene is None:
            x = self.attention.next(x, now, f"{path}attention.")  # type: ignore[operator]
        else:
            own = now.memory.at(f"{path}attention")
            x = self.attention(now.all_rows(x)[:, None], scene.sight, turn=scene.turn, state=own)[:, 0]
            x = now.live_rows(x).contiguous()
        if self.across is not None:
            x = self.across.next(x, now, f"{path}across.")  # type: ignore[operator]
        return self.feedforward.next(x, now, path)  # type: ignore[operator]


class FastParallelLayer(FastLayer):
    """A layer whose two branches, both in their fast form, read the same input: each adds to what the other gives."""

    attention: Around
    feedforward: Around

    def __init__(self, attention: nn.Module, feedforward: nn.Module, norm: nn.Module):
        super().__init__(attention, feedforward)  # type: ignore[arg-type]
        self.norm = norm

    def forward(self, x: Tensor, scene: Scene, state: State | None = None) -> Tensor:
        own, normed = None if state is None else state.at("attention"), self.norm(x)
        x = self.attention.added(normed, x, scene.sight, turn=scene.turn, state=own)
        return self.feedforward.added(normed, x)

    def next(self, x: Tensor, now: Now, path: str, scene: Scene | None) -> Tensor:
        normed = self.norm(x)
        if scene is None:
            x = self.attention.next_added(normed, x, now, f"{path}attention.")
        else:
            both = (now.all_rows(rows)[:, None] for rows in (normed, x))
            own = now.memory.at(f"{path}attention")
            x = self.attention.added(*both, scene.sight, turn=scene.turn, state=own)[:, 0]
            x = now.live_rows(x).contiguous()
        return self.feedforward.next_added(normed, x, now, path)

"""A demo of an attention mechanism on example tokens on a spiral: its weights, and which of them are nonzero, for each pattern.

Neighbors on the spiral are similar, and so are tokens one turn apart."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Mechanism, Sight, get_mechanism
from saccade.attention.ascii_heatmap import ascii_heatmap
from saccade.attention.registry import MechanismEntry
from saccade.render.plot import Heatmap

DEMO_WIDTH, DEMO_HEADS = 16, 2


@dataclass
class MechanismDemo:
    """The weights of the first head of a mechanism on the example tokens, (K, K), by name of the pattern."""

    entry: MechanismEntry
    weights: dict[str, Tensor]

    def to_text(self) -> str:
        """Plots in characters: the weights above, and below them which weights are nonzero."""
        weights = {f"weights, {name}": ascii_heatmap(w, low=0.0) for name, w in self.weights.items()}
        pattern = {f"nonzero weights, {name}": _render_dots(w) for name, w in self.weights.items()}
        return f"{_join_side_by_side(weights)}\n\n{_join_side_by_side(pattern)}"

    def to_heatmaps(self) -> list[Heatmap]:
        """Heat maps of the weights, and of which weights are nonzero."""
        heatmaps = []
        for name, weights in self.weights.items():
            signed = bool((weights < 0).any())
            heatmaps.append(Heatmap(f"weights, {name}", weights, signed=signed))
            heatmaps.append(Heatmap(f"nonzero weights, {name}", (weights != 0).float()))
        return heatmaps


def _render_dots(weights: Tensor) -> str:
    return "\n".join(" ".join("■" if x else "·" for x in row) for row in (weights != 0).tolist())


def _join_side_by_side(plots: dict[str, str]) -> str:
    """Plots of the same height side by side, each under its name."""
    columns = [[name, *text.split("\n")] for name, text in plots.items()]
    width = max(len(line) for column in columns for line in column) + 4
    return "\n".join("".join(part.ljust(width) for part in row).rstrip() for row in zip(*columns, strict=True))


def make_spiral_tokens(size: int) -> Tensor:
    """Tokens on a spiral, (1, H, size, D): neighbors are similar, and so are tokens one turn apart."""
    torch.manual_seed(0)
    angle = torch.linspace(0, 4 * torch.pi, size)
    curve = torch.stack([angle.cos(), angle.sin(), (2 * angle).sin(), angle / 12], dim=-1)
    return (0.8 * curve @ torch.randn(DEMO_HEADS, 4, DEMO_WIDTH))[None]


def run_mechanism_demo(name: str, size: int = 24) -> MechanismDemo:
    """Run a mechanism on the example tokens, with the full pattern and, if it supports it, the causal one."""
    entry = get_mechanism(name)
    x = make_spiral_tokens(size)
    torch.manual_seed(0)
    module: Mechanism = entry.make(DEMO_WIDTH, DEMO_HEADS, size).eval()
    patterns = {"everything": FULL} | ({"the past only": CAUSAL} if "causal" in entry.supports else {})
    with torch.no_grad():
        return MechanismDemo(
            entry, {name: module.weights(x, x, Sight(pattern))[0, 0] for name, pattern in patterns.items()}
        )

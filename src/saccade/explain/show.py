"""One mechanism shown on the same small scene as all others: tokens on a spiral, so that near ones are alike and far ones meet
again. Its weights, and the pattern of who looks at whom, with the future open and hidden."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Mechanism, Sight, mechanism
from saccade.attention.shade import shade
from saccade.attention.table import Entry
from saccade.explain.picture import Map

WIDTH, HEADS = 16, 2


@dataclass
class Shown:
    """What a mechanism does with the scene: weights (K, K) of its first head, by name of the pattern."""

    entry: Entry
    weights: dict[str, Tensor]

    def text(self) -> str:
        """The drawings as characters: weights above, and below them who looks at whom."""
        weights = {f"weights, {name}": shade(w, low=0.0) for name, w in self.weights.items()}
        pattern = {f"who looks at whom, {name}": _dots(w) for name, w in self.weights.items()}
        return f"{_beside(weights)}\n\n{_beside(pattern)}"

    def maps(self) -> list[Map]:
        """The drawings as panels of a picture: weights, and where they are not zero."""
        panels = []
        for name, weights in self.weights.items():
            signed = bool((weights < 0).any())
            panels.append(Map(f"weights, {name}", weights, signed=signed))
            panels.append(Map(f"who looks at whom, {name}", (weights != 0).float()))
        return panels


def _dots(weights: Tensor) -> str:
    return "\n".join(" ".join("■" if x else "·" for x in row) for row in (weights != 0).tolist())


def _beside(drawings: dict[str, str]) -> str:
    """Drawings of the same height side by side, each under its name."""
    columns = [[name, *text.split("\n")] for name, text in drawings.items()]
    wide = max(len(line) for column in columns for line in column) + 4
    return "\n".join("".join(part.ljust(wide) for part in row).rstrip() for row in zip(*columns, strict=True))


def scene(size: int) -> Tensor:
    """Tokens on a slow spiral, (1, H, size, D): neighbours are alike, and so are tokens a turn apart."""
    torch.manual_seed(0)
    at = torch.linspace(0, 4 * torch.pi, size)
    curve = torch.stack([at.cos(), at.sin(), (2 * at).sin(), at / 12], dim=-1)
    return (0.8 * curve @ torch.randn(HEADS, 4, WIDTH))[None]


def show(name: str, size: int = 24) -> Shown:
    """Run one mechanism on the scene, with the future open, and hidden where it can hide it."""
    entry = mechanism(name)
    x = scene(size)
    torch.manual_seed(0)
    module: Mechanism = entry.make(WIDTH, HEADS, size).eval()
    patterns = {"everything": FULL} | ({"the past only": CAUSAL} if "causal" in entry.honours else {})
    with torch.no_grad():
        return Shown(entry, {name: module.weights(x, x, Sight(pattern))[0, 0] for name, pattern in patterns.items()})

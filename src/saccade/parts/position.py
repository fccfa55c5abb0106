"""How order enters: into the input (learned, sinusoidal, a grid), into queries and keys (rotary), or into the scores (ALiBi, T5).

Without one of these, attention does not notice the order of its tokens. Every scheme is a function of positions, never of
shapes, so padding, remembered text and longer texts come out right. `POSITIONS` is the table of them all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention import Alibi, Bias, T5Bias
from saccade.attention.ascii_heatmap import ascii_heatmap
from saccade.suggest import suggest

Rotation = Callable[[Tensor], Tensor]


class Position(nn.Module):
    """No order at all; a scheme overrides one of `add_to_input`, `rotate` and `bias`."""

    extra_width = 0  # the width it adds when concatenated
    max_positions: int | None = None  # the number of positions it has, where that is fixed

    def for_layer(self, layer: int) -> "Position":
        """The scheme of one layer of a stack, counted from 0: the same for all, unless it is a `PerLayerPosition`."""
        return self

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        """Order into the input: x (B, L, W), pos (B|1, L)."""
        return x

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        """Order into queries and keys: x (B, H, L, D), pos (B|1, L)."""
        return x

    def bias(self) -> Bias | None:
        """Order into the scores."""
        return None

    def rotation_at(self, pos: Tensor) -> Rotation | None:
        """`rotate` at fixed positions, for all layers of a pass; None where nothing turns."""
        return None if type(self).rotate is Position.rotate else lambda x: self.rotate(x, pos)

    def to_matrix(self, length: int = 32) -> Tensor:
        """What it does, as a matrix to look at: a row for each position."""
        bias = self.bias()
        if bias is not None:  # a row for each query, the first head
            at = torch.arange(length)
            with torch.no_grad():
                return bias(at[:, None], at[None, :])[0]
        return torch.zeros(length, 1)

    def draw(self, length: int = 16) -> str:
        """The barcode as characters: a row for each position."""
        return ascii_heatmap(self.to_matrix(length))


class AdditivePosition(Position):
    """A vector for each position, added to the input."""

    width: int

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors of these positions, (B|1, L, W)."""
        raise NotImplementedError(f"{type(self).__name__} must give a vector for each position")

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.encode(pos.clamp(min=0), x.dtype)

    def to_matrix(self, length: int = 32) -> Tensor:
        with torch.no_grad():
            return self.encode(torch.arange(min(length, self.max_positions or length))[None], torch.float32)[0]


class Sinusoidal(AdditivePosition):
    """Sines and cosines of falling frequency: a binary counter with soft digits (Vaswani et al. 2017).

    Neighbouring columns are sine and cosine of one frequency; with `sines_first` all sines come first, as some models have it.

    >>> print(Sinusoidal(8, base=16.0).draw(8))  # fast digits on the left, slow ones on the right
    ▒▒██▒▒██▒▒██▒▒██
    ██▓▓▓▓██▒▒██▒▒██
    ██░░██▓▓▓▓██▒▒██
    ▒▒  ██▒▒▓▓▓▓▓▓██
      ░░██░░██▓▓▓▓██
      ▓▓▓▓  ██▓▓▓▓██
    ░░██▒▒  ██▒▒▓▓▓▓
    ▓▓██░░  ██▒▒██▓▓
    """

    def __init__(self, width: int, *, base: float = 10_000.0, sines_first: bool = False):
        super().__init__()
        if width % 2:
            raise ValueError(f"A sinusoidal position has pairs of sine and cosine, so its width is even; got {width}.")
        self.width, self.base, self.sines_first = width, base, sines_first

    def frequencies(self, device: torch.device) -> Tensor:
        """One for each pair of columns, from 1 down to almost 1/base."""
        # in double precision, or a position of ten thousand would already be off by a thousandth of a turn
        exact = torch.float32 if device.type == "mps" else torch.float64
        return self.base ** (-torch.arange(0, self.width, 2, dtype=exact, device=device) / self.width)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = pos.unsqueeze(-1) * self.frequencies(pos.device)  # (B|1, L, W/2)
        pair = (angle.sin(), angle.cos())
        return (torch.cat(pair, dim=-1) if self.sines_first else torch.stack(pair, dim=-1).flatten(-2)).to(dtype)

    def make_shift_matrix(self, offset: int) -> Tensor:
        """The matrix that moves any position's vector to the position `offset` later: p(t + offset) = M p(t)."""
        angle = offset * self.frequencies(torch.device("cpu"))
        blocks = torch.stack([torch.stack([a.cos(), a.sin(), -a.sin(), a.cos()]).view(2, 2) for a in angle])
        matrix = torch.block_diag(*blocks)
        if self.sines_first:
            order = torch.arange(self.width).view(-1, 2).T.flatten()
            matrix = matrix[order][:, order]
        return matrix


class Learned(AdditivePosition):
    """A learned vector for each of `max_positions` positions (Gehring et al. 2017, Devlin et al. 2019).

    `offset` rows in front belong to nobody, as some published models have it.
    """

    def __init__(self, max_positions: int, width: int, *, offset: int = 0):
        super().__init__()
        self.width, self.max_positions, self.offset = width, max_positions, offset
        self.vectors = nn.Embedding(max_positions + offset, width)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        return self.vectors(pos + self.offset).to(dtype)

    def resize(self, max_positions: int) -> "Learned":
        """The same scheme for longer or shorter texts, with vectors in between interpolated."""
        new = Learned(max_positions, self.width, offset=self.offset)
        old = self.vectors.weight.detach()
        middle = F.interpolate(old[self.offset :].T[None], max_positions, mode="linear", align_corners=True)[0].T
        new.vectors.weight.data = torch.cat([old[: self.offset], middle])
        return new


class LearnedGrid(AdditivePosition):
    """A learned vector for each cell of a grid, read row by row, after `prefix_positions` positions that are no cells
    (Dosovitskiy 2021).
    """

    def __init__(self, rows: int, columns: int, width: int, *, prefix_positions: int = 0):
        super().__init__()
        self.rows, self.columns, self.prefix_positions, self.width = rows, columns, prefix_positions, width
        self.max_positions = prefix_positions + rows * columns
        self.vectors = nn.Parameter(torch.randn(self.max_positions, width) * 0.02)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        return F.embedding(pos, self.vectors).to(dtype)

    def resize(self, rows: int, columns: int) -> "LearnedGrid":
        """The same scheme for pictures of another size: the grid of vectors is resampled like an image."""
        new = LearnedGrid(rows, columns, self.width, prefix_positions=self.prefix_positions)
        cells = self.vectors.detach()[self.prefix_positions :].T.view(1, self.width, self.rows, self.columns)
        cells = F.interpolate(cells, (rows, columns), mode="bicubic", align_corners=False)
        new.vectors.data = torch.cat([self.vectors.detach()[: self.prefix_positions], cells.flatten(2)[0].T])
        return new


class SinusoidalGrid(AdditivePosition):
    """Half of the width tells the row of a cell, half the column, each by sines and cosines; nothing is learned."""

    def __init__(self, columns: int, width: int, *, base: float = 10_000.0):
        super().__init__()
        if width % 4:
            raise ValueError(f"Two axes of sine and cosine need a width that 4 divides; got {width}.")
        self.columns, self.width = columns, width
        self.axis = Sinusoidal(width // 2, base=base)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        place = (pos // self.columns, pos % self.columns)
        return torch.cat([self.axis.encode(axis, dtype) for axis in place], dim=-1)


class ConcatPosition(Position):
    """Position vectors beside the input instead of added to it: the stack is wider by `extra_width`."""

    def __init__(self, placed: AdditivePosition):
        super().__init__()
        self.placed, self.extra_width, self.max_positions = placed, placed.width, placed.max_positions

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        vectors = self.placed.encode(pos.clamp(min=0), x.dtype)
        return torch.cat([x, vectors.expand(x.size(0), -1, -1)], dim=-1)

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.placed.to_matrix(length)


class Rotary(Position):
    """Queries and keys are turned by an angle that grows with position, so scores depend on distance alone (Su et al. 2021).

    Pairs of columns turn together: column i with column i + d/2, or with `interleaved` column 2i with 2i + 1. With a
    `rotary_width` only so many columns turn, and the rest stay as they are (partial rotary).
    """

    def __init__(
        self, head_width: int, *, base: float = 10_000.0, interleaved: bool = False, rotary_width: int | None = None
    ):
        super().__init__()
        self.head_width = head_width
        self.waves = Sinusoidal(head_width if rotary_width is None else rotary_width, base=base, sines_first=True)
        self.interleaved = interleaved
        if self.waves.width > head_width:
            raise ValueError(f"A head of width {head_width} has no {self.waves.width} columns to turn.")

    @property
    def is_partial(self) -> bool:
        """Whether some columns do not turn."""
        return self.waves.width < self.head_width

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.rotation_at(pos)(x)

    def rotation_at(self, pos: Tensor) -> Rotation:
        angle = pos.clamp(min=0).unsqueeze(-1) * self.waves.frequencies(pos.device)  # (B|1, L, D/2)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]

        width, turned = self.head_width, self.waves.width

        def turn(x: Tensor) -> Tensor:
            if x.size(-1) != width:
                raise ValueError(f"This Rotary turns heads of width {width}; got {x.size(-1)}.")
            c, s = cos.to(x.dtype), sin.to(x.dtype)
            part = x if turned == width else x[..., :turned]
            if self.interleaved:
                a, b = part[..., 0::2], part[..., 1::2]
                out = torch.stack([a * c - b * s, b * c + a * s], dim=-1).flatten(-2)
            else:
                a, b = part.chunk(2, dim=-1)
                out = torch.cat([a * c - b * s, b * c + a * s], dim=-1)
            return out if turned == width else torch.cat([out, x[..., turned:]], dim=-1)

        return turn

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.waves.to_matrix(length)


class BiasPosition(Position):
    """Order as a tilt of the scores: ALiBi or T5's buckets."""

    def __init__(self, tilt: Alibi | T5Bias):
        super().__init__()
        self.tilt = tilt

    def bias(self) -> Bias | None:
        return self.tilt


class PerLayerPosition(Position):
    """One scheme for each layer of a stack, of those that turn or tilt: what enters the input is there for all layers."""

    def __init__(self, schemes: Sequence[Position]):
        super().__init__()
        placing = [scheme for scheme in schemes if type(scheme).add_to_input is not Position.add_to_input]
        if placing:
            raise ValueError(
                f"{type(placing[0]).__name__} enters the input, which all layers share; give the stack one scheme."
            )
        self.schemes = nn.ModuleList(dict.fromkeys(schemes))  # each once, however many layers it serves
        self.scheme_indices = [list(dict.fromkeys(schemes)).index(scheme) for scheme in schemes]

    def for_layer(self, layer: int) -> Position:
        return self.schemes[self.scheme_indices[layer]]  # type: ignore[return-value]

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.for_layer(0).to_matrix(length)


ADDED_TO_INPUT = "added to the embeddings"


@dataclass(frozen=True)
class PositionEntry:
    """One line of the table."""

    name: str
    make: Callable[[int, int, int], Position]  # (width, heads, longest text)
    where: str
    paper: str

    @property
    def is_added_to_input(self) -> bool:
        return self.where == ADDED_TO_INPUT


POSITIONS = [
    PositionEntry("none", lambda w, h, n: Position(), "not encoded: order is invisible", ""),
    PositionEntry("sinusoidal", lambda w, h, n: Sinusoidal(w), ADDED_TO_INPUT, "Vaswani 2017"),
    PositionEntry("learned", lambda w, h, n: Learned(n, w), ADDED_TO_INPUT, "Gehring 2017"),
    PositionEntry(
        "concat",
        lambda w, h, n: ConcatPosition(Sinusoidal(2 * h)),
        "concatenated to the embeddings",
        "CS231n, lecture 11",
    ),
    PositionEntry("rotary", lambda w, h, n: Rotary(w // h), "applied to queries and keys", "Su 2021"),
    PositionEntry("alibi", lambda w, h, n: BiasPosition(Alibi(h)), "added to the attention scores", "Press 2022"),
    PositionEntry("t5_bias", lambda w, h, n: BiasPosition(T5Bias(h)), "added to the attention scores", "Raffel 2020"),
    PositionEntry("learned_grid", lambda w, h, n: LearnedGrid(-(-n // 8), 8, w), ADDED_TO_INPUT, "Dosovitskiy 2021"),
    PositionEntry("sinusoidal_grid", lambda w, h, n: SinusoidalGrid(8, w), ADDED_TO_INPUT, "Parmar 2018"),
]


def get_position(name: str) -> PositionEntry:
    """The line of that name, or an error that lists the names."""
    for entry in POSITIONS:
        if entry.name == name:
            return entry
    known = [entry.name for entry in POSITIONS]
    raise ValueError(f"Unknown position scheme {name!r}; {suggest(name, known)}")

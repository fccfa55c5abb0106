"""Positional encodings: added to the input (learned, sinusoidal, grid), rotary (RoPE), or biases of the scores (ALiBi, T5).

Without one of these, attention is invariant to the order of its tokens. Every scheme is a function of positions, not of
shapes, so it works with padding, with a KV cache, and with longer texts. `POSITIONS` is the table of all schemes.
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
    """No positional encoding; a scheme overrides one of `add_to_input`, `rotate` and `bias`."""

    extra_width = 0  # columns that the scheme concatenates to the input
    max_positions: int | None = None  # the maximum length, if the scheme has one

    def for_layer(self, layer: int) -> "Position":
        """The scheme of a layer, numbered from 0: the same for all layers unless it is a `PerLayerPosition`."""
        return self

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        """Encode positions in the input embeddings: x (B, L, W), pos (B|1, L)."""
        return x

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        """Encode positions in queries or keys: x (B, H, L, D), pos (B|1, L)."""
        return x

    def bias(self) -> Bias | None:
        """Encode positions in a bias of the attention scores."""
        return None

    def rotation_at(self, pos: Tensor) -> Rotation | None:
        """`rotate` at fixed positions, shared by all layers of a forward pass; None if the scheme does not rotate."""
        return None if type(self).rotate is Position.rotate else lambda x: self.rotate(x, pos)

    def to_matrix(self, length: int = 32) -> Tensor:
        """The encoding as a matrix for plotting: a row for each position."""
        bias = self.bias()
        if bias is not None:  # queries x keys, of the first head
            positions = torch.arange(length)
            with torch.no_grad():
                return bias(positions[:, None], positions[None, :])[0]
        return torch.zeros(length, 1)

    def draw(self, length: int = 16) -> str:
        """The encoding as an ASCII heatmap: a row for each position."""
        return ascii_heatmap(self.to_matrix(length))


class AdditivePosition(Position):
    """Base class of position vectors that are added to the input embeddings."""

    width: int

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """The position vectors, (B|1, L, W)."""
        raise NotImplementedError(f"{type(self).__name__} must define `encode`, the vector of each position")

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.encode(pos.clamp(min=0), x.dtype)

    def to_matrix(self, length: int = 32) -> Tensor:
        with torch.no_grad():
            return self.encode(torch.arange(min(length, self.max_positions or length))[None], torch.float32)[0]


class Sinusoidal(AdditivePosition):
    """Sinusoidal positional encoding: sines and cosines of decreasing frequency (Vaswani et al. 2017).

    Adjacent columns are the sine and cosine of one frequency; with `sines_first`, all sines come before all cosines.

    >>> print(Sinusoidal(8, base=16.0).draw(8))  # high frequencies on the left, low ones on the right
    ▒▒██▒▒██▒▒██▒▒██
    ██▓▓▓▓██▒▒██▒▒██
    ██░░██▓▓▓▓██▒▒██
    ▒▒  ██▒▒▓▓▓▓▓▓██
      ░░██░░██▓▓▓▓██
      ▓▓▓▓  ██▓▓▓▓██
    ░░██▒▒  ██▒▒▓▓▓▓
    ▓▓██░░  ██▒▒██▓▓
    """

    base: float
    sines_first: bool

    def __init__(self, width: int, *, base: float = 10_000.0, sines_first: bool = False):
        super().__init__()
        if width % 2:
            raise ValueError(
                f"Sinusoidal positions are pairs of sine and cosine, so the width must be even; got {width}."
            )
        self.width, self.base, self.sines_first = width, base, sines_first

    def frequencies(self, device: torch.device) -> Tensor:
        """The frequency of each pair of columns, from 1 down to almost 1/base."""
        # in float64; in float32 the angle of position 10,000 would be off by a thousandth of a turn
        exact = torch.float32 if device.type == "mps" else torch.float64
        return self.base ** (-torch.arange(0, self.width, 2, dtype=exact, device=device) / self.width)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = pos.unsqueeze(-1) * self.frequencies(pos.device)  # (B|1, L, W/2)
        pair = (angle.sin(), angle.cos())
        return (torch.cat(pair, dim=-1) if self.sines_first else torch.stack(pair, dim=-1).flatten(-2)).to(dtype)

    def make_shift_matrix(self, offset: int) -> Tensor:
        """The matrix M that shifts any position vector by `offset` positions: p(t + offset) = M p(t)."""
        angle = offset * self.frequencies(torch.device("cpu"))
        blocks = torch.stack([torch.stack([a.cos(), a.sin(), -a.sin(), a.cos()]).view(2, 2) for a in angle])
        matrix = torch.block_diag(*blocks)
        if self.sines_first:
            order = torch.arange(self.width).view(-1, 2).T.flatten()
            matrix = matrix[order][:, order]
        return matrix


class Learned(AdditivePosition):
    """Learned position embeddings for `max_positions` positions (Gehring et al. 2017, Devlin et al. 2019).

    The first `offset` rows of the table are unused, as in RoBERTa and BART.
    """

    offset: int

    def __init__(self, max_positions: int, width: int, *, offset: int = 0):
        super().__init__()
        self.width, self.max_positions, self.offset = width, max_positions, offset
        self.vectors: nn.Embedding = nn.Embedding(max_positions + offset, width)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        return self.vectors(pos + self.offset).to(dtype)

    def resize(self, max_positions: int) -> "Learned":
        """A copy for another number of positions, with linearly interpolated vectors."""
        new = Learned(max_positions, self.width, offset=self.offset)
        old = self.vectors.weight.detach()
        resampled = F.interpolate(old[self.offset :].T[None], max_positions, mode="linear", align_corners=True)[0].T
        new.vectors.weight.data = torch.cat([old[: self.offset], resampled])
        return new


class LearnedGrid(AdditivePosition):
    """Learned position embeddings of an image grid, row by row (Dosovitskiy et al. 2021).

    `prefix_positions` are for tokens in front of the patches, such as [CLS].
    """

    rows: int
    columns: int
    prefix_positions: int

    def __init__(self, rows: int, columns: int, width: int, *, prefix_positions: int = 0):
        super().__init__()
        self.rows, self.columns, self.prefix_positions, self.width = rows, columns, prefix_positions, width
        self.max_positions = prefix_positions + rows * columns
        self.vectors: nn.Parameter = nn.Parameter(torch.randn(self.max_positions, width) * 0.02)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        return F.embedding(pos, self.vectors).to(dtype)

    def resize(self, rows: int, columns: int) -> "LearnedGrid":
        """A copy for images of another size, with the grid of vectors resampled by bicubic interpolation."""
        new = LearnedGrid(rows, columns, self.width, prefix_positions=self.prefix_positions)
        cells = self.vectors.detach()[self.prefix_positions :].T.view(1, self.width, self.rows, self.columns)
        cells = F.interpolate(cells, (rows, columns), mode="bicubic", align_corners=False)
        new.vectors.data = torch.cat([self.vectors.detach()[: self.prefix_positions], cells.flatten(2)[0].T])
        return new


class SinusoidalGrid(AdditivePosition):
    """Two-dimensional sinusoidal encoding: half of the width encodes the row of a cell, half the column."""

    columns: int

    def __init__(self, columns: int, width: int, *, base: float = 10_000.0):
        super().__init__()
        if width % 4:
            raise ValueError(f"Two axes of sine and cosine need a width that 4 divides, such as 64; got {width}.")
        self.columns, self.width = columns, width
        self.axis: Sinusoidal = Sinusoidal(width // 2, base=base)

    def encode(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        row_and_column = (pos // self.columns, pos % self.columns)
        return torch.cat([self.axis.encode(index, dtype) for index in row_and_column], dim=-1)


class ConcatPosition(Position):
    """Position vectors concatenated to the input embeddings, which widens the stack by `extra_width`."""

    extra_width: int

    def __init__(self, position: AdditivePosition):
        super().__init__()
        self.position = position
        self.extra_width, self.max_positions = position.width, position.max_positions

    def add_to_input(self, x: Tensor, pos: Tensor) -> Tensor:
        vectors = self.position.encode(pos.clamp(min=0), x.dtype)
        return torch.cat([x, vectors.expand(x.size(0), -1, -1)], dim=-1)

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.position.to_matrix(length)


class Rotary(Position):
    """Rotary position embedding (RoPE): rotates queries and keys, so that scores depend on relative positions (Su et al. 2021).

    Pairs of columns rotate together: column i with column i + d/2, or with `interleaved` column 2i with 2i + 1. `rotary_width`
    limits the rotation to the first columns (partial rotary); default: all.
    """

    def __init__(
        self, head_width: int, *, base: float = 10_000.0, interleaved: bool = False, rotary_width: int | None = None
    ):
        super().__init__()
        self.head_width = head_width
        self.waves: Sinusoidal = Sinusoidal(
            head_width if rotary_width is None else rotary_width, base=base, sines_first=True
        )
        self.interleaved = interleaved
        if self.waves.width > head_width:
            raise ValueError(
                f"A head of width {head_width} has no {self.waves.width} columns to rotate; use a smaller rotary_width."
            )

    @property
    def is_partial(self) -> bool:
        """Whether only some of the columns rotate."""
        return self.waves.width < self.head_width

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.rotation_at(pos)(x)

    def rotation_at(self, pos: Tensor) -> Rotation:
        angle = pos.clamp(min=0).unsqueeze(-1) * self.waves.frequencies(pos.device)  # (B|1, L, D/2)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]

        width, rotary_width = self.head_width, self.waves.width

        def rotate(x: Tensor) -> Tensor:
            if x.size(-1) != width:
                raise ValueError(f"This Rotary was built for heads of width {width}; got {x.size(-1)}.")
            c, s = cos.to(x.dtype), sin.to(x.dtype)
            columns = x if rotary_width == width else x[..., :rotary_width]
            if self.interleaved:
                a, b = columns[..., 0::2], columns[..., 1::2]
                out = torch.stack([a * c - b * s, b * c + a * s], dim=-1).flatten(-2)
            else:
                a, b = columns.chunk(2, dim=-1)
                out = torch.cat([a * c - b * s, b * c + a * s], dim=-1)
            return out if rotary_width == width else torch.cat([out, x[..., rotary_width:]], dim=-1)

        return rotate

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.waves.to_matrix(length)


class BiasPosition(Position):
    """Relative positions as a bias of the attention scores: ALiBi, or T5's relative position buckets."""

    def __init__(self, score_bias: Alibi | T5Bias):
        super().__init__()
        self.tilt = score_bias  # the name in stored weights

    def bias(self) -> Bias | None:
        return self.tilt


class PerLayerPosition(Position):
    """A scheme per layer, of those that rotate or bias; what is added to the input is shared by all layers."""

    def __init__(self, schemes: Sequence[Position]):
        super().__init__()
        input_schemes = [scheme for scheme in schemes if type(scheme).add_to_input is not Position.add_to_input]
        if input_schemes:
            raise ValueError(
                f"{type(input_schemes[0]).__name__} enters the input, which all layers share; give the stack one scheme."
            )
        self.schemes: nn.ModuleList = nn.ModuleList(dict.fromkeys(schemes))  # each distinct scheme once
        self.scheme_indices: list[int] = [list(dict.fromkeys(schemes)).index(scheme) for scheme in schemes]

    def for_layer(self, layer: int) -> Position:
        return self.schemes[self.scheme_indices[layer]]  # type: ignore[return-value]

    def to_matrix(self, length: int = 32) -> Tensor:
        return self.for_layer(0).to_matrix(length)


ADDED_TO_INPUT = "added to the embeddings"


@dataclass(frozen=True)
class PositionEntry:
    """One position scheme of the table."""

    name: str
    make: Callable[[int, int, int], Position]  # (width, heads, max. positions)
    where: str
    paper: str = ""

    @property
    def is_added_to_input(self) -> bool:
        return self.where == ADDED_TO_INPUT


POSITIONS = [
    PositionEntry("none", lambda w, h, n: Position(), "not encoded", ""),
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
    """The position scheme of that name, or an error that suggests the nearest name."""
    for entry in POSITIONS:
        if entry.name == name:
            return entry
    known = [entry.name for entry in POSITIONS]
    raise ValueError(f"Unknown position scheme {name!r}; {suggest(name, known)}")

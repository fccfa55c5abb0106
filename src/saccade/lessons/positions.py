"""Lessons on positions: sinusoidal position encoding, and the maximum length of each position scheme."""

import math

import torch
from torch import Tensor

from saccade.lessons.base import Control, Heatmap, Lesson, LessonResult, LineChart, Table, format_significant, pluralize
from saccade.lessons.common import build_seeded, draw_normal
from saccade.lessons.order import POSITION_SCHEMES, WIDTH, make_stack
from saccade.parts.position import Learned, Sinusoidal, get_position

POSITION_COUNT, VECTOR_WIDTH = 32, 32  # positions shown, and the width of a position vector
BITS = 5  # enough for 32 positions


def make_binary_counter(count: int) -> list[list[float]]:
    """The numbers from 0 to `count` - 1 in binary, the lowest bit first.

    >>> make_binary_counter(4)
    [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    return [[float(number >> bit & 1) for bit in range(BITS)] for number in range(count)]


def position_similarity(scheme: Sinusoidal, t: int) -> list[tuple[float, float]]:
    """Points (distance, dot product) of the vector of position `t` with those of the positions around it."""
    vectors = scheme.to_matrix(2 * POSITION_COUNT).double()
    return [
        (float(k), (vectors[t] @ vectors[t + k]).item()) for k in range(-POSITION_COUNT // 2, POSITION_COUNT // 2 + 1)
    ]


def compute_barcode(settings: dict[str, str]) -> LessonResult:
    """The vectors of the first positions beside a binary counter, and the matrix that shifts positions."""
    shift, scheme = int(float(settings["shift"])), Sinusoidal(VECTOR_WIDTH, base=float(settings["base"]))
    vectors, shift_matrix = scheme.to_matrix(POSITION_COUNT + shift).double(), scheme.make_shift_matrix(shift)
    error = (vectors[:POSITION_COUNT] @ shift_matrix.mT - vectors[shift:]).abs().max().item()
    accuracy = f"with an error of at most {format_significant(error, 1)}, which is rounding" if error else "exactly"
    periods = (2 * math.pi / scheme.frequencies(torch.device("cpu"))).tolist()
    summary = (
        f"The fastest pair of columns has a period of {periods[0]:.1f} positions, the slowest pair {periods[-1]:,.0f}. One "
        f"matrix shifts every position by {shift}, {accuracy}."
    )
    columns = [f"{wave} {i + 1}" for i in range(VECTOR_WIDTH // 2) for wave in ("sin", "cos")]
    counter = zip(make_binary_counter(POSITION_COUNT), vectors[:POSITION_COUNT].tolist(), strict=True)
    return LessonResult(
        summary,
        [
            Heatmap(
                "a binary counter (left) and the vector of each position (right)",
                [[*bits, *waves] for bits, waves in counter],
                [str(i) for i in range(POSITION_COUNT)],
                [*(f"bit {bit}" for bit in range(BITS)), *columns],
            ),
            Heatmap(f"the matrix that shifts positions by {shift}", shift_matrix.tolist(), columns, columns),
            LineChart(
                "similarity by distance; the dots, for t = 24 and t = 40, lie on the line",
                "k, the distance",
                "p(t)·p(t + k)",
                {"t = 16": position_similarity(scheme, 16)},
                [*position_similarity(scheme, 24), *position_similarity(scheme, 40)],
            ),
        ],
    )


def find_length_error(scheme: str, max_positions: int, x: Tensor) -> str:
    """The error of a layer with this position scheme on a text; empty if there is none."""
    try:
        with torch.no_grad():
            make_stack(scheme, max_positions)(x)
    except ValueError as error:
        return str(error)
    return ""


def compute_max_length(settings: dict[str, str]) -> LessonResult:
    """Run a layer with each position scheme, built for `built` positions, on a text of `length` tokens."""
    built, length = int(float(settings["built"])), int(float(settings["length"]))
    x = draw_normal(0, 1, length, WIDTH)
    errors = {name: find_length_error(name, built, x) for name in POSITION_SCHEMES}
    accepted = f"accepts {pluralize(length, 'token')}"
    rows = [[name, get_position(name).where, errors[name] or accepted] for name in POSITION_SCHEMES]
    failed = [name for name, error in errors.items() if error]
    summary = f"With {pluralize(built, 'position')} and a text of {pluralize(length, 'token')}, "
    summary += f"{' and '.join(failed)} positions fail and all other schemes work." if failed else "every scheme works."
    table = build_seeded(lambda: Learned(built, WIDTH))
    # an untrained table is noise, in which interpolation cannot be seen; sines stand in for learned vectors
    table.vectors.weight.data = Sinusoidal(WIDTH).to_matrix(built)
    with torch.random.fork_rng(devices=[]):  # the resized table is initialized at random before it is filled
        resized = table.resize(length).to_matrix(length)
    columns = [str(column + 1) for column in range(WIDTH)]
    row_names = lambda count: [str(i) for i in range(count)]
    title = f"table of {pluralize(built, 'position')}, filled with sines"
    return LessonResult(
        summary,
        [
            Table("one layer with each scheme", ["scheme", "positions are", "result"], rows),
            Heatmap(title, table.to_matrix(built).tolist(), row_names(built), columns, 1.0),
            Heatmap(f"the same table, resized to {length}", resized.tolist(), row_names(length), columns, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="barcode",
        title="Sinusoidal position encoding",
        description="How can the index of a position be represented so that a network can use it? A binary counter flips its "
        "lowest bit at every step, the next bit at every second step, and so on. Sines and cosines of decreasing frequency are "
        "a counter with continuous digits: each row is the vector of a position, and no two rows are equal. A shift by k "
        "rotates each pair of columns by a fixed angle, so one matrix shifts any position by k. A head can therefore learn to "
        "attend three words back from any position.",
        formula="p(t)₂ᵢ = sin(t ωᵢ),   p(t)₂ᵢ₊₁ = cos(t ωᵢ),   ωᵢ = base^(-2i/d),   p(t + k) = Mₖ p(t)",
        code=(Sinusoidal,),
        controls=(
            Control("shift", "k, the shift in positions", "range", "3", 0, 31, 1),
            Control("base", "Base of the frequencies", "choice", "10000", choices=("10000", "1000", "100", "16")),
        ),
        compute=compute_barcode,
    ),
    Lesson(
        name="longest",
        title="Maximum sequence length and position schemes",
        description="Self-attention is often said to have a fixed maximum length. This is true of learned position embeddings: "
        "their table has one vector for each position, and none beyond the last. Sinusoidal, rotary and relative schemes "
        "compute the positions and are defined at any length, although a model may be inaccurate at lengths that it was not "
        "trained on. A table of embeddings can be resized: its vectors are interpolated, and training continues from there. "
        "The embedding table shown here holds sines instead of learned vectors, so that the interpolation is visible.",
        formula="learned: p(t) = table[t], t < built;   sinusoidal, rotary, ALiBi: p(t) = f(t) for every t",
        code=(Learned, Sinusoidal),
        controls=(
            Control("built", "Positions the model was built with", "range", "24", 8, 64, 1),
            Control("length", "Text length in tokens", "range", "32", 1, 128, 1),
        ),
        compute=compute_max_length,
    ),
)

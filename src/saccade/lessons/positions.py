"""Lessons on positions: the barcode of sines and cosines, and which schemes have a longest text."""

import math

import torch
from torch import Tensor

from saccade.lessons.base import Control, Heatmap, Lesson, LessonResult, LineChart, Table, format_significant, pluralize
from saccade.lessons.common import build_seeded, draw_normal
from saccade.lessons.order import POSITION_SCHEMES, WIDTH, make_stack
from saccade.parts.position import Learned, Sinusoidal, get_position

POSITION_COUNT, VECTOR_WIDTH = 32, 32  # positions that are drawn, and the width of a position's vector
BITS = 5  # enough to count to 32


def make_binary_counter(count: int) -> list[list[float]]:
    """The numbers from 0 in binary, the fast digit on the left.

    >>> make_binary_counter(4)
    [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    return [[float(number >> bit & 1) for bit in range(BITS)] for number in range(count)]


def position_similarity(scheme: Sinusoidal, t: int) -> list[tuple[float, float]]:
    """The dot product of a position's vector with those around it, by their distance."""
    code = scheme.to_matrix(2 * POSITION_COUNT).double()
    return [(float(k), (code[t] @ code[t + k]).item()) for k in range(-POSITION_COUNT // 2, POSITION_COUNT // 2 + 1)]


def compute_barcode(settings: dict[str, str]) -> LessonResult:
    """The vectors of the first positions, a counter beside them, and the matrix that moves them on."""
    shift, scheme = int(float(settings["shift"])), Sinusoidal(VECTOR_WIDTH, base=float(settings["base"]))
    code, move = scheme.to_matrix(POSITION_COUNT + shift).double(), scheme.make_shift_matrix(shift)
    off = (code[:POSITION_COUNT] @ move.mT - code[shift:]).abs().max().item()
    exact = f"off by {format_significant(off, 1)} at most, which is rounding" if off else "exact"
    periods = (2 * math.pi / scheme.frequencies(torch.device("cpu"))).tolist()
    said = (
        f"The fastest pair of columns turns once in {periods[0]:.1f} positions, the slowest in {periods[-1]:,.0f}. One matrix "
        f"moves every position on by {shift}, and is {exact}."
    )
    columns = [f"{wave} {number + 1}" for number in range(VECTOR_WIDTH // 2) for wave in ("sin", "cos")]
    numbers = [str(number) for number in range(POSITION_COUNT)]
    return LessonResult(
        said,
        [
            Heatmap(
                "a binary counter on the left, and beside it the vector of each position",
                [
                    [*bits, *waves]
                    for bits, waves in zip(
                        make_binary_counter(POSITION_COUNT), code[:POSITION_COUNT].tolist(), strict=True
                    )
                ],
                numbers,
                [*(f"bit {bit}" for bit in range(BITS)), *columns],
            ),
            Heatmap(f"the matrix that moves on by {shift}", move.tolist(), columns, columns),
            LineChart(
                "who is near: dots, around the positions 24 and 40, lie on the line",
                "k, the distance",
                "p(t)·p(t + k)",
                {"around 16": position_similarity(scheme, 16)},
                [*position_similarity(scheme, 24), *position_similarity(scheme, 40)],
            ),
        ],
    )


def find_length_error(scheme: str, max_positions: int, x: Tensor) -> str:
    """What a layer with this scheme says to a text: nothing, or why it cannot be read."""
    try:
        with torch.no_grad():
            make_stack(scheme, max_positions)(x)
    except ValueError as error:
        return str(error)
    return ""


def compute_max_length(settings: dict[str, str]) -> LessonResult:
    """Read a text with every scheme, all of them built for a shorter or longer one."""
    built, length = int(float(settings["built"])), int(float(settings["length"]))
    x = draw_normal(0, 1, length, WIDTH)
    answers = {name: find_length_error(name, built, x) for name in POSITION_SCHEMES}
    rows = [
        [name, get_position(name).where, answers[name] or f"reads {pluralize(length, 'token')}"]
        for name in POSITION_SCHEMES
    ]
    refused = [name for name, answer in answers.items() if answer]
    said = f"Built for {built} tokens and given {length}: "
    said += f"{' and '.join(refused)} cannot go on, the other schemes can." if refused else "every scheme reads it."
    table = build_seeded(lambda: Learned(built, WIDTH))
    # a new table is noise, in which nothing can be seen; sines stand in for what it has learnt
    table.vectors.weight.data = Sinusoidal(WIDTH).to_matrix(built)
    with torch.random.fork_rng(devices=[]):  # the new table is drawn before it is filled
        resized = table.resize(length).to_matrix(length)
    columns = [str(column + 1) for column in range(WIDTH)]
    named = lambda count: [str(number) for number in range(count)]
    return LessonResult(
        said,
        [
            Table("one layer, one text", ["positions", "order goes", "what happens"], rows),
            Heatmap(
                f"a table of {built} positions, filled with sines",
                table.to_matrix(built).tolist(),
                named(built),
                columns,
                1.0,
            ),
            Heatmap(f"the same table resized to {length}", resized.tolist(), named(length), columns, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="barcode",
        title="Sinusoidal position encoding",
        description="How do you write a number so that a network can use it? A binary counter flips its first digit at every step, "
        "the next at every second, and so on. Sines and cosines of falling frequency are such a counter with soft digits: "
        "each row is a position, and no two are alike. A step of k turns each pair by a fixed angle, so one matrix moves "
        "any position on by k: a head can learn to look three words back, wherever it stands.",
        formula="p(t)₂ᵢ = sin(t ωᵢ),   p(t)₂ᵢ₊₁ = cos(t ωᵢ),   ωᵢ = base^(-2i/d),   p(t + k) = Mₖ p(t)",
        code=(Sinusoidal,),
        controls=(
            Control("shift", "k, how many positions to move on", "range", "3", 0, 31, 1),
            Control(
                "base", "How slow the slowest column is", "choice", "10000", choices=("10000", "1000", "100", "16")
            ),
        ),
        compute=compute_barcode,
    ),
    Lesson(
        name="longest",
        title="Maximum sequence length and position schemes",
        description="It is often said that self-attention has a fixed maximum length. That is true of a table of learned positions: "
        "there is a vector for each position it was built with, and none beyond. Sines, rotations and distances are "
        "functions of the position and go on for ever, although nothing says that a model is good where it was never "
        "trained. A table can be stretched: its vectors are interpolated, and training goes on from there. The table below is "
        "filled with sines in place of learned numbers, so that the stretching can be seen.",
        formula="learned: p(t) = table[t], t < built;   sinusoidal, rotary, ALiBi: p(t) = f(t) for every t",
        code=(Learned, Sinusoidal),
        controls=(
            Control("built", "Positions that the model was built with", "range", "24", 8, 64, 1),
            Control("length", "Tokens of the text", "range", "32", 1, 128, 1),
        ),
        compute=compute_max_length,
    ),
)

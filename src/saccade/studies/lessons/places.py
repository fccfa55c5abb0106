"""Lessons on positions: the barcode of sines and cosines, and which schemes have a longest text."""

import math

import torch
from torch import Tensor

from saccade.parts.position import Learned, Sinusoidal, position
from saccade.studies.lessons.lesson import Control, Curves, Lesson, Map, Shown, Table, counted, figure
from saccade.studies.lessons.orders import SCHEMES, WIDTH, reader
from saccade.studies.lessons.sentences import drawn, noise

COUNT, COLUMNS = 32, 32  # positions that are drawn, and the width of a position's vector
BITS = 5  # enough to count to 32


def binary(count: int) -> list[list[float]]:
    """The numbers from 0 in binary, the fast digit on the left.

    >>> binary(4)
    [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    return [[float(number >> bit & 1) for bit in range(BITS)] for number in range(count)]


def closeness(scheme: Sinusoidal, t: int) -> list[tuple[float, float]]:
    """The dot product of a position's vector with those around it, by their distance."""
    code = scheme.barcode(2 * COUNT).double()
    return [(float(k), (code[t] @ code[t + k]).item()) for k in range(-COUNT // 2, COUNT // 2 + 1)]


def barcode(given: dict[str, str]) -> Shown:
    """The vectors of the first positions, a counter beside them, and the matrix that moves them on."""
    shift, scheme = int(float(given["shift"])), Sinusoidal(COLUMNS, base=float(given["base"]))
    code, move = scheme.barcode(COUNT + shift).double(), scheme.shift(shift)
    off = (code[:COUNT] @ move.mT - code[shift:]).abs().max().item()
    exact = f"off by {figure(off, 1)} at most, which is rounding" if off else "exact"
    periods = (2 * math.pi / scheme.frequencies(torch.device("cpu"))).tolist()
    said = (
        f"The fastest pair of columns turns once in {periods[0]:.1f} positions, the slowest in {periods[-1]:,.0f}. One matrix "
        f"moves every position on by {shift}, and is {exact}."
    )
    columns = [f"{wave} {number + 1}" for number in range(COLUMNS // 2) for wave in ("sin", "cos")]
    numbers = [str(number) for number in range(COUNT)]
    return Shown(
        said,
        [
            Map(
                "a binary counter on the left, and beside it the vector of each position",
                [[*bits, *waves] for bits, waves in zip(binary(COUNT), code[:COUNT].tolist(), strict=True)],
                numbers,
                [*(f"bit {bit}" for bit in range(BITS)), *columns],
            ),
            Map(f"the matrix that moves on by {shift}", move.tolist(), columns, columns),
            Curves(
                "who is near: dots, around the positions 24 and 40, lie on the line",
                "k, the distance",
                "p(t)·p(t + k)",
                {"around 16": closeness(scheme, 16)},
                [*closeness(scheme, 24), *closeness(scheme, 40)],
            ),
        ],
    )


def reads(scheme: str, longest: int, x: Tensor) -> str:
    """What a layer with this scheme says to a text: nothing, or why it cannot be read."""
    try:
        with torch.no_grad():
            reader(scheme, longest)(x)
    except ValueError as error:
        return str(error)
    return ""


def longest(given: dict[str, str]) -> Shown:
    """Read a text with every scheme, all of them built for a shorter or longer one."""
    built, length = int(float(given["built"])), int(float(given["length"]))
    x = noise(0, 1, length, WIDTH)
    answers = {name: reads(name, built, x) for name in SCHEMES}
    rows = [[name, position(name).where, answers[name] or f"reads {counted(length, 'token')}"] for name in SCHEMES]
    refused = [name for name, answer in answers.items() if answer]
    said = f"Built for {built} tokens and given {length}: "
    said += f"{' and '.join(refused)} cannot go on, the other schemes can." if refused else "every scheme reads it."
    table = drawn(lambda: Learned(built, WIDTH))
    # a new table is noise, in which nothing can be seen; sines stand in for what it has learnt
    table.vectors.weight.data = Sinusoidal(WIDTH).barcode(built)
    with torch.random.fork_rng(devices=[]):  # the new table is drawn before it is filled
        resized = table.resized(length).barcode(length)
    columns = [str(column + 1) for column in range(WIDTH)]
    named = lambda count: [str(number) for number in range(count)]
    return Shown(
        said,
        [
            Table("one layer, one text", ["positions", "order goes", "what happens"], rows),
            Map(
                f"a table of {built} positions, filled with sines",
                table.barcode(built).tolist(),
                named(built),
                columns,
                1.0,
            ),
            Map(f"the same table resized to {length}", resized.tolist(), named(length), columns, 1.0),
        ],
    )


LESSONS = (
    Lesson(
        name="barcode",
        title="The barcode of positions",
        said="How do you write a number so that a network can use it? A binary counter flips its first digit at every step, "
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
        draw=barcode,
    ),
    Lesson(
        name="longest",
        title="How long may a text be?",
        said="It is often said that self-attention has a fixed maximum length. That is true of a table of learned positions: "
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
        draw=longest,
    ),
)

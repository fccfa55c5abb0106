"""Many prompts, from a file or a pipe: written in batches of like length, handed out in the order in which they came.

    for prompt, found in zip(prompts, write_many(ways, prompts, limit=64)): print(found[0].text)

A window of prompts is read at a time, so that what is first in is soon out and a file of any size fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from saccade.data import Batch, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.ways import Ways

WINDOW = 1024  # texts that are sorted together
ROWS = 64  # prompts at a time
TOKENS = 16_384  # at a time, padding, beams and what is written counted

One = TypeVar("One")


def write_many(
    ways: Ways,
    prompts: Iterable[Sequence[int]],
    *,
    limit: int,
    told: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Hypothesis]]:
    """What is written after each prompt, the best first, at most `limit` tokens; `told` hears how many are done."""
    done = 0
    for rows in windows(prompts):
        window = [fitted(row, limit, ways.model.limit) for row in rows]
        found: list[list[Hypothesis]] = [[] for _ in window]
        for numbers in batches([(len(row), room) for row, room in window], ways.decoding.beams):
            batch = Batch(Text.of([window[number][0] for number in numbers]))
            texts = ways.write(batch.to(next(ways.model.parameters()).device), limit=window[numbers[0]][1])
            for number, text in zip(numbers, texts, strict=True):
                found[number] = text
            done += len(numbers)
            told(done)
        yield from found


def windows(coming: Iterable[One]) -> Iterator[list[One]]:
    """What comes, as many at a time as are sorted together; no more is read before those are done."""
    rest = iter(coming)
    while some := list(islice(rest, WINDOW)):
        yield some


def fitted(prompt: Sequence[int], length: int, places: int | None) -> tuple[list[int], int]:
    """A prompt and how many tokens may follow it in a model of so many places: the prompt stays, and the rest is room.

    One that fills the model alone loses its beginning, for as much as is to be written, and half of the places at most.

    >>> fitted([1, 2, 3], 9, 8), fitted([1, 2, 3, 4, 5, 6, 7, 8, 9], 9, 8), fitted([1, 2], 9, None)
    (([1, 2, 3], 5), ([6, 7, 8, 9], 4), ([1, 2], 9))
    """
    row = list(prompt)
    if places is None:
        return row, length
    if len(row) >= places:
        row = row[-max(1, places // 2, places - length) :]
    return row, min(length, places - len(row))


def batches(sizes: Sequence[tuple[int, int]], beams: int) -> Iterator[list[int]]:
    """The numbers of rows that go together, by their length and room: the longest first, so that short memory shows at once.

    Rows of one batch have the same room, so that what is written after one does not depend on the others.

    >>> list(batches([(3, 8000), (9, 8000), (4, 8000), (9, 7000)], beams=1))
    [[1, 2], [0], [3]]
    """
    order = sorted(range(len(sizes)), key=lambda number: (-sum(sizes[number]), -sizes[number][1]))
    while order:
        length, room = sizes[order[0]]
        count = max(1, min(ROWS, TOKENS // max(1, beams * (length + room))))
        numbers = list(takewhile(lambda number, room=room: sizes[number][1] == room, order[:count]))
        yield numbers
        order = order[len(numbers) :]

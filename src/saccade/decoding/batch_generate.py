"""Many prompts, from a file or a pipe: written in batches of like length, handed out in the order in which they came.

    for prompt, found in zip(prompts, write_many(ways, prompts, limit=64)): print(found[0].text)

A window of prompts is read at a time, so that what is first in is soon out and a file of any size fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from saccade.data import Batch, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator

MAX_PROMPTS_SORTED = 1024  # texts that are sorted together
MAX_PROMPTS_PER_BATCH = 64  # prompts at a time
MAX_TOKENS_PER_BATCH = 16_384  # at a time, padding, beams and what is written counted

T = TypeVar("T")


def generate_many(
    generator: TextGenerator,
    prompts: Iterable[Sequence[int]],
    *,
    max_new_tokens: int,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Hypothesis]]:
    """What is written after each prompt, the best first, at most `max_new_tokens` tokens; `on_progress` hears how many are
    done.
    """
    done = 0
    for rows in sorting_windows(prompts):
        window = [fit_to_context(row, max_new_tokens, generator.model.max_positions) for row in rows]
        found: list[list[Hypothesis]] = [[] for _ in window]
        for numbers in plan_batches([(len(row), room) for row, room in window], generator.decoding.beams):
            batch = Batch(Text.pad([window[number][0] for number in numbers]))
            texts = generator.generate(
                batch.to(next(generator.model.parameters()).device), max_new_tokens=window[numbers[0]][1]
            )
            for number, text in zip(numbers, texts, strict=True):
                found[number] = text
            done += len(numbers)
            on_progress(done)
        yield from found


def sorting_windows(items: Iterable[T]) -> Iterator[list[T]]:
    """What comes, as many at a time as are sorted together; no more is read before those are done."""
    rest = iter(items)
    while some := list(islice(rest, MAX_PROMPTS_SORTED)):
        yield some


def fit_to_context(prompt: Sequence[int], max_new_tokens: int, max_positions: int | None) -> tuple[list[int], int]:
    """A prompt and how many tokens may follow it in a model of so many places: the prompt stays, and the rest is room.

    One that fills the model alone loses its beginning, for as much as is to be written, and half of the places at most.

    >>> fit_to_context([1, 2, 3], 9, 8), fit_to_context([1, 2, 3, 4, 5, 6, 7, 8, 9], 9, 8), fit_to_context([1, 2], 9, None)
    (([1, 2, 3], 5), ([6, 7, 8, 9], 4), ([1, 2], 9))
    """
    row = list(prompt)
    if max_positions is None:
        return row, max_new_tokens
    if len(row) >= max_positions:
        row = row[-max(1, max_positions // 2, max_positions - max_new_tokens) :]
    return row, min(max_new_tokens, max_positions - len(row))


def plan_batches(sizes: Sequence[tuple[int, int]], beams: int) -> Iterator[list[int]]:
    """The numbers of rows that go together, by their length and room: the longest first, so that short memory shows at once.

    Rows of one batch have the same room, so that what is written after one does not depend on the others.

    >>> list(plan_batches([(3, 8000), (9, 8000), (4, 8000), (9, 7000)], beams=1))
    [[1, 2], [0], [3]]
    """
    order = sorted(range(len(sizes)), key=lambda number: (-sum(sizes[number]), -sizes[number][1]))
    while order:
        length, room = sizes[order[0]]
        count = max(1, min(MAX_PROMPTS_PER_BATCH, MAX_TOKENS_PER_BATCH // max(1, beams * (length + room))))
        numbers = list(takewhile(lambda number, room=room: sizes[number][1] == room, order[:count]))
        yield numbers
        order = order[len(numbers) :]

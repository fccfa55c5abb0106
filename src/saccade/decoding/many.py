"""Many prompts, from a file or a pipe: written in batches of like length, handed out in the order in which they came.

    for prompt, found in zip(prompts, write_many(ways, prompts, limit=64)): print(found[0].text)

A window of prompts is read at a time, so that what is first in is soon out and a file of any size fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from saccade.data import Batch, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.ways import Ways

WINDOW = 1024  # prompts that are sorted together
ROWS = 64  # prompts at a time
TOKENS = 16_384  # at a time, padding, beams and what is written counted


def write_many(
    ways: Ways,
    prompts: Iterable[Sequence[int]],
    *,
    limit: int,
    told: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Hypothesis]]:
    """What is written after each prompt, the best first; `told` hears how many are done.

    A prompt that would leave no room for `limit` tokens loses its beginning.
    """
    room = None if ways.model.limit is None else max(1, ways.model.limit - limit)
    coming, done = iter(prompts), 0
    while window := [list(row) if room is None else list(row)[-room:] for row in islice(coming, WINDOW)]:
        found: list[list[Hypothesis]] = [[] for _ in window]
        for numbers in batches([len(row) for row in window], ways.decoding.beams, limit):
            batch = Batch(Text.of([window[number] for number in numbers]))
            texts = ways.write(batch.to(next(ways.model.parameters()).device), limit=limit)
            for number, text in zip(numbers, texts, strict=True):
                found[number] = text
            done += len(numbers)
            told(done)
        yield from found


def batches(lengths: Sequence[int], beams: int, limit: int) -> Iterator[list[int]]:
    """The numbers of rows that go together, the longest first: if memory is short, that shows at once.

    >>> list(batches([3, 9, 4], beams=1, limit=8000))
    [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    done = 0
    while done < len(order):
        a_row = beams * (lengths[order[done]] + limit)
        count = max(1, min(ROWS, TOKENS // max(1, a_row)))
        yield order[done : done + count]
        done += count

"""Batch generation for many prompts, from a file or a pipe: sorted into batches of similar length, returned in input order.

    for prompt, hypotheses in zip(prompts, generate_many(generator, prompts, max_new_tokens=64)): print(hypotheses[0].text)

Prompts are read in windows, so that the first results come early and a file of any size fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from saccade.data import Batch, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator

MAX_PROMPTS_SORTED = 1024  # size of a window, within which prompts are sorted by length
MAX_PROMPTS_PER_BATCH = 64  # largest batch size
MAX_TOKENS_PER_BATCH = 16_384  # largest batch in tokens, counting padding, beams and new tokens

T = TypeVar("T")


def generate_many(
    generator: TextGenerator,
    prompts: Iterable[Sequence[int]],
    *,
    max_new_tokens: int,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Hypothesis]]:
    """Yield the hypotheses for each prompt, best first, with at most `max_new_tokens` tokens. `on_progress` is called with the
    number of prompts done.
    """
    done = 0
    for rows in sorting_windows(prompts):
        window = [fit_to_context(row, max_new_tokens, generator.model.max_positions) for row in rows]
        hypotheses: list[list[Hypothesis]] = [[] for _ in window]
        sizes = [(len(row), new_tokens) for row, new_tokens in window]
        for indices in plan_batches(sizes, generator.decoding.beams):
            batch = Batch(Text.pad([window[index][0] for index in indices]))
            texts = generator.generate(
                batch.to(next(generator.model.parameters()).device), max_new_tokens=window[indices[0]][1]
            )
            for index, text in zip(indices, texts, strict=True):
                hypotheses[index] = text
            done += len(indices)
            on_progress(done)
        yield from hypotheses


def sorting_windows(items: Iterable[T]) -> Iterator[list[T]]:
    """Split an iterable into windows of `MAX_PROMPTS_SORTED` items, each read only when the one before is done."""
    iterator = iter(items)
    while window := list(islice(iterator, MAX_PROMPTS_SORTED)):
        yield window


def fit_to_context(prompt: Sequence[int], max_new_tokens: int, max_positions: int | None) -> tuple[list[int], int]:
    """Fit a prompt and its new tokens into the context length; returns the prompt and the number of tokens that may follow.

    A prompt as long as the context loses its beginning: as many tokens as are to be generated, at most half of the context.

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
    """Group rows of sizes (prompt length, new tokens) into batches; the longest come first, so that a lack of memory shows early.

    All rows of a batch have the same limit of new tokens, so that a text does not depend on the other rows.

    >>> list(plan_batches([(3, 8000), (9, 8000), (4, 8000), (9, 7000)], beams=1))
    [[1, 2], [0], [3]]
    """
    order = sorted(range(len(sizes)), key=lambda index: (-sum(sizes[index]), -sizes[index][1]))
    while order:
        length, new_tokens = sizes[order[0]]
        count = max(1, min(MAX_PROMPTS_PER_BATCH, MAX_TOKENS_PER_BATCH // max(1, beams * (length + new_tokens))))
        indices = list(takewhile(lambda index, limit=new_tokens: sizes[index][1] == limit, order[:count]))
        yield indices
        order = order[len(indices) :]

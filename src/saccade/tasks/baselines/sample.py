"""A random sample of the training examples, for methods that would take too long on all of them."""

import random
from collections.abc import Callable, Sequence

from saccade.data import Example


def sample_examples(examples: Sequence[Example], count: int) -> Sequence[Example]:
    """At least one and at most `count` examples in their order, always the same; all of them if they are no more."""
    if count >= len(examples):
        return examples
    chosen = random.Random(0).sample(range(len(examples)), max(1, count))
    return [examples[i] for i in sorted(chosen)]


def sample_by_size(examples: Sequence[Example], limit: int, measure: Callable[[Example], int]) -> Sequence[Example]:
    """A sample with about `limit` characters or words in all, as `measure` counts them."""
    total = sum(map(measure, examples))
    return sample_examples(examples, len(examples) * limit // max(total, limit))

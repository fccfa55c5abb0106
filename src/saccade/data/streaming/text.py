"""Streaming of running text that is too large for memory: indexed in one pass, and read from the files in each later pass."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np

from saccade.data.example import Example, Records, Role
from saccade.errors import DataError

MIN_STREAMED_BYTES = 2**26  # larger texts are streamed; in memory, their examples would take about ten times as much
GZIP_RATIO = 4  # typical compression ratio of gzipped text
MAX_SAMPLE_CHARACTERS = 2**24  # size of the sample in memory, for training a tokenizer and counting words
MAX_DEV_CHARACTERS = 2**23  # size limit of the held-out end of the text
MAX_BLOCK_RECORDS = 500  # the sample is taken in blocks of consecutive records, of this many records
MAX_BLOCK_CHARACTERS = 2**20  # or of about this many characters

OpenExamples = Callable[[], Iterator[Example]]


class StreamedExamples(Sequence[Example]):
    """The first `size` records of a text as a sequence that reads the files in each pass.

    A sample of them is held in memory, and the end of the text: at least its last MAX_DEV_CHARACTERS, if it is that long.
    """

    size: int
    sample: list[Example]
    tail: Sequence[Example]

    def __init__(self, open_examples: OpenExamples, size: int, sample: list[Example], tail: Sequence[Example] = ()):
        self.open_examples, self.size, self.sample, self.tail = open_examples, size, sample, tail

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Example]:
        return islice(self.open_examples(), self.size)

    @overload
    def __getitem__(self, at: int) -> Example: ...
    @overload
    def __getitem__(self, at: slice) -> list[Example]: ...
    def __getitem__(self, at: int | slice) -> Example | list[Example]:
        """Read from the beginning of the files up to the record, so that access to later records is slow."""
        if isinstance(at, slice):
            start, end, step = at.indices(self.size)
            return list(islice(self.open_examples(), start, max(start, end), step))
        return self[at : at + 1][0]


def estimate_text_bytes(paths: Sequence[Path]) -> int:
    """Estimate the size of text files in bytes, uncompressed."""
    return sum(path.stat().st_size * (GZIP_RATIO if path.suffix == ".gz" else 1) for path in paths if path.is_file())


def index_streamed_examples(
    open_examples: OpenExamples, roles: Sequence[Role], estimated_bytes: int
) -> tuple[Records, np.ndarray]:
    """Read a text once: its records with a sample in memory, and the cumulative number of characters after each record."""
    name = roles[0].name
    fraction = min(1.0, MAX_SAMPLE_CHARACTERS / max(1, estimated_bytes))
    sizes: list[int] = []
    sample: list[Example] = []
    tail: deque[Example] = deque()
    tail_size = 0
    sample_size = block = records = characters = 0
    for example in open_examples():
        sizes.append(len(example[name]))
        tail.append(example)
        tail_size += sizes[-1]
        while tail_size - len(tail[0][name]) > MAX_DEV_CHARACTERS:
            tail_size -= len(tail.popleft()[name])
        if records == MAX_BLOCK_RECORDS or characters > MAX_BLOCK_CHARACTERS:
            block, records, characters = block + 1, 0, 0
        records, characters = records + 1, characters + sizes[-1]
        is_sampled = not block or int(block * fraction) != int(
            (block - 1) * fraction
        )  # the first block, then evenly spaced
        if is_sampled and sample_size < 2 * MAX_SAMPLE_CHARACTERS:
            sample.append(example)
            sample_size += sizes[-1]
    ends = np.cumsum(np.array(sizes, np.int64))
    return Records(StreamedExamples(open_examples, len(sizes), sample, list(tail))), ends


def split_streamed(records: Records, ends: np.ndarray) -> tuple[Records, Records, str]:
    """Hold out the end of the text as dev: a tenth of it, but at most MAX_DEV_CHARACTERS, which suffice for evaluation."""
    examples = records.examples
    assert isinstance(examples, StreamedExamples)
    if len(examples) < 2:
        what = f"a text of {int(ends[-1]):,} characters in a single line cannot be streamed"
        raise DataError(what, hint="break it into lines")
    total = int(ends[-1])
    cut = int(np.searchsorted(ends, total - min(total // 10, MAX_DEV_CHARACTERS), side="right"))
    cut = min(max(cut, 1), len(examples) - 1)
    dev = list(examples.tail[cut - len(examples) :])
    held_out = {(example.file, example.line, example.character) for example in dev}
    sample = [example for example in examples.sample if (example.file, example.line, example.character) not in held_out]
    train = StreamedExamples(examples.open_examples, cut, sample or examples[:1])
    fraction = (total - int(ends[cut - 1])) / total
    note = f"No dev file: the last {fraction:.1%} of the text, from {dev[0].location} on, is held out as dev."
    return (
        Records(train, records.notes, records.rejects, records.digest),
        Records(dev, digest=records.digest),
        note,
    )

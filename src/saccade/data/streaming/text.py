"""Running text that is too large to be held: counted once, and read again from its files whenever it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np

from saccade.data.example import Example, Records, Role
from saccade.errors import DataError

MIN_STREAMED_BYTES = (
    2**26
)  # bytes of running text from which on it is not held in memory: as examples it would take ten times as much
GZIP_RATIO = 4  # how many times larger a gzipped text is, about
MAX_SAMPLE_CHARACTERS = 2**24  # characters for those who need to see some of it: to learn a tokenizer, to count words
MAX_DEV_CHARACTERS = 2**23  # characters that are held out at most
MAX_BLOCK_RECORDS = 500  # records that stay together where some are taken
MAX_BLOCK_CHARACTERS = 2**20  # and as many of very long ones as have so many characters

OpenExamples = Callable[[], Iterator[Example]]


class StreamedExamples(Sequence[Example]):
    """The first so many records of a text as a sequence that is read anew each time; `some` of them are at hand."""

    def __init__(self, open_examples: OpenExamples, size: int, sample: list[Example]):
        self.open_examples, self.size, self.sample = open_examples, size, sample

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Example]:
        return islice(self.open_examples(), self.size)

    @overload
    def __getitem__(self, at: int) -> Example: ...
    @overload
    def __getitem__(self, at: slice) -> list[Example]: ...
    def __getitem__(self, at: int | slice) -> Example | list[Example]:
        """Records near the beginning; those further on take as long as reading up to them."""
        if isinstance(at, slice):
            start, end, step = at.indices(self.size)
            return list(islice(self.open_examples(), start, max(start, end), step))
        return self[at : at + 1][0]


def estimate_text_bytes(paths: Sequence[Path]) -> int:
    """How many bytes of text some files have, about."""
    return sum(path.stat().st_size * (GZIP_RATIO if path.suffix == ".gz" else 1) for path in paths if path.is_file())


def index_streamed_examples(
    open_examples: OpenExamples, roles: Sequence[Role], estimated_bytes: int
) -> tuple[Records, np.ndarray]:
    """A table of all that `read` gives, and the characters up to the end of each record; `size` is about how many there are."""
    name = roles[0].name
    share = min(1.0, MAX_SAMPLE_CHARACTERS / max(1, estimated_bytes))
    sizes: list[int] = []
    some: list[Example] = []
    taken = run = records = characters = 0
    for example in open_examples():
        sizes.append(len(example[name]))
        if records == MAX_BLOCK_RECORDS or characters > MAX_BLOCK_CHARACTERS:
            run, records, characters = run + 1, 0, 0
        records, characters = records + 1, characters + sizes[-1]
        chosen = not run or int(run * share) != int((run - 1) * share)  # the first run, and others evenly after it
        if chosen and taken < 2 * MAX_SAMPLE_CHARACTERS:
            some.append(example)
            taken += sizes[-1]
    ends = np.cumsum(np.array(sizes, np.int64))
    return Records(StreamedExamples(open_examples, len(sizes), some)), ends


def split_streamed(records: Records, ends: np.ndarray) -> tuple[Records, Records, str]:
    """The end of the text kept apart as dev: a tenth, or as much as is enough to tell how good a model is."""
    whole = records.examples
    assert isinstance(whole, StreamedExamples)
    if len(whole) < 2:
        what = f"a text of {int(ends[-1]):,} characters in one line cannot be read in pieces"
        raise DataError(what, hint="break it into lines")
    total = int(ends[-1])
    cut = int(np.searchsorted(ends, total - min(total // 10, MAX_DEV_CHARACTERS), side="right"))
    cut = min(max(cut, 1), len(whole) - 1)
    dev = list(islice(whole.open_examples(), cut, None))
    inside = {(example.file, example.line, example.character) for example in dev}
    some = [example for example in whole.sample if (example.file, example.line, example.character) not in inside]
    share = (total - int(ends[cut - 1])) / total
    how = f"No dev file: the last {share:.1%} of the text, from {dev[0].location} on, is kept apart as dev."
    return (
        Records(
            StreamedExamples(whole.open_examples, cut, some or whole[:1]),
            records.notes,
            records.rejects,
            records.digest,
        ),
        Records(dev, digest=records.digest),
        how,
    )

"""Running text that is too large to be held: counted once, and read again from its files whenever it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np

from saccade.data.item import Example, Role, Table
from saccade.errors import DataError

LARGE = (
    2**26
)  # bytes of running text from which on it is not held in memory: as examples it would take ten times as much
PACKED = 4  # how many times larger a gzipped text is, about
ENOUGH = 2**24  # characters for those who need to see some of it: to learn a tokenizer, to count words
HELD = 2**23  # characters that are held out at most
RUN = 500  # records that stay together where some are taken
RUN_CHARACTERS = 2**20  # and as many of very long ones as have so many characters

Read = Callable[[], Iterator[Example]]


class Long(Sequence[Example]):
    """The first so many records of a text as a sequence that is read anew each time; `some` of them are at hand."""

    def __init__(self, read: Read, count: int, some: list[Example]):
        self.read, self.size, self.some = read, count, some

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Example]:
        return islice(self.read(), self.size)

    @overload
    def __getitem__(self, at: int) -> Example: ...
    @overload
    def __getitem__(self, at: slice) -> list[Example]: ...
    def __getitem__(self, at: int | slice) -> Example | list[Example]:
        """Records near the beginning; those further on take as long as reading up to them."""
        if isinstance(at, slice):
            start, end, step = at.indices(self.size)
            return list(islice(self.read(), start, max(start, end), step))
        return self[at : at + 1][0]


def weight(paths: Sequence[Path]) -> int:
    """How many bytes of text some files have, about."""
    return sum(path.stat().st_size * (PACKED if path.suffix == ".gz" else 1) for path in paths if path.is_file())


def long_table(read: Read, roles: Sequence[Role], size: int) -> tuple[Table, np.ndarray]:
    """A table of all that `read` gives, and the characters up to the end of each record; `size` is about how many there are."""
    name = roles[0].name
    share = min(1.0, ENOUGH / max(1, size))
    sizes: list[int] = []
    some: list[Example] = []
    taken = run = records = characters = 0
    for example in read():
        sizes.append(len(example[name]))
        if records == RUN or characters > RUN_CHARACTERS:
            run, records, characters = run + 1, 0, 0
        records, characters = records + 1, characters + sizes[-1]
        chosen = not run or int(run * share) != int((run - 1) * share)  # the first run, and others evenly after it
        if chosen and taken < 2 * ENOUGH:
            some.append(example)
            taken += sizes[-1]
    ends = np.cumsum(np.array(sizes, np.int64))
    return Table(Long(read, len(sizes), some)), ends


def cut_long(table: Table, ends: np.ndarray) -> tuple[Table, Table, str]:
    """The end of the text kept apart as dev: a tenth, or as much as is enough to tell how good a model is."""
    whole = table.examples
    assert isinstance(whole, Long)
    if len(whole) < 2:
        what = f"a text of {int(ends[-1]):,} characters in one line cannot be read in pieces"
        raise DataError(what, cure="break it into lines")
    total = int(ends[-1])
    cut = int(np.searchsorted(ends, total - min(total // 10, HELD), side="right"))
    cut = min(max(cut, 1), len(whole) - 1)
    dev = list(islice(whole.read(), cut, None))
    inside = {(example.file, example.line, example.column) for example in dev}
    some = [example for example in whole.some if (example.file, example.line, example.column) not in inside]
    share = (total - int(ends[cut - 1])) / total
    how = f"No dev file: the last {share:.1%} of the text, from {dev[0].place} on, is kept apart as dev."
    return (
        Table(Long(whole.read, cut, some or whole[:1]), table.said, table.bad, table.digest),
        Table(dev, digest=table.digest),
        how,
    )

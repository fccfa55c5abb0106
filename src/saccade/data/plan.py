"""Which examples make up which batch: a pure function of (seed, epoch, step), so that resuming needs no loader state."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

POOL = 100  # batches whose examples are sorted together: enough for like lengths, few enough for new neighbours
FEW = 8  # batches from which on there are two pools, as one alone would put the same examples together every epoch


@dataclass(frozen=True, eq=False)
class Plan:
    """Batches of like length under a budget of tokens, drawn anew each epoch, each example once.

    A batch costs its rows times its longest example, padding counted; with two columns (source and target) its rows times the
    longest source plus the longest target. An example beyond the budget gets a batch of its own.

    >>> plan = Plan([3, 9, 4, 2, 8], budget=16)
    >>> sorted(sorted(batch.tolist()) for batch in plan.epoch(0))
    [[0, 2, 3], [1], [4]]
    """

    lengths: np.ndarray | Sequence[int] | Sequence[tuple[int, int]]  # (n,) or (n, 2)
    budget: int
    seed: int = 0
    rows: int | None = None  # the most examples in a batch
    _ends: list[int] = field(default_factory=list, init=False, repr=False)  # steps up to the end of each known epoch
    _last: dict[int, list[np.ndarray]] = field(default_factory=dict, init=False, repr=False)  # one epoch at most

    def __post_init__(self) -> None:
        lengths = np.array(self.lengths)
        if lengths.size == 0 or lengths.ndim > 2 or (lengths.ndim == 2 and lengths.shape[1] != 2):
            raise ValueError(
                f"A length for each of one or more examples is needed, (n,) or (n, 2); got {lengths.shape}."
            )
        if lengths.dtype.kind not in "iu" or lengths.min() < 0:
            raise ValueError(f"Lengths are whole numbers from 0; got {lengths.dtype}, the least {lengths.min()}.")
        for name, value, least in (("budget", self.budget, 1), ("seed", self.seed, 0), ("rows", self.rows, 1)):
            _at_least(name, least if value is None else value, least)
        lengths = lengths.astype(np.int64)
        lengths.flags.writeable = False
        object.__setattr__(self, "lengths", lengths)

    def epoch(self, number: int) -> list[np.ndarray]:
        """The indices of each batch of an epoch, in order."""
        if number not in self._last:
            made = self._draw(number)
            self._last.clear()
            self._last[number] = made
        return list(self._last[number])

    def steps(self, number: int) -> int:
        """How many batches an epoch has; the count may differ a little from epoch to epoch."""
        self._count(number)
        return self._ends[number] - (self._ends[number - 1] if number else 0)

    def at(self, step: int) -> tuple[int, int, np.ndarray]:
        """(epoch, place in it, indices) of a step counted from the very first; earlier epochs are planned once, to be counted."""
        _at_least("step", step, 0)
        while not self._ends or self._ends[-1] <= step:
            self._count(len(self._ends))
        number = bisect_right(self._ends, step)
        place = step - (self._ends[number - 1] if number else 0)
        return number, place, self.epoch(number)[place]

    def part(self, batch: np.ndarray, rank: int, size: int) -> np.ndarray:
        """One rank's share of a batch, the dearest share being as cheap as can be; empty where rows are too few."""
        _check_rank(rank, size)
        cost = np.maximum(self._table()[batch].sum(1), 1)
        batch = batch[np.argsort(-cost, kind="stable")]
        start, left = 0, np.sort(cost)[::-1].tolist()  # longest first: a share's first row says how wide it is
        for ranks in range(size, size - rank, -1):
            taken = _first_share(left, ranks)
            start, left = start + taken, left[taken:]
        return batch[start : start + _first_share(left, size - rank)]

    def share(self, number: int, rank: int, size: int) -> list[np.ndarray]:
        """One rank's share of every batch of an epoch: as many steps on each rank, and all ranks together the whole batch."""
        return [self.part(batch, rank, size) for batch in self.epoch(number)]

    def padding(self, number: int) -> float:
        """The share of padding among all tokens of an epoch."""
        table = self._table()
        padded = sum(len(batch) * int(table[batch].max(0).sum()) for batch in self.epoch(number))
        return 1 - int(table.sum()) / padded if padded else 0.0

    def _table(self) -> np.ndarray:
        lengths = np.asarray(self.lengths)
        return lengths[:, None] if lengths.ndim == 1 else lengths  # (n, 1 or 2)

    def _costs(self) -> np.ndarray:
        return np.maximum(self._table().sum(1), 1)  # even an empty text takes a place

    def _count(self, number: int) -> None:
        _at_least("epoch", number, 0)
        for known in range(len(self._ends), number + 1):
            self._ends.append((self._ends[-1] if self._ends else 0) + len(self.epoch(known)))

    def _draw(self, number: int) -> list[np.ndarray]:
        _at_least("epoch", number, 0)
        generator = np.random.Generator(np.random.PCG64([self.seed, number]))
        costs = self._costs()
        rows = min(self.rows or len(costs), max(1, round(self.budget / costs.mean())))
        order = generator.permutation(len(costs))
        full = len(order) // rows
        pools = np.array_split(order, max(2 if full >= FEW else 1, round(full / POOL)))
        batches = [batch for pool in pools for batch in self._cut(self._sort(pool))]
        return [batches[i] for i in generator.permutation(len(batches))]

    def _sort(self, pool: np.ndarray) -> np.ndarray:
        """By length; with two columns by the longer one, then by the difference, up and down in turn, without jumps."""
        table = self._table()[pool]
        longer, difference = table.max(1), table[:, 0] - table[:, -1]
        return pool[np.lexsort((np.where(longer % 2, -difference, difference), longer))]

    def _cut(self, pool: np.ndarray) -> list[np.ndarray]:
        """Consecutive examples, as many to a batch as the budget and `rows` let in."""
        most, cuts, start = self.rows or len(pool), [], 0
        source = target = 0
        columns = self._table()[pool].T.tolist()
        for i, (s, t) in enumerate(zip(columns[0], columns[1] if len(columns) > 1 else [0] * len(pool), strict=True)):
            source, target = max(source, s), max(target, t)
            if i > start and (i - start == most or (i - start + 1) * max(source + target, 1) > self.budget):
                cuts.append(i)
                start, source, target = i, s, t
        pool.flags.writeable = False
        return [pool[a:b] for a, b in zip([0, *cuts], [*cuts, len(pool)], strict=True)]


@dataclass(frozen=True)
class Blocks:
    """Windows of running text in batches: a new offset and a new order each epoch, each token a target at most once.

    A window that starts at s reads the tokens from s to s + length - 1 and is asked for those from s + 1 to s + length.

    >>> blocks = Blocks(100, length=10, batch=4)
    >>> sorted(int(start) % 10 for batch in blocks.epoch(0) for start in batch) == [blocks.offset(0)] * 9
    True
    """

    count_tokens: int
    length: int
    batch: int
    seed: int = 0
    _last: dict[int, list[np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value, least in (("length", self.length, 1), ("batch", self.batch, 1), ("seed", self.seed, 0)):
            _at_least(name, value, least)
        if self.count_tokens <= self.length:
            raise ValueError(
                f"A text of {self.count_tokens:,} tokens has no window of {self.length:,} and the token after it; "
                "give more text or a shorter length."
            )

    @property
    def windows(self) -> int:
        """How many windows fit, whatever the offset."""
        return max(1, self.count_tokens // self.length - 1)

    def offset(self, number: int) -> int:
        """Where the first window of an epoch starts."""
        return int(self._generator(number).integers(self._room()))

    def epoch(self, number: int) -> list[np.ndarray]:
        """The start offsets of the windows of each batch of an epoch, in order."""
        if number not in self._last:
            generator = self._generator(number)
            starts = generator.integers(self._room()) + self.length * generator.permutation(self.windows)
            starts.flags.writeable = False
            self._last.clear()
            self._last[number] = [starts[i : i + self.batch] for i in range(0, len(starts), self.batch)]
        return list(self._last[number])

    def steps(self, number: int) -> int:
        """How many batches an epoch has; the same for all, so that a step's epoch is a division."""
        _at_least("epoch", number, 0)
        return -(-self.windows // self.batch)

    def at(self, step: int) -> tuple[int, int, np.ndarray]:
        """(epoch, place in it, start offsets) of a step counted from the very first."""
        _at_least("step", step, 0)
        number, place = divmod(step, self.steps(0))
        return number, place, self.epoch(number)[place]

    def part(self, batch: np.ndarray, rank: int, size: int) -> np.ndarray:
        """One rank's share of a batch; shares differ by one window at most."""
        _check_rank(rank, size)
        return np.array_split(batch, size)[rank]

    def share(self, number: int, rank: int, size: int) -> list[np.ndarray]:
        """One rank's share of every batch of an epoch."""
        return [self.part(batch, rank, size) for batch in self.epoch(number)]

    def padding(self, number: int) -> float:
        """Windows have no padding."""
        _at_least("epoch", number, 0)
        return 0.0

    def _generator(self, number: int) -> np.random.Generator:
        _at_least("epoch", number, 0)
        return np.random.Generator(np.random.PCG64([self.seed, number]))

    def _room(self) -> int:
        return min(self.length, self.count_tokens - self.windows * self.length)


def _first_share(lengths: list[int], ranks: int) -> int:
    """How many of the rows, longest first, the first of some ranks takes so that the dearest rank is as cheap as can be."""
    if not lengths:
        return 0
    low, high = lengths[0], lengths[0] * len(lengths)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(lengths, ranks, middle) else (middle + 1, high)
    return min(low // lengths[0], len(lengths))


def _fits(lengths: list[int], ranks: int, limit: int) -> bool:
    start = 0
    for _ in range(ranks):
        if start < len(lengths):
            start += limit // lengths[start]
    return start >= len(lengths)


def _check_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(f"A rank is one of 0 to size - 1; got rank {rank} of {size}.")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}; at least {least} is needed.")

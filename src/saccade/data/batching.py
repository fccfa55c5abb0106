"""Which examples make up which batch: a pure function of (seed, epoch, step), so that resuming needs no loader state."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

BATCHES_PER_POOL = (
    100  # batches whose examples are sorted together: enough for like lengths, few enough for new neighbours
)
MIN_BATCHES_FOR_TWO_POOLS = (
    8  # batches from which on there are two pools, as one alone would put the same examples together every epoch
)


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Batches of like length under a budget of tokens, drawn anew each epoch, each example once.

    A batch costs its rows times its longest example, padding counted; with two columns (source and target) its rows times the
    longest source plus the longest target. An example beyond the budget gets a batch of its own.

    >>> plan = BatchPlan([3, 9, 4, 2, 8], batch_tokens=16)
    >>> sorted(sorted(batch.tolist()) for batch in plan.plan_epoch(0))
    [[0, 2, 3], [1], [4]]
    """

    lengths: np.ndarray | Sequence[int] | Sequence[tuple[int, int]]  # (n,) or (n, 2)
    batch_tokens: int
    seed: int = 0
    batch_size: int | None = None  # the most examples in a batch
    _epoch_ends: list[int] = field(
        default_factory=list, init=False, repr=False
    )  # steps up to the end of each known epoch
    _epoch_cache: dict[int, list[np.ndarray]] = field(default_factory=dict, init=False, repr=False)  # one epoch at most

    def __post_init__(self) -> None:
        lengths = np.array(self.lengths)
        if lengths.size == 0 or lengths.ndim > 2 or (lengths.ndim == 2 and lengths.shape[1] != 2):
            raise ValueError(
                f"A length for each of one or more examples is needed, (n,) or (n, 2); got {lengths.shape}."
            )
        if lengths.dtype.kind not in "iu" or lengths.min() < 0:
            raise ValueError(f"Lengths are whole numbers from 0; got {lengths.dtype}, the least {lengths.min()}.")
        for name, value, least in (
            ("budget", self.batch_tokens, 1),
            ("seed", self.seed, 0),
            ("rows", self.batch_size, 1),
        ):
            _check_at_least(name, least if value is None else value, least)
        lengths = lengths.astype(np.int64)
        lengths.flags.writeable = False
        object.__setattr__(self, "lengths", lengths)

    def plan_epoch(self, epoch: int) -> list[np.ndarray]:
        """The indices of each batch of an epoch, in order."""
        if epoch not in self._epoch_cache:
            made = self._draw_epoch(epoch)
            self._epoch_cache.clear()
            self._epoch_cache[epoch] = made
        return list(self._epoch_cache[epoch])

    def count_steps(self, epoch: int) -> int:
        """How many batches an epoch has; the count may differ a little from epoch to epoch."""
        self._extend_epoch_ends(epoch)
        return self._epoch_ends[epoch] - (self._epoch_ends[epoch - 1] if epoch else 0)

    def find_batch(self, step: int) -> tuple[int, int, np.ndarray]:
        """(epoch, place in it, indices) of a step counted from the very first; earlier epochs are planned once, to be counted."""
        _check_at_least("step", step, 0)
        while not self._epoch_ends or self._epoch_ends[-1] <= step:
            self._extend_epoch_ends(len(self._epoch_ends))
        number = bisect_right(self._epoch_ends, step)
        place = step - (self._epoch_ends[number - 1] if number else 0)
        return number, place, self.plan_epoch(number)[place]

    def shard_batch(self, batch: np.ndarray, index: int, count: int) -> np.ndarray:
        """One rank's share of a batch, the dearest share being as cheap as can be; empty where rows are too few."""
        _check_shard(index, count)
        cost = np.maximum(self._make_length_table()[batch].sum(1), 1)
        batch = batch[np.argsort(-cost, kind="stable")]
        start, left = 0, np.sort(cost)[::-1].tolist()  # longest first: a share's first row says how wide it is
        for ranks in range(count, count - index, -1):
            taken = _compute_first_shard_size(left, ranks)
            start, left = start + taken, left[taken:]
        return batch[start : start + _compute_first_shard_size(left, count - index)]

    def shard_epoch(self, epoch: int, index: int, count: int) -> list[np.ndarray]:
        """One rank's share of every batch of an epoch: as many steps on each rank, and all ranks together the whole batch."""
        return [self.shard_batch(batch, index, count) for batch in self.plan_epoch(epoch)]

    def measure_padding(self, epoch: int) -> float:
        """The share of padding among all tokens of an epoch."""
        table = self._make_length_table()
        padded = sum(len(batch) * int(table[batch].max(0).sum()) for batch in self.plan_epoch(epoch))
        return 1 - int(table.sum()) / padded if padded else 0.0

    def _make_length_table(self) -> np.ndarray:
        lengths = np.asarray(self.lengths)
        return lengths[:, None] if lengths.ndim == 1 else lengths  # (n, 1 or 2)

    def _compute_costs(self) -> np.ndarray:
        return np.maximum(self._make_length_table().sum(1), 1)  # even an empty text takes a place

    def _extend_epoch_ends(self, epoch: int) -> None:
        _check_at_least("epoch", epoch, 0)
        for known in range(len(self._epoch_ends), epoch + 1):
            self._epoch_ends.append((self._epoch_ends[-1] if self._epoch_ends else 0) + len(self.plan_epoch(known)))

    def _draw_epoch(self, epoch: int) -> list[np.ndarray]:
        _check_at_least("epoch", epoch, 0)
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        costs = self._compute_costs()
        rows = min(self.batch_size or len(costs), max(1, round(self.batch_tokens / costs.mean())))
        order = generator.permutation(len(costs))
        full = len(order) // rows
        pools = np.array_split(
            order, max(2 if full >= MIN_BATCHES_FOR_TWO_POOLS else 1, round(full / BATCHES_PER_POOL))
        )
        batches = [batch for pool in pools for batch in self._cut_batches(self._sort_pool(pool))]
        return [batches[i] for i in generator.permutation(len(batches))]

    def _sort_pool(self, pool: np.ndarray) -> np.ndarray:
        """By length; with two columns by the longer one, then by the difference, up and down in turn, without jumps."""
        table = self._make_length_table()[pool]
        longer, difference = table.max(1), table[:, 0] - table[:, -1]
        return pool[np.lexsort((np.where(longer % 2, -difference, difference), longer))]

    def _cut_batches(self, pool: np.ndarray) -> list[np.ndarray]:
        """Consecutive examples, as many to a batch as the budget and `rows` let in."""
        most, cuts, start = self.batch_size or len(pool), [], 0
        source = target = 0
        columns = self._make_length_table()[pool].T.tolist()
        for i, (s, t) in enumerate(zip(columns[0], columns[1] if len(columns) > 1 else [0] * len(pool), strict=True)):
            source, target = max(source, s), max(target, t)
            if i > start and (i - start == most or (i - start + 1) * max(source + target, 1) > self.batch_tokens):
                cuts.append(i)
                start, source, target = i, s, t
        pool.flags.writeable = False
        return [pool[a:b] for a, b in zip([0, *cuts], [*cuts, len(pool)], strict=True)]


@dataclass(frozen=True)
class WindowPlan:
    """Windows of running text in batches: a new offset and a new order each epoch, each token a target at most once.

    A window that starts at s reads the tokens from s to s + length - 1 and is asked for those from s + 1 to s + length.

    >>> blocks = WindowPlan(100, window_tokens=10, batch_size=4)
    >>> sorted(int(start) % 10 for batch in blocks.plan_epoch(0) for start in batch) == [blocks.draw_offset(0)] * 9
    True
    """

    token_count: int
    window_tokens: int
    batch_size: int
    seed: int = 0
    _epoch_cache: dict[int, list[np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("length", self.window_tokens, 1),
            ("batch", self.batch_size, 1),
            ("seed", self.seed, 0),
        ):
            _check_at_least(name, value, least)
        if self.token_count <= self.window_tokens:
            raise ValueError(
                f"A text of {self.token_count:,} tokens has no window of {self.window_tokens:,} and the token after it; "
                "give more text or a shorter length."
            )

    @property
    def window_count(self) -> int:
        """How many windows fit, whatever the offset."""
        return max(1, self.token_count // self.window_tokens - 1)

    def draw_offset(self, epoch: int) -> int:
        """Where the first window of an epoch starts."""
        return int(self._generator(epoch).integers(self._count_offsets()))

    def plan_epoch(self, epoch: int) -> list[np.ndarray]:
        """The start offsets of the windows of each batch of an epoch, in order."""
        if epoch not in self._epoch_cache:
            generator = self._generator(epoch)
            starts = generator.integers(self._count_offsets()) + self.window_tokens * generator.permutation(
                self.window_count
            )
            starts.flags.writeable = False
            self._epoch_cache.clear()
            self._epoch_cache[epoch] = [starts[i : i + self.batch_size] for i in range(0, len(starts), self.batch_size)]
        return list(self._epoch_cache[epoch])

    def count_steps(self, epoch: int) -> int:
        """How many batches an epoch has; the same for all, so that a step's epoch is a division."""
        _check_at_least("epoch", epoch, 0)
        return -(-self.window_count // self.batch_size)

    def find_batch(self, step: int) -> tuple[int, int, np.ndarray]:
        """(epoch, place in it, start offsets) of a step counted from the very first."""
        _check_at_least("step", step, 0)
        number, place = divmod(step, self.count_steps(0))
        return number, place, self.plan_epoch(number)[place]

    def shard_batch(self, batch: np.ndarray, index: int, count: int) -> np.ndarray:
        """One rank's share of a batch; shares differ by one window at most."""
        _check_shard(index, count)
        return np.array_split(batch, count)[index]

    def shard_epoch(self, epoch: int, index: int, count: int) -> list[np.ndarray]:
        """One rank's share of every batch of an epoch."""
        return [self.shard_batch(batch, index, count) for batch in self.plan_epoch(epoch)]

    def measure_padding(self, epoch: int) -> float:
        """Windows have no padding."""
        _check_at_least("epoch", epoch, 0)
        return 0.0

    def _generator(self, epoch: int) -> np.random.Generator:
        _check_at_least("epoch", epoch, 0)
        return np.random.Generator(np.random.PCG64([self.seed, epoch]))

    def _count_offsets(self) -> int:
        return min(self.window_tokens, self.token_count - self.window_count * self.window_tokens)


def _compute_first_shard_size(lengths: list[int], shards: int) -> int:
    """How many of the rows, longest first, the first of some ranks takes so that the dearest rank is as cheap as can be."""
    if not lengths:
        return 0
    low, high = lengths[0], lengths[0] * len(lengths)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits_in_shards(lengths, shards, middle) else (middle + 1, high)
    return min(low // lengths[0], len(lengths))


def _fits_in_shards(lengths: list[int], shards: int, limit: int) -> bool:
    start = 0
    for _ in range(shards):
        if start < len(lengths):
            start += limit // lengths[start]
    return start >= len(lengths)


def _check_shard(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise ValueError(f"A rank is one of 0 to size - 1; got rank {index} of {count}.")


def _check_at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ValueError(f"{name} is {value}; at least {minimum} is needed.")

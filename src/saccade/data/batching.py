"""Batch sampling: which examples form which batch is a pure function of (seed, epoch, step), so resuming needs no loader state.

Batch size is given in tokens, padding included; `batch_size` limits the number of examples as well.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

BATCHES_PER_POOL = (
    100  # batches whose examples are sorted by length together: enough for similar lengths, few enough to shuffle
)
MIN_BATCHES_FOR_TWO_POOLS = (
    8  # with fewer batches there is one pool; a single pool groups the same examples in every epoch
)


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Length-bucketed batches under a token budget, shuffled anew for each epoch, with each example once.

    A batch costs its number of rows times its longest example, padding included; with two columns (source and target), its rows
    times the longest source plus the longest target. An example above the budget forms a batch by itself.

    >>> plan = BatchPlan([3, 9, 4, 2, 8], batch_tokens=16)
    >>> sorted(sorted(batch.tolist()) for batch in plan.plan_epoch(0))
    [[0, 2, 3], [1], [4]]
    """

    lengths: np.ndarray | Sequence[int] | Sequence[tuple[int, int]]  # (n,) or (n, 2)
    batch_tokens: int
    seed: int = 0
    batch_size: int | None = None  # maximum number of examples in a batch
    # cumulative number of steps at the end of each epoch that has been planned
    _epoch_ends: list[int] = field(default_factory=list, init=False, repr=False)
    # the batches of the last epoch that was planned
    _epoch_cache: dict[int, list[np.ndarray]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = np.array(self.lengths)
        if lengths.size == 0 or lengths.ndim > 2 or (lengths.ndim == 2 and lengths.shape[1] != 2):
            raise ValueError(f"lengths has to be of shape (n,) or (n, 2) with n of 1 or more; got {lengths.shape}.")
        if lengths.dtype.kind not in "iu" or lengths.min() < 0:
            raise ValueError(
                f"lengths has to hold integers from 0; got {lengths.dtype} with a minimum of {lengths.min()}."
            )
        for name, value, least in (
            ("batch_tokens", self.batch_tokens, 1),
            ("seed", self.seed, 0),
            ("batch_size", self.batch_size, 1),
        ):
            _check_at_least(name, least if value is None else value, least)
        lengths = lengths.astype(np.int64)
        lengths.flags.writeable = False
        object.__setattr__(self, "lengths", lengths)

    def plan_epoch(self, epoch: int) -> list[np.ndarray]:
        """The indices of each batch of an epoch, in order."""
        if epoch not in self._epoch_cache:
            batches = self._draw_epoch(epoch)
            self._epoch_cache.clear()
            self._epoch_cache[epoch] = batches
        return list(self._epoch_cache[epoch])

    def count_steps(self, epoch: int) -> int:
        """The number of batches in an epoch; it may differ slightly from epoch to epoch."""
        self._extend_epoch_ends(epoch)
        return self._epoch_ends[epoch] - (self._epoch_ends[epoch - 1] if epoch else 0)

    def find_batch(self, step: int) -> tuple[int, int, np.ndarray]:
        """The (epoch, position in the epoch, indices) of a global step; earlier epochs are planned once, to count their steps."""
        _check_at_least("step", step, 0)
        while not self._epoch_ends or self._epoch_ends[-1] <= step:
            self._extend_epoch_ends(len(self._epoch_ends))
        epoch = bisect_right(self._epoch_ends, step)
        position = step - (self._epoch_ends[epoch - 1] if epoch else 0)
        return epoch, position, self.plan_epoch(epoch)[position]

    def shard_batch(self, batch: np.ndarray, index: int, count: int) -> np.ndarray:
        """The rows of a batch for one rank, split so that the most expensive shard is as cheap as possible; may be empty."""
        _check_shard(index, count)
        cost = np.maximum(self._make_length_table()[batch].sum(1), 1)
        batch = batch[np.argsort(-cost, kind="stable")]
        start, left = 0, np.sort(cost)[::-1].tolist()  # longest first: the first row of a shard is its width
        for ranks in range(count, count - index, -1):
            taken = _compute_first_shard_size(left, ranks)
            start, left = start + taken, left[taken:]
        return batch[start : start + _compute_first_shard_size(left, count - index)]

    def shard_epoch(self, epoch: int, index: int, count: int) -> list[np.ndarray]:
        """The rows of every batch of an epoch for one rank: all ranks have the same steps, and together the whole batches."""
        return [self.shard_batch(batch, index, count) for batch in self.plan_epoch(epoch)]

    def measure_padding(self, epoch: int) -> float:
        """The fraction of padding among all tokens of an epoch."""
        table = self._make_length_table()
        padded = sum(len(batch) * int(table[batch].max(0).sum()) for batch in self.plan_epoch(epoch))
        return 1 - int(table.sum()) / padded if padded else 0.0

    def _make_length_table(self) -> np.ndarray:
        lengths = np.asarray(self.lengths)
        return lengths[:, None] if lengths.ndim == 1 else lengths  # (n, 1 or 2)

    def _compute_costs(self) -> np.ndarray:
        return np.maximum(self._make_length_table().sum(1), 1)  # an empty text counts as one token

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
        """Sort by length; with two columns by the longer one, then by the difference, in alternating order to avoid jumps."""
        table = self._make_length_table()[pool]
        longer, difference = table.max(1), table[:, 0] - table[:, -1]
        return pool[np.lexsort((np.where(longer % 2, -difference, difference), longer))]

    def _cut_batches(self, pool: np.ndarray) -> list[np.ndarray]:
        """Batches of consecutive examples, each as large as `batch_tokens` and `batch_size` allow."""
        limit, cuts, start = self.batch_size or len(pool), [], 0
        source = target = 0
        columns = self._make_length_table()[pool].T.tolist()
        for i, (s, t) in enumerate(zip(columns[0], columns[1] if len(columns) > 1 else [0] * len(pool), strict=True)):
            source, target = max(source, s), max(target, t)
            if i > start and (i - start == limit or (i - start + 1) * max(source + target, 1) > self.batch_tokens):
                cuts.append(i)
                start, source, target = i, s, t
        pool.flags.writeable = False
        return [pool[a:b] for a, b in zip([0, *cuts], [*cuts, len(pool)], strict=True)]


@dataclass(frozen=True)
class WindowPlan:
    """Batches of windows of running text: a new offset and order in each epoch, with each token a target at most once.

    A window that starts at s reads the tokens s to s + window_tokens - 1; its targets are the tokens s + 1 to s + window_tokens.

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
            ("window_tokens", self.window_tokens, 1),
            ("batch_size", self.batch_size, 1),
            ("seed", self.seed, 0),
        ):
            _check_at_least(name, value, least)
        if self.token_count <= self.window_tokens:
            raise ValueError(
                f"A text of {self.token_count:,} tokens is too short for a window of {self.window_tokens:,} tokens and the token "
                "after it; give more text or lower task.max_tokens."
            )

    @property
    def window_count(self) -> int:
        """The number of windows that fit at any offset."""
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
        """The number of batches in an epoch; it is the same for all epochs."""
        _check_at_least("epoch", epoch, 0)
        return -(-self.window_count // self.batch_size)

    def find_batch(self, step: int) -> tuple[int, int, np.ndarray]:
        """The (epoch, position in the epoch, start offsets) of a global step."""
        _check_at_least("step", step, 0)
        epoch, position = divmod(step, self.count_steps(0))
        return epoch, position, self.plan_epoch(epoch)[position]

    def shard_batch(self, batch: np.ndarray, index: int, count: int) -> np.ndarray:
        """The windows of a batch for one rank; the shards differ by one window at most."""
        _check_shard(index, count)
        return np.array_split(batch, count)[index]

    def shard_epoch(self, epoch: int, index: int, count: int) -> list[np.ndarray]:
        """The windows of every batch of an epoch for one rank."""
        return [self.shard_batch(batch, index, count) for batch in self.plan_epoch(epoch)]

    def measure_padding(self, epoch: int) -> float:
        """Always 0: windows have no padding."""
        _check_at_least("epoch", epoch, 0)
        return 0.0

    def _generator(self, epoch: int) -> np.random.Generator:
        _check_at_least("epoch", epoch, 0)
        return np.random.Generator(np.random.PCG64([self.seed, epoch]))

    def _count_offsets(self) -> int:
        return min(self.window_tokens, self.token_count - self.window_count * self.window_tokens)


def _compute_first_shard_size(lengths: list[int], shards: int) -> int:
    """The number of rows, longest first, for the first of several shards, such that the maximum cost of a shard is minimal."""
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
        raise ValueError(f"rank has to be from 0 to world_size - 1; got rank {index} of {count}.")


def _check_at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ValueError(f"{name} is {value}; at least {minimum} is needed.")

"""Scores with bootstrap confidence intervals: the examples are resampled with replacement.

Every metric here is a function of sums over examples. Each example is reduced to a row of numbers once, and a thousand bootstrap
samples are a thousand weighted sums: no metric is computed on the texts twice.
"""

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from saccade.notebook import html_table

DEFAULT_BOOTSTRAP_SAMPLES = 1_000
SCORE_COLUMNS = ("score", "value", "95 % interval", "examples", "signature")
MAX_CELLS_AT_ONCE = 2**20  # bounds the memory of resampling, whatever the number of examples

Statistic = Callable[[np.ndarray], np.ndarray]  # sums (R, k) -> values (R,)


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval: the middle 95 % of the values of the bootstrap samples."""

    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """The value of a metric on a set of examples, with its 95 % confidence interval.

    >>> print(Score("accuracy", 0.8934, 0.8791, 0.9072, 1821))
    accuracy 0.893 (0.879–0.907), 1,821 examples
    >>> print(Score("bleu", 38.519, 37.4, 39.608, 1000, signature="nrefs:1|case:mixed"))
    bleu 38.52 (37.40–39.61), 1,000 examples [nrefs:1|case:mixed]
    """

    name: str
    value: float
    low: float
    high: float
    count: int
    signature: str = ""  # the settings that reproduce the value, as sacrebleu writes them
    better: Literal["higher", "lower"] = "higher"

    def with_signature(self, **settings: object) -> "Score":
        """A copy of the score with these settings added to its signature.

        >>> Score("perplexity", 18.9, 18.1, 19.7, 120).with_signature(engine="off", window=2048).signature
        'engine:off|window:2048'
        """
        added = (f"{name}:{value}" for name, value in settings.items())
        return replace(self, signature="|".join(filter(None, (self.signature, *added))))

    def __repr__(self) -> str:
        numbers = (f"{name}={getattr(self, name):.4g}" for name in ("value", "low", "high"))
        return f"Score(name={self.name!r}, {', '.join(numbers)}, count={self.count})"

    def _repr_html_(self) -> str:
        return html_table(SCORE_COLUMNS, [self.cells()])

    def cells(self) -> tuple[str, ...]:
        """Name, value, interval, count and signature, formatted as the cells of a table row."""
        value, low, high = self._format_numbers()
        return self.name, value, f"{low}–{high}", f"{self.count:,}", self.signature

    def _format_numbers(self) -> tuple[str, str, str]:
        digits = 3 if abs(self.value) < 10 else 2
        return f"{self.value:,.{digits}f}", f"{self.low:,.{digits}f}", f"{self.high:,.{digits}f}"

    def __str__(self) -> str:
        examples = "example" if self.count == 1 else "examples"
        signature = f" [{self.signature}]" if self.signature else ""
        value, low, high = self._format_numbers()
        return f"{self.name} {value} ({low}–{high}), {self.count:,} {examples}{signature}"


@dataclass(frozen=True, eq=False)
class IndicatorTable:
    """A sparse matrix of zeros and ones, such as examples by classes, stored as the coordinates of its ones."""

    rows: np.ndarray  # (N,) row (the example) of each one
    columns: np.ndarray  # (N,) column of each one
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def sum_columns(self, counts: np.ndarray) -> np.ndarray:
        """The column sums of each bootstrap sample, given how often it contains each row: (R, n) -> (R, k)."""
        out = np.zeros((len(counts), self.shape[1]))
        for sums, row in zip(out, counts, strict=True):
            sums[:] = np.bincount(self.columns, row[self.rows], self.shape[1])
        return out


def bootstrap(
    statistic: Statistic,
    units: np.ndarray | IndicatorTable,
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Interval:
    """The 95 % percentile bootstrap interval of a statistic that is a function of sums over examples.

    `units` has one row per example. `statistic` takes the column sums of R bootstrap samples, (R, k), and returns R values.

    >>> bootstrap(lambda sums: sums[:, 0] / 4, np.array([[1.0], [1.0], [1.0], [1.0]]))
    Interval(low=1.0, high=1.0)
    """
    return _percentile_interval(resample(statistic, units, bootstrap_samples=bootstrap_samples, seed=seed))


def resample(
    statistic: Statistic,
    units: np.ndarray | IndicatorTable,
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """The values of a statistic on the bootstrap samples; the same seed and number of examples give the same samples."""
    if bootstrap_samples < 1:
        raise ValueError(
            f"bootstrap_samples is {bootstrap_samples}; give at least 1, and some hundreds for a meaningful interval."
        )
    count, width = len(units), units.shape[1]
    return np.concatenate(
        [statistic(_sum_resamples(units, counts)) for counts in resample_counts(count, bootstrap_samples, seed, width)]
    )


def _percentile_interval(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


def resample_indices(count: int, bootstrap_samples: int, seed: int, *, width: int = 1) -> Iterator[np.ndarray]:
    """Yield the example indices of the bootstrap samples, in chunks of shape (samples, count) that bound the memory."""
    generator = np.random.Generator(np.random.PCG64(seed))
    chunk = max(1, MAX_CELLS_AT_ONCE // max(count, width))
    for start in range(0, bootstrap_samples, chunk):
        yield generator.integers(count, size=(min(chunk, bootstrap_samples - start), count))


def measure(
    name: str,
    statistic: Statistic,
    units: np.ndarray | IndicatorTable,
    *,
    better: Literal["higher", "lower"] = "higher",
    signature: str = "",
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Compute a metric on all examples and its bootstrap interval, both by the same function of sums."""
    if not len(units):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold answer.")
    value = float(statistic(_sum_resamples(units, np.ones((1, len(units)))))[0])
    values = resample(statistic, units, bootstrap_samples=bootstrap_samples, seed=seed)
    record_values(name, values)
    interval = _percentile_interval(values)
    return Score(name, value, interval.low, interval.high, len(units), signature, better)


_recorded_resamples: ContextVar[dict[str, np.ndarray] | None] = ContextVar("recorded_resamples", default=None)


@contextmanager
def record_resamples() -> Iterator[dict[str, np.ndarray]]:
    """Record the bootstrap values of every metric that is computed inside the context, by name.

    Systems that are scored on the same examples get the same bootstrap samples, so the differences between the values of two
    systems are a paired bootstrap.
    """
    token = _recorded_resamples.set(recorded := {})
    try:
        yield recorded
    finally:
        _recorded_resamples.reset(token)


def record_values(name: str, values: np.ndarray) -> None:
    """Record the bootstrap values of a metric if they are asked for (`record_resamples`)."""
    if (recorded := _recorded_resamples.get()) is not None:
        recorded[name] = values


def ratio(sums: np.ndarray) -> np.ndarray:
    """The first sum divided by the second; 0 where the second is 0."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] != 0)


def check_pairs(name: str, gold: Sized, answers: Sized) -> None:
    """Raise an error unless there is one prediction per gold answer."""
    if len(gold) != len(answers):
        raise ValueError(
            f"{name}: got {len(gold):,} gold answers but {len(answers):,} predictions; give one prediction per example."
        )


def _sum_resamples(units: np.ndarray | IndicatorTable, counts: np.ndarray) -> np.ndarray:
    return units.sum_columns(counts) if isinstance(units, IndicatorTable) else counts @ units


def resample_counts(count: int, bootstrap_samples: int, seed: int, width: int) -> Iterator[np.ndarray]:
    """Yield how often each bootstrap sample contains each example, in chunks of shape (samples, count)."""
    for indices in resample_indices(count, bootstrap_samples, seed, width=width):
        rows = len(indices)
        cells = indices + count * np.arange(rows)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)

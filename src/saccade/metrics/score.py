"""A score and how sure one can be of it: intervals by drawing the examples again, with replacement.

Every metric here is a function of sums over examples. So an example is reduced to its row of numbers once, and a thousand draws
are a thousand weighted sums: no metric is ever computed on texts twice.
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
MAX_CELLS_AT_ONCE = 2**20  # numbers that exist at one time, whatever the count of examples

Statistic = Callable[[np.ndarray], np.ndarray]  # sums (R, k) -> values (R,)


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of the values that other draws of examples would give."""

    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """One metric over some examples.

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
    signature: str = ""  # how to compute the same elsewhere
    better: Literal["higher", "lower"] = "higher"

    def with_signature(self, **settings: object) -> "Score":
        """The same with more in its signature.

        >>> Score("perplexity", 18.9, 18.1, 19.7, 120).with_signature(engine="off", window=2048).signature
        'engine:off|window:2048'
        """
        added = (f"{name}:{value}" for name, value in settings.items())
        return replace(self, signature="|".join(filter(None, (self.signature, *added))))

    def _repr_html_(self) -> str:
        return html_table(SCORE_COLUMNS, [self.cells()])

    def cells(self) -> tuple[str, ...]:
        """Name, value, interval, count and signature, as a table shows them."""
        value, low, high = self._format_numbers()
        return self.name, value, f"{low}–{high}", f"{self.count:,}", self.signature

    def _format_numbers(self) -> tuple[str, str, str]:
        shown = lambda x: f"{x:,.{3 if abs(self.value) < 10 else 2}f}"
        return shown(self.value), shown(self.low), shown(self.high)

    def __str__(self) -> str:
        examples = "example" if self.count == 1 else "examples"
        signature = f" [{self.signature}]" if self.signature else ""
        value, low, high = self._format_numbers()
        return f"{self.name} {value} ({low}–{high}), {self.count:,} {examples}{signature}"


@dataclass(frozen=True, eq=False)
class IndicatorTable:
    """A table of ones and zeros that is mostly zeros, such as examples by classes: where the ones are."""

    rows: np.ndarray  # (N,) the example of each one
    columns: np.ndarray  # (N,)
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def sum_columns(self, counts: np.ndarray) -> np.ndarray:
        """Each draw's column sums: (R, n) -> (R, k)."""
        made = np.zeros((len(counts), self.shape[1]))
        for sums, row in zip(made, counts, strict=True):
            sums[:] = np.bincount(self.columns, row[self.rows], self.shape[1])
        return made


def bootstrap(
    statistic: Statistic,
    units: np.ndarray | IndicatorTable,
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Interval:
    """The 95 % percentile interval of a function of sums, over examples drawn with replacement.

    `units` has a row for each example; `statistic` gets the sums of some draws, a row for each, and gives each a value.

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
    """The value of a function of sums for each bootstrap sample; the same seed and number of examples give the same draws."""
    if bootstrap_samples < 1:
        raise ValueError(
            f"bootstrap_samples is {bootstrap_samples}; an interval needs one draw at least, and some hundreds to mean something."
        )
    count, width = len(units), units.shape[1]
    return np.concatenate(
        [statistic(_sum_resamples(units, counts)) for counts in resample_counts(count, bootstrap_samples, seed, width)]
    )


def _percentile_interval(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


def resample_indices(count: int, bootstrap_samples: int, seed: int, *, width: int = 1) -> Iterator[np.ndarray]:
    """The examples of each draw, (some draws, count) at a time so that memory stays small."""
    generator = np.random.Generator(np.random.PCG64(seed))
    some = max(1, MAX_CELLS_AT_ONCE // max(count, width))
    for start in range(0, bootstrap_samples, some):
        yield generator.integers(count, size=(min(some, bootstrap_samples - start), count))


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
    """A metric's value over all examples, and its interval, by one and the same function of sums."""
    if not len(units):
        raise ValueError(f"{name} of no examples is not defined; give at least one example with its gold answer.")
    value = float(statistic(_sum_resamples(units, np.ones((1, len(units)))))[0])
    values = resample(statistic, units, bootstrap_samples=bootstrap_samples, seed=seed)
    if (recorded := _recorded_resamples.get()) is not None:
        recorded[name] = values
    interval = _percentile_interval(values)
    return Score(name, value, interval.low, interval.high, len(units), signature, better)


_recorded_resamples: ContextVar[dict[str, np.ndarray] | None] = ContextVar("recorded_resamples", default=None)


@contextmanager
def record_resamples() -> Iterator[dict[str, np.ndarray]]:
    """Collect the bootstrap values of every metric that is measured inside, by name.

    The draws are the same for every system that is scored on the same examples, so the difference of the values of two systems
    is a paired bootstrap.
    """
    token = _recorded_resamples.set(recorded := {})
    try:
        yield recorded
    finally:
        _recorded_resamples.reset(token)


def ratio(sums: np.ndarray) -> np.ndarray:
    """The first sum over the second; nothing over nothing is nothing."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] != 0)


def check_pairs(name: str, gold: Sized, answers: Sized) -> None:
    """One answer for each gold answer, or an error."""
    if len(gold) != len(answers):
        raise ValueError(
            f"{name}: {len(gold):,} gold but {len(answers):,} answers; one answer for each example is needed."
        )


def _sum_resamples(units: np.ndarray | IndicatorTable, counts: np.ndarray) -> np.ndarray:
    return units.sum_columns(counts) if isinstance(units, IndicatorTable) else counts @ units


def resample_counts(count: int, bootstrap_samples: int, seed: int, width: int) -> Iterator[np.ndarray]:
    """How often each draw has each example, (some draws, count)."""
    for indices in resample_indices(count, bootstrap_samples, seed, width=width):
        some = len(indices)
        places = indices + count * np.arange(some)[:, None]
        yield np.bincount(places.ravel(), minlength=some * count).reshape(some, count).astype(np.float64)

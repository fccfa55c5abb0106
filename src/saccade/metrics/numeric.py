"""Metrics of numbers: how surprised a language model was, and how far a regression is off."""

import math
from collections.abc import Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio

Numbers = Sequence[float] | Sequence[Sequence[float]] | np.ndarray
MAX_EXPONENT = 700.0  # e to this power is still a number


def perplexity(
    nats: Sequence[float], tokens: Sequence[int], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """How many tokens the model hesitated between, from each text's summed negative log likelihood.

    >>> print(perplexity([2 * math.log(8), math.log(8)], [2, 1]))
    perplexity 8.000 (8.000–8.000), 2 examples
    """
    units = _as_sums("perplexity", nats, "tokens", tokens)
    surprise = lambda sums: np.exp(np.minimum(ratio(sums), MAX_EXPONENT))
    return measure("perplexity", surprise, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def bits_per_byte(
    nats: Sequence[float],
    byte_counts: Sequence[int],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Bits that the model needs for a byte of text, which compares models with different tokenizers.

    >>> bits_per_byte([16 * math.log(2)], [8]).value
    2.0
    """
    units = _as_sums("bits_per_byte", nats, "bytes", byte_counts)
    bits = lambda sums: ratio(sums) / math.log(2)
    return measure("bits_per_byte", bits, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def mse(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """The mean squared error, over all numbers of an example where it has several.

    >>> mse([1.0, 2.0], [1.0, 4.0]).value
    2.0
    """
    right, said = _as_tables("mse", gold, answers)
    units = np.stack([((right - said) ** 2).sum(1), np.full(len(right), float(right.shape[1]))], axis=1)
    return measure("mse", ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def mae(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """The mean absolute error, over all numbers of an example where it has several.

    >>> mae([1.0, 2.0], [1.0, 4.0]).value
    1.0
    """
    right, said = _as_tables("mae", gold, answers)
    units = np.stack([np.abs(right - said).sum(1), np.full(len(right), float(right.shape[1]))], axis=1)
    return measure("mae", ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def r2(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """The share of the gold's variance that the answers explain, 1 at best; of several numbers the mean of their shares.

    Where the gold does not vary it is 1 for perfect answers and 0 for others, as in scikit-learn.
    """
    right, said = _as_tables("r2", gold, answers)
    from_mean = right - right.mean(0) if len(right) else right  # moves nothing but the rounding
    units = np.concatenate([(right - said) ** 2, from_mean, from_mean**2, np.ones((len(right), 1))], axis=1)
    return measure("r2", _r2, units, bootstrap_samples=bootstrap_samples, seed=seed)


def _r2(sums: np.ndarray) -> np.ndarray:
    error, total, squares = np.split(sums[:, :-1], 3, axis=1)
    variance = squares - total**2 / sums[:, -1:]
    varies = variance > 1e-12 * np.maximum(squares, 1e-300)
    explained = 1 - np.divide(error, variance, out=(error > 0).astype(np.float64), where=varies)
    return explained.mean(1)


def _as_sums(name: str, nats: Sequence[float], of: str, count: Sequence[int]) -> np.ndarray:
    check_pairs(name, count, nats)
    units = np.stack([np.asarray(nats, dtype=np.float64), np.asarray(count, dtype=np.float64)], axis=1)
    if len(units) and not units[:, 1].sum() > 0:
        raise ValueError(f"{name} over no {of} is not defined; give at least one text that has some.")
    return units


def _as_tables(name: str, gold: Numbers, answers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    check_pairs(name, gold, answers)
    right, said = np.asarray(gold, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if right.shape != said.shape:
        raise ValueError(f"{name}: gold is {right.shape} but answers are {said.shape}; numbers for numbers are needed.")
    return right.reshape(len(right), -1 if len(right) else 1), said.reshape(len(said), -1 if len(said) else 1)

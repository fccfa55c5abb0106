"""Metrics of numbers: perplexity and bits per byte of a language model; MSE, MAE and R² of a regression."""

import math
from collections.abc import Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio

Numbers = Sequence[float] | Sequence[Sequence[float]] | np.ndarray
MAX_EXPONENT = 700.0  # exp of this is still finite


def perplexity(
    nats: Sequence[float], tokens: Sequence[int], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> Score:
    """Perplexity, from the summed negative log-likelihood (in nats) and the number of tokens of each text.

    >>> print(perplexity([2 * math.log(8), math.log(8)], [2, 1]))
    perplexity 8.000 (8.000–8.000), 2 examples
    """
    units = _as_sums("perplexity", nats, "tokens", tokens)
    statistic = lambda sums: np.exp(np.minimum(ratio(sums), MAX_EXPONENT))
    return measure("perplexity", statistic, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def bits_per_byte(
    nats: Sequence[float],
    byte_counts: Sequence[int],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Bits per byte of text, which compares language models with different tokenizers.

    >>> bits_per_byte([16 * math.log(2)], [8]).value
    2.0
    """
    units = _as_sums("bits_per_byte", nats, "bytes", byte_counts)
    bits = lambda sums: ratio(sums) / math.log(2)
    return measure("bits_per_byte", bits, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def mse(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """Mean squared error, averaged over all outputs if an example has several numbers.

    >>> mse([1.0, 2.0], [1.0, 4.0]).value
    2.0
    """
    expected, predicted = _as_tables("mse", gold, answers)
    units = np.stack([((expected - predicted) ** 2).sum(1), np.full(len(expected), float(expected.shape[1]))], axis=1)
    return measure("mse", ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def mae(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """Mean absolute error, averaged over all outputs if an example has several numbers.

    >>> mae([1.0, 2.0], [1.0, 4.0]).value
    1.0
    """
    expected, predicted = _as_tables("mae", gold, answers)
    units = np.stack([np.abs(expected - predicted).sum(1), np.full(len(expected), float(expected.shape[1]))], axis=1)
    return measure("mae", ratio, units, better="lower", bootstrap_samples=bootstrap_samples, seed=seed)


def r2(gold: Numbers, answers: Numbers, *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0) -> Score:
    """R², the coefficient of determination: 1 is perfect; averaged over the outputs if an example has several numbers.

    If the gold values are constant it is 1 for perfect predictions and 0 for others, as in scikit-learn.
    """
    expected, predicted = _as_tables("r2", gold, answers)
    from_mean = (
        expected - expected.mean(0) if len(expected) else expected
    )  # centered for precision; the result is the same
    units = np.concatenate([(expected - predicted) ** 2, from_mean, from_mean**2, np.ones((len(expected), 1))], axis=1)
    return measure("r2", _r2, units, bootstrap_samples=bootstrap_samples, seed=seed)


def _r2(sums: np.ndarray) -> np.ndarray:
    errors, total, squares = np.split(sums[:, :-1], 3, axis=1)
    variance = squares - total**2 / sums[:, -1:]
    varies = variance > 1e-12 * np.maximum(squares, 1e-300)
    explained = 1 - np.divide(errors, variance, out=(errors > 0).astype(np.float64), where=varies)
    return explained.mean(1)


def _as_sums(name: str, nats: Sequence[float], unit: str, counts: Sequence[int]) -> np.ndarray:
    check_pairs(name, counts, nats)
    units = np.stack([np.asarray(nats, dtype=np.float64), np.asarray(counts, dtype=np.float64)], axis=1)
    if len(units) and not units[:, 1].sum() > 0:
        raise ValueError(f"{name} of texts without {unit} is not defined; give at least one text with {unit}.")
    return units


def _as_tables(name: str, gold: Numbers, answers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    check_pairs(name, gold, answers)
    expected, predicted = np.asarray(gold, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if expected.shape != predicted.shape:
        raise ValueError(
            f"{name}: gold has the shape {expected.shape} but the predictions {predicted.shape}; give equal shapes."
        )
    table = (len(expected), -1 if len(expected) else 1)
    return expected.reshape(table), predicted.reshape(table)

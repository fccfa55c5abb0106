"""Baselines for language modeling: n-gram models of bytes, and gzip. They are compared by the bits for each byte."""

import math
from collections.abc import Sequence

import numpy as np

from saccade.baselines.compression import gzip_bits_per_byte
from saccade.baselines.kneser_ney import KneserNey
from saccade.data import Example
from saccade.tasks.interface.learning import Baseline, BaselineMethod

MAX_TRAIN_BYTES = 4_000_000  # from the beginning of the text
ORDERS = (5, 6)
BYTES = 256


def language_baselines() -> tuple[BaselineMethod, ...]:
    """gzip -9, and Kneser-Ney n-grams of bytes."""
    return BaselineMethod("gzip -9", _fit_gzip), *map(_kneser_ney, ORDERS)


def _fit_gzip(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
    context, _ = _read_beginning(train)

    def predict(examples: Sequence[Example]) -> list[dict]:
        lines = [example["text"].encode() for example in examples]
        bits = gzip_bits_per_byte(b"".join(lines), context)
        return [_to_answer(bits * math.log(2) * len(line), len(line)) for line in lines]

    return Baseline("gzip -9", predict)


def _kneser_ney(order: int) -> BaselineMethod:
    def fit(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        text, is_whole = _read_beginning(train)
        model = KneserNey.fit(np.frombuffer(text, np.uint8), order=order, vocab=BYTES)

        def predict(examples: Sequence[Example]) -> list[dict]:
            lines = [example["text"].encode() for example in examples]
            nats = -model.log_probabilities(np.frombuffer(b"".join(lines), np.uint8))
            ends = np.cumsum([len(line) for line in lines])
            sums = np.diff(np.concatenate([[0.0], np.cumsum(nats)])[ends], prepend=0.0)
            return [_to_answer(float(total), len(line)) for total, line in zip(sums, lines, strict=True)]

        part = "" if is_whole else f" of the first {len(text) / 1e6:.0f} MB"
        return Baseline(f"a Kneser-Ney model of {order}-grams of bytes{part}", predict)

    return BaselineMethod(f"Kneser-Ney {order}-grams of bytes", fit)


def _read_beginning(examples: Sequence[Example]) -> tuple[bytes, bool]:
    """The beginning of a text, and whether it is the whole text."""
    lines, size = [], 0
    for example in examples:
        lines.append(example["text"].encode())
        size += len(lines[-1])
        if size > MAX_TRAIN_BYTES:
            return b"".join(lines)[:MAX_TRAIN_BYTES], False
    return b"".join(lines), True


def _to_answer(nats: float, count: int) -> dict[str, float]:
    """The answer to a line: its tokens are bytes."""
    return {"nats": nats, "tokens": count, "bytes": count}

"""Helpers of the lessons: words of a sentence, random word vectors, and modules with random weights.

All random numbers come from fixed seeds, and the global random state of the process does not change.
"""

import math
import re
import zlib
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from saccade.attention import watch
from saccade.errors import UsageError
from saccade.lessons.base import Control, Heatmap

MAX_WORDS = 40  # of a sentence
EXAMPLE_SENTENCE = "All dogs are smart and some are dumb"
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_text_control(default: str) -> Control:
    """A control for a sentence."""
    return Control("text", f"Sentence, up to {MAX_WORDS} words", "text", default)


def split_words(text: str) -> tuple[list[str], str]:
    """The words and punctuation marks of a text, and a remark if it is truncated.

    >>> split_words("Time flies, like an arrow.")
    (['Time', 'flies', ',', 'like', 'an', 'arrow', '.'], '')
    """
    words = re.findall(r"[\w'’-]+|[^\w\s]", text)
    if not words:
        raise UsageError(f"'text' is {text!r}, which has no words; type at least one.")
    remark = f" Only the first {MAX_WORDS} of {len(words):,} words are used." if len(words) > MAX_WORDS else ""
    return words[:MAX_WORDS], remark


def make_word_vectors(words: list[str], width: int) -> Tensor:
    """A random vector for each word, (1, L, W), seeded by its spelling: equal words have equal vectors."""
    rows = [draw_normal(zlib.crc32(word.casefold().encode()), width) for word in words]
    return torch.stack(rows)[None]


def draw_normal(seed: int, *shape: int) -> Tensor:
    """A tensor of standard normal numbers from this seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def build_seeded(make: Callable[[], ModuleT], seed: int = 0) -> ModuleT:
    """A module with random weights: matrices have standard deviation 1/√fan_in, scales of norms are one, biases zero."""
    with torch.random.fork_rng(devices=[]):  # its own initialization is replaced below
        module = make()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=1 / math.sqrt(weight.size(-1)), generator=generator)
            else:
                weight.fill_(float(name.endswith("weight")))
    return module


def watch_weights(module: nn.Module, *inputs: object) -> Tensor:
    """The attention weights of a module for these inputs, (H, Q, K), of the first example of the batch."""
    with torch.no_grad(), watch(module) as looks:
        module(*inputs)
    weights = looks[0].weights
    assert weights is not None
    return weights[0]


def make_word_heatmap(title: str, weights: Tensor, words: list[str], vmax: float | None = None) -> Heatmap:
    """A heat map with a row and a column for each word."""
    return Heatmap(title, weights.tolist(), words, words, vmax)

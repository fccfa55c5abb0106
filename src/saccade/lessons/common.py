"""What many lessons begin with: a sentence the reader typed, vectors for its words, and parts of the library with weights.

Everything is the same each time, and nothing here touches the chances of whoever else draws numbers in the process.
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

MAX_WORDS = 40  # words of a sentence that are read
EXAMPLE_SENTENCE = "All dogs are smart and some are dumb"
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_text_control(default: str) -> Control:
    """A control for a sentence of the reader's own."""
    return Control("text", f"A sentence of your own, up to {MAX_WORDS} words", "text", default)


def split_words(text: str) -> tuple[list[str], str]:
    """The words and signs of a text, and a remark where there were too many.

    >>> split_words("Time flies, like an arrow.")
    (['Time', 'flies', ',', 'like', 'an', 'arrow', '.'], '')
    """
    words = re.findall(r"[\w'’-]+|[^\w\s]", text)
    if not words:
        raise UsageError(f"'text' is {text!r}, which has no word; type at least one.")
    remark = f" Only the first {MAX_WORDS} of {len(words):,} words are read." if len(words) > MAX_WORDS else ""
    return words[:MAX_WORDS], remark


def make_word_vectors(words: list[str], width: int) -> Tensor:
    """A vector for each word, (1, L, W): drawn from the letters of the word, so the same word has the same vector."""
    rows = [draw_normal(zlib.crc32(word.casefold().encode()), width) for word in words]
    return torch.stack(rows)[None]


def draw_normal(seed: int, *shape: int) -> Tensor:
    """Normal numbers of this seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def build_seeded(make: Callable[[], ModuleT], seed: int = 0) -> ModuleT:
    """A part of the library with new weights: matrices keep the spread of what passes, norms are one, biases nothing."""
    with torch.random.fork_rng(devices=[]):  # a part draws weights when it is built; these are not used
        part = make()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in part.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=1 / math.sqrt(weight.size(-1)), generator=random)
            else:
                weight.fill_(float(name.endswith("weight")))
    return part


def watch_weights(module: nn.Module, *inputs: object) -> Tensor:
    """Where a part looked when it was called so: the weights of the first text, (H, Q, K)."""
    with torch.no_grad(), watch(module) as looks:
        module(*inputs)
    weights = looks[0].weights
    assert weights is not None
    return weights[0]


def make_word_heatmap(title: str, weights: Tensor, words: list[str], vmax: float | None = None) -> Heatmap:
    """A map of words by words."""
    return Heatmap(title, weights.tolist(), words, words, vmax)

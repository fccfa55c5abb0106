"""Small autoregressive models and requests for the tests of continuous batching."""

import torch
import torch.nn.functional as F
from torch import nn

from saccade.data import Batch, Text
from saccade.models.build import new
from saccade.models.families import gpt2, llama, rnn, transformer
from saccade.parts.state import State

VOCAB, STOP, LIMIT = 23, 5, 16
SIZES = {"vocab": VOCAB, "width": 12, "layers": 1, "heads": 3, "ffn_width": 17, "max_positions": LIMIT, "dropout": 0.0}
VISION_SIZES = {"width": 12, "layers": 1, "heads": 3, "ffn_width": 17, "dropout": 0.0, "image_size": 8, "cell_size": 4}
TINY = {
    "gpt2": gpt2.Config(**SIZES),
    "llama": llama.Config(**SIZES | {"heads": 6, "head_width": 2}, kv_heads=2),
    "transformer": transformer.Config(**SIZES),
    "rnn": rnn.Config(VOCAB, 12, dropout=0.0),
}


def make_tiny_model(name, config=None):
    """A model with weights so large that texts differ and have different lengths."""
    torch.manual_seed(1)
    model = new(name, config or TINY[name]).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.4)
    return model


def make_batch(row):
    return Batch(Text(torch.tensor([row])))


def run_all(slots):
    """Step until all requests are done; returns the events in their order."""
    events = []
    while slots.has_work:
        events += slots.step()
    return events


class SumModel:
    """A model whose next token follows a formula: the sum of n times the n-th token, modulo the vocabulary size."""

    def __init__(self):
        self.broken, self.started = None, []

    def start(self, batch):
        self.started.append(tuple(batch.source.tokens.shape))
        return State(), batch.source

    def step(self, text, state):
        if self.broken is not None:
            raise self.broken
        if int(text.tokens.max()) >= VOCAB:
            raise IndexError("no such token")
        state.advance(tuple(text.tokens.shape), text.keep)
        tokens = state.append("tokens", text.tokens, axis=1)
        weighted = (state.k_pos + 1) * tokens
        weighted = weighted if state.keep is None else weighted.masked_fill(~state.keep, 0)
        return F.one_hot(weighted.cumsum(1)[:, -text.tokens.size(1) :] % VOCAB, VOCAB).float()


def expected_tokens(row, limit, stop=STOP):
    """The continuation that `SumModel` generates, by the formula."""
    out = []
    while len(out) < limit:
        token = sum((n + 1) * token for n, token in enumerate([*row, *out])) % VOCAB
        if token == stop:
            break
        out.append(token)
    return out


def random_requests(rng, count=25):
    """Random requests: (tokens, limit)."""
    return [([rng.randrange(VOCAB) for _ in range(rng.randint(1, 8))], rng.randint(1, 8)) for _ in range(count)]

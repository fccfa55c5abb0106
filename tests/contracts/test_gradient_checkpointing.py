"""Gradient checkpointing: each block of every family has the same gradients when it is computed twice, with dropout on.

A block that remembered something inside, or drew its dropout from anywhere but torch's generator, would not. What a decoder
remembers is handed in, and is rewound to what it was when the block was computed first.
"""

from dataclasses import fields, replace
from functools import partial

import pytest
import torch
from test_families import TINY, answer, example, names, remembering
from torch import nn
from torch.utils.checkpoint import checkpoint

from saccade.models.build import new
from saccade.models.registry import FAMILIES
from saccade.parts.state import State

WITHOUT_BLOCKS = {"kernel_regression"}  # pools over remembered points, in one step


def recomputed(real, again, *args, **options):
    """A block's forward pass whose inner values are not kept, but computed again for the gradients."""
    states = [one for one in (*args, *options.values()) if isinstance(one, State)]
    before = [state.snapshot() for state in states]

    def forward(*args, **options):
        again.append(real)
        after = [state.snapshot() for state in states]
        for state, mark in zip(states, before, strict=True):
            state.restore(mark)
        out = real(*args, **options)
        if len(again) > first:
            for state, mark in zip(states, after, strict=True):
                state.restore(mark)
        return out

    first = len(again) + 1
    return checkpoint(forward, *args, use_reentrant=False, **options)


def gradients(family, *, checkpointed):
    """The loss and the gradients of a training step, and how many blocks were computed a second time."""
    config = TINY[family.name]
    if "dropout" in {field.name for field in fields(config)}:
        config = replace(config, dropout=0.3)
    torch.manual_seed(1)
    model = remembering(new(family, config)).train()
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    stages = [part for part in model.modules() if isinstance(part, nn.Sequential)]  # of a convolutional network
    blocks = [block for part in lists or stages for block in part]
    again = []
    for block in blocks if checkpointed else ():
        block.forward = partial(recomputed, block.forward, again)
    torch.manual_seed(2)
    loss = answer(model, example(family)).square().sum()
    first = len(again)
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), found, len(again) - first


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name not in WITHOUT_BLOCKS], ids=names)
def test_gradients_with_checkpointing_are_those_without(family):
    loss, plain, _ = gradients(family, checkpointed=False)
    same, found, again = gradients(family, checkpointed=True)
    assert again > 0, "no block was computed a second time"
    assert torch.equal(loss, same)
    assert plain.keys() == found.keys()
    assert [name for name in plain if not torch.equal(plain[name], found[name])] == []

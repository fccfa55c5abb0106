"""Decoders against the `transformers` package: all positions at once, one at a time, padded, and their gradients."""

import pytest
import torch
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.models.families import gpt2
from support.parity import HiddenStates, compare, compare_gradients, convert_model, run_watched


def hf_gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 53, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 19}
    return GPT2LMHeadModel(GPT2Config(**(sizes | options), attn_implementation="eager"))


CASES = [
    (gpt2.FAMILY, hf_gpt2, {}),
    (gpt2.FAMILY, hf_gpt2, {"n_head": 1, "n_inner": 13, "activation_function": "relu"}),
    (gpt2.FAMILY, hf_gpt2, {"n_head": 4, "n_layer": 3, "activation_function": "gelu"}),
]


def pair(family, make, options):
    torch.manual_seed(1)
    theirs = make(**options).double().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return convert_model(family, theirs), theirs


def write(model, tokens, keep=None):
    state, text = model.start(Batch(Text(tokens, keep)))
    return model.step(text, state)


@pytest.mark.parametrize("length", [1, 2, 7, 19])
@pytest.mark.parametrize(("family", "make", "options"), CASES)
def test_states_maps_scores_loss_and_gradients(family, make, options, length):
    ours, theirs = pair(family, make, options)
    tokens = torch.randint(0, 53, (3, length), generator=torch.Generator().manual_seed(2))
    with HiddenStates(ours.stack) as states:
        scores, maps = run_watched(ours, lambda: write(ours, tokens))
    wanted = theirs(input_ids=tokens, labels=tokens, output_hidden_states=True, output_attentions=True)
    for state, hidden in zip(states[:-1], wanted.hidden_states[1:-1], strict=True):  # the last is normalised there
        compare(state, hidden)
    for weights, attention in zip(maps, wanted.attentions, strict=True):
        compare(weights, attention)
    compare(scores, wanted.logits)
    if length == 1:
        return
    loss, oracle = (
        torch.nn.functional.cross_entropy(x[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        for x in (scores, wanted.logits)
    )
    compare(loss.float(), wanted.loss, rtol=1e-6)  # the package computes it in single precision
    for answer, model in ((loss, ours), (oracle, theirs)):
        model.zero_grad()
        answer.backward()
    compare_gradients(ours, theirs, family, family.config_from_hf(theirs.config.to_dict()))


@pytest.mark.parametrize(("family", "make", "options"), CASES)
def test_padding_and_steps(family, make, options):
    ours, theirs = pair(family, make, options)
    tokens = torch.randint(0, 53, (2, 11), generator=torch.Generator().manual_seed(2))
    for left in (True, False):
        rows = [tokens[0, :7].tolist(), tokens[1, :4].tolist()]
        prompt = Text.pad(rows, pad_left=left)
        state, text = ours.start(Batch(prompt))
        scores = ours.step(text, state)
        for i, row in enumerate(rows):
            alone = theirs(input_ids=torch.tensor([row])).logits[0]
            compare(scores[i, prompt.keep[i]], alone)
        for t in range(4):  # and on, one token at a time
            new = torch.stack([tokens[0, 7 + t], tokens[1, 4 + t]])[:, None]
            scores = ours.step(Text(new), state)
            rows = [[*row, int(x)] for row, x in zip(rows, new, strict=True)]
            for i, row in enumerate(rows):
                assert_close(scores[i, -1], theirs(input_ids=torch.tensor([row])).logits[0, -1], rtol=1e-9, atol=1e-9)

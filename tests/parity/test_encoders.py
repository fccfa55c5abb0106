"""Encoders against the `transformers` package: tiny random models, several configurations, lengths and paddings."""

import pytest
import torch

from saccade.data import Batch, Text
from saccade.models.families import bert
from support.parity import HiddenStates, compare, compare_gradients, convert_model, run_watched

SIZES = {"vocab_size": 53, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}


def hf_bert(**options):
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**(SIZES | {"max_position_embeddings": 19} | options), attn_implementation="eager"))


CASES = [
    (bert.FAMILY, hf_bert, {}),
    (bert.FAMILY, hf_bert, {"num_attention_heads": 1, "hidden_act": "relu", "type_vocab_size": 3}),
    (bert.FAMILY, hf_bert, {"num_attention_heads": 4, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}),
]


def example(length, padded, seed=0):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 53, (3, length), generator=g)
    segment = torch.randint(0, 2, (3, length), generator=g)
    keep = None
    if padded and length > 2:
        at = torch.arange(length)
        keep = (
            torch.stack([at >= 0, at < length - 2, at < 2])
            if padded == "right"
            else torch.stack([at >= 0, at > 1, at >= length - 2])
        )
    return tokens, segment, keep


@pytest.mark.parametrize("padded", [None, "right", "left"])
@pytest.mark.parametrize("length", [1, 2, 7, 19])
@pytest.mark.parametrize(("family", "make", "options"), CASES)
def test_hidden_states_maps_and_gradients(family, make, options, length, padded):
    torch.manual_seed(1)
    theirs = make(**options).double().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ours = convert_model(family, theirs)
    tokens, segment, keep = example(length, padded)
    with HiddenStates(ours.stack) as states:
        out, maps = run_watched(ours, lambda: ours(Batch(Text(tokens, keep, segment))))
    if padded == "left" and keep is not None:  # the package counts padding as positions: compare with each row alone
        for row in range(3):
            real = keep[row]
            alone = theirs(input_ids=tokens[row : row + 1, real], token_type_ids=segment[row : row + 1, real])
            compare(out[row, real], alone.last_hidden_state[0])
        return
    options = {} if keep is None else {"attention_mask": keep.long()}
    wanted = theirs(
        input_ids=tokens, token_type_ids=segment, output_hidden_states=True, output_attentions=True, **options
    )
    for ours_state, state in zip(states, wanted.hidden_states[1:], strict=True):
        compare(ours_state, state, real=keep)
    for weights, attention in zip(maps, wanted.attentions, strict=True):
        compare(weights, attention) if keep is None else [
            compare(weights[i, :, keep[i]], attention[i, :, keep[i]]) for i in range(3)
        ]
    real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
    for answer, model in ((out, ours), (wanted.last_hidden_state, theirs)):
        model.zero_grad()
        (answer[real] * torch.linspace(-1, 1, answer.size(-1), dtype=answer.dtype)).sum().backward()
    compare_gradients(ours, theirs, family, family.config_from_hf(theirs.config.to_dict()))

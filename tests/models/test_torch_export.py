"""`torch.export` of models with padding and with sizes that stay open: the program answers as the model does, at other sizes."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.models.build import new
from saccade.models.families import gpt2, llama, t5, transformer

SIZES = {"vocab": 31, "width": 16, "layers": 2, "heads": 2, "ffn_width": 24}
MODELS = {
    "transformer_encoder": transformer.Config(**SIZES),
    "gpt2": gpt2.Config(vocab=31, width=16, layers=2, heads=2, max_positions=64),
    "llama": llama.Config(**SIZES, max_positions=64),
    "t5": t5.Config(**SIZES, head_width=8),
}


class Program(nn.Module):
    """What a user exports: a module that takes tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, keep):
        batch = Batch(Text(tokens, keep))
        if not hasattr(self.model.body, "start"):
            return self.model(batch)
        state, first = self.model.body.start(batch)
        return self.model.body.step(first, state)


def padded(rows, length, real):
    keep = torch.arange(length) < torch.tensor(real)[:, None]
    return torch.randint(5, 31, (rows, length)), keep


@pytest.mark.parametrize("name", MODELS)
def test_a_program_with_padding_answers_at_every_size(name):
    torch.manual_seed(5)
    head = {"head": "label", "labels": ("a", "b")} if name.endswith("reader") else {}
    model = Program(new(name, MODELS[name], **head)).eval()
    rows, length = Dim("rows", min=2, max=16), Dim("length", min=2, max=64)
    open_sizes = {"tokens": {0: rows, 1: length}, "keep": {0: rows, 1: length}}
    with torch.no_grad():
        program = export(model, padded(3, 11, [11, 7, 4]), dynamic_shapes=open_sizes).module()
        for asked in (padded(3, 11, [2, 11, 5]), padded(5, 17, [17, 3, 8, 1, 16])):
            assert_close(program(*asked), model(*asked))

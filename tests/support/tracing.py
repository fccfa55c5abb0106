"""`torch.compile` without graph breaks, for tests that show that a module is one graph."""

import torch
from torch import nn


def compile_one_graph(module: nn.Module):
    """The cache of compiled code is emptied first: it belongs to the code of `forward`, which all modules of a class share, and
    torch refuses to compile once it holds eight variants, whichever tests they came from."""
    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, backend="eager")

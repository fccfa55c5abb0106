"""`torch.compile` without graph breaks, for tests that a module compiles to a single graph."""

import torch
from torch import nn


def compile_one_graph(module: nn.Module):
    """Compile a module to a single graph.

    The cache of compiled code is cleared first: all modules of a class share it, and torch stops compiling once it holds eight
    variants, including those of other tests.
    """
    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, backend="eager")

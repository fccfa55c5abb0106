"""Comparison of all families with their reference implementations, in double precision: hidden states, attention maps, outputs,
loss and gradients."""

import torch
from torch.testing import assert_close

from saccade.attention import watch
from saccade.models.weight_map import to_ours


def convert_model(family, theirs, prefix=""):
    """A saccade model with the same config and weights, in double precision; every published tensor must be mapped."""
    import re

    config = family.config_from_hf(theirs.config.to_dict())
    ours = family.build(config).double().eval()
    tensors = {name.removeprefix(family.prefix): tensor for name, tensor in theirs.state_dict().items()}
    mapped = to_ours({k: v.double() for k, v in tensors.items()}, family.weight_map(config))
    unmapped = [
        name
        for name in mapped.unmapped
        if not any(re.fullmatch(pattern, name) for pattern in (*family.ignored_tensors, *family.pooler_tensors))
    ]
    assert not unmapped, f"published tensors without an entry: {unmapped}"
    missing, unexpected = ours.load_state_dict(mapped.tensors, strict=False)
    shared = {n for n, p in ours.named_parameters(remove_duplicate=False)} - {n for n, p in ours.named_parameters()}
    assert not unexpected
    assert set(missing) <= shared, f"parameters without weights: {missing}"
    return ours


class HiddenStates:
    """Collects the hidden states, the outputs of each layer of the given stacks."""

    def __init__(self, *stacks):
        self.states, self.hooks = [], []
        for stack in stacks:
            for layer in stack.layers:
                self.hooks.append(layer.register_forward_hook(lambda m, a, out: self.states.append(out)))

    def __enter__(self):
        return self.states

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()


def compare(ours, theirs, *, real=None, rtol=1e-9):
    """The tensors are equal, at real tokens if `real` is given."""
    if real is not None:
        ours, theirs = ours[real], theirs[real]
    assert_close(ours, theirs, rtol=rtol, atol=rtol)


def compare_gradients(ours, theirs, family, config):
    """The gradients of all parameters are equal; those of tied parameters are summed on both sides."""
    for p in [*theirs.parameters(), *ours.parameters()]:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    all_names = theirs.named_parameters(remove_duplicate=False)  # a tied parameter may be mapped under any of its names
    published = {n.removeprefix(family.prefix): p.grad for n, p in all_names}
    expected = to_ours(published, family.weight_map(config)).tensors
    actual = {n: p.grad for n, p in ours.named_parameters()}
    compared = 0
    for name, grad in expected.items():
        if name in actual:
            assert_close(actual[name], grad, rtol=1e-8, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
            compared += 1
    assert compared == len(actual), sorted(actual.keys() - expected.keys())


def run_watched(model, run, where="*"):
    """The output of a call, and its attention maps."""
    with watch(model, where) as looks:
        out = run()
    return out, [look.weights for look in looks]

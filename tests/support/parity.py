"""One comparison for all families: hidden states, attention maps, outputs, loss and gradients against an oracle, in double
precision."""

import torch
from torch.testing import assert_close

from saccade.attention import watch
from saccade.models.weight_map import to_ours


def twin(family, theirs, prefix=""):
    """Our model of the same config with the same weights, in double precision; every published tensor must find a place."""
    import re

    config = family.config_from_hf(theirs.config.to_dict())
    ours = family.build(config).double().eval()
    tensors = {name.removeprefix(family.prefix): tensor for name, tensor in theirs.state_dict().items()}
    read = to_ours({k: v.double() for k, v in tensors.items()}, family.weight_map(config))
    left = [
        name
        for name in read.unmapped
        if not any(re.fullmatch(pattern, name) for pattern in (*family.ignored_tensors, *family.pooler_tensors))
    ]
    assert not left, f"published tensors without an entry:  {left}"
    missing, unexpected = ours.load_state_dict(read.tensors, strict=False)
    shared = {n for n, p in ours.named_parameters(remove_duplicate=False)} - {n for n, p in ours.named_parameters()}
    assert not unexpected
    assert set(missing) <= shared, f"parameters left empty: {missing}"
    return ours


class Layers:
    """Collects what each layer of some stacks gives: the hidden states."""

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
    """Equal where tokens are real."""
    if real is not None:
        ours, theirs = ours[real], theirs[real]
    assert_close(ours, theirs, rtol=rtol, atol=rtol)


def compare_gradients(ours, theirs, family, config):
    """The gradient of every parameter, through the weight map; tied ones have been summed on both sides."""
    for p in [*theirs.parameters(), *ours.parameters()]:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    everywhere = theirs.named_parameters(remove_duplicate=False)  # a tied one stands under any of its names
    published = {n.removeprefix(family.prefix): p.grad for n, p in everywhere}
    wanted = to_ours(published, family.weight_map(config)).tensors
    got = {n: p.grad for n, p in ours.named_parameters()}
    compared = 0
    for name, grad in wanted.items():
        if name in got:
            assert_close(got[name], grad, rtol=1e-8, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
            compared += 1
    assert compared == len(got), sorted(got.keys() - wanted.keys())


def watched(model, run, where="*"):
    """The output of a call, and the attention maps seen in it."""
    with watch(model, where) as looks:
        out = run()
    return out, [look.weights for look in looks]

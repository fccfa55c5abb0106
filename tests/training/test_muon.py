"""Muon against a decomposition, against its formula step by step, and in a run that is stopped and goes on."""

import pytest
import torch
from torch.testing import assert_close

from saccade.training.config import Config
from saccade.training.optim.muon import ADAMW_UPDATE_RMS, MOMENTUM, Muon, orthogonalize
from saccade.training.run import run_training
from support.small_runs import clone_weights, make_learner, prepare_run, read_outputs, weights_equal


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape):
    torch.manual_seed(0)
    left_, _, right = torch.linalg.svd(torch.randn(3, *shape).double(), full_matrices=False)
    spread = torch.logspace(-1.5, 0, left_.size(-1)).double()  # the largest is 30 times the smallest
    for scale in (1e-4, 1.0, 1e4):
        turned = orthogonalize(left_ @ (scale * spread).diag() @ right)
        values = left_.mT @ turned @ right.mT
        diagonal = values.diagonal(dim1=1, dim2=2)
        assert_close(values, torch.diag_embed(diagonal), rtol=0, atol=1e-9)
        assert (diagonal > 0.6).all()
        assert (diagonal < 1.25).all()
    assert orthogonalize(torch.zeros(1, 3, 2)).abs().max() == 0


def test_steps_are_those_of_the_formula_and_adamw_has_the_rest():
    torch.manual_seed(1)
    first, second, bias = torch.randn(5, 3), torch.randn(5, 3), torch.randn(4)
    made = [
        {"params": [first.clone().requires_grad_(), second.clone().requires_grad_()], "use_muon": True},
        {"params": [bias.clone().requires_grad_()], "use_muon": False, "weight_decay": 0.0},
    ]
    optimizer = Muon(made, lr=0.1, weight_decay=0.5, betas=(0.9, 0.98))
    theirs = torch.nn.Parameter(bias.clone())
    adam = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.0, betas=(0.9, 0.98))
    wanted, momentum = [first, second], [torch.zeros(5, 3), torch.zeros(5, 3)]
    for _ in range(4):
        gradients = [torch.randn(5, 3), torch.randn(5, 3)]
        last = torch.randn(4)
        for at, gradient in enumerate(gradients):
            momentum[at] = MOMENTUM * momentum[at] + (1 - MOMENTUM) * gradient
            ahead = MOMENTUM * momentum[at] + (1 - MOMENTUM) * gradient
            move = ADAMW_UPDATE_RMS * 5**0.5 * orthogonalize(ahead[None])[0]
            wanted[at] = wanted[at] - 0.1 * 0.5 * wanted[at] - 0.1 * move
        for parameter, gradient in zip(made[0]["params"] + made[1]["params"], [*gradients, last], strict=True):
            parameter.grad = gradient.clone()
        theirs.grad = last.clone()
        optimizer.step()
        adam.step()
    for got, want in zip(made[0]["params"], wanted, strict=True):
        assert_close(got.detach(), want, rtol=1e-5, atol=1e-5)
    assert_close(made[1]["params"][0], theirs, rtol=0, atol=0)


def test_only_matrices_inside_layers_are_turned(home):
    one = make_learner(home, optimizer="muon")
    turned = {id(p) for group in one.optimizer.param_groups if group["use_muon"] for p in group["params"]}
    for name, parameter in one.trainable_parameters.items():
        assert (id(parameter) in turned) == (".layers." in name and parameter.dim() == 2), name
    one.step()
    state = one.checkpoint_tensors()["optimizer"]
    assert {key.rpartition(":")[2] for key in state} == {"momentum", "step", "exp_avg", "exp_avg_sq"}


def test_a_run_that_stops_goes_on_bit_for_bit(home):
    list(run_training(prepare_run(home, optimizer="muon", ema=0.9), home / "calm"))
    for steps in (3, 5, 0):
        list(run_training(prepare_run(home, optimizer="muon", ema=0.9, max_steps=steps), home / "stopped"))
    assert read_outputs(home / "calm") == read_outputs(home / "stopped")
    list(run_training(prepare_run(home, ema=0.9), home / "adamw"))
    assert read_outputs(home / "calm") != read_outputs(home / "adamw")


def test_frozen_matrices_stay(home):
    one = make_learner(home, optimizer="muon", freeze_layers=1)
    before = clone_weights(one.model)
    one.step()
    after = clone_weights(one.model)
    frozen = [name for name in before if ".layers.0." in name]
    assert frozen
    assert weights_equal({name: before[name] for name in frozen}, {name: after[name] for name in frozen})
    assert any(not torch.equal(before[name], after[name]) for name in before if ".layers.1." in name)


def test_it_is_refused_where_it_cannot_work():
    with pytest.raises(ValueError, match=r"muon needs whole matrices.*train\.fsdp"):
        Config(optimizer="muon", fsdp=True)
    with pytest.raises(ValueError, match=r"train\.optimizer is 'adam'; known are adamw, muon"):
        Config(optimizer="adam")

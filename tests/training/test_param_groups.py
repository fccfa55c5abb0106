"""What is learnt, and how fast: schedules, groups, frozen layers, clipping."""

import copy
import math
import re
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from saccade.models.build import new
from saccade.models.families import bert, gpt2, rnn, transformer, vit
from saccade.training.config import Config
from saccade.training.loop import train_steps
from saccade.training.optim.optimizer import make_optimizer, select_trainable
from saccade.training.optim.schedule import lr_at
from support.small_runs import clone_weights, make_learner, prepare_run, record_gradients


def test_schedules_follow_their_formulas():
    for horizon, warmup in ((50, 7), (50, 0.2), (31, 0), (3, 5), (1, 0.1)):
        warm = warmup if warmup >= 1 else round(warmup * horizon)
        for step in range(horizon):
            found = {
                name: lr_at(step, horizon, max_lr=2.0, schedule=name, warmup=warmup)
                for name in ("linear", "cosine", "inverse_sqrt", "constant")
            }
            if step < warm:
                assert set(found.values()) == {2.0 * (step + 1) / warm}
                continue
            gone = (step - warm) / (horizon - warm)
            assert found["linear"] == pytest.approx(2.0 * (1 - gone))
            assert found["cosine"] == pytest.approx(2.0 * math.cos(math.pi * gone / 2) ** 2)
            assert found["inverse_sqrt"] == pytest.approx(
                2.0 * (max(1, warm) / max(1, warm, step if warm else step + 1)) ** 0.5
            )
            assert found["constant"] == 2.0
            assert found["linear"] > 0


def test_the_loop_sets_the_rate_of_every_group(home):
    one = make_learner(home, layer_decay=0.5, warmup=3, schedule="cosine")
    for step in train_steps(one):
        now = lr_at(step.number - 1, one.total_steps, max_lr=3e-3, schedule="cosine", warmup=3)
        assert step.lr == now
        assert {group["lr"] for group in one.optimizer.param_groups} == {
            now * share for share in (1.0, 0.5, 0.25, 0.125)
        }
    assert one.step_count == one.total_steps


def test_the_fused_optimiser_is_adamw(home):
    """Against torch's plain loop over parameters, on gradients of very unlike size."""
    one = prepare_run(home, weight_decay=0.1).model
    other = copy.deepcopy(one)
    fast = make_optimizer(one, Config(lr=1e-2, weight_decay=0.1))
    assert fast.defaults["fused"]
    groups = [
        {"params": [p for p in other.parameters() if (p.dim() > 1) is matrix], "weight_decay": 0.1 if matrix else 0.0}
        for matrix in (True, False)
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-8, foreach=False, fused=False)
    for _ in range(10):
        for i, (p, q) in enumerate(zip(one.parameters(), other.parameters(), strict=True)):
            p.grad = torch.randn(p.shape) * 10 ** (-i % 5)
            q.grad = p.grad.clone()
        fast.step()
        plain.step()
    assert_close(list(one.parameters()), list(other.parameters()), rtol=1e-6, atol=1e-7)


READER = {"vocab": 11, "width": 8, "layers": 3, "heads": 2, "ffn_width": 12, "max_positions": 9}
BUILT: dict[
    str, tuple[Any, str | None, set[str], set[str]]
] = {  # config, head, what stands below the layers, and above
    "bert": (
        bert.Config(**READER),
        "label",
        {
            "words.vectors.weight",
            "segments.vectors.weight",
            "stack.position.vectors.weight",
            "stack.enter.0.weight",
            "stack.enter.0.bias",
        },
        set(),
    ),
    "gpt2": (
        gpt2.Config(**READER),
        None,
        {"words.vectors.weight", "stack.position.vectors.weight"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
    "transformer_encoder": (
        transformer.Config(**READER),
        "tag",
        {"words.vectors.weight"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
    "rnn_encoder": (rnn.Config(11, 8, layers=3), "label", {"words.vectors.weight"}, set()),
    "vit": (
        vit.Config(image_height=8, patch_size=4, width=8, layers=3, heads=2, ffn_width=12),
        "label",
        {"whole", "patches.project.weight", "patches.project.bias", "stack.position.vectors"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
}


@pytest.mark.parametrize("family", BUILT)
def test_rates_decay_and_freezing_reach_what_they_should(family):
    config, head, below, above = BUILT[family]
    model = new(family, config, head=head)
    named = dict(model.named_parameters())
    level = {f"body.{name}": 0 for name in below} | {f"body.{name}": 4 for name in above}
    level |= {name: 4 for name in named if name.startswith("head.")}
    for name in named.keys() - level.keys():
        level[name] = 1 + int(re.findall(r"layers\.(\d)\.", name)[-1])
    assert level.keys() == named.keys()
    assert {0, 1, 2, 3} <= set(level.values())
    names = {id(p): name for name, p in named.items()}

    told = {names[id(p)]: share for _, p, share in select_trainable(model, Config(layer_decay=0.5))}
    assert told == {name: 0.5 ** (4 - level[name]) for name in named}
    for freeze in (0, 1, 2, 3, -1):
        learnt = (
            {names[id(p)] for _, p, _ in select_trainable(model, Config(freeze_layers=freeze))}
            if head or freeze >= 0
            else set()
        )
        stays = {
            name for name in named if name.startswith("body.") and (freeze < 0 or (freeze and level[name] <= freeze))
        }
        assert learnt == named.keys() - stays or not head
        assert {name for name, p in named.items() if p.requires_grad} == learnt or not head
    decayed = {
        names[id(p)]: group["weight_decay"]
        for group in make_optimizer(model, Config(weight_decay=0.3)).param_groups
        for p in group["params"]
    }
    matrices = {
        name
        for name, p in named.items()
        if re.search(r"weight(_[ih]h_l0(_reverse)?)?$|vectors$", name) and "norm" not in name
    }
    matrices -= {name for name in named if re.search(r"(enter\.0|leave)\.weight$", name)}
    assert {name for name, decay in decayed.items() if decay} == matrices
    assert set(decayed.values()) == {0.0, 0.3}


def test_with_everything_frozen_nothing_is_left():
    with pytest.raises(ValueError, match=r"There is nothing to train: .* Lower train.freeze_layers"):
        make_optimizer(new("gpt2", gpt2.Config(**READER)), Config(freeze_layers=-1))


def test_frozen_layers_stay_and_the_others_move(home):
    one = make_learner(home, freeze_layers=1)
    before = clone_weights(one.model)
    for _ in range(3):
        one.step()
    moved = {name for name, x in clone_weights(one.model).items() if not torch.equal(x, before[name])}
    still = {name for name in before if name.startswith(("body.words.", "body.stack.layers.0."))}
    assert still
    # a key's bias moves all scores of a query alike, so nothing comes of it but the rounding of its gradient
    idle = {name for name in before if "key.bias" in name}
    assert before.keys() - moved - idle == still - idle
    assert set(one.checkpoint_tensors()["model"]) == before.keys()


def test_gradients_are_clipped(home):
    free, tight, loose = (make_learner(home, clip_grad_norm=clip, double=True) for clip in (0.0, 0.05, 1e9))
    seen = [record_gradients(one) for one in (free, tight, loose)]
    steps = [one.step() for one in (free, tight, loose)]
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in seen[0][0].values()))
    assert norm > 0.05
    for step in steps:
        assert step.grad_norm == pytest.approx(norm, rel=1e-9)
    for name, grad in seen[0][0].items():
        assert_close(seen[1][0][name], grad * 0.05 / norm, rtol=1e-4, atol=0)
        assert torch.equal(seen[2][0][name], grad)

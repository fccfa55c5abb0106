"""Convolutional encoders: shapes, channel weights by another path, symmetries, and that they learn."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from saccade.attention import watch
from saccade.data import Batch, Image
from saccade.models.families.senet import BLOCKS, FAMILY, Config, InceptionBlock, ResidualBlock, SENet


def small(block, **options):
    return Config(
        **({"block_type": block, "width": 24, "stages": 2, "blocks_per_stage": 2, "se_reduction": 4} | options)
    )


def pixels(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("rows", "columns", "cells"), [(12, 20, (3, 5)), (7, 11, (2, 3)), (1, 1, (1, 1))])
def test_a_picture_becomes_a_row_of_cells(block, rows, columns, cells):
    model = SENet(small(block)).eval()
    picture = pixels(2, 3, rows, columns)
    grid = model.feature_map(picture)
    assert grid.shape == (2, 24, *cells)
    out = model(Batch(Image(picture)))
    assert out.shape == (2, cells[0] * cells[1], model.width)
    for i in range(cells[0]):  # row by row
        for j in range(cells[1]):
            assert torch.equal(out[:, i * cells[1] + j], grid[:, :, i, j])


@pytest.mark.parametrize("block", ["residual", "inception"])
def test_channel_weights_can_be_watched(block):
    model = SENet(small(block)).eval()
    batch = Batch(Image(pixels(2, 3, 8, 12)))
    unwatched = model(batch)
    with watch(model) as looks:
        assert torch.equal(model(batch), unwatched)
    assert [look.weights.shape for look in looks] == [(2, 12), (2, 12), (2, 24), (2, 24)]
    assert all(look.axes == ("batch", "channel") for look in looks)
    for look in looks:
        assert ((look.weights > 0) & (look.weights < 1)).all()
    assert not torch.allclose(looks[0].weights[0], looks[0].weights[1])  # made from the picture itself


def test_the_plain_one_has_nothing_to_watch():
    with pytest.raises(ValueError, match="SENet has no watchable modules"), watch(SENet(small("plain"))):
        pass


def test_a_residual_block_by_another_path():
    block = ResidualBlock(5, 5, 1, 2).eval()
    x = pixels(2, 5, 4, 3)
    first, second = block.branch[0][0], block.branch[2][0]

    def norm(y, module):
        return (y - module.running_mean.view(-1, 1, 1)) / (module.running_var.view(-1, 1, 1) + module.eps).sqrt()

    inner = F.conv2d(x, first.weight, padding=1)
    inner = F.conv2d(norm(inner, block.branch[0][1]).clamp(min=0), second.weight, padding=1)
    inner = norm(inner, block.branch[2][1])
    mean = inner.sum((2, 3)) / 12
    hidden = (mean @ block.squeeze.squeeze.weight.T + block.squeeze.squeeze.bias).clamp(min=0)
    weights = 1 / (1 + (-hidden @ block.squeeze.excite.weight.T - block.squeeze.excite.bias).exp())
    assert_close(block(x), (x + torch.einsum("bcij,bc->bcij", inner, weights)).clamp(min=0))


def test_a_residual_branch_of_zeros_lets_the_input_pass():
    block = ResidualBlock(5, 5, 1, 2).eval()
    nn.init.zeros_(block.branch[2][1].weight)
    x = pixels(2, 5, 4, 3).abs()
    assert_close(block(x), x)


def test_four_views_side_by_side():
    block = InceptionBlock(5, 11, 1, 2).eval()
    block.squeeze = nn.Identity()
    x = pixels(2, 5, 6, 7)
    out = block(x)
    assert out.shape == (2, 11, 6, 7)
    alone = x * (torch.arange(42).view(6, 7) == 3 * 7 + 3)  # one cell of light: which cells see a change?
    seen = (block(x) - block(x - alone)).abs() > 1e-9
    for channels, reach in ((slice(0, 5), 0), (slice(5, 7), 1), (slice(7, 9), 2), (slice(9, 11), 1)):
        rows, columns = seen[:, channels].any(1).any(0).nonzero(as_tuple=True)
        assert (rows - 3).abs().max() <= reach
        assert (columns - 3).abs().max() <= reach
    rows, _ = seen[:, 7:9].any(1).any(0).nonzero(as_tuple=True)
    assert {1, 5} <= set(rows.tolist())  # five cells wide, not three


@pytest.mark.parametrize("block", BLOCKS)
def test_pictures_do_not_see_each_other(block):
    model = SENet(small(block)).eval()
    picture = pixels(5, 3, 8, 12)
    order = torch.tensor([3, 0, 4, 2, 1])
    whole = model(Batch(Image(picture)))
    assert_close(model(Batch(Image(picture[order]))), whole[order])
    assert_close(model(Batch(Image(picture[:1]))), whole[:1])


@pytest.mark.parametrize("block", BLOCKS)
def test_it_mirrors_when_its_filters_are_symmetric(block):
    """With filters that are the same from left and right, a mirrored picture gives a mirrored grid (of odd sides)."""
    model = SENet(small(block)).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.copy_((module.weight + module.weight.flip(-1)) / 2)
    picture = pixels(2, 3, 9, 13)
    assert_close(model.feature_map(picture.flip(-1)), model.feature_map(picture).flip(-1), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("block", BLOCKS)
def test_it_learns_eight_random_pictures(block):
    torch.manual_seed(0)
    config = small(block, width=16)
    body = FAMILY.build(config)
    model = nn.ModuleList([body, FAMILY.heads["label"].build(config, body, 8)])
    batch, gold = Batch(Image(pixels(8, 3, 8, 8))), torch.arange(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        loss = F.cross_entropy(model[1](model[0](batch)), gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    assert model[1](model[0](batch)).argmax(-1).tolist() == gold.tolist()
    model.eval()  # and with the statistics that batch norm remembers
    assert model[1](model[0](batch)).argmax(-1).tolist() == gold.tolist()


def test_errors_say_what_is_needed():
    with pytest.raises(ValueError, match="did you mean 'residual'"):
        SENet(Config(block_type="residul"))
    with pytest.raises(ValueError, match="must be a multiple of 4"):
        SENet(Config(width=10, stages=3))
    with pytest.raises(ValueError, match="width of at least 4; got 3"):
        SENet(Config(block_type="inception", width=3, stages=1))

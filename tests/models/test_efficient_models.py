"""Encoders whose cost does not grow with n²: Linformer and Reformer, and the local look of Longformer under the contract."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from saccade.attention import FULL, BigBird, BigBirdPattern, RandomBlocks, Sight, watch
from saccade.attention.sparse.windowed import WindowedWithGlobals
from saccade.data import Batch, Text
from saccade.models.families import bigbird, linformer, longformer, reformer

SMALL = {"vocab": 31, "width": 24, "layers": 2, "heads": 3, "ffn_width": 40, "max_positions": 29, "dropout": 0.0}
FAMILIES = {
    "linformer": (linformer.FAMILY, {"rank": 5}),
    "reformer": (reformer.FAMILY, {"hash_buckets": 4, "max_bucket_distance": 3}),
    "longformer": (longformer.FAMILY, {"attention_windows": (4, 6)}),
    "bigbird": (bigbird.FAMILY, {"block_size": 2, "random_blocks": 1}),
}
ROWS = [[7, 3, 5, 11, 2, 9, 4, 8, 6, 5, 3, 12, 10, 7, 2, 30, 21, 17, 5], [7, 5, 3, 2], [9, 8, 7, 6, 5, 4, 3, 2, 1]]


def build(name, dtype=torch.float64):
    torch.manual_seed(2)
    family, options = FAMILIES[name]
    model = family.build(family.config_class(**SMALL, **options)).to(dtype)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model.eval()


@pytest.mark.parametrize("name", ["linformer", "reformer"])
def test_overfits_eight_examples(name):
    torch.manual_seed(0)
    family, options = FAMILIES[name]
    config = family.config_class(**SMALL, **options)
    body = family.build(config)
    head = family.heads["label"].build(config, body, 3)
    torch.manual_seed(1)
    text = Text.pad([torch.randint(1, 31, (n,)).tolist() for n in (5, 9, 13, 7, 11, 6, 12, 8)])
    gold = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(40):
        loss = F.cross_entropy(head(body(Batch(text)), text.keep), gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.05:
            break
    assert head(body(Batch(text)), text.keep).argmax(1).tolist() == gold.tolist()
    assert loss.item() < 0.1


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_padding_changes_nothing(name, left):
    model = build(name)
    text = Text.pad(ROWS, pad_left=left)
    out = model(Batch(text))
    for row, tokens in enumerate(ROWS):
        assert_close(out[row, text.keep[row]], model(Batch(Text.pad([tokens])))[0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", FAMILIES)
def test_watching_shows_every_layer_and_changes_nothing(name):
    model = build(name)
    text = Text.pad(ROWS)
    plain = model(Batch(text))
    with watch(model) as looks:
        out = model(Batch(text))
    assert torch.equal(out, plain)
    near = [look for look in looks if "far" not in look.name]
    assert [look.weights.shape for look in near] == [(3, 3, 19, 19)] * 2
    for look in looks:
        assert not look.weights[1, :, :, 4:].any()  # padding is not seen
    if name != "linformer":  # its weights need not sum to one
        total = near[0].weights.sum(-1)
        first = 1 if name == "longformer" else 0  # its first token looks far instead
        assert_close(total[0, :, first:], torch.ones_like(total[0, :, first:]))


@pytest.mark.parametrize("name", ["lm", "label", "tag", "span"])
@pytest.mark.parametrize("family", [linformer.FAMILY, reformer.FAMILY], ids=lambda family: family.name)
def test_heads_fit(family, name):
    config = family.config_class(**SMALL)
    body = family.build(config)
    text = Text.pad(ROWS)
    out = family.heads[name].build(config, body, 4)(body(Batch(text)), text.keep)
    assert out.shape == {"lm": (3, 19, 31), "label": (3, 4), "tag": (3, 19, 4), "span": (3, 19, 2)}[name]


MARKS = {"all alike": [[0, 4], [0, 4]], "fillers": [[0, 9, 22], [5, -1, -1]], "none in one": [[3], [-1]]}


@pytest.mark.parametrize("keep", ["none", "right", "left", "holes", "blind"])
@pytest.mark.parametrize("marks", MARKS)
def test_local_look_is_fast_and_exact(marks, keep):
    """The fast path is the definition, and so are its gradients, wherever the batch has its marks."""
    at = torch.arange(23)
    real = {
        "none": None,
        "right": torch.stack([at < 23, at < 17]),
        "left": torch.stack([at >= 0, at >= 6]),
        "holes": torch.stack([at % 4 != 1, at >= 0]),
        "blind": torch.stack([at >= 0, at < 0]),
    }[keep]
    look, marked = WindowedWithGlobals(3, 2), torch.tensor(MARKS[marks])
    q, k, v = (torch.randn(2, 3, 23, 5, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def sight():
        return Sight(FULL, keep=real, global_tokens=marked)

    wanted = look.weights(q, k, sight()) @ v
    fast = look.attend(q, k, v, sight())
    assert_close(fast, wanted, rtol=1e-12, atol=1e-12)
    slope = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad(fast, (q, k, v), slope), torch.autograd.grad(wanted, (q, k, v), slope), strict=True
    ):
        assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_dropout_of_the_local_look_is_drawn_for_each_layer():
    look, shared = WindowedWithGlobals(3, dropout=0.5).train(), Sight(FULL, global_tokens=torch.tensor([[2]]))
    q, k, v = torch.randn(3, 1, 2, 11, 4)
    with watch(look) as looks:
        out = [look(q, k, v, shared) for _ in range(2)]
    assert not torch.equal(out[0], out[1])
    for seen, answer in zip(looks, out, strict=True):
        assert_close(seen.weights @ v, answer)


@pytest.mark.parametrize("lengths", [(20, 13), (13, 20), (14, 3), (20, 0)])
@pytest.mark.parametrize("left", [False, True])
def test_short_texts_among_long_ones_are_seen_whole(lengths, left):
    """Up to 7 blocks of 2 a text is seen whole, whatever stands beside it; fast path and definition agree."""
    look = BigBird(3, pattern=BigBirdPattern(RandomBlocks(1, 2, 1, 3), max_full_blocks=7))
    n = max(lengths)
    at = torch.arange(n)
    keep = torch.stack([at >= n - m if left else at < m for m in lengths])
    q, k, v = (torch.randn(2, 3, n, 5, dtype=torch.float64) for _ in range(3))
    weights = look.weights(q, k, Sight(FULL, keep=keep))
    assert_close(look.attend(q, k, v, Sight(FULL, keep=keep)), weights @ v, rtol=1e-12, atol=1e-12)
    for row, length in enumerate(lengths):
        whole = (weights[row][:, keep[row]][:, :, keep[row]] > 0).all()
        assert bool(whole) == (length <= 14)


def test_local_look_by_hand():
    weights = WindowedWithGlobals(1).weights(
        *torch.zeros(2, 1, 1, 6, 2), Sight(FULL, global_tokens=torch.tensor([[4]]))
    )[0, 0]
    seen = ["110010", "111010", "011110", "001110", "000000", "000011"]
    wanted = torch.tensor([[float(x) for x in row] for row in seen])
    assert_close(weights, wanted / wanted.sum(-1, keepdim=True).clamp(min=1))


def test_longformer_never_builds_a_q_by_k_tensor():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for x in tree_leaves(out):
                if isinstance(x, torch.Tensor):
                    self.size = max(self.size, x.untyped_storage().nbytes() // max(1, x.element_size()))
            return out

    n = 1536
    model = longformer.Longformer(
        longformer.Config(**SMALL | {"max_positions": n, "width": 6}, attention_windows=(32,))
    )
    marked = torch.zeros(1, n, dtype=torch.bool).index_fill(1, torch.tensor([0, 700, 1500]), True)
    tokens = torch.randint(1, 31, (1, n))
    with Largest() as largest:
        model(Batch(Text(tokens, global_mask=marked))).sum().backward()
    assert largest.size < n * n / 8


def test_marks_are_positions_in_the_text():
    keep = torch.tensor([[False, True, True, True], [True, True, False, False]])
    marked = torch.tensor([[True, False, True, True], [False, True, False, True]])
    text = Text(torch.ones(2, 4, dtype=torch.long), keep, global_mask=marked)
    assert longformer.global_positions(text).tolist() == [[1, 2], [1, -1]]  # padding is never marked
    assert longformer.global_positions(Text(text.tokens, keep)).tolist() == [[0], [0]]
    assert longformer.global_positions(Text(text.tokens, keep, global_mask=torch.zeros_like(keep))) is None
    assert text.to("cpu").global_mask is marked

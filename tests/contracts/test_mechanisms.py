"""The contract of every line of MECHANISMS: what it declares is demanded, and what it does not is refused by name."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from saccade.attention import (
    CAUSAL,
    FULL,
    MECHANISMS,
    Alibi,
    BigBird,
    BigBirdPattern,
    LowRank,
    LSHAttention,
    Prefix,
    RandomBlocks,
    ScaledDot,
    Sight,
    T5Bias,
    Window,
    Windowed,
    watch,
)
from support.oracle import POSITION_BASED, SCORES
from support.oracle import weights as by_hand

B, H, N, D = 2, 3, 23, 5
SMALL = {  # the same mechanisms, with windows and blocks small enough to matter at 23 tokens
    "windowed": lambda: Windowed(3, 2, global_count=2),
    "bigbird": lambda: BigBird(
        H, pattern=BigBirdPattern(RandomBlocks(seed=1, block_size=2, blocks_per_query_block=1, heads=H))
    ),
    "lsh": lambda: LSHAttention(D, H, hash_buckets=4, hash_rounds=2, max_bucket_distance=3),
    "low_rank": lambda: LowRank(29, 7),
}
PATTERNS = {"full": FULL, "causal": CAUSAL, "window": Window(4, 3), "prefix": Prefix(4)}
KEEPS = {"none": None, "right": [N, N - 6], "left": [-N, 6 - N], "holes": "holes", "blind": [N, 0]}
names = [entry.name for entry in MECHANISMS]
entries = {entry.name: entry for entry in MECHANISMS}


OWN_FORMULA = ("low_rank",)  # mixes the keys before it scores them, so it has a test of its own below


def build(name, dtype=torch.float64, heads=H):
    make = SMALL.get(name) if heads == H else None
    return moved(make() if make else entries[name].make(D, heads, 29)).to(dtype).eval()


def moved(m):
    """With all that it learns off its start: many parameters start where they change nothing, and could be forgotten."""
    chance = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in m.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)
    return m


def inputs(dtype=torch.float64, n=N, grad=False):
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, H, n, D, dtype=dtype) for _ in range(3))
    return [x.requires_grad_(grad) for x in (q, k, v)]


def padding(kind, n=N):
    lengths = KEEPS[kind]
    if lengths is None:
        return None
    if lengths == "holes":
        return torch.arange(B * n).view(B, n) % 4 != 1
    at = torch.arange(n)
    return torch.stack([at < x if x >= 0 else at >= n + x for x in lengths])


def honoured(name, pattern="full", keep="none"):
    """Whether the mechanism declares that it honours this pattern and padding."""
    need = {"full": set(), "causal": {"causal"}}.get(pattern, {"pattern"}) | (set() if keep == "none" else {"padding"})
    return need <= entries[name].supports


CASES = [(n, p, k) for n in names for p in PATTERNS for k in KEEPS if honoured(n, p, k)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("name", "pattern", "keep"), CASES)
def test_fast_path_equals_definition(name, pattern, keep, dtype):
    m, (q, k, v) = build(name, dtype), inputs(dtype)
    sight = lambda: Sight(PATTERNS[pattern], keep=padding(keep))
    wanted = m.weights(q, k, sight()) @ v
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert_close(m.attend(q, k, v, sight()), wanted, rtol=tolerance, atol=tolerance)
    assert wanted.isfinite().all()


@pytest.mark.parametrize(("name", "pattern", "keep"), [c for c in CASES if c[0] not in OWN_FORMULA])
def test_definition_equals_a_loop_written_from_the_formula(name, pattern, keep):
    m, (q, k, _) = build(name), inputs(n=13)
    p, mask = PATTERNS[pattern], None if padding(keep) is None else padding(keep, 13)
    loops = {
        "full": lambda i, j: True,
        "causal": lambda i, j: j <= i,
        "window": lambda i, j: -4 <= j - i <= 3,
        "prefix": lambda i, j: j < 4 or j <= i,
    }
    wanted = by_hand(name, m, q, k, loops[pattern], mask, bidirectional=pattern != "causal")
    assert_close(m.weights(q, k, Sight(p, keep=mask)), wanted, rtol=1e-9, atol=1e-12)


def test_every_mechanism_has_a_formula_to_be_checked_against():
    assert sorted([*SCORES, *OWN_FORMULA]) == sorted(entry.name for entry in MECHANISMS if entry.oracle is None)


def test_a_forgotten_formula_fails_and_is_named():
    """A copy of scaled dot product under another name is not taken for one."""
    q, k, _ = inputs(n=3)
    with pytest.raises(AssertionError, match=r"my_dot is missing from SCORES in .*oracle\.py"):
        by_hand("my_dot", build("scaled_dot"), q, k, lambda i, j: True)


def test_a_parameter_that_starts_neutral_is_seen():
    """A learned factor of one, as somebody may add it to a mechanism whose formula stays as it was."""

    class Sharpened(ScaledDot):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(()))

        def scores(self, q, k):
            return super().scores(q, k) * self.factor

    q, k, _ = inputs(n=5)
    formula = by_hand("scaled_dot", None, q, k, lambda i, j: True)
    assert_close(Sharpened().double().weights(q, k, Sight(FULL)), formula)  # as it starts nothing is wrong
    with pytest.raises(AssertionError):
        assert_close(moved(Sharpened()).double().weights(q, k, Sight(FULL)), formula)


@pytest.mark.parametrize("name", [n for n in names if "cross_attention" not in entries[n].supports])
def test_what_looks_by_place_hides_something_at_this_size(name):
    """Or a window as wide as the text would pass for full attention."""
    q, k, _ = inputs(n=13)
    assert name in POSITION_BASED
    assert (build(name).weights(q, k, Sight(FULL)) == 0).any()


@pytest.mark.parametrize("keep", ["none", "left", "right"])
def test_low_rank_equals_its_formula(keep):
    m, (q, k, v) = build("low_rank"), inputs()
    mask = padding(keep)
    out = m.attend(q, k, v, Sight(FULL, keep=mask))
    for row in range(B):
        real = torch.ones(N, dtype=torch.bool) if mask is None else mask[row]
        n = int(real.sum())
        for head in range(H):
            mixed_k, mixed_v = m.keys[:, :n] @ k[row, head, real], m.values[:, :n] @ v[row, head, real]
            wanted = torch.softmax(q[row, head, real] @ mixed_k.T / math.sqrt(D), -1) @ mixed_v
            assert_close(out[row, head, real], wanted)


@pytest.mark.parametrize("kind", ["alibi", "buckets"])
@pytest.mark.parametrize("keep", ["none", "left"])
@pytest.mark.parametrize("name", [n for n in names if "bias" in entries[n].supports])
def test_biases(name, keep, kind):
    m, (q, k, v) = build(name), inputs(n=13)
    bias = (Alibi(H) if kind == "alibi" else T5Bias(H, buckets=6, max_relative_distance=9)).double()
    mask = None if padding(keep) is None else padding(keep, 13)
    sight = lambda: Sight(CAUSAL, keep=mask, bias=bias)
    with torch.no_grad():  # the fused road
        fast = m.attend(q, k, v, sight())
        wanted = by_hand(
            name,
            m,
            q,
            k,
            lambda i, j: j <= i,
            mask,
            lambda h, i, j: bias(torch.tensor([[i]]), torch.tensor([[j]]))[h].item(),
            bidirectional=False,
        )
        assert_close(m.weights(q, k, sight()), wanted, rtol=1e-9, atol=1e-12)
        assert_close(fast, m.weights(q, k, sight()) @ v, rtol=1e-12, atol=1e-12)
    learning = m.attend(q, k, v, sight())  # a bias that learns takes another road
    assert_close(learning, wanted @ v, rtol=1e-9, atol=1e-12)
    if kind == "buckets" and "gradients" in entries[name].supports:
        learning.sum().backward()
        assert bias.table.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "pattern", "keep"), [c for c in CASES if c[1] in ("full", "causal") and c[2] in ("none", "left", "blind")]
)
def test_gradients_of_the_fast_path_equal_those_of_the_definition(name, pattern, keep):
    m = build(name)
    grads = []
    for road in ("attend", "definition"):
        q, k, v = inputs(grad=True)
        sight = Sight(PATTERNS[pattern], keep=padding(keep))
        out = m.attend(q, k, v, sight) if road == "attend" else m.weights(q, k, sight) @ v
        (out * torch.linspace(-1, 1, D, dtype=out.dtype)).sin().sum().backward()
        grads.append([torch.zeros_like(x) if x.grad is None else x.grad for x in (q, k, v)])
    for fast, defined in zip(*grads, strict=True):
        assert fast.isfinite().all()
        assert_close(fast, defined, rtol=1e-9, atol=1e-11)
    learns = grads[0][0].abs().sum() > 0
    assert learns == ("gradients" in entries[name].supports), "what the table says of gradients is not so"


@pytest.mark.parametrize("name", [n for n in names if "gradients" in entries[n].supports])
def test_gradcheck(name):
    """Of queries, keys and values, and of the mechanism's own parameters."""
    m = build(name)
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, H, 7, D, dtype=torch.float64, requires_grad=True) for _ in range(3))
    pattern = CAUSAL if "causal" in entries[name].supports else FULL
    parameters = list(m.parameters())

    def run(q, k, v, *parameters):
        return m.attend(q, k, v, Sight(pattern))

    assert torch.autograd.gradcheck(run, (q, k, v, *parameters))


@pytest.mark.parametrize(("name", "pattern"), [(n, p) for n in names for p in PATTERNS if honoured(n, p)])
def test_rows_that_see_nothing_give_zero_and_finite_gradients(name, pattern):
    m = build(name)
    q, k, v = inputs(grad=True)
    out = m.attend(q, k, v, Sight(PATTERNS[pattern], keep=padding("blind")))
    assert (out[1] == 0).all()
    out.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v) if x.grad is not None)


@pytest.mark.parametrize("name", [n for n in names if "causal" in entries[n].supports])
def test_a_changed_future_never_changes_the_past(name):
    m, (q, k, v) = build(name, torch.float32), inputs(torch.float32)
    before = m.attend(q, k, v, Sight(CAUSAL))
    for j in (1, 7, N - 1):
        changed = [torch.cat([x[:, :, :j], torch.randn(B, H, N - j, D) * 3], dim=2) for x in (q, k, v)]
        assert torch.equal(m.attend(*changed, Sight(CAUSAL))[:, :, :j], before[:, :, :j])


@pytest.mark.parametrize(
    ("name", "side", "pattern"),
    [(n, s, p) for n in names for s in ("left", "right", "holes") for p in ("full", "causal") if honoured(n, p, s)],
)
def test_garbage_in_padding_changes_nothing(name, side, pattern):
    m, (q, k, v) = build(name, torch.float32), inputs(torch.float32)
    keep, pattern = padding(side), PATTERNS[pattern]
    before = m.attend(q, k, v, Sight(pattern, keep=keep))
    hidden = ~keep[:, None, :, None]
    garbage = [torch.where(hidden, torch.randn_like(x) * 1e3, x) for x in (q, k, v)]
    after = m.attend(*garbage, Sight(pattern, keep=keep))
    real = keep[:, None, :, None].expand_as(after)
    assert torch.equal(after[real], before[real])


@pytest.mark.parametrize(("name", "pattern"), [(n, p) for n in names for p in PATTERNS if honoured(n, p, "left")])
def test_padding_on_either_side_equals_no_padding(name, pattern):
    m, (q, k, v) = build(name), inputs()
    alone = m.attend(q, k, v, Sight(PATTERNS[pattern]))
    for left, right in ((4, 0), (0, 5), (2, 3)):
        padded = [torch.nn.functional.pad(x, (0, 0, left, right), value=7.0) for x in (q, k, v)]
        keep = torch.zeros(B, N + left + right, dtype=torch.bool)
        keep[:, left : left + N] = True
        together = m.attend(*padded, Sight(PATTERNS[pattern], keep=keep))
        assert_close(together[:, :, left : left + N], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [n for n in names if "incremental" in entries[n].supports])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_few_queries_at_a_time_equal_all_at_once(name, chunk):
    m, (q, k, v) = build(name), inputs()
    whole = m.attend(q, k, v, Sight(CAUSAL))
    for start in range(0, N, chunk):
        end = min(N, start + chunk)
        sight = Sight(CAUSAL, q_pos=torch.arange(start, end)[None], k_pos=torch.arange(end)[None])
        part = m.attend(q[:, :, start:end], k[:, :, :end], v[:, :, :end], sight)
        assert_close(part, whole[:, :, start:end], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", names)
def test_the_order_of_the_keys(name):
    m, (q, k, v) = build(name), inputs()
    order = torch.randperm(N)
    before, after = m.attend(q, k, v, Sight(FULL)), m.attend(q, k[:, :, order], v[:, :, order], Sight(FULL))
    same = torch.allclose(before, after, rtol=1e-9, atol=1e-11)
    assert same == ("permutation" in entries[name].supports)


@pytest.mark.parametrize("name", names)
def test_rows_that_sum_to_one(name):
    m, (q, k, _) = build(name), inputs()
    weights = m.weights(q, k, Sight(FULL))
    shares = bool((weights >= 0).all()) and torch.allclose(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    blind = (weights == 0).all(-1)  # no key in reach, or no positive score
    shares = shares or (
        name in ("sum_normalized", "boxcar", "epanechnikov")
        and torch.allclose(weights.sum(-1)[~blind], torch.ones(()).double())
    )
    assert shares == ("normalized" in entries[name].supports)


@pytest.mark.parametrize("name", [n for n in names if {"cross_attention", "padding"} <= entries[n].supports])
def test_padding_of_another_sequence_changes_nothing(name):
    m, q = build(name), torch.randn(B, H, 7, D).double()
    k, v = torch.randn(2, B, H, 11, D).double().unbind(0)
    alone = m.attend(q, k, v, Sight(FULL, cross=True))
    for left, right in ((3, 0), (0, 4)):
        padded = [torch.nn.functional.pad(x, (0, 0, left, right), value=7.0) for x in (k, v)]
        keep = torch.zeros(B, 11 + left + right, dtype=torch.bool)
        keep[:, left : left + 11] = True
        assert_close(m.attend(q, *padded, Sight(FULL, keep=keep, cross=True)), alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", names)
def test_layers_on_one_sight_draw_for_themselves(name):
    """Two layers share a sight, as in a stack: each has its own dropout, and watching shows what was used."""
    first, second = build(name).train(), build(name).train()
    for m in (first, second):
        m.dropout = 0.0 if name == "hard" else 0.5
        if name == "spatial":
            m.mechanism.dropout = 0.5
    (q, k, v), sight = inputs(), Sight(FULL, keep=padding("left"))
    with watch(first) as one, watch(second) as other:
        first(q, k, v, sight)
        out = second(q, k, v, sight)
    assert_close(other[0].weights @ v, out)
    if name != "constant":
        assert not torch.equal(one[0].weights, other[0].weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", names)
def test_half_precision_learns(name, dtype):
    m = build(name, dtype)
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs())
    out = m(q, k, v, Sight(FULL, keep=padding("left")))
    assert out.dtype == dtype
    exact = copy.deepcopy(m).float()(q.float(), k.float(), v.float(), Sight(FULL, keep=padding("left")))
    if name not in ("lsh", "hard", "boxcar", "epanechnikov"):  # there rounding moves a border
        assert_close(out.float(), exact, rtol=0.1, atol=0.1)
    out.float().sum().backward()
    assert v.grad.isfinite().all()


@pytest.mark.parametrize("name", names)
def test_any_layout_of_the_numbers_in_memory(name):
    m, (q, k, v) = build(name), inputs()
    wanted = m.attend(q, k, v, Sight(FULL))
    turned = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in (q, k, v)]
    assert_close(m.attend(*turned, Sight(FULL)), wanted)


@pytest.mark.parametrize("name", names)
def test_across_sequences(name):
    m = build(name)
    q, k, v = torch.randn(B, H, 7, D).double(), torch.randn(B, H, 11, D).double(), torch.randn(B, H, 11, D).double()
    sight = Sight(FULL, cross=True)
    if "cross_attention" in entries[name].supports:
        out = m.attend(q, k, v, sight)
        assert_close(out, m.weights(q, k, sight) @ v)
        if "permutation" in entries[name].supports:  # another order of queries is the same order of answers
            assert_close(m.attend(q.flip(2), k, v, Sight(FULL, cross=True)), out.flip(2))
    else:
        with pytest.raises(ValueError, match=type(m).__name__):
            m.attend(q, k, v, sight)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [(e.name, lack) for e in MECHANISMS for lack in ("causal", "pattern", "bias") if lack in e.lacks()],
)
def test_what_is_not_declared_is_refused_by_name(name, lacks):
    m, (q, k, v) = build(name), inputs()
    sight = {
        "causal": Sight(CAUSAL),
        "pattern": Sight(Window(2, 2)),
        "bias": Sight(FULL, bias=Alibi(H)),
    }[lacks]
    for road in (m.attend, lambda q, k, v, s: m.weights(q, k, s)):
        with pytest.raises(ValueError, match=f"{type(m).__name__}.*use ScaledDot"):
            road(q, k, v, sight)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", names)
def test_watching_changes_nothing_and_shows_the_weights(name, training):
    m, (q, k, v) = build(name, torch.float32).train(training), inputs(torch.float32)
    pattern = CAUSAL if "causal" in entries[name].supports else FULL
    sight = lambda: Sight(pattern, keep=padding("left"))
    torch.manual_seed(5)
    alone = m(q, k, v, sight())
    torch.manual_seed(5)
    with watch(m) as looks:
        watched = m(q, k, v, sight())
    assert torch.equal(alone, watched)
    assert len(looks) == 1
    assert m.watcher is None
    assert_close(looks[0].weights @ v, watched, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", names)
def test_watching_some_rows_and_heads(name):
    m, (q, k, v) = build(name), inputs()
    with watch(m) as everything, watch(m, heads=[2, 0], rows=[0, 22, 5]) as some:
        m(q, k, v, Sight(FULL, keep=padding("left")))
    wanted = everything[0].weights[:, [2, 0]][:, :, [0, 22, 5]]
    assert_close(some[0].weights, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in names if n != "hard"])
def test_dropout_on_the_weights_is_drawn_once(name):
    m, (q, k, v) = build(name).train(), inputs()
    m.dropout = 0.5
    if name == "spatial":
        m.mechanism.dropout = 0.5
    torch.manual_seed(3)
    with watch(m) as looks:
        out = m(q, k, v, Sight(FULL))
    assert_close(out, looks[0].weights @ v)
    plain = m.eval().weights(q, k, Sight(FULL))
    if name != "low_rank":
        assert ((looks[0].weights == 0) | torch.isclose(looks[0].weights, 2 * plain)).all()
    assert not torch.allclose(looks[0].weights, plain)


@pytest.mark.parametrize("name", [n for n in names if n not in ("lsh",)])
def test_grouped_key_heads(name):
    m = build(name, heads=4)
    q, k, v = torch.randn(B, 4, 9, D).double(), torch.randn(B, 2, 9, D).double(), torch.randn(B, 2, 9, D).double()
    spread = lambda x: x.repeat_interleave(2, dim=1)
    assert_close(m.attend(q, k, v, Sight(FULL)), m.attend(q, spread(k), spread(v), Sight(FULL)))
    assert_close(m.weights(q, k, Sight(FULL)), m.weights(q, spread(k), Sight(FULL)))


@pytest.mark.parametrize("name", names)
def test_the_same_code_runs_on_the_meta_device(name):
    m = build(name, torch.float32).to("meta")
    q, k, v = (x.detach().to("meta") for x in inputs(torch.float32))
    assert m.attend(q, k, v, Sight(FULL)).shape == (B, H, N, D)

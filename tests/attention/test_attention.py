"""Hand-worked numbers for the mechanisms and normalisers, and what the contract does not reach."""

import math
import pickle
from importlib import import_module

import pytest
import torch
from torch.testing import assert_close

from saccade.attention import (
    CAUSAL,
    FULL,
    Additive,
    Alibi,
    And,
    AttentionPool,
    BigBird,
    BigBirdPattern,
    Bilinear,
    Cosine,
    Distance,
    Dot,
    Hard,
    Kernel,
    LowRank,
    LSHAttention,
    NadarayaWatson,
    Prefix,
    RandomBlocks,
    ScaledDot,
    Sight,
    Sparsemax,
    Spatial,
    Strided,
    SumNormalizer,
    T5Bias,
    Window,
    Windowed,
    get_mechanism,
    lsh_recall,
    record_draws,
    reinforce_loss,
    watch,
)
from saccade.attention.nadaraya_watson import silverman_bandwidth


def vectors(*rows):
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def soft(*scores):
    total = sum(math.exp(s) for s in scores)
    return torch.tensor([math.exp(s) / total for s in scores], dtype=torch.float64)


Q, K = vectors([1.0, 2.0]), vectors([3.0, 1.0], [0.0, -1.0], [2.0, 4.0])  # q·k = 5, -2, 10


@pytest.mark.parametrize(
    ("made", "scores"),
    [
        (Dot(), (5, -2, 10)),
        (ScaledDot(), (5 / math.sqrt(2), -2 / math.sqrt(2), 10 / math.sqrt(2))),
        (Cosine(sharpness=2.0), (2 * 5 / math.sqrt(50), -2 * 2 / math.sqrt(5), 2.0)),
        (Distance(), (-2.5, -5.0, -2.5)),  # squared distances 5, 10, 5
        (Kernel("gaussian", 2.0), (-5 / 8, -10 / 8, -5 / 8)),
    ],
)
def test_scores_by_hand(made, scores):
    assert_close(made.double().weights(Q, K, Sight(FULL, cross=True))[0, 0, 0], soft(*scores))


def test_bilinear_and_additive_by_hand():
    general = Bilinear(2).double()
    general.between.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # swaps the coordinates
    assert_close(general.weights(Q, K, Sight(FULL, cross=True))[0, 0, 0], soft(7, -1, 8))
    mlp = Additive(2, hidden_width=1).double()
    mlp.query.weight.data, mlp.key.weight.data = (
        torch.tensor([[1.0, 0.0]]).double(),
        torch.tensor([[0.0, 1.0]]).double(),
    )
    mlp.key.bias.data, mlp.outer.weight.data = torch.tensor([0.5]).double(), torch.tensor([[3.0]]).double()
    wanted = soft(*(3 * math.tanh(1 + y + 0.5) for y in (1, -1, 4)))
    assert_close(mlp.weights(Q, K, Sight(FULL, cross=True))[0, 0, 0], wanted)


def test_a_distance_is_a_dot_product_that_charges_long_keys():
    q, k = torch.randn(1, 1, 4, 6).double(), torch.randn(1, 1, 5, 6).double()
    charged = q @ k.mT - 0.5 * k.square().sum(-1)[:, :, None] - 0.5 * q.square().sum(-1)[..., None]
    assert_close(Distance().scores(q, k), charged)


@pytest.mark.parametrize(
    ("shape", "wanted"), [("boxcar", [0.5, 0.5, 0.0]), ("constant", [1 / 3] * 3), ("epanechnikov", [4 / 7, 3 / 7, 0.0])]
)
def test_kernels_by_hand(shape, wanted):
    """Distances 0, 1 and 3 under a width of 2: u = 0, ½, 1½."""
    weights = Kernel(shape, 2.0).double().weights(vectors([0.0]), vectors([0.0], [1.0], [3.0]), Sight(FULL, cross=True))
    assert_close(weights[0, 0, 0], torch.tensor(wanted, dtype=torch.float64))


def test_sum_normalizer_divides_positive_scores_by_their_sum():
    weights = ScaledDot(scale=1.0, normalizer=SumNormalizer()).weights(Q, K, Sight(FULL, cross=True))
    assert_close(weights[0, 0, 0], torch.tensor([5 / 15, 0, 10 / 15], dtype=torch.float64))


def test_exact_look_up_is_the_limit_of_a_fuzzy_one():
    keys, values = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[10.0], [20.0], [40.0]])
    for key, value in zip(keys, values, strict=True):
        answer, weights = AttentionPool(Kernel(bandwidth=0.05))(key[None], keys, values)
        assert_close(answer[0], value)
        assert weights.max() == 1
    wide, _ = AttentionPool(Kernel(bandwidth=1e4))(torch.tensor([[1.0]]), keys, values)
    assert_close(wide[0], values.mean(0), rtol=1e-4, atol=1e-4)
    hidden, _ = AttentionPool(Kernel(bandwidth=0.05))(keys[:1], keys, values, keep=torch.tensor([False, True, True]))
    assert_close(hidden[0], values[1])


def test_leave_one_out_finds_the_width_that_a_fine_grid_finds():
    torch.manual_seed(0)
    x = torch.rand(40, 1).double() * 6
    y = x.sin() + 0.2 * torch.randn(40, 1).double()

    def error(width):  # written from the formula
        total = 0.0
        for i in range(40):
            others = [j for j in range(40) if j != i]
            k = [math.exp(-0.5 * ((x[i] - x[j]).item() / width) ** 2) for j in others]
            guess = sum(w * y[j].item() for w, j in zip(k, others, strict=True)) / sum(k)
            total += (guess - y[i].item()) ** 2
        return total / 40

    model = NadarayaWatson().fit(x, y)
    assert model.leave_one_out_error() == pytest.approx(error(model.kernel.bandwidth), rel=1e-5)
    grid = [0.05 * 1.05**i for i in range(80)]
    assert model.leave_one_out_error() <= min(error(w) for w in grid) * 1.001


def test_rule_of_thumb_and_its_use():
    x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0)).double()
    assert silverman_bandwidth(x) == pytest.approx(0.9 * 1000**-0.2, rel=0.1)
    assert NadarayaWatson(bandwidth="silverman").fit(x, x).kernel.bandwidth == pytest.approx(silverman_bandwidth(x))
    with pytest.raises(ValueError, match="leave_one_out"):
        NadarayaWatson(bandwidth="guess")


def test_classification_by_attention():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(30, 2), torch.randn(30, 2) + 4])
    model = NadarayaWatson().fit(x, [0] * 30 + [1] * 30)
    assert model.predict(torch.tensor([[0.0, 0.0], [4.0, 4.0]])) == [0, 1]
    shares, weights = model.predict_with_weights(torch.tensor([[2.0, 2.0]]))
    assert_close(shares.sum(), torch.tensor(1.0))
    assert weights.shape == (1, 60)


def test_hard_attention_draws_as_softmax_says_and_takes_the_best_in_evaluation():
    torch.manual_seed(0)
    hard = ScaledDot(scale=1.0, normalizer=Hard())
    q, k = torch.ones(4000, 1, 1, 1), torch.tensor([0.0, 1.0, 2.0]).view(1, 1, 3, 1).expand(4000, 1, 3, 1)
    v = torch.eye(3).expand(4000, 1, 3, 3)
    drawn = hard(q, k, v, Sight(FULL, cross=True)).mean((0, 1, 2))
    assert_close(drawn, torch.softmax(torch.tensor([0.0, 1.0, 2.0]), 0), rtol=0, atol=0.03)
    assert_close(hard.eval()(q, k, v, Sight(FULL, cross=True)).mean((0, 1, 2)), torch.tensor([0.0, 0.0, 1.0]))


def test_reinforce_has_the_gradient_of_the_expected_reward():
    """Over many draws REINFORCE's gradient is that of Σ p(key) · reward(key); a baseline leaves it so, with less noise."""
    torch.manual_seed(0)
    rewards = torch.tensor([11.0, 10.0, 13.0])
    keys = torch.tensor([0.3, -0.2, 0.1]).view(1, 1, 3, 1)
    exact = torch.tensor(0.7, requires_grad=True)
    (torch.softmax(exact * keys.flatten(), 0) @ rewards).backward()
    hard = ScaledDot(scale=1.0, normalizer=Hard())

    def estimate(n, baseline):
        theta = torch.tensor(0.7, requires_grad=True)
        q, k, v = theta.expand(n, 1, 1, 1), keys.expand(n, 1, 3, 1), rewards.view(1, 1, 3, 1).expand(n, 1, 3, 1)
        with record_draws(hard) as log:
            reward = hard(q, k, v, Sight(FULL, cross=True)).detach().flatten()
        reinforce_loss(log, reward, baseline).backward()
        return -theta.grad.item()

    for baseline in (0.0, 34 / 3):
        assert estimate(200_000, baseline) == pytest.approx(exact.grad.item(), abs=0.02)
    noise = [torch.tensor([estimate(16, baseline) for _ in range(300)]).std() for baseline in (0.0, 34 / 3)]
    assert noise[1] < 0.9 * noise[0]
    assert hard.normalizer.recorder is None


def test_draws_says_what_is_missing():
    with pytest.raises(ValueError, match=r"ScaledDot\(normalizer=Hard\(\)\)"), record_draws(ScaledDot()):
        pass
    with pytest.raises(ValueError, match="training mode"):
        reinforce_loss([], torch.zeros(2))
    with pytest.raises(ValueError, match="nothing to drop"):
        ScaledDot(normalizer=Hard(), dropout=0.1)


def test_watching_is_not_a_draw():
    hard = ScaledDot(normalizer=Hard())
    q = torch.randn(2, 1, 3, 4, requires_grad=True)
    with record_draws(hard) as log, watch(hard) as looks:
        hard(q, q, q, Sight(FULL))
    assert len(log) == len(looks) == 1


def test_spatial_attention_over_a_grid():
    m = Spatial(Additive(5)).double().eval()
    q, z = torch.randn(2, 1, 3, 5).double(), torch.randn(2, 1, 4, 6, 5).double()
    keep = torch.ones(2, 4, 6, dtype=torch.bool)
    keep[1, :, 4:] = False
    with watch(m) as looks:
        out = m(q, z, z, Sight(FULL, keep=keep, cross=True))
    look = looks[0]
    assert look.axes == ("batch", "head", "query", "row", "column")
    assert look.weights.shape == (2, 1, 3, 4, 6)
    assert (look.weights[1, ..., 4:] == 0).all()
    assert_close(torch.einsum("bhqij,bhijd->bhqd", look.weights, z), out)


def test_t5_buckets_and_alibi_slopes_are_the_published_ones():
    from transformers.models.t5.modeling_t5 import T5Attention

    offset = torch.arange(-300, 301)
    for ahead, buckets, distance in ((True, 32, 128), (False, 32, 128), (True, 12, 40)):
        wanted = T5Attention._relative_position_bucket(offset, ahead, buckets, distance)
        assert torch.equal(
            T5Bias(1, buckets=buckets, max_relative_distance=distance, bidirectional=ahead).to_bucket(offset), wanted
        )
    assert_close(Alibi(8).slopes, torch.tensor([2.0**-i for i in range(1, 9)]))
    # for 12 heads the paper's code: those of 8, then every second of 16
    assert_close(Alibi(12).slopes[8:], torch.tensor([2 ** (-0.5 * i) for i in (1, 3, 5, 7)]))


def test_patterns_join_compare_hash_and_pickle():
    both = CAUSAL & Window(2, 5)
    assert both == CAUSAL & Window(2, 5)
    assert both.reach == (2, 0)
    assert isinstance(both, And)
    assert FULL & CAUSAL == CAUSAL == CAUSAL & FULL
    assert pickle.loads(pickle.dumps(both)) == both
    assert len({both, CAUSAL & Window(2, 5), Strided(2), Prefix(3)}) == 3
    assert (Strided(3) | CAUSAL).draw(4) == "■ · · ■\n■ ■ · ·\n■ ■ ■ ·\n■ ■ ■ ■"
    with pytest.raises(ValueError, match="0 or more"):
        Window(-1, 2)


def test_random_blocks_are_random_and_do_not_depend_on_the_batch():
    pattern = RandomBlocks(seed=3, block_size=4, blocks_per_query_block=2, heads=2)
    at = torch.arange(64)
    seen = pattern.allows(at[:, None], at[None, :])
    assert seen.shape == (2, 64, 64)
    assert (seen.sum(-1) == 8).all()  # two blocks of four
    assert not torch.equal(seen[0], seen[1])
    other = RandomBlocks(seed=4, block_size=4, blocks_per_query_block=2, heads=2).allows(at[:, None], at[None, :])
    assert not torch.equal(seen, other)
    blocks = seen[:, ::4, ::4].float().mean((0, 1))  # how often each block is drawn: about two in sixteen
    assert blocks.max() < 0.45
    short, long = at[:40], torch.cat([at[:40], torch.full((24,), 39)])  # padded on the right, the positions repeat
    alone = pattern.allows(short[:, None], short[None, :])
    assert torch.equal(pattern.allows(long[:, None], long[None, :])[:, :40, :40], alone)


def test_windowed_equals_full_attention_when_the_window_is_the_text():
    q, k, v = (torch.randn(1, 2, 40, 8).double() for _ in range(3))
    full = ScaledDot().attend(q, k, v, Sight(FULL))
    assert_close(Windowed(40).attend(q, k, v, Sight(FULL)), full)


def test_recall_grows_with_rounds():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 200, 16)
    few, many = (
        lsh_recall(LSHAttention(16, 2, hash_buckets=8, hash_rounds=r, max_bucket_distance=200), x, x) for r in (1, 6)
    )
    assert 0 < few < many <= 1
    assert lsh_recall(LSHAttention(16, 2, hash_buckets=2, hash_rounds=8, max_bucket_distance=200), x, x) > 0.95


@pytest.mark.parametrize("name", ["windowed", "bigbird"])
@pytest.mark.parametrize("pattern", [FULL, CAUSAL])
def test_sparse_mechanisms_never_build_a_q_by_k_tensor(name, pattern):
    """Every tensor that any operation makes, forward or backward, is far smaller than n²."""
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

    n, heads = 1536, 2
    made = Windowed(16, global_count=2) if name == "windowed" else BigBird(heads, block_size=8, random_blocks=2)
    q, k, v = (torch.randn(1, heads, n, 8, requires_grad=True) for _ in range(3))
    with Largest() as largest:
        made(q, k, v, Sight(pattern)).sum().backward()
    assert largest.size < n * n / 8


def test_watching_a_long_text_stays_small():
    from saccade.attention import Downsample, RowCallback, TopK

    m, n = Windowed(8), 4096
    q = torch.randn(1, 2, n, 4)
    seen = []
    with (
        watch(m, reduce=TopK(5)) as top,
        watch(m, reduce=Downsample(64)) as pooled,
        watch(m, rows=[7], heads=[1]) as row,
        watch(m, reduce=RowCallback(lambda rows, weights: seen.append((len(rows), weights.sum().item())))) as streamed,
    ):
        m(q, q, q, Sight(FULL))
    assert top[0].weights.shape == top[0].columns.shape == (1, 2, n, 5)
    best = m.weights(q[:, :, 100:101], q, Sight(FULL).select_queries(torch.tensor([100])))[0, 1, 0].topk(5)
    assert_close(top[0].weights[0, 1, 100], best.values)
    assert torch.equal(top[0].columns[0, 1, 100], best.indices)
    assert pooled[0].weights.shape == (1, 2, 64, 64)
    assert_close(pooled[0].weights.sum(-1), torch.ones(1, 2, 64), rtol=1e-4, atol=1e-4)
    assert row[0].weights.shape == (1, 1, 1, n)
    assert streamed[0].weights is None
    assert sum(rows for rows, _ in seen) == n
    assert sum(total for _, total in seen) == pytest.approx(2 * n, rel=1e-4)


def test_watch_refuses_more_than_fits_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(import_module("saccade.attention.watch"), "MAX_WEIGHTS_PER_MODULE", 1000)
    m, q = ScaledDot(), torch.randn(1, 1, 64, 4)
    with pytest.raises(ValueError, match=r"reduce=TopK\(32\)"), watch(m):
        m(q, q, q, Sight(FULL))
    assert m.watcher is None
    with watch(m, rows=[1, 2]) as looks:
        m(q, q, q, Sight(FULL))
    assert looks[0].weights.shape == (1, 1, 2, 64)
    with pytest.raises(ValueError, match="64 rows"), watch(m, rows=[64]):
        m(q, q, q, Sight(FULL))


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"did you mean 'scaled_dot'.*Known are dot, scaled_dot"):
        get_mechanism("scaled_dott")
    with pytest.raises(ValueError, match="gaussian, boxcar"):
        Kernel("triangle")
    with pytest.raises(ValueError, match="even"):
        LSHAttention(8, 2, hash_buckets=5)
    with pytest.raises(ValueError, match="larger `max_positions`"):
        LowRank(4, 2).attend(*(torch.randn(1, 1, 5, 2) for _ in range(3)), Sight(FULL))
    with pytest.raises(ValueError, match="evenly"):
        ScaledDot().weights(torch.randn(1, 3, 2, 2), torch.randn(1, 2, 2, 2), Sight(FULL))


def test_the_fused_kernel_is_used_whenever_it_can_be():
    """The kernel and neither a product of scores nor a softmax: with masks, biases, groups and unequal widths alike."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    q, k, v = (torch.randn(2, 4, 9, 8, requires_grad=True) for _ in range(3))
    cases = [
        (ScaledDot(), k, v, Sight(FULL)),
        (ScaledDot(), k, v, Sight(CAUSAL)),
        (ScaledDot(), k, v, Sight(Window(2, 2), keep=torch.ones(2, 9, dtype=torch.bool))),
        (ScaledDot(), k, v, Sight(CAUSAL, bias=Alibi(4))),
        (ScaledDot(), k[:, :2], v[:, :2], Sight(CAUSAL)),
        (ScaledDot(), k, torch.randn(2, 4, 9, 5), Sight(FULL)),
        (Cosine(), k, v, Sight(FULL)),
        (Bilinear(8), k, v, Sight(FULL)),
        (Distance(), k, v, Sight(FULL)),
        (LowRank(9, 4), k, v, Sight(FULL)),
    ]
    for made, k, v, sight in cases:
        with Names() as seen:
            made(q, k, v, sight)
        assert any("flash_attention_for_cpu" in name for name in seen.names), made
        assert not [name for name in seen.names if "softmax" in name], made


def test_heads_in_groups_equal_heads_together(monkeypatch):
    from saccade.attention.sparse import blockwise as blocks

    q, k, v = (torch.randn(1, 4, 50, 8).double().requires_grad_() for _ in range(3))
    for made in (Windowed(5, global_count=2), BigBird(4, block_size=4), LSHAttention(8, 4, max_bucket_distance=4)):
        found = []
        for limit in (2**24, 1):
            monkeypatch.setattr(blocks, "MAX_GATHERED_BYTES", limit)
            out = made.double()(q, k, v, Sight(CAUSAL))
            found.append([out, *torch.autograd.grad(out.sin().sum(), (q, k, v))])
        for together, apart in zip(*found, strict=True):
            assert_close(together, apart)


def test_sparsemax_with_far_scores_and_hidden_keys():
    weights = Sparsemax()(torch.tensor([[0.0, -5e4, 3.0]]), torch.tensor([[0.0, 0.0, -math.inf]]))
    assert_close(weights, torch.tensor([[1.0, 0.0, 0.0]]))


def test_the_border_of_a_kernel_has_finite_gradients():
    q, k = torch.zeros(1, 1, 1, 1, requires_grad=True), torch.tensor([0.5, 1.0]).view(1, 1, 2, 1).requires_grad_()
    kernel = Kernel("epanechnikov", 1.0)
    kernel(q, k, torch.randn(1, 1, 2, 3), Sight(FULL, cross=True)).sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, kernel.log_width))


def test_distances_far_from_the_origin():
    q, k, v = (torch.randn(2, 3, 9, 5) + 50 for _ in range(3))
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[1, :3] = False
    for sight in (Sight(FULL), Sight(CAUSAL, keep=keep)):
        assert_close(Distance().attend(q, k, v, sight), Distance().weights(q, k, sight) @ v, rtol=1e-5, atol=1e-5)


def test_padding_draws_nothing():
    """The log-probability of a text does not depend on how it is padded, nor is anything drawn in evaluation."""
    hard = ScaledDot(normalizer=Hard())
    q = torch.randn(1, 1, 6, 4, requires_grad=True)
    with record_draws(hard) as log:
        hard(q, q, q, Sight(FULL, keep=torch.tensor([[True, True, True, False, False, False]])))
        hard.eval()(q, q, q, Sight(FULL))
    assert len(log) == 1
    assert (log[0][..., 3:] == 0).all()
    assert (log[0][..., :3] != 0).all()


def test_a_batch_of_questions_can_ask_one_store():
    keys, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [20.0], [30.0]])
    answers, weights = AttentionPool(Kernel(bandwidth=0.05))(torch.tensor([[[2.0]], [[3.0]]]), keys, values)
    assert_close(answers.flatten(), torch.tensor([20.0, 30.0]))
    assert weights.shape == (2, 1, 3)
    pool = AttentionPool(ScaledDot(normalizer=Hard()))
    with watch(pool) as looks:
        answer, weights = pool(torch.randn(5, 2), torch.randn(3, 2), torch.eye(3))
    assert_close(answer, weights)  # the same draw
    assert_close(looks[0].weights[0, 0], weights)
    assert NadarayaWatson().fit(keys, [1.0, 2.0, 3.0]).classes is None
    assert NadarayaWatson().fit(keys[:1], ["a"]).predict(keys) == ["a", "a", "a"]


def test_watchers_come_and_go_in_any_order_and_are_not_copied():
    import copy
    from contextlib import ExitStack

    m, q = ScaledDot(), torch.randn(1, 2, 3, 4)
    one, two = ExitStack(), ExitStack()
    a, b = one.enter_context(watch(m)), two.enter_context(watch(m))
    m(q, q, q, Sight(FULL))
    assert copy.deepcopy(m).watcher is None
    assert pickle.loads(pickle.dumps(m)).watcher is None
    one.close()
    m(q, q, q, Sight(FULL))
    two.close()
    assert (len(a), len(b), m.watcher) == (1, 2, None)
    with pytest.raises(ValueError, match="2 heads"), watch(m, heads=[5]):
        m(q, q, q, Sight(FULL))


def test_watching_a_grid_and_a_shared_mechanism():
    from saccade.attention import TopK

    m = Spatial(Additive(5))
    q, z = torch.randn(2, 1, 3, 5), torch.randn(2, 1, 4, 6, 5)
    with watch(m, reduce=TopK(3)) as looks, watch(m) as whole:
        m(q, z, z, Sight(FULL, cross=True))
    assert looks[0].weights.shape == looks[0].columns.shape == (2, 1, 3, 3)
    best = whole[0].weights[1, 0, 2].flatten().topk(3)
    assert torch.equal(looks[0].columns[1, 0, 2], best.indices)
    shared = torch.nn.ModuleList([m, m])
    with watch(shared, "1*") as looks:
        m(q, z, z, Sight(FULL, cross=True))
    assert len(looks) == 1


def test_positions_are_asked_for_when_they_cannot_be_guessed():
    q, k = torch.randn(1, 2, 1, 4), torch.randn(1, 2, 7, 4)
    with pytest.raises(ValueError, match="cross=True"):
        ScaledDot().weights(q, k, Sight(CAUSAL))
    with pytest.raises(ValueError, match="keep is bool"):
        Sight(FULL, keep=torch.ones(2, 7))
    with pytest.raises(ValueError, match="drawn for 1"):
        BigBird(4, pattern=BigBirdPattern(RandomBlocks(block_size=4)))
    with pytest.raises(ValueError, match="used with 2"):
        BigBird(4)(q, q, q, Sight(FULL))
    assert ScaledDot()(q[:, :, :0], k, k, Sight(FULL, cross=True)).shape == (1, 2, 0, 4)

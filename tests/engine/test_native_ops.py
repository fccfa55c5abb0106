"""The native operators against exact integers, loops in double precision and PyTorch, compiled and not."""

import copy
import ctypes
import math
import pickle
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from saccade.engine.native import build, ops, reference_ops
from saccade.engine.native import library as loading

compiled = pytest.mark.skipif(not ops.is_available(), reason=ops.unavailable_reason() or "compiled")


@pytest.fixture
def afresh(monkeypatch):
    """Let a test change the surroundings, and forget afterwards what was decided in them."""
    loading._load_library.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    loading._load_library.cache_clear()


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def both(request, afresh):
    """Every test here holds for the compiled operators and for what stands in for them."""
    if request.param == "plain":
        afresh.setenv("SACCADE_NATIVE", "0")
    elif not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    return request.param


def exact(x, packed):
    """Levels from the least to the most of each group, multiplied as 64-bit integers, from the definition."""
    whole, scale = packed.unpack()
    total = torch.zeros(len(x), len(whole), dtype=torch.float64)
    for start in range(0, x.size(1), reference_ops.GROUP_SIZE):
        part, weights = (
            x[:, start : start + reference_ops.GROUP_SIZE],
            whole[:, start : start + reference_ops.GROUP_SIZE].to(torch.int64),
        )
        least, most = part.amin(-1, keepdim=True), part.amax(-1, keepdim=True)
        q = ((part - least) * (127 / (most - least).clamp(min=1e-30))).round().to(torch.int64)
        total += (q @ weights.T).double() * ((most - least).double() / 127) + least.double() * weights.sum(1)
    return (total * scale).float()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 7, 3), (2, 33, 31), (3, 64, 128), (4, 5, 4), (5, 97, 61), (13, 31, 769), (9, 40, 65)]
)
def test_the_product_is_exact_in_integers(m, n, k):
    x, weight, bias = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
    packed = ops.Int8Tiles(weight, bias)
    whole, scale = packed.unpack()
    sums = (
        1 + x.abs().amax(1, keepdim=True) * whole.float().abs().sum(1) * scale
    )  # of the sizes of all that is added up
    for found, wanted in ((packed(x), exact(x, packed) + bias), (ops.Int8Tiles(weight)(x), exact(x, packed))):
        assert ((found - wanted).abs() / sums).max() < 1e-6  # a few times the last bit


def test_a_large_number_spoils_only_its_group():
    x, weight = torch.randn(3, 4 * reference_ops.GROUP_SIZE), torch.randn(20, 4 * reference_ops.GROUP_SIZE)
    weight[:, : reference_ops.GROUP_SIZE] = 0  # so that only what it does to the other groups can be seen
    packed = ops.Int8Tiles(weight)
    quiet = packed(x)
    x[:, 5] = 1e6
    assert packed(x).equal(quiet)
    x[:, reference_ops.GROUP_SIZE] = 1e6
    assert not packed(x).equal(quiet)


def test_what_is_packed_can_be_unpacked():
    weight = torch.randn(37, 19)
    whole, scale = ops.Int8Tiles(weight).unpack()
    assert whole.shape == (37, 19)
    assert whole.abs().amax(1).eq(127).all()
    assert (whole * scale[:, None] - weight).abs().max() <= scale.max() / 2 * 1.001


@compiled
@pytest.mark.parametrize(("n", "k"), [(1, 1), (31, 5), (32, 64), (101, 203), (300, 768)])
def test_weights_are_packed_as_the_definition_rounds_them(n, k, both):
    if both == "plain":
        pytest.skip("it is the definition")
    weight = torch.randn(n, k) * torch.logspace(-20, 3, n)[:, None]
    weight[0] = 0
    packed = ops.Int8Tiles(weight)
    whole, scale = reference_ops.quantize(weight)
    assert packed.unpack()[0].equal(whole)
    assert packed.unpack()[1].equal(scale)
    sums = packed.group_sums.transpose(1, 2).flatten(0, 1)[:n]
    assert sums.equal(
        torch.stack([part.sum(1) for part in whole.short().split(reference_ops.GROUP_SIZE, 1)], 1).short()
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_sixteen_bits_never_saturate(sign, m):
    """The worst case: in every pair but one both levels are 127 and both weights 127, of one sign."""
    packed = ops.Int8Tiles(torch.full((40, 1024), 3.0 * sign))
    x = torch.full((m, 1024), 2.0)
    x[:, :: reference_ops.GROUP_SIZE] = 0.0  # one in each group is the least, so that the others are at the top
    out = packed(x)
    torch.testing.assert_close(out, torch.full((m, 40), 3.0 * 2.0 * sign * (1024 - 1024 // reference_ops.GROUP_SIZE)))


@pytest.mark.parametrize("m", [1, 3])
def test_what_is_all_the_same_loses_nothing(m):
    x = torch.tensor([0.1, -7.3, 2e-4])[torch.arange(3 * reference_ops.GROUP_SIZE) // reference_ops.GROUP_SIZE].expand(
        m, -1
    )
    packed = ops.Int8Tiles(torch.randn(11, 3 * reference_ops.GROUP_SIZE))
    whole, scale = packed.unpack()
    torch.testing.assert_close(packed(x), (x.double() @ whole.double().T * scale).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("act", ops.ACTIVATION_CODES)
def test_activation_bias_and_residual_are_fused(act):
    x, weight, bias, add = torch.randn(2, 3, 29) * 3, torch.randn(41, 29), torch.randn(41), torch.randn(2, 3, 41)
    packed = ops.Int8Tiles(weight, bias)
    plain = {
        "none": lambda y: y,
        "gelu": lambda y: y * (1 + torch.erf(y / math.sqrt(2))) / 2,
        "gelu_tanh": lambda y: y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))) / 2,
        "relu": lambda y: y.clamp(min=0),
        "silu": lambda y: y / (1 + torch.exp(-y)),
    }[act](packed(x).double())
    torch.testing.assert_close(packed(x, act, add), (plain + add).float(), rtol=1e-5, atol=2e-6)


def test_a_row_without_numbers_spoils_only_itself():
    packed = ops.Int8Tiles(torch.randn(9, 11), torch.arange(9.0))
    x = torch.randn(5, 11)
    clean = packed(x)
    x[1, 3], x[3, 10], x[4] = float("nan"), float("-inf"), 0
    out = packed(x)
    assert out[[1, 3]].isnan().all()
    assert out[[0, 2]].equal(clean[[0, 2]])
    assert out[4].equal(torch.arange(9.0))
    assert packed(x[:0]).shape == (0, 9)


def test_rows_of_a_batch_do_not_touch_each_other():
    packed, x = ops.Int8Tiles(torch.randn(70, 50)), torch.randn(9, 50)
    alone = torch.cat([packed(row[None]) for row in x])
    if ops.is_available():
        assert packed(x).equal(alone)
    torch.testing.assert_close(packed(x), alone)


def test_a_copy_owns_its_weights():
    packed, x = ops.Int8Tiles(torch.randn(6, 5), torch.randn(6)), torch.randn(3, 5)
    expected = packed(x)
    for other in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        packed.tiles.zero_()
        assert other(x).equal(expected)
        packed = other


@compiled
def test_the_generic_code_agrees_bit_for_bit(afresh):
    """The same file without AVX2: 32-bit sums are exact, and nothing else may be rounded otherwise."""
    fast = loading.open_library(build.build_library(loading.SOURCES, "-march=native"))
    slow = loading.open_library(build.build_library(loading.SOURCES, "-DSACCADE_PLAIN"))
    packed = ops.Int8Tiles(torch.randn(101, 203), torch.randn(101))
    for m in (1, 2, 3, 4, 7):
        x, outs = torch.randn(m, 203), []
        for library in (fast, slow):
            outs.append(torch.empty(m, 101))
            library.saccade_int8_linear(
                *packed._fixed_args, x.data_ptr(), None, outs[-1].data_ptr(), m, ops.ACTIVATION_CODES["gelu"]
            )
        assert outs[0].equal(outs[1])


def looked(q, keys, values, lengths, scale, keep=None):
    """Attention by loops, in double precision."""
    out = torch.zeros_like(q, dtype=torch.float64)
    share = q.size(1) // keys.size(1)
    for b, h in torch.cartesian_prod(torch.arange(q.size(0)), torch.arange(q.size(1))).tolist():
        seen = [t for t in range(int(lengths[b])) if keep is None or keep[b, t]]
        scores = [math.exp(scale * float(q[b, h].double() @ keys[b, h // share, t].double())) for t in seen]
        for t, score in zip(seen, scores, strict=True):
            out[b, h] += score / sum(scores) * values[b, h // share, t].double()
    return out.float()


def room(b=3, h=6, g=2, limit=11, d=7):
    return torch.randn(b, h, d), torch.randn(b, g, limit, d), torch.randn(b, g, limit, d)


def test_a_token_looks_at_its_memory():
    q, keys, values = room()
    lengths = torch.tensor([5, 11, 1])
    keys[0, :, 5:], values[0, :, 5:] = float("nan"), float("nan")  # what lies beyond the length is never read
    torch.testing.assert_close(ops.attend(q, keys, values, lengths, 0.3), looked(q, keys, values, lengths, 0.3))


def test_a_token_sees_what_is_kept_and_nothing_when_nothing_is():
    q, keys, values = room()
    lengths, keep = torch.tensor([5, 11, 0]), torch.rand(3, 11) > 0.4
    keep[0] = False
    out = ops.attend(q, keys, values, lengths, 0.3, keep)
    torch.testing.assert_close(out, looked(q, keys, values, lengths, 0.3, keep))
    assert out[[0, 2]].eq(0).all()


def test_large_scores_do_not_overflow():
    q, keys, values = room(h=2)
    lengths = torch.tensor([4, 11, 8])
    out = ops.attend(q, keys, values, lengths, 1e4)
    best = torch.stack([(q[b, h] @ keys[b, h, : lengths[b]].T).argmax() for b in range(3) for h in range(2)]).view(3, 2)
    torch.testing.assert_close(out, values[torch.arange(3)[:, None], torch.arange(2), best])


def test_a_fresh_token_is_written_and_seen():
    joint = torch.randn(3, 10, 7)  # (B, H + 2G, D), as one product makes it: the parts are slices with gaps
    q, key, value = joint.split((6, 2, 2), dim=1)
    _, keys, values = room()
    lengths = torch.tensor([5, 11, 1])
    before, rows = keys.clone(), torch.arange(3)
    out = ops.attend(q, keys, values, lengths, 0.5, new_kv=(key, value))
    assert keys[rows, :, lengths - 1].equal(key)
    assert values[rows, :, lengths - 1].equal(value)
    before[rows, :, lengths - 1] = key
    assert keys.equal(before)
    torch.testing.assert_close(out, looked(q, keys, values, lengths, 0.5))


def test_step_by_step_is_causal_attention():
    q, k, v = torch.randn(3, 2, 4, 9, 5)  # each (B, H, L, D)
    keys, values, out = torch.zeros(2, 4, 12, 5), torch.zeros(2, 4, 12, 5), []
    for t in range(9):
        fresh = k[:, :, t], v[:, :, t]
        out.append(ops.attend(q[:, :, t], keys, values, torch.full((2,), t + 1), 5**-0.5, new_kv=fresh))
    torch.testing.assert_close(torch.stack(out, 2), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("d", [7, 16, 72])
def test_a_memory_of_halves_is_that_of_its_numbers(d):
    q, keys, values = room(d=d)
    lengths, keep = torch.tensor([5, 11, 1]), torch.rand(3, 11) > 0.2
    short, fresh = (keys.half(), values.half()), (torch.randn(3, 2, d), torch.randn(3, 2, d))
    whole = tuple(memory.float() for memory in short)
    for memory, new in zip(whole, fresh, strict=True):
        memory[torch.arange(3), :, lengths - 1] = new.half().float()
    out = ops.attend(q, *short, lengths, 0.3, keep, fresh)
    assert all(there.float().equal(memory) for there, memory in zip(short, whole, strict=True))
    torch.testing.assert_close(out, looked(q, *whole, lengths, 0.3, keep))
    with pytest.raises(ValueError, match="float32 or float16"):
        ops.attend(q, short[0], values, lengths, 0.3)


@compiled
@pytest.mark.parametrize("flag", ["-march=native", "-DSACCADE_PLAIN"])
def test_every_number_is_halved_as_torch_does_it(flag, afresh):
    library = loading.open_library(build.build_library(loading.SOURCES, flag))
    afresh.setattr(ops, "library", lambda: library)
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.half).float()
    every = every[every.isfinite()]
    between = torch.cat(
        [(every + every.roll(1)) / 2, every * (1 + 2**-12), torch.tensor([7e4, -1e30, math.inf, 1e-40])]
    )
    numbers = torch.cat([every, between, torch.tensor([math.nan])])
    numbers = torch.cat([numbers, numbers[: -len(numbers) % 61]]).view(1, 1, -1, 61).transpose(0, 2)  # (N, 1, 1, 61)
    memory = torch.zeros(len(numbers), 1, 1, 61, dtype=torch.half)
    lengths = torch.ones(len(numbers), dtype=torch.int64)
    fresh = numbers[:, :, 0].contiguous()
    out = ops.attend(torch.zeros(len(numbers), 1, 61), memory, memory.clone(), lengths, 1.0, new_kv=(fresh, fresh))
    wanted = fresh.clamp(-65504, 65504).half()
    torch.testing.assert_close(memory[:, :, 0], wanted, rtol=0, atol=0, equal_nan=True)
    finite = fresh.isfinite().all(-1)[:, 0]
    assert out[finite].equal(wanted[finite].float())  # one key has all the weight: its value comes out


def test_a_slice_of_a_larger_memory_will_do():
    q, keys, values = room()
    wide = torch.randn(2, 3, 5, 11, 7)
    wide[0, :, 1:3], wide[1, :, 1:3] = keys, values
    lengths = torch.tensor([2, 7, 10])
    there = ops.attend(q, wide[0, :, 1:3], wide[1, :, 1:3], lengths, 0.3)
    assert there.equal(ops.attend(q, keys, values, lengths, 0.3))


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_the_heads_of_a_place_may_lie_together(kind):
    """A memory (B, K, G, D) seen as (B, G, K, D), read and written where it lies."""
    q, keys, values = room()
    keys, values, lengths = keys.to(kind), values.to(kind), torch.tensor([2, 7, 10])
    fresh = torch.randn(3, 2, 7), torch.randn(3, 2, 7)
    together = [memory.transpose(1, 2).contiguous().transpose(1, 2) for memory in (keys, values)]
    out = ops.attend(q, *together, lengths, 0.3, new_kv=fresh)
    assert out.equal(ops.attend(q, keys, values, lengths, 0.3, new_kv=fresh))
    assert together[0].equal(keys)
    assert together[1].equal(values)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_places_of_a_memory_from_other_rows(kind):
    memory, origin = torch.randn(5, 3, 7, 4).to(kind), torch.randint(5, (6, 7), dtype=torch.int32)
    origin[0] = 3  # lies in one piece
    wanted = torch.stack(
        [torch.stack([memory[row, :, t] for t, row in enumerate(line)], 1) for line in origin.tolist()]
    )
    for length in (0, 1, 5, 7):
        assert ops.gather(memory, origin, length)[:, :, :length].equal(wanted[:, :, :length])
    assert ops.gather(memory, origin[:0], 3).shape == (0, 3, 7, 4)
    spare = torch.empty(6, 3, 7, 4, dtype=kind)
    assert ops.gather(memory, origin.long(), 7, spare) is spare
    assert spare.equal(wanted)
    twice = memory.repeat_interleave(2, dim=3)[..., ::2]  # laid out otherwise
    assert ops.gather(twice, origin, 6)[:, :, :6].equal(wanted[:, :, :6])
    for wrong in (origin + 5, origin - 5):
        with pytest.raises(ValueError, match="has 5 rows of 7 positions; got rows"):
            ops.gather(memory, wrong, 3)
    for length in (-1, 8):
        with pytest.raises(ValueError, match=rf"\(5, 3, 7, 4\); got length {length} and a table torch.int32 \(6, 7\)"):
            ops.gather(memory, origin, length)


@pytest.mark.parametrize("shape", [(1, 7), (3, 5, 77), (2, 768)])
def test_norms(shape):
    x, weight, bias = torch.randn(shape) * 3 + 1, torch.randn(shape[-1]), torch.randn(shape[-1])
    torch.testing.assert_close(ops.layer_norm(x, weight, bias, 1e-5), F.layer_norm(x, shape[-1:], weight, bias, 1e-5))
    torch.testing.assert_close(ops.layer_norm(x, weight, None, 1e-5), F.layer_norm(x, shape[-1:], weight, None, 1e-5))
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-6), x / (x.square().mean(-1, True) + 1e-6).sqrt() * weight)


def test_a_far_mean_does_not_spoil_the_norm():
    x = torch.randn(4, 64) + 1000
    expected = F.layer_norm(x.double(), (64,)).float()
    torch.testing.assert_close(ops.layer_norm(x, torch.ones(64), None, 1e-5), expected, rtol=1e-3, atol=1e-3)


def test_threads_change_nothing():
    packed, x = ops.Int8Tiles(torch.randn(600, 320), torch.randn(600)), torch.randn(70, 320)
    q, keys, values = room(b=5, h=12, g=4, limit=90, d=16)
    lengths = torch.tensor([90, 3, 41, 77, 90])
    outs = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        outs.append((packed(x, "silu"), ops.attend(q, keys, values, lengths, 0.25)))
    for one, two in pairwise(outs):
        torch.testing.assert_close(one, two)


def pooled(tmp_path, late=0.0):
    """A library with a pool that notes the threads it is asked for, and a product to ask it for.

    It comes back so many seconds late, or where a stalled core makes the work itself long, later than that took.
    """
    asked = []
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    @ctypes.CFUNCTYPE(None, entry, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def run(work, job, count, flags):
        asked.append(count)
        begin = time.perf_counter()
        for _ in range(count):  # the first takes everything, the others find nothing left
            work(job)
        time.sleep(max(late, 3 * (time.perf_counter() - begin)) if late else 0)

    # a copy of the file has globals of its own, so that the pool of everybody else stays as it is
    shutil.copy(build.build_library(loading.SOURCES, "-march=native"), tmp_path / "own.so")
    library = loading.open_library(tmp_path / "own.so")
    size = ctypes.CDLL(torch._C.__file__).omp_get_max_threads
    library.saccade_set_thread_pool(ctypes.cast(run, ctypes.c_void_p), ctypes.cast(size, ctypes.c_void_p))
    packed, x, out = ops.Int8Tiles(torch.randn(640, 320)), torch.randn(1, 320), torch.empty(1, 640)

    def product():
        library.saccade_int8_linear(*packed._fixed_args, x.data_ptr(), None, out.data_ptr(), 1, 0)
        torch.testing.assert_close(out, packed(x))
        return run  # which must outlive the call

    return product, asked


@compiled
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_pool_is_as_large_as_torch_says(threads, tmp_path):
    product, asked = pooled(tmp_path)
    torch.set_num_threads(threads)
    product()
    assert asked == ([] if threads == 1 else [threads])


@compiled
def test_a_pool_that_comes_late_is_left_alone_for_a_while(tmp_path):
    """A core that is busy with something else must not hold up every product; sixteen go without, then it is asked again."""
    product, asked = pooled(tmp_path, late=0.02)
    torch.set_num_threads(2)
    for _ in range(17):
        product()
    assert asked == [2]
    for _ in range(33):
        product()
    assert asked == [2, 2]
    product()
    assert asked == [2, 2, 2]


def test_no_gradient_no_other_kind_no_other_shape():
    packed, x = ops.Int8Tiles(torch.randn(6, 5)), torch.randn(3, 5)
    q, keys, values = room()
    lengths = torch.tensor([1, 2, 3])
    with pytest.raises(RuntimeError, match="no gradient; call them under"):
        packed(x.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="no gradient"):
        ops.attend(q.requires_grad_(), keys, values, lengths, 1.0)
    with torch.no_grad():
        packed(x.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"float32 on the CPU; got torch\.float64"):
        packed(x.double())
    with pytest.raises(ValueError, match=r"takes x of shape \(\.\.\., 5\).*silu; got \(3, 4\) and 'none'"):
        packed(x[:, :4])
    with pytest.raises(ValueError, match=r"got .* and 'tanh'"):
        packed(x, "tanh")
    with pytest.raises(ValueError, match=r"shape \(3, 6\); got a tensor to add of shape \(6,\)"):
        packed(x, add=torch.zeros(6))
    with pytest.raises(ValueError, match=r"shape \(rows, columns\); got \(2, 3, 4\)"):
        ops.Int8Tiles(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="finite weights"):
        ops.Int8Tiles(torch.tensor([[1.0, float("inf")]]))


@pytest.mark.parametrize("length", [-1, 12, 2**40])
def test_a_length_must_fit_the_memory(length):
    q, keys, values = room()
    with pytest.raises(ValueError, match=f"Row 1 has length {length}; this KV cache holds 0 to 11 tokens"):
        ops.attend(q, keys, values, torch.tensor([3, length, 3]), 1.0)
    with pytest.raises(ValueError, match="Row 2 has length 0; this KV cache holds 1 to 11"):
        ops.attend(q, keys, values, torch.tensor([3, 4, 0]), 1.0, new_kv=(keys[:, :, 0], values[:, :, 0]))


def test_a_memory_of_another_layout_is_refused():
    q, keys, values = room()
    lengths = torch.tensor([1, 2, 3])
    for bad in (keys.transpose(2, 3).contiguous().transpose(2, 3), keys[:2], keys.double()):
        with pytest.raises(ValueError, match=r"it needs keys and values \(B, G, K, D\)|keys \(2, "):
            ops.attend(q, bad, values, lengths, 1.0)
    with pytest.raises(ValueError, match="int64 lengths"):
        ops.attend(q, keys, values, lengths.int(), 1.0)


def test_it_can_be_switched_off(afresh):
    afresh.setenv("SACCADE_NATIVE", "0")
    loading._load_library.cache_clear()
    assert not ops.is_available()
    assert ops.unavailable_reason() == "SACCADE_NATIVE=0 switches the compiled operators off"


def compiler(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_no_compiler_no_library_and_no_noise(afresh, tmp_path, capfd):
    afresh.delenv("SACCADE_NATIVE", raising=False)
    afresh.delenv("CXX", raising=False)
    afresh.setenv("XDG_CACHE_HOME", str(tmp_path))
    afresh.setenv("PATH", str(tmp_path))
    loading._load_library.cache_clear()
    assert not ops.is_available()
    assert "no C++ compiler" in ops.unavailable_reason()
    assert ops.Int8Tiles(torch.eye(3))(torch.eye(3)).equal(torch.eye(3))
    loading._load_library.cache_clear()
    afresh.setenv("CXX", compiler(tmp_path / "broken", "echo 'no such header' >&2; exit 1"))
    assert not ops.is_available()
    assert "cannot compile native.cpp: no such header" in ops.unavailable_reason()
    assert capfd.readouterr() == ("", "")


def test_a_cache_that_others_can_write_is_not_trusted(afresh, tmp_path):
    afresh.setenv("XDG_CACHE_HOME", str(tmp_path))
    afresh.setenv("CXX", compiler(tmp_path / "idle", "exit 0"))
    folder = tmp_path / "saccade" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(build.BuildError, match="writable by you alone"):
        build.build_library(loading.SOURCES)


def test_two_builders_leave_one_whole_file(afresh, tmp_path):
    """Each compiles slowly, in pieces; whoever asks later compiles nothing."""
    afresh.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = f'echo x >> {tmp_path}/runs; for last; do :; done; printf one > "$last"; sleep 0.2; printf two >> "$last"'
    afresh.setenv("CXX", compiler(tmp_path / "slow", script))
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: build.build_library(loading.SOURCES), range(2)))
    made.append(build.build_library(loading.SOURCES))
    assert len(set(made)) == 1
    assert made[0].read_text(encoding="utf-8") == "onetwo"
    assert list(made[0].parent.iterdir()) == [made[0]]
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "x\nx\n"


def test_another_source_flag_or_compiler_is_another_library(afresh, tmp_path):
    afresh.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = 'for last; do :; done; printf made > "$last"'
    afresh.setenv("CXX", compiler(tmp_path / "first", script))
    source = tmp_path / "a.cpp"
    source.write_text("1", encoding="utf-8")
    names = [build.build_library([source]), build.build_library([source], "-DX")]
    source.write_text("2", encoding="utf-8")
    names.append(build.build_library([source]))
    afresh.setenv("CXX", compiler(tmp_path / "second", script))
    names.append(build.build_library([source]))
    assert len(set(names)) == 4


def test_the_stand_in_names_the_same_activations():
    assert list(ops.ACTIVATION_CODES.values()) == list(range(len(reference_ops.ACTIVATIONS)))

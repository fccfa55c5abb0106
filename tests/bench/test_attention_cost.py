"""The cost study: counts against the mechanisms themselves, the fit against known powers, and children that go wrong."""

import json
import math
import sys
from dataclasses import replace

import pytest
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from saccade.attention import (
    CAUSAL,
    FULL,
    MECHANISMS,
    BigBird,
    BigBirdPattern,
    LowRank,
    LSHAttention,
    RandomBlocks,
    Sight,
    Windowed,
)
from saccade.bench import attention_cost, attention_flops, attention_plot, measure
from saccade.bench.measure import FAILED, OK, OUT_OF_MEMORY, REFUSED, SKIPPED, TIMED_OUT, BenchCase, BenchPlan, Outcome
from saccade.cli.commands import bench
from saccade.system import describe_machine

H, D = 3, 5
PATTERNS = {False: FULL, True: CAUSAL}


def small(length, causal=False, name="scaled_dot"):
    return BenchCase(name, length, width=H * D, heads=H, causal=causal)


def vectors(n):
    torch.manual_seed(1)
    return [torch.randn(1, H, n, D, dtype=torch.float64) for _ in range(3)]


def looked_at(module, n, causal):
    """Nonzero weights of all heads, counted."""
    q, k, _ = vectors(n)
    weights = module.double().eval().weights(q, k, Sight(PATTERNS[causal]))
    assert weights.shape == (1, H, n, n)
    return (weights != 0).sum().item()


def test_every_mechanism_is_counted():
    assert list(attention_flops.COST_FORMULAS) == [entry.name for entry in MECHANISMS]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 4, 23])
@pytest.mark.parametrize("window", [(0, 0, 0), (3, 2, 0), (3, 2, 2), (1, 7, 5), (40, 40, 3)])
def test_windowed_pairs_are_those_of_its_weights(window, n, causal):
    left, right, count = window
    module = Windowed(left, right, global_count=count)
    found = attention_flops.count_windowed(module, small(n, causal))
    assert found.pairs == looked_at(module, n, causal)
    assert found.pairs <= H * n * (left + 1 + right + 2 * count)
    assert found.multiply_adds == 2 * D * found.pairs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [2, 23, 37])
@pytest.mark.parametrize(
    ("block", "count", "window", "first", "last"), [(3, 2, 1, 1, 1), (4, 1, 0, 2, 0), (2, 3, 2, 0, 1)]
)
def test_bigbird_pairs_are_those_of_its_weights(block, count, window, first, last, n, causal):
    random = RandomBlocks(seed=1, block_size=block, blocks_per_query_block=count, heads=H)
    module = BigBird(H, pattern=BigBirdPattern(random, window, first, last))
    found = attention_flops.count_bigbird(module, small(n, causal))
    assert found.pairs == looked_at(module, n, causal)
    padded = -(-n // block) * block  # a last block that is not full may be global, hence seen as a whole
    assert found.pairs <= H * padded * block * (2 * window + 1 + 2 * (first + last) + count)


@pytest.mark.parametrize("causal", [False, True])
def test_dense_pairs_are_those_of_its_weights(causal):
    for entry in MECHANISMS:
        if entry.cost == "n² d" and entry.name not in ("boxcar", "epanechnikov", "sum_normalized", "sparsemax", "hard"):
            module = entry.make(D, H, 23)
            assert attention_flops.COST_FORMULAS[entry.name].count(module, small(23, causal)).pairs == looked_at(
                module, 23, causal
            )


@pytest.mark.parametrize("causal", [False, True])
def test_hashed_pairs_stay_below_the_bound_and_reach_it_but_for_the_ends_of_buckets(causal):
    n, near, buckets = 61, 4, 2
    q, k, _ = vectors(n)
    seen = lambda module: (module.double().weights(q, k, Sight(PATTERNS[causal])) != 0).sum()
    for rounds in (1, 3):
        module = LSHAttention(D, H, hash_buckets=buckets, hash_rounds=rounds, max_bucket_distance=near)
        bound = attention_flops.count_lsh(module, small(n, causal)).pairs
        assert seen(module) <= bound
        if rounds == 1 and not causal:
            assert bound == H * n * (2 * near - 1)
            assert seen(module) >= bound - H * buckets * near * (near - 1)
    assert attention_flops.count_lsh(LSHAttention(D, H), small(7)).pairs == H * 49  # never more than all pairs


def test_low_rank_scores_n_times_r():
    module, n = LowRank(23, 7).double(), 23
    q, k, _ = vectors(n)
    e, _ = module.make_projections(q, k, Sight(FULL))
    assert attention_flops.count_low_rank(module, small(n)).pairs == module.scores(q, e @ k).numel() == H * n * 7


@pytest.mark.parametrize(
    "name", ["dot", "scaled_dot", "cosine", "bilinear", "additive", "sum_normalized", "sparsemax", "relative"]
)
def test_multiply_adds_are_those_that_torch_counts_in_the_definition(name):
    n, module = 23, next(entry for entry in MECHANISMS if entry.name == name).make(D, H, 23).double()
    q, k, v = vectors(n)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.weights(q, k, Sight(FULL)) @ v
    assert counter.get_total_flops() == 2 * attention_flops.COST_FORMULAS[name].count(module, small(n)).multiply_adds


@pytest.mark.parametrize(("causal", "n"), [(False, 23), (True, 64), (True, 130)])
def test_linear_multiply_adds_are_those_that_torch_counts_on_the_fast_path(causal, n):
    module = next(entry for entry in MECHANISMS if entry.name == "linear").make(D, H, n)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.attend(*vectors(n), Sight(PATTERNS[causal]))
    assert counter.get_total_flops() == 2 * attention_flops.count_linear(module, small(n, causal)).multiply_adds


def test_additive_has_an_inner_tanh_for_each_pair_and_heads_at_one_width_cost_the_same():
    assert attention_flops.count_operations(BenchCase("additive", 10, width=12, heads=3)).tanh == 3 * 100 * 4
    one, eight = (
        attention_flops.count_operations(BenchCase("scaled_dot", 10, width=64, heads=heads)) for heads in (1, 8)
    )
    assert one.multiply_adds == eight.multiply_adds == 2 * 64 * 100


def test_a_mechanism_has_the_same_sizes_at_every_length():
    same = [
        attention_flops.count_windowed(Windowed(256, global_count=16), BenchCase("windowed", n))
        for n in (64, 512, 4096)
    ]
    assert [attention_flops.count_operations(BenchCase("windowed", n)) for n in (64, 512, 4096)] == same


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_growth_finds_the_power(power):
    lengths = [2**i for i in range(8, 15)]
    found = attention_cost.fit_growth(lengths, [3 * n**power for n in lengths])
    assert found is not None
    assert found.exponent == pytest.approx(power)
    assert found.standard_error == pytest.approx(0, abs=1e-6)


def test_growth_looks_at_long_texts_where_it_can():
    lengths = [256, 512, 1024, 2048, 4096, 8192]
    values = [7.0, 7.0, 7.0, 1.0, 4.0, 16.0]
    found = attention_cost.fit_growth(lengths, values)
    assert found == attention_cost.Growth(2.0, 0.0, (2048, 4096, 8192))
    short = attention_cost.fit_growth(lengths[:5], [float(n) for n in lengths[:5]])
    assert short is not None
    assert short.lengths == (256, 512, 1024, 2048, 4096)
    assert attention_cost.fit_growth([256], [1.0]) is None
    assert attention_cost.fit_growth([256, 512], [1.0, 2.0]) == attention_cost.Growth(1.0, None, (256, 512))


def test_growth_error_by_hand():
    # log2 y = 0, 1, 0 over log2 n = 0, 1, 2: slope 0, residuals -1/3, 2/3, -1/3, so error = √(6/9 / 1 / 2)
    found = attention_cost.fit_growth([1, 2, 4], [1.0, 2.0, 1.0])
    assert found is not None
    assert found.exponent == pytest.approx(0, abs=1e-9)
    assert found.standard_error == pytest.approx(math.sqrt(1 / 3), abs=1e-5)


def test_plan_alternates_mechanisms_and_turns_round():
    plan = BenchPlan(lengths=(32, 16), rounds=2)
    order = [(turn, case.length, case.mechanism, case.training) for turn, case in plan.iter_cases(["a", "b"])]
    assert len(order) == 2 * 2 * 2 * 2
    assert [x[2] for x in order[:4]] == ["a", "a", "b", "b"]
    assert [x[2] for x in order[8:12]] == ["b", "b", "a", "a"]
    assert [x[1] for x in order[:8]] == [16] * 4 + [32] * 4


def test_a_child_measures_what_its_tensors_take():
    found = measure.run_case(BenchCase("sum_normalized", 512, width=64, heads=4, repeats=2, threads=1))
    assert found.status == OK, found.reason
    assert len(found.seconds) >= 2
    assert found.threads == 1
    if found.memory_source == "VmHWM":
        scores = 4 * 4 * 512**2  # one float for each pair of each head; a few of them are alive at the peak
        assert found.peak_bytes is not None
        assert 2 * scores < found.peak_bytes < 6 * scores


def test_a_child_that_is_slow_or_broken_is_an_outcome():
    assert measure.run_case(BenchCase("dot", 16, timeout=0.05)).status == TIMED_OUT
    broken = measure.run_case(BenchCase("dott", 16))
    assert broken.status == FAILED
    assert "dott" in broken.reason


@pytest.mark.skipif(sys.platform != "linux", reason="other systems promise memory that they do not have")
def test_a_child_that_runs_out_of_memory_is_an_outcome():
    found = measure.run_case(BenchCase("additive", 2**16, width=64, heads=1, threads=1))  # a tensor of 1.1 TB
    assert found.status == OUT_OF_MEMORY
    assert "allocate" in found.reason


def test_what_cannot_fit_is_not_started_and_says_how_much_it_needs(monkeypatch):
    monkeypatch.setattr(attention_cost, "available_memory", lambda: 10**9)
    monkeypatch.setattr(attention_cost, "run_case", lambda case: Outcome(OK, "", (0.1,), 5, "VmHWM", 1))
    runs = list(
        attention_cost.run_cases(BenchPlan(("scaled_dot", "additive", "low_rank"), (256, 16384), rounds=1, causal=True))
    )
    status = {(r.case.mechanism, r.case.length): r.outcome for r in runs if not r.case.training}
    assert status["additive", 256].status == status["scaled_dot", 16384].status == OK
    assert status["additive", 16384].status == SKIPPED
    assert "GB" in status["additive", 16384].reason
    assert status["low_rank", 256].status == REFUSED


def test_what_failed_is_not_tried_at_a_greater_length_or_again(monkeypatch):
    tried = []

    def run(case):
        tried.append((case.length, case.training))
        return Outcome(OUT_OF_MEMORY, "too large") if case.length == 32 and case.training else Outcome(OK, "", (0.1,))

    monkeypatch.setattr(attention_cost, "run_case", run)
    plan = BenchPlan(("dot",), (16, 32, 64), rounds=2)
    runs = list(attention_cost.run_cases(plan))
    assert len(runs) == 12
    first = [(16, False), (16, True), (32, False), (32, True), (64, False)]
    assert tried == [*first, (16, False), (16, True), (32, False), (64, False)]
    cases = attention_cost.make_report(plan, runs, describe_machine())["cases"]
    assert [c["status"] for c in cases if c["mode"] == "training"] == [OK, OUT_OF_MEMORY, SKIPPED]


@pytest.fixture
def made_up(monkeypatch):
    """Children that answer at once, with times and peaks that grow as n²."""
    square = lambda case: Outcome(OK, "", (case.length**2 / 1e6,) * 3, case.length**2, "VmHWM", 2)
    monkeypatch.setattr(attention_cost, "run_case", square)


def call(*args):
    return tyro.cli(bench.main, prog="saccade bench", args=list(args))


def test_command_writes_table_json_and_plot(made_up, tmp_path, capsys):
    args = ("attention", "--mechanisms", "scaled_dot", "lsh", "--lengths", "64", "128", "256", "--rounds", "1")
    assert call(*args, "--out", str(tmp_path)) == 0
    out, err = capsys.readouterr()
    assert "2.00 ± 0.00" in out
    assert "keys with the highest weights" in out
    assert max(len(text) for text in out.splitlines() if not text.startswith("written")) <= 120
    assert err.splitlines()[0].startswith("12 cases")
    assert not {"\r", "\x1b"} & set(out + err)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["mechanisms"][1]["recall"]["recall"] > report["mechanisms"][1]["recall"]["visible_fraction"]
    assert len(report["runs"]) == len(report["cases"]) == 12
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_mechanism_without_a_count_is_measured_all_the_same(made_up, tmp_path, capsys, monkeypatch):
    """Somebody's own line of MECHANISMS, of which nothing is known on paper."""
    own = replace(next(entry for entry in MECHANISMS if entry.name == "dot"), name="my_dot")
    monkeypatch.setattr(sys.modules["saccade.attention.registry"], "MECHANISMS", [*MECHANISMS, own])
    monkeypatch.setattr(attention_cost, "MECHANISMS", [*MECHANISMS, own])
    args = ("attention", "--mechanisms", "my_dot", "--lengths", "64", "128", "--rounds", "1", "--out", str(tmp_path))
    assert call(*args) == 0
    out = capsys.readouterr().out
    assert "my_dot" in out
    assert "not counted" in out
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {case["multiply_adds"] for case in report["cases"]} == {None}
    assert all(case["status"] == OK and case["ms"] for case in report["cases"])


def test_command_prints_only_json_when_asked(made_up, tmp_path, capsys):
    assert call("attention", "--mechanisms", "dot", "--lengths", "64", "--json", "--out", str(tmp_path)) == 0
    assert json.loads(capsys.readouterr().out)["subject"] == "attention"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trian"], "known are attention"),
        (["attention", "--mechanisms", "dott"], "scaled_dot"),
        (["attention", "--heads", "7"], "divisor"),
        (["attention", "--lengths", "0"], "numbers from 2 on"),
    ],
)
def test_wrong_arguments_are_named(args, words, tmp_path, capsys):
    assert call(*args, "--out", str(tmp_path)) == 2
    assert words in capsys.readouterr().err


def test_a_stopped_run_reports_what_it_has(monkeypatch, tmp_path, capsys):
    def run(case):
        if case.length > 64:
            raise KeyboardInterrupt
        return Outcome(OK, "", (0.1,), 10, "VmHWM", 1)

    monkeypatch.setattr(attention_cost, "run_case", run)
    assert call("attention", "--mechanisms", "dot", "--lengths", "64", "128", "--out", str(tmp_path)) == 130
    assert len(json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["runs"]) == 2


def test_every_line_of_the_plot_can_be_told_from_the_others():
    lines = [{"name": entry.name, "cost": entry.cost, "time": {"forward": None}} for entry in MECHANISMS]
    looks = attention_plot.choose_line_styles(lines)
    styles = [tuple(looks[line["name"]][x] for x in ("color", "marker", "linestyle")) for line in lines]
    marks = [style[1:] for style, line in zip(styles, lines, strict=True) if line["cost"] == "n² d"]
    assert len(set(styles)) == len(MECHANISMS)
    assert len(set(marks)) == len(marks)  # the blue ones differ without their colour


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_high_water_mark_starts_anew():
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    high, meter = measure.read_peak_memory()
    del block
    low, _ = measure.read_peak_memory(reset=True)
    assert meter == "VmHWM"
    assert high is not None
    assert low is not None
    assert high - low > 32 * 2**20 or low == high  # equal where the system does not permit it

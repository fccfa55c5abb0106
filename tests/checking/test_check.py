"""`check` on any module: correct ones pass, and each planted bug fails exactly the invariant that it violates."""

import json
import math
import sys

import pytest
import torch
import torch.nn.functional as F
import tyro
from torch import nn

import saccade
from saccade.attention import CAUSAL, FULL, MECHANISMS, ScaledDot, Sight
from saccade.checking.check import CheckReport
from saccade.checking.invariants import INVARIANTS
from saccade.cli.commands.check import main

W = 10


class Layer(nn.Module):
    """A correct self-attention layer, split into methods so that each planted bug overrides one of them."""

    def __init__(self, causal=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(W, W) for _ in range(3))
        self.causal = causal

    def allowed(self, x):
        size = x.size(1)
        seen = torch.ones(size, size, dtype=torch.bool, device=x.device)
        return seen.tril() if self.causal else seen

    def normalise(self, scores):
        return torch.where(scores.isneginf().all(-1, keepdim=True), 0.0, scores).softmax(-1)

    def hide(self, scores, keep):
        return scores.masked_fill(~keep[:, None], -math.inf)

    def forward(self, x, keep=None):
        scores = self.q(x) @ self.k(x).mT / math.sqrt(W)
        scores = scores.masked_fill(~self.allowed(x), -math.inf)
        if keep is not None:
            scores = self.hide(scores, keep)
        return self.normalise(scores) @ self.v(x)


class SeesNext(Layer):
    def allowed(self, x):
        return torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(1)


class SeesLast(Layer):
    """Only the first position looks ahead, and only at the last token: one pair of many."""

    def allowed(self, x):
        seen = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        seen[0, -1] = True
        return seen

    def forward(self, x):
        return super().forward(x)


class MixesRows(Layer):
    """A statistic over the batch."""

    def forward(self, x):
        out = super().forward(x)
        return out - out.mean(0, keepdim=True)


class WrongAxis(nn.Module):
    """Softmax over the batch instead of the keys."""

    def forward(self, x):
        return (x @ x.mT).softmax(0) @ x


class SoftHide(Layer):
    """Padding gets less weight, but not zero."""

    def hide(self, scores, keep):
        return scores - 5.0 * ~keep[:, None]


class Inverted(Layer):
    def hide(self, scores, keep):
        return super().hide(scores, ~keep)


class Deaf(Layer):
    def hide(self, scores, keep):
        return scores


class Blind(Layer):
    """Softmax over a row of -inf."""

    def normalise(self, scores):
        return scores.softmax(-1)


class BlindSlope(Layer):
    """Finite outputs, but NaN gradients: torch.where hides the NaN from the output only."""

    def hide(self, scores, keep):
        return scores + torch.zeros(keep.shape).masked_fill(~keep, -math.inf)[:, None]

    def normalise(self, scores):
        return torch.where(scores.isneginf(), 0.0, scores.softmax(-1))


class Remembers(Layer):
    last = 0.0

    def forward(self, x, keep=None):
        out = super().forward(x, keep) + self.last
        self.last = out[0, 0, 0].detach()
        return out


class Drops(Layer):
    """Dropout that ignores eval mode."""

    def forward(self, x, keep=None):
        return F.dropout(super().forward(x, keep), 0.5)


class Root(Layer):
    """The gradient of the square root is infinite at 0."""

    def forward(self, x, keep=None):
        return super().forward(x, keep) + (self.q.weight * 0).sum().sqrt()


class Detached(Layer):
    def forward(self, x, keep=None):
        with torch.no_grad():
            return super().forward(x, keep)


class Decoder(nn.Module):
    """A model over token ids, with learned positions that count padding."""

    def __init__(self, layer):
        super().__init__()
        self.token, self.place, self.layer = nn.Embedding(29, W), nn.Embedding(17, W), layer
        self.out = nn.Linear(W, 29)

    def forward(self, tokens, keep=None):
        return self.out(self.layer(self.token(tokens) + self.place.weight[: tokens.size(1)], keep))


def failing(report):
    return [finding.name for finding in report.failures]


BUGS = [
    (SeesNext, "causality"),
    (SeesLast, "causality"),
    (MixesRows, "batch independence"),
    (WrongAxis, "batch independence"),
    (SoftHide, "padding"),
    (Inverted, "padding"),
    (Deaf, "padding"),
    (Blind, "fully masked rows"),
    (BlindSlope, "fully masked rows"),
    (Remembers, "repeatability"),
    (Drops, "repeatability"),
    (Root, "gradients"),
    (Detached, "gradients"),
]


@pytest.mark.parametrize(("module", "wanted"), BUGS)
def test_a_planted_bug_fails_exactly_its_invariant(module, wanted):
    report = saccade.check(module())
    assert failing(report) == [wanted], str(report)
    assert not report.ok


def test_every_invariant_that_can_fail_has_a_planted_bug():
    assert {name for _, name in BUGS} == {i.name for i in INVARIANTS} - {"permutation"}


def torch_attention(batch_first):
    return nn.MultiheadAttention(12, 3, batch_first=batch_first)


def torch_layer(batch_first=True, heads=3):
    return nn.TransformerEncoderLayer(12, heads, 24, batch_first=batch_first)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    few = {"bos_token_id": 1, "eos_token_id": 1}
    return GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=12, n_layer=2, n_head=3, **few))


def bert():
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 24, "max_position_embeddings": 16}
    return BertModel(BertConfig(vocab_size=31, hidden_size=12, **sizes))


HEALTHY = {
    "layer": (Layer, False),
    "causal layer": (lambda: Layer(causal=True), True),
    "torch layer": (torch_layer, False),
    "torch layer, length first": (lambda: torch_layer(batch_first=False), False),
    "torch encoder, nested": (lambda: nn.TransformerEncoder(torch_layer(heads=2), 2), False),
    "torch encoder": (lambda: nn.TransformerEncoder(torch_layer(), 2, enable_nested_tensor=False), False),
    "torch function": (lambda: F.scaled_dot_product_attention, False),
    "gpt2": (gpt2, True),
    "bert": (bert, False),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_correct_module_passes_and_causality_is_detected(name):
    make, causal = HEALTHY[name]
    module = make()
    report = saccade.check(module)
    assert report.ok, str(report)
    assert report["padding"].status == report["fully masked rows"].status == "holds"
    assert report["causality"].status == ("holds" if causal else "info")
    assert saccade.check(module, causal=causal).ok
    assert failing(saccade.check(module, causal=not causal)) == ["causality"]


def hidden_row_is_nan(call):
    """Whether a row of only padding gives NaN in torch itself: it does in 2.13, and may not in later versions."""
    ignore = torch.zeros(3, 11, dtype=torch.bool)
    ignore[1] = True
    with torch.no_grad():
        return bool(call(torch.randn(3, 11, 12), ignore).isnan().any())


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_attention_is_nan_on_masked_rows_with_need_weights(batch_first):
    module = torch_attention(batch_first)
    turn = lambda x: x if batch_first else x.transpose(0, 1)

    def call(m, x, keep, weights=False):
        x = turn(x)
        return turn(m(x, x, x, key_padding_mask=None if keep is None else ~keep, need_weights=weights)[0])

    nan = hidden_row_is_nan(lambda x, ignore: call(module.eval(), x, ~ignore, weights=True))
    assert failing(saccade.check(module)) == (["fully masked rows"] if nan else [])
    assert saccade.check(module, call=call, width=12).ok


def test_the_fast_path_of_torch_without_gradients_is_nan_on_masked_rows():
    """With an even number of heads; without the fast path no invariant fails."""
    module = torch_layer(heads=2)
    nan = hidden_row_is_nan(lambda x, ignore: module.eval()(x, src_key_padding_mask=ignore))
    report = saccade.check(module)
    assert failing(report) == (["fully masked rows"] if nan else [])
    assert report["fully masked rows"].message.endswith("under torch.no_grad()") == nan
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert saccade.check(module).ok
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("entry", [e for e in MECHANISMS if "padding" in e.supports], ids=lambda entry: entry.name)
def test_the_mechanisms_of_saccade_pass(entry):
    causal = "causal" in entry.supports

    def call(mechanism, x, keep):
        q = x.unflatten(-1, (3, 5)).transpose(1, 2)  # (B, H, L, D)
        sight = Sight(CAUSAL if causal else FULL, keep=keep)
        return mechanism(q, q.flip(-1), q.roll(1, -1), sight).transpose(1, 2).flatten(2)

    report = saccade.check(entry.make(5, 3, 17), call=call, width=15, causal=causal)
    assert report.ok, str(report)
    assert report.call_style == "the given `call`"


def masked(encode, shape):
    """An attention function whose `mask` has the meaning of `encode`."""

    def core(q, k, v, mask=None):
        scores = q @ k.mT
        if mask is not None:
            assert mask.dim() == shape
            scores = encode(scores, mask)
        return scores.softmax(-1).nan_to_num(0) @ v

    return core


@pytest.mark.parametrize(
    ("core", "reading"),
    [
        (masked(lambda s, m: s.masked_fill(~m, -math.inf), 3), "(B, Q, K) with True = attend"),
        (masked(lambda s, m: s.masked_fill(m, -math.inf), 3), "(B, Q, K) with True = ignore"),
        (masked(lambda s, m: s + m.to(s.dtype), 3), "(B, Q, K) with -inf = ignore"),
        (masked(lambda s, m: s + (1 - m) * -1e9, 3), "(B, Q, K) with 1 = attend"),
        (masked(lambda s, m: s.masked_fill(m[:, None], -math.inf), 2), "(B, K) with True = ignore"),
    ],
)
def test_the_meaning_of_a_plain_mask_is_measured(core, reading):
    report = saccade.check(core)
    assert report.call_style == f"f(q, k, v), mask {reading}"
    assert report["padding"].status == "holds"


def test_an_attention_function_over_heads():
    def core(query, key, value, attn_mask=None):
        assert query.dim() == 4
        return F.scaled_dot_product_attention(query, key, value, attn_mask)

    report = saccade.check(core)
    assert report.call_style == "f(q, k, v) with heads, attn_mask (B, 1, Q, K) with True = attend"
    assert report.ok


def test_a_mask_without_a_default_is_always_passed():
    class Strict(Layer):
        def forward(self, x, mask):
            return super().forward(x, mask.bool())

    report = saccade.check(Strict())
    assert report.ok, str(report)
    assert report["padding"].status == "holds"


def test_positions_that_count_padding_fail_on_the_left_only():
    module = Decoder(Layer(causal=True))
    report = saccade.check(module)
    assert report.call_style == "f(tokens), keep (B, K) with True = attend"
    assert failing(report) == ["padding"]
    assert 'padding="right"' in report["padding"].message
    assert saccade.check(module, padding="right").ok
    skipped = saccade.check(module, padding="none")["padding"]
    assert (skipped.status, skipped.message) == ("not applicable", 'not tested with padding="none"')


def test_location_and_size_of_a_causality_leak():
    """Each output is the mean of all tokens up to the next one, so token j changes the output at j - 1 by 1 / (j + 1)."""

    def mean(x):
        seen = torch.ones(x.size(1), x.size(1)).tril(1)
        return seen / seen.sum(-1, keepdim=True) @ x

    found = saccade.check(mean, width=5, length=7)["causality"]
    row, at = found.location
    assert found.message == f"token {at + 1} changes the output at position {at}; 6 of 21 pairs look ahead"
    from saccade.checking.signatures import CheckSubject

    subject = CheckSubject(mean, lambda f, x, keep: f(x), torch.float32, torch.device("cpu"), 7, width=5)
    change = (subject.make_input(seed=1) - subject.make_input()).abs().amax(-1)[row, at + 1] / (at + 2)
    assert found.deviation == pytest.approx(change.item(), rel=1e-5)


def test_a_bidirectional_window_is_not_reported_as_a_leak():
    def near(x):
        at = torch.arange(x.size(1))
        seen = ((at[:, None] - at).abs() <= 1).float()
        return seen @ x

    report = saccade.check(near)
    assert report.ok
    assert report["causality"].message == "not causal: 10 of 55 pairs look ahead"


def test_permutation_equivariance_is_noted():
    assert saccade.check(Layer())["permutation"].message == "equivariant: the input is a set"
    aware = saccade.check(bert())["permutation"]
    assert aware.status == "info"
    assert aware.message.startswith("position-aware")


def test_parameters_without_a_gradient_are_listed():
    found = saccade.check(bert())["gradients"]
    assert (found.status, found.message) == (
        "holds",
        "finite; no gradient for 2 unused: pooler.dense.weight, pooler.dense.bias",
    )


def test_invariants_that_cannot_be_tested_are_not_applicable():
    report = saccade.check(Remembers())
    assert {f.name for f in report.findings if "the outputs are not repeatable" in f.message} == {
        "batch independence",
        "causality",
        "padding",
        "fully masked rows",
        "permutation",
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    seen = []

    class Spy(Layer):
        def forward(self, x, keep=None):
            seen.append(x.dtype)
            return super().forward(x, keep)

    assert saccade.check(Spy().to(dtype)).ok
    assert set(seen) == {dtype}


def test_the_module_and_the_random_state_are_restored():
    class Counting(Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.drop = nn.Dropout(0.5)

        def forward(self, x, keep=None):
            assert not self.training
            self.calls += 1
            torch.rand(3)
            return self.drop(super().forward(x, keep))

    module = Counting()
    module.train()
    module.k.eval()
    module.q.weight.grad = torch.ones(W, W)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    rng_state = torch.get_rng_state()
    assert saccade.check(module).ok
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(module.q.weight.grad, torch.ones(W, W))
    assert module.k.weight.grad is None


def test_the_module_is_restored_after_an_error():
    module = nn.TransformerDecoderLayer(12, 2, 24).train()
    with pytest.raises(ValueError):
        saccade.check(module)
    assert module.training


def test_an_undetected_signature_is_an_error_with_a_hint():
    with pytest.raises(ValueError, match="needs 2 arguments: tgt, memory") as error:
        saccade.check(nn.TransformerDecoderLayer(12, 2, 24))
    assert "call=lambda module, x, keep: module(x, mask=keep)" in str(error.value)
    with pytest.raises(ValueError, match=r"f\(x\) on \(3, 11, 3\): RuntimeError: .*channels"):
        saccade.check(nn.Conv1d(3, 5, 3))
    across = saccade.check(
        nn.TransformerDecoderLayer(12, 2, 24, batch_first=True),
        width=12,
        call=lambda m, x, keep: m(x, x[:, :1], tgt_key_padding_mask=None if keep is None else ~keep),
        padding="right",
    )
    assert across["batch independence"].status == "holds"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"padding": "middle"}, "padding must be one of both, right, left, none; got 'middle'"),
        ({"vocab": 9, "width": 9}, "not both; got vocab=9, width=9"),
        ({"length": 3}, "length must be 7 or more, to leave room for padding; got 3"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        saccade.check(Layer(), **arguments)


def test_an_exception_of_the_module_is_a_failure():
    class Pairs(Layer):
        def forward(self, x):
            if x.size(0) == 1:
                raise RuntimeError("one row is too few")
            return super().forward(x)

    report = saccade.check(Pairs())
    assert failing(report) == ["batch independence"]
    assert report["batch independence"].message == "the call raised RuntimeError: one row is too few"


def test_a_module_that_refuses_masked_rows_does_not_fail():
    class Refuses(Layer):
        def hide(self, scores, keep):
            if not keep.any(-1).all():
                raise ValueError("a row is all padding")
            return super().hide(scores, keep)

    found = saccade.check(Refuses())["fully masked rows"]
    assert (found.status, found.message) == ("not applicable", "the module raised ValueError: a row is all padding")


def test_the_report_is_an_aligned_table_and_json():
    report = saccade.check(Blind())
    lines = str(report).splitlines()
    table = lines[2 : 3 + len(INVARIANTS)]
    column = table[0].index("result")
    assert all(line[column - 1] == " " and line[column] != " " for line in table)
    assert "\x1b" not in str(report)
    assert lines[-2] == "1 of 7 invariants fail."
    assert lines[-1].startswith("fully masked rows: ")
    data = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert data["ok"] is False
    assert [f["name"] for f in data["findings"]] == [i.name for i in INVARIANTS]
    assert data["findings"][4]["location"] == [1, 0]
    assert isinstance(report, CheckReport)


def run(args):
    return tyro.cli(main, prog="saccade check", args=args)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "checked_model.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Mean(nn.Module):\n"
        "    def __init__(self, ahead=0):\n        super().__init__()\n        self.ahead = ahead\n"
        "    def forward(self, x):\n        return torch.ones(x.size(1), x.size(1)).tril(self.ahead) @ x\n\n"
        "def leaky():\n    return Mean(1)\n\n"
        "def broken():\n    raise RuntimeError('no weights')\n\n"
        "built = Mean()\n"
    )
    (tmp_path / "checked_needs.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.usefixtures("here")
def test_the_command(capsys):
    assert run(["checked_model:Mean", "--causal"]) == 0
    assert "No invariant fails." in capsys.readouterr().out
    assert run(["checked_model:built"]) == 0
    assert run(["checked_model:Mean", "--no-causal"]) == 4
    capsys.readouterr()
    assert run(["checked_model:leaky", "--json", "--width", "5"]) == 4
    assert json.loads(capsys.readouterr().out)["findings"][2]["status"] == "fails"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["checked_model"], "write package.module:factory"),
        (["checked_modle:Mean"], "There is no module 'checked_modle' in"),
        (["checked_model.deep:Mean"], "There is no module 'checked_model.deep' in"),
        (["checked_needs:Mean"], "Importing checked_needs raised ModuleNotFoundError at"),
        (["checked_model:Maen"], "checked_model has no 'Maen'; the nearest names are Mean"),
        (["checked_model:broken"], "raised RuntimeError at"),
        (["json:loads"], "Calling json:loads raised TypeError: loads() missing 1 required positional argument: 's'."),
        (["checked_model:Mean", "--tokens", "2"], "7 or more"),
        (["checked_model:Mean", "--causal", "--no-causal"], "give one of them, or neither"),
    ],
)
def test_errors_of_the_command(args, words, capsys):
    with pytest.raises(SystemExit) as stop:
        run(args)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_function_over_heads_with_a_keep_mask():
    assert saccade.check(lambda q, k, v, keep=None: ScaledDot()(q, k, v, Sight(CAUSAL, keep=keep)), causal=True).ok

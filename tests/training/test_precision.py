"""Short products: what stays long, how near the truth the fast paths are, and who chooses."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import FULL, BigBird, ScaledDot, Sight, Windowed
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.parts.heads import LMHead
from saccade.parts.recurrent import Recurrent
from saccade.parts.state import State
from saccade.tasks import losses
from saccade.training import autocast
from saccade.training.autocast import cpu_has_bfloat16, resolve_precision
from saccade.training.config import Config
from saccade.training.events import RunRefused
from saccade.training.loop import Learner
from saccade.training.optim.muon import orthogonalize
from saccade.training.run import run_training
from support.small_runs import make_learner, prepare_run, read_outputs

SHORT = torch.bfloat16
HEADS = {
    "with a bias": lambda: LMHead(16, 101, bias=True),
    "tied": lambda: LMHead(16, 101, tied_embedding=nn.Embedding(101, 16)),
    "shifted": lambda: BiasedLMHead(16, 101, tied_embedding=nn.Embedding(101, 16)),
    "with a layer before": lambda: LMHead(16, 101, between=nn.Linear(16, 16)),
}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("given", [torch.float32, SHORT])
def test_recurrent_layers_are_long_where_products_are_short(cell, given):
    """Bit for bit what they are without, of the same numbers, with padding and from step to step."""
    torch.manual_seed(0)
    layer, x, keep = Recurrent(5, 4, cell), torch.randn(2, 7, 5).to(given), torch.arange(7) < torch.tensor([[7], [4]])
    plain, short = State(), State()
    wanted = [layer(x.float(), keep, plain), layer(x.float(), None, plain)]
    with torch.autocast("cpu", SHORT):
        found = [layer(x, keep, short), layer(x, None, short)]
    assert all(torch.equal(one, other.to(given)) for one, other in zip(found, wanted, strict=True))
    assert torch.equal(short.get("h"), plain.get("h"))


@pytest.mark.parametrize(
    "mechanism",
    [ScaledDot(), Windowed(1), BigBird(3, block_size=2, random_blocks=1)],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("given", [torch.float32, SHORT])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_is_long_where_products_are_short(mechanism, given, padded):
    """Bit for bit what it is without, of the same numbers, and rounded as they came; so are its gradients."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8).to(given) for _ in range(3))
    way = torch.randn(2, 3, 5, 8).bfloat16().float()  # so that going back rounds nothing either
    keep = torch.tensor([[True] * 5, [True] * 3 + [False] * 2]) if padded else None
    found = []
    for on in (False, True):
        leaves = [x.to(given if on else torch.float32, copy=True).requires_grad_() for x in (q, k, v)]
        with torch.autocast("cpu", SHORT, enabled=on):
            out = mechanism(*leaves, Sight(FULL, keep=keep))
        (out.float() * way).sum().backward()
        found.append([out.to(given), *(x.grad.to(given) for x in leaves)])
        assert out.dtype == (given if on else torch.float32)
    assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sure", [False, True])
def test_the_loss_of_short_products_is_as_near_the_truth_as_its_definition(monkeypatch, head, smoothing, sure):
    monkeypatch.setattr(losses, "MIN_ROWS_PER_CHUNK", 1)
    monkeypatch.setattr(losses, "MAX_LOGITS_IN_CACHE", 101 * 7)  # six pieces
    torch.manual_seed(2)
    made = HEADS[head]()
    x, gold = torch.randn(41, 16), torch.randint(101, (41,))
    if sure:  # chances up to 0.9999, which short numbers would take for 1
        with torch.no_grad():
            x *= torch.linspace(5, 12, 41)[:, None]
            gold = made(x).argmax(-1)

    def gone_through(loss_of, kind, *, short):
        made.to(kind).zero_grad()
        leaf = x.to(kind, copy=True).requires_grad_()
        with torch.autocast("cpu", SHORT, enabled=short):
            loss = loss_of(made, leaf, gold, smoothing)
        loss.backward()
        return type(loss.grad_fn).__name__, [loss.detach(), leaf.grad, *(p.grad.clone() for p in made.parameters())]

    _, truth = gone_through(losses.lm_loss_reference, torch.float64, short=False)
    way, fast = gone_through(losses.lm_loss, torch.float32, short=True)
    _, slow = gone_through(losses.lm_loss_reference, torch.float32, short=True)
    assert way == "ChunkedCrossEntropyBackward"
    for true, one, other in zip(truth, fast, slow, strict=True):
        assert one.dtype == torch.float32
        most = max(1.5 * (other - true).norm(), 2**-9 * true.norm())  # what rounding a number once may do
        assert (one - true).norm() <= most


def test_matrices_turned_by_short_products_are_turned():
    torch.manual_seed(0)
    one, _, other = torch.linalg.svd(torch.randn(3, 24, 40), full_matrices=False)
    turned = orthogonalize(one @ torch.logspace(-1.5, 0, 24).diag() @ other, SHORT)
    assert turned.dtype == torch.float32
    values = one.mT @ turned @ other.mT
    diagonal = values.diagonal(dim1=1, dim2=2)
    assert (diagonal > 0.6).all()
    assert (diagonal < 1.25).all()
    assert (values - torch.diag_embed(diagonal)).abs().max() < 0.1


@pytest.mark.parametrize("task", ["translate", "label"])
def test_a_short_run_that_stops_goes_on_bit_for_bit(home, task):
    told = {"optimizer": "muon", "precision": "bfloat16", "ema": 0.9}
    list(run_training(prepare_run(home, task, **told), home / "calm"))
    for steps in (3, 0):
        list(run_training(prepare_run(home, task, **told, max_steps=steps), home / "stopped"))
    assert read_outputs(home / "calm") == read_outputs(home / "stopped")


def test_short_steps_go_where_long_ones_go(home):
    """All weights together, though single ones of hardly any gradient may go another way."""
    moved = []
    for name in ("float32", "bfloat16"):
        one = make_learner(home, "translate", precision=name, warmup=0.0, clip_grad_norm=0.0)
        before = {key: p.detach().clone() for key, p in one.trainable_parameters.items()}
        one.step()
        moved.append(torch.cat([(p.detach() - before[key]).flatten() for key, p in one.trainable_parameters.items()]))
    assert torch.cosine_similarity(moved[0], moved[1], dim=0) > 0.9


@pytest.mark.parametrize(
    ("flags", "able"),
    [("fpu avx2 avx512f avx512_bf16", True), ("fpu amx_bf16 amx_tile", True), ("fpu avx avx2 avx512f", False)],
)
def test_a_processor_tells_what_it_multiplies(tmp_path, flags, able):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="utf-8")
    assert cpu_has_bfloat16(tmp_path / "cpuinfo") is able
    assert cpu_has_bfloat16(tmp_path / "none") is None


@pytest.mark.parametrize(("able", "chosen"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_auto_takes_what_the_processor_can(monkeypatch, able, chosen):
    monkeypatch.setattr(autocast, "cpu_has_bfloat16", lambda: able)
    assert resolve_precision(Config(precision="auto", device="cpu")).precision == chosen
    for named in ("float32", "bfloat16"):
        assert resolve_precision(Config(precision=named)).precision == named


@pytest.mark.parametrize("able", [True, False])
def test_a_learner_that_is_built_by_hand_settles_it_too(home, monkeypatch, able):
    monkeypatch.setattr(autocast, "cpu_has_bfloat16", lambda: able)
    made = prepare_run(home)
    one = Learner(made.model, made.task, made.make_batches(), Config(precision="auto", device="cpu", optimizer="muon"))
    assert one.config.precision == ("bfloat16" if able else "float32")
    assert one.optimizer.matmul_dtype == (SHORT if able else None)


def test_a_graphics_card_that_only_imitates_short_numbers_gets_long_ones(monkeypatch):
    monkeypatch.setattr(autocast, "single_process_world", lambda device: SimpleNamespace(device=torch.device("cuda")))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert resolve_precision(Config(precision="auto")).precision == "float32"


def test_a_run_is_what_it_was_begun_with_and_another_processor_is_told_so(home, monkeypatch):
    monkeypatch.setattr(autocast, "cpu_has_bfloat16", lambda: True)
    made = prepare_run(home, precision="auto", max_steps=2, device="cpu")
    assert made.notes[-1].startswith("precision: bfloat16")
    list(run_training(made, home / "out"))
    monkeypatch.setattr(autocast, "cpu_has_bfloat16", lambda: False)
    with pytest.raises(
        RunRefused, match=r"was 'bfloat16' and is 'float32'\. Pass --train\.precision bfloat16 to resume"
    ):
        list(run_training(prepare_run(home, precision="auto", device="cpu"), home / "out"))
    list(run_training(prepare_run(home, precision="bfloat16", device="cpu"), home / "out"))

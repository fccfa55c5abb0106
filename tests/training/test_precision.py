"""Short products: what stays long, how near the truth the fast paths are, and who chooses."""

from types import SimpleNamespace

import pytest
import torch
from small import learner, left, ready
from torch import nn
from torch.testing import assert_close

from saccade.attention import FULL, BigBird, ScaledDot, Sight, Windowed
from saccade.models.encoder_decoder import ShiftedWordHead
from saccade.parts.heads import WordHead
from saccade.parts.recurrent import Recurrent
from saccade.parts.state import State
from saccade.tasks import losses
from saccade.training import precision
from saccade.training.config import Config
from saccade.training.events import Refused
from saccade.training.loop import Learner
from saccade.training.muon import orthogonal
from saccade.training.precision import multiplies_short, settled
from saccade.training.run import run

SHORT = torch.bfloat16
HEADS = {
    "with a bias": lambda: WordHead(16, 101, bias=True),
    "tied": lambda: WordHead(16, 101, tied=nn.Embedding(101, 16)),
    "shifted": lambda: ShiftedWordHead(16, 101, tied=nn.Embedding(101, 16)),
    "with a layer before": lambda: WordHead(16, 101, between=nn.Linear(16, 16)),
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
    "mechanism", [ScaledDot(), Windowed(1), BigBird(3, block=2, count=1)], ids=lambda one: type(one).__name__
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
    monkeypatch.setattr(losses, "ROWS", 1)
    monkeypatch.setattr(losses, "NEAR", 101 * 7)  # six pieces
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

    _, truth = gone_through(losses.defined_loss, torch.float64, short=False)
    way, fast = gone_through(losses.word_loss, torch.float32, short=True)
    _, slow = gone_through(losses.defined_loss, torch.float32, short=True)
    assert way == "CostsBackward"
    for true, one, other in zip(truth, fast, slow, strict=True):
        assert one.dtype == torch.float32
        most = max(1.5 * (other - true).norm(), 2**-9 * true.norm())  # what rounding a number once may do
        assert (one - true).norm() <= most


def test_matrices_turned_by_short_products_are_turned():
    torch.manual_seed(0)
    one, _, other = torch.linalg.svd(torch.randn(3, 24, 40), full_matrices=False)
    turned = orthogonal(one @ torch.logspace(-1.5, 0, 24).diag() @ other, SHORT)
    assert turned.dtype == torch.float32
    values = one.mT @ turned @ other.mT
    diagonal = values.diagonal(dim1=1, dim2=2)
    assert (diagonal > 0.6).all()
    assert (diagonal < 1.25).all()
    assert (values - torch.diag_embed(diagonal)).abs().max() < 0.1


@pytest.mark.parametrize("task", ["translate", "label"])
def test_a_short_run_that_stops_goes_on_bit_for_bit(home, task):
    told = {"optimizer": "muon", "precision": "bfloat16", "average": 0.9}
    list(run(ready(home, task, **told), home / "calm"))
    for steps in (3, 0):
        list(run(ready(home, task, **told, max_steps=steps), home / "stopped"))
    assert left(home / "calm") == left(home / "stopped")


def test_short_steps_go_where_long_ones_go(home):
    """All weights together, though single ones of hardly any gradient may go another way."""
    moved = []
    for name in ("float32", "bfloat16"):
        one = learner(home, "translate", precision=name, warmup=0.0, clip=0.0)
        before = {key: p.detach().clone() for key, p in one.learnt.items()}
        one.step()
        moved.append(torch.cat([(p.detach() - before[key]).flatten() for key, p in one.learnt.items()]))
    assert torch.cosine_similarity(moved[0], moved[1], dim=0) > 0.9


@pytest.mark.parametrize(
    ("flags", "able"),
    [("fpu avx2 avx512f avx512_bf16", True), ("fpu amx_bf16 amx_tile", True), ("fpu avx avx2 avx512f", False)],
)
def test_a_processor_tells_what_it_multiplies(tmp_path, flags, able):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="utf-8")
    assert multiplies_short(tmp_path / "cpuinfo") is able
    assert multiplies_short(tmp_path / "none") is None


@pytest.mark.parametrize(("able", "chosen"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_auto_takes_what_the_processor_can(monkeypatch, able, chosen):
    monkeypatch.setattr(precision, "multiplies_short", lambda: able)
    assert settled(Config(precision="auto", device="cpu")).precision == chosen
    for named in ("float32", "bfloat16"):
        assert settled(Config(precision=named)).precision == named


@pytest.mark.parametrize("able", [True, False])
def test_a_learner_that_is_built_by_hand_settles_it_too(home, monkeypatch, able):
    monkeypatch.setattr(precision, "multiplies_short", lambda: able)
    made = ready(home)
    one = Learner(made.model, made.task, made.feed(), Config(precision="auto", device="cpu", optimizer="muon"))
    assert one.config.precision == ("bfloat16" if able else "float32")
    assert one.optimizer.products == (SHORT if able else None)


def test_a_graphics_card_that_only_imitates_short_numbers_gets_long_ones(monkeypatch):
    monkeypatch.setattr(precision, "alone", lambda device: SimpleNamespace(device=torch.device("cuda")))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert settled(Config(precision="auto")).precision == "float32"


def test_a_run_is_what_it_was_begun_with_and_another_processor_is_told_so(home, monkeypatch):
    monkeypatch.setattr(precision, "multiplies_short", lambda: True)
    made = ready(home, precision="auto", max_steps=2, device="cpu")
    assert made.said[-1].startswith("products in bfloat16")
    list(run(made, home / "out"))
    monkeypatch.setattr(precision, "multiplies_short", lambda: False)
    with pytest.raises(Refused, match=r"was 'bfloat16' and is 'float32'\. --train\.precision bfloat16 goes on"):
        list(run(ready(home, precision="auto", device="cpu"), home / "out"))
    list(run(ready(home, precision="bfloat16", device="cpu"), home / "out"))

"""What every line of `FAMILIES` keeps: names both ways, files both ways, training, shapes without memory, looks, decoding."""

import re
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from saccade.attention import watch
from saccade.data import Audio, Batch, Features, Image, Text
from saccade.decoding import teacher_forced_logits
from saccade.models.build import new
from saccade.models.capabilities import Modality
from saccade.models.load import load
from saccade.models.registry import AUTOREGRESSIVE_MODELS, FAMILIES
from saccade.models.weight_map import to_ours, to_theirs
from saccade.tasks.losses import seq2seq_loss

VOCAB = 23
READ = {"vocab": VOCAB, "width": 12, "layers": 2, "heads": 3, "ffn_width": 17, "max_positions": 16, "dropout": 0.0}
PAIR = READ | {"decoder_layers": 2, "decoder_heads": 3, "decoder_ffn_width": 17, "decoder_start_id": 2}
SEE = {"width": 12, "layers": 1, "heads": 3, "ffn_width": 17, "dropout": 0.0}
SEEN = SEE | {"vocab": VOCAB, "image_size": 12, "cell_size": 4}
CAPTION = SEEN | {"width": 48, "max_positions": 16}
SIZES = {
    "rnn": {"vocab": VOCAB, "width": 12, "dropout": 0.0},
    "rnn_lm": {"vocab": VOCAB, "width": 12, "layers": 2, "dropout": 0.0},
    "rnn_encoder": {"vocab": VOCAB, "width": 12, "layers": 2, "dropout": 0.0},
    "transformer": READ,
    "transformer_lm": READ,
    "transformer_encoder": READ,
    "bert": READ,
    "roberta": READ,
    "xlm_roberta": READ,
    "camembert": READ,
    "distilbert": READ | {"label_dropout": 0.0, "span_dropout": 0.0},
    "electra": READ | {"embedding_width": 5},
    "longformer": READ | {"attention_windows": (4,)},
    "bigbird": READ | {"block_size": 1, "random_blocks": 1},
    "linformer": READ | {"rank": 5},
    "reformer": READ | {"hash_buckets": 2, "max_bucket_distance": 3},
    "gpt2": READ,
    "llama": READ | {"heads": 6, "head_width": 2, "kv_heads": 2},
    "mistral": READ | {"heads": 6, "head_width": 2, "kv_heads": 2} | {"sliding_window": 4},
    "qwen2": READ | {"heads": 6, "head_width": 2, "kv_heads": 2},
    "qwen3": READ | {"heads": 6, "head_width": 2, "kv_heads": 2},
    "gpt_neox": READ | {"rotary_fraction": 0.5},
    "gemma3": READ
    | {
        "heads": 6,
        "head_width": 2,
        "kv_heads": 2,
        "sliding_window": 4,
        "full_attention_every": 2,
        "attention_scale_width": 3,
    },
    "t5": {k: v for k, v in READ.items() if k != "max_positions"}
    | {"head_width": 4, "relative_buckets": 8, "max_relative_distance": 16},
    "bart": PAIR,
    "marian": PAIR,
    "marian_ssru": SEE | {"vocab": VOCAB, "layers": 2, "decoder_layers": 2},
    "vit": SEE | {"image_height": 12, "patch_size": 4},
    "senet": {"width": 12, "stages": 2, "blocks_per_stage": 1, "se_reduction": 2},
    "speech_encoder": SEE | {"vocab": VOCAB, "mels": 12, "channels": 3},
    "listen_attend_spell": {"vocab": VOCAB, "mels": 12, "channels": 3, "width": 12, "dropout": 0.0},
    "speech_transformer": SEE | {"vocab": VOCAB, "mels": 12, "channels": 3, "max_positions": 16},
    "captioner_rnn": CAPTION,
    "captioner_transformer": CAPTION,
    "captioner_vit": CAPTION,
    "dalle": SEEN | {"max_positions": 8, "codebook_size": 7, "code_width": 5},
    "kernel_regression": {"points": 7, "features": 3, "outputs": 2},
}
TINY = {family.name: family.config_class(**SIZES[family.name]) for family in FAMILIES}
FROM_CODES = {"dalle": VOCAB + 1}  # the first token that it may write


UNREACHED = [  # (which model, which parameters), as patterns
    (".*", r".*key\.bias"),  # softmax does not notice it
    ("dalle-.*", r"body\.autoencoder\..*"),  # trained before, and then left as it is
    ("longformer-label", r"body\.stack\.layers\.1\.attention\.branch\.near\..*"),  # the first token looks far only
    ("longformer-(lm|tag)", r"body\..*\.far\..*"),  # no token of theirs is global
    ("(listen_attend_spell|speech_transformer)-ctc", r"head\..*"),  # it scores what the decoder attends to
    ("vit-pixels", r"head\.mask"),  # stands where patches are hidden, and here none is
]


def names(family):
    return family.name


def reads(family):
    return family.capabilities(TINY[family.name]).input


TEXTS = [family for family in FAMILIES if reads(family) is Modality.TEXT]


def is_writer(family):
    with torch.device("meta"):
        return hasattr(family.build(TINY[family.name]), "start")


READERS = [family for family in FAMILIES if not is_writer(family)]
WRITERS = [family for family in FAMILIES if is_writer(family)]
HEADED = [pytest.param(f, head, id=f"{f.name}-{head or 'body'}") for f in FAMILIES for head in (None, *f.heads)]


def numbers(*shape, low=3, high=VOCAB, seed=2):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def example(family, length=7):
    """Two inputs, and what could be written for them."""
    first = FROM_CODES.get(family.name, 3)
    high = first + 7 if family.name in FROM_CODES else VOCAB
    written = Text(numbers(2, 6, low=first, high=high, seed=4))
    if reads(family) is Modality.IMAGE:
        pixels = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(3), dtype=torch.get_default_dtype())
        return Batch(Image(pixels), written)
    if reads(family) is Modality.AUDIO:
        frames = torch.rand(2, 13, 12, generator=torch.Generator().manual_seed(3), dtype=torch.get_default_dtype())
        return Batch(Audio(frames), written)
    if family.name == "kernel_regression":
        return Batch(Features(numbers(2, 3).to(torch.get_default_dtype()) / VOCAB + 8.5), written)
    return Batch(Text(numbers(2, length)), written)


def uneven_rows(family):
    """Two inputs of unequal length where they may have one, and each of them alone."""
    if reads(family) is Modality.TEXT:
        rows = [numbers(7).tolist(), numbers(4, seed=5).tolist()]
        return Batch(Text.pad(rows)), [Batch(Text.pad([row])) for row in rows]
    source = example(family).source
    if isinstance(source, Audio):
        source = Audio.pad([source.frames[0], source.frames[1, :6]])
    return Batch(source), [Batch(source.row(index)) for index in range(2)]


def answer(model, batch):
    """What it makes of a batch: vectors, a head's answers, or the scores of what is written."""
    return teacher_forced_logits(model, batch) if hasattr(model.body, "start") else model(batch)


@contextmanager
def doubled():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def double():
    with doubled():
        yield


def rough(family, head=None):
    """In evaluation, with weights large enough that every path matters."""
    torch.manual_seed(1)
    model = new(family, TINY[family.name], head=head, labels=("a", "b", "c")).to(torch.get_default_dtype()).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.3)
    return remembering(model)


def remembering(model):
    """Kernel pooling has nothing to say before it has data."""
    if model.family.name == "kernel_regression":
        model.body.fit(torch.randn(7, 3) + 9, torch.randn(7, 2))
    return model


def test_every_family_has_a_tiny_config():
    assert SIZES.keys() == {family.name for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_a_family_generates_if_and_only_if_its_body_has_the_typed_protocol(family):
    """The type checker holds the classes of AUTOREGRESSIVE_MODELS to the protocol that `Model` and `FastModel` call."""
    with torch.device("meta"):
        body = family.new_body(TINY[family.name])
    assert isinstance(body, AUTOREGRESSIVE_MODELS) == family.capabilities(TINY[family.name]).is_autoregressive


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_names_lead_both_ways(family, head):
    """Each tensor of ours has one published name, and comes back from it."""
    if family.weight_map is None:
        assert not any(entry.weight_map or entry.architecture for entry in family.heads.values())
        return
    model = rough(family, head)
    parts = [(model.body, family.weight_map(model.config))] + (
        [] if head is None else [(model.head, family.heads[head].weight_map)]
    )
    for part, lines in parts:
        ours = dict(part.named_parameters()) | dict(part.named_buffers())
        if part is model.head:  # what it shares with the body goes out with the body
            ours = {n: p for n, p in ours.items() if all(p is not other for other in model.body.parameters())}
        back = to_ours(to_theirs(ours, lines), lines)
        assert not back.unmapped
        assert back.tensors.keys() == ours.keys()
        assert all(torch.equal(back.tensors[name], x) for name, x in ours.items())


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_saved_and_loaded_it_answers_the_same(family, head, tmp_path):
    model = rough(family, head)
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert (again.head_name, again.labels, again.config) == (model.head_name, model.labels, model.config)
    assert not again.report.missing
    assert not again.report.unexpected
    weights = again.state_dict()
    assert all(torch.equal(weights[name], x) for name, x in model.state_dict().items())
    with doubled(), torch.no_grad():  # where a tensor lies in memory may move the last bit of a sum
        batch = example(family)
        wanted = answer(model.double(), batch)
        assert_close(answer(again.double(), batch), wanted, rtol=1e-10, atol=1e-12)
    assert wanted[wanted.isfinite()].std() > 0.01  # something is being compared


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_one_step_of_training_moves_everything(family, head, double):
    """Every parameter that an answer depends on, which is every one but those of UNREACHED."""
    torch.manual_seed(1)
    model = remembering(new(family, TINY[family.name], head=head, labels=3).double().train())
    batch = example(family)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scores = answer(model, batch)
    if hasattr(model.body, "start"):
        loss = F.cross_entropy(scores.flatten(0, 1), batch.target.tokens.flatten())
    else:
        loss = (scores * torch.randn(scores.shape, generator=torch.Generator().manual_seed(5))).sum()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loss.backward()
    assert loss.isfinite()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    expected = [pattern for who, pattern in UNREACHED if re.fullmatch(who, f"{family.name}-{head}")]
    for name in before.keys() - reached:
        assert any(re.fullmatch(pattern, name) for pattern in expected), name
    optimizer.step()
    for name, p in model.named_parameters():
        assert p.isfinite().all(), name
        assert torch.equal(p, before[name]) != (name in reached), name


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_short_products_answer_nearly_as_long_ones(family, head):
    """Forward and back under autocast, as train.precision bfloat16 does it; T5, which scales no scores, is the least near."""
    torch.manual_seed(1)
    model = remembering(new(family, TINY[family.name], head=head, labels=("a", "b", "c")).eval())
    batch, found = example(family), []
    for short in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=short):
            scores = answer(model, batch)
        real = scores.float().masked_fill(~scores.isfinite(), 0.0)
        (real * torch.randn(real.shape, generator=torch.Generator().manual_seed(5))).sum().backward()
        slopes = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        found.append((real.detach(), torch.cat(slopes)))
    for long, short in zip(*found, strict=True):
        assert (short - long).norm() < 0.1 * long.norm()


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_shapes_need_no_memory(family, head):
    with torch.device("meta"):
        model = new(family, TINY[family.name], head=head, labels=3).eval()
    assert answer(model, example(family).to("meta")).shape == answer(rough(family, head), example(family)).shape
    assert {p.device.type for p in model.parameters()} == {"meta"}


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.name != "kernel_regression"], ids=names
)  # which draws nothing
def test_the_same_seed_gives_the_same_weights(family):
    one, same, other = [], [], []
    for seed, found in ((1, one), (1, same), (2, other)):
        torch.manual_seed(seed)
        found.extend(new(family, TINY[family.name]).parameters())
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_every_look_is_seen(family):
    """Each part that can be watched is seen when it looks, and what it answers stays as it is, bit for bit."""
    model, batch = rough(family), example(family)
    eyes = {name for name, part in model.named_modules() if hasattr(part, "watcher")}
    inside = {name for name in eyes for other in eyes if name.startswith(f"{other}.")}  # seen with what holds it
    eyes -= inside
    assert eyes
    with torch.no_grad():
        plain = answer(model, batch)
        with watch(model) as looks:
            watched = answer(model, batch)
    assert torch.equal(plain, watched)
    assert {look.name for look in looks} == eyes
    for look in looks:
        assert look.weights.isfinite().all(), look.name
        assert look.weights.any(), look.name


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("family", TEXTS, ids=names)
def test_padding_does_not_matter(family, left, double):
    model, batch = rough(family), example(family)
    rows = [numbers(7).tolist(), numbers(4, seed=5).tolist()]
    text = Text.pad(rows, pad_left=left)
    together = answer(model, Batch(text, batch.target))
    for i, row in enumerate(rows):
        alone = answer(model, Batch(Text(torch.tensor([row])), Text(batch.target.tokens[i : i + 1])))[0]
        mine = together[i] if family in WRITERS else together[i][text.keep[i]]
        assert_close(mine, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("family", "head"), [pair for pair in HEADED if reads(pair.values[0]) is Modality.AUDIO])
def test_padding_of_sounds_does_not_matter(family, head, double):
    model, batch = rough(family, head), example(family)
    rows = [torch.rand(length, 12, generator=torch.Generator().manual_seed(length)).double() for length in (13, 6, 9)]
    sound = Audio.pad(rows)
    sound.frames = torch.where(sound.keep[..., None], sound.frames, 7.0)
    written = Text(batch.target.tokens[[0, 1, 0]])
    together, kept = answer(model, Batch(sound, written)), model.output_keep(sound)
    for i, row in enumerate(rows):
        alone = answer(model, Batch(Audio(row[None]), Text(written.tokens[i : i + 1])))[0]
        mine = together[i] if family in WRITERS or head == "label" else together[i][kept[i]]
        assert_close(mine, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_step_by_step_equals_all_at_once(family, double):
    model, batch = rough(family), example(family)
    whole, tokens = answer(model, batch), batch.target.tokens
    state, first = model.start(batch)
    parts = [model.step(first, state)[:, -1:]]
    parts += [model.step(Text(tokens[:, a:b]), state) for a, b in ((0, 1), (1, 4), (4, 5))]
    assert_close(torch.cat(parts, dim=1), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", READERS, ids=names)
def test_a_head_of_another_family_is_refused_by_name(family):
    with pytest.raises(ValueError, match=f"{family.name} has no head 'tail'; known are (.*label|none)"):
        new(family, TINY[family.name], head="tail")


def spread_of(model, end):
    return torch.cat([p.detach().flatten() for n, p in model.named_parameters() if n.endswith(end)])


def test_new_weights_are_as_published():
    """By the formulas of the papers, on matrices large enough for a spread to be measured."""
    torch.manual_seed(0)
    gpt2_sizes = replace(TINY["gpt2"], width=96, ffn_width=200, layers=8)
    decoder = new("gpt2", gpt2_sizes)
    assert spread_of(decoder, "query.weight").std() == pytest.approx(0.02, rel=0.02)
    assert spread_of(decoder, "branch.output.weight").std() == pytest.approx(0.02 / 4, rel=0.02)  # √(2 · 8) = 4
    assert spread_of(decoder, "branch.down.weight").std() == pytest.approx(0.02 / 4, rel=0.02)
    assert not spread_of(decoder, "output.bias").any()
    encoder = new("bert", replace(TINY["bert"], width=96, ffn_width=200), head="label")
    for end in ("words.vectors.weight", "query.weight", "down.weight", "between.0.weight"):
        assert spread_of(encoder, end).std() == pytest.approx(0.02, rel=0.05)
    assert (spread_of(encoder, "norm.weight") == 1).all()
    both = new("t5", replace(TINY["t5"], width=96, ffn_width=200, heads=6, head_width=16))
    assert spread_of(both, "words.vectors.weight").std() == pytest.approx(1.0, rel=0.05)
    assert spread_of(both, "query.weight").std() == pytest.approx((96 * 16) ** -0.5, rel=0.02)
    assert spread_of(both, "key.weight").std() == pytest.approx(96**-0.5, rel=0.02)
    assert spread_of(both, "branch.down.weight").std() == pytest.approx(200**-0.5, rel=0.02)


@pytest.mark.parametrize("family", [family for family in WRITERS if family.name not in FROM_CODES], ids=names)
def test_a_writer_learns_from_the_scores_that_it_writes_by(family, double):
    """The loss on its fast path against `step`; a painter has a loss of its own."""
    model, batch = rough(family).train(), example(family)
    found = seq2seq_loss(model, batch, 0.1)
    wanted = F.cross_entropy(
        answer(model, batch).flatten(0, 1), batch.target.tokens.flatten(), reduction="sum", label_smoothing=0.1
    )
    assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    learnt = [p for p in model.parameters() if p.requires_grad]
    both = [torch.autograd.grad(loss, learnt, allow_unused=True) for loss in (found, wanted)]
    assert any(g is not None and g.abs().sum() > 0 for g in both[1])
    for ours, theirs in zip(*both, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_close(ours, theirs, rtol=1e-8, atol=1e-10)

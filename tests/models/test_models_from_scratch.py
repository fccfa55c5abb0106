"""Models without a published twin: they learn eight examples by heart, and one token at a time equals all at once."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from saccade.attention import MECHANISMS, Additive, record_draws, reinforce_loss, watch
from saccade.data import Batch, Image, Text
from saccade.decoding import generate, teacher_forced_logits
from saccade.models.build import new
from saccade.models.families import captioner, dalle, rnn, transformer, vit
from saccade.parts.position import POSITIONS
from saccade.parts.recurrent import Recurrent
from saccade.vision import vqvae

VOCAB, STOP = 13, 2
RNN = rnn.Config(vocab=VOCAB, width=32, dropout=0.0)
TRANSFORMER = transformer.Config(vocab=VOCAB, width=32, layers=1, heads=2, ffn_width=64, max_positions=24, dropout=0.0)
CAPTIONER = captioner.Config(
    vocab=VOCAB,
    width=32,
    layers=1,
    heads=2,
    ffn_width=64,
    max_positions=12,
    image_size=16,
    cell_size=4,
    block_type="plain",
    dropout=0.0,
)
PAINTER = dalle.Config(
    vocab=VOCAB,
    width=32,
    layers=1,
    heads=2,
    ffn_width=64,
    max_positions=8,
    image_size=12,
    cell_size=4,
    codebook_size=16,
    code_width=8,
    dropout=0.0,
)
LUONG = replace(RNN, decoder="luong", mechanism="bilinear")

LANGUAGE = {
    "lstm": (rnn.RNNLanguageModel, RNN),
    "gru, two layers, tied": (rnn.RNNLanguageModel, replace(RNN, cell="gru", layers=2, tie_embeddings=True)),
    "transformer's decoder": (transformer.TransformerLanguageModel, TRANSFORMER),
}
TRANSLATE = {
    "sutskever": (rnn.RNNTranslator, replace(RNN, decoder="sutskever", bidirectional=False)),
    "bahdanau": (rnn.RNNTranslator, RNN),
    "bahdanau, gru, two layers, tied": (
        rnn.RNNTranslator,
        replace(RNN, cell="gru", layers=2, tie_embeddings=True),
    ),
    "luong, bilinear": (rnn.RNNTranslator, LUONG),
    "luong, dot": (rnn.RNNTranslator, replace(LUONG, mechanism="dot", bidirectional=False, layers=2)),
    "luong, scaled dot, fed": (rnn.RNNTranslator, replace(LUONG, mechanism="scaled_dot", input_feeding=True)),
    "transformer": (transformer.build_encoder_decoder, TRANSFORMER),
    "transformer, norm after, untied": (
        transformer.build_encoder_decoder,
        replace(TRANSFORMER, norm_first=False, tie_embeddings=False),
    ),
}
CAPTION = {
    "spatial, soft": (captioner.RNNCaptioner, CAPTIONER),
    "spatial, hard": (captioner.RNNCaptioner, replace(CAPTIONER, hard_attention=True)),
    "convolutions and transformer": (captioner.build_conv_captioner, replace(CAPTIONER, block_type="residual")),
    "patches": (captioner.build_vit_captioner, CAPTIONER),
}
PAINT = {"dalle": (dalle.DallE, PAINTER)}
WRITERS = LANGUAGE | TRANSLATE | CAPTION | PAINT
READ_TEXT = LANGUAGE | TRANSLATE | PAINT


def build(name):
    torch.manual_seed(1)
    make, config = WRITERS[name]
    return make(config)


def rough(name):
    """In double precision and evaluation, with weights large enough that every path matters."""
    model = build(name).double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def numbers(*shape, seed=2, low=3, high=VOCAB):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def source(name, rows=2, length=5):
    if name in CAPTION:
        return Image(torch.rand(rows, 3, 16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
    return Text(numbers(rows, length))


def written(name, rows=2, length=7):
    """Tokens that the model could have written."""
    first = VOCAB + 1 if name in PAINT else 3
    return numbers(rows, length, seed=4, low=first, high=first + 10)


@pytest.mark.parametrize("name", WRITERS)
def test_one_at_a_time_equals_all_at_once(name):
    model, tokens = rough(name), written(name)
    whole = teacher_forced_logits(model, Batch(source(name), Text(tokens)))
    state, first = model.start(Batch(source(name)))
    parts = [model.step(first, state)[:, -1:]]
    parts += [model.step(Text(tokens[:, a:b]), state) for a, b in ((0, 1), (1, 4), (4, 5), (5, 6))]
    assert_close(torch.cat(parts, dim=1), whole, rtol=1e-9, atol=1e-9)
    assert whole[whole.isfinite()].std() > 0.1  # something is being compared


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("name", READ_TEXT)
def test_padding_of_the_source_changes_nothing(name, left):
    model, tokens = rough(name), written(name)
    rows = [numbers(5).tolist(), numbers(3, seed=5).tolist()]
    together = teacher_forced_logits(model, Batch(Text.pad(rows, pad_left=left), Text(tokens)))
    for i, row in enumerate(rows):
        alone = teacher_forced_logits(model, Batch(Text(torch.tensor([row])), Text(tokens[i : i + 1])))
        assert_close(together[i], alone[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WRITERS)
def test_padding_of_what_is_written_is_not_remembered(name):
    """A row that waits for two steps goes on as if it had not."""
    model, tokens = rough(name), written(name)
    whole = teacher_forced_logits(model, Batch(source(name), Text(tokens)))
    state, first = model.start(Batch(source(name)))
    model.step(first, state)
    model.step(Text(tokens[:, :2]), state)
    keep = torch.tensor([[True, True], [False, False]])
    model.step(Text(tokens[:, 2:4], keep), state)
    wait = torch.stack([tokens[0, 4:6], tokens[1, 2:4]])
    scores = model.step(Text(wait), state)
    assert_close(scores[0], whole[0, 5:7], rtol=1e-9, atol=1e-9)
    assert_close(scores[1], whole[1, 3:5], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WRITERS)
def test_watching_changes_nothing(name):
    model, batch = rough(name).float(), Batch(source(name), Text(written(name)))
    if isinstance(batch.source, Image):
        batch.source = Image(batch.source.pixels.float())
    plain = teacher_forced_logits(model, batch)
    with watch(model) as looks:
        watched = teacher_forced_logits(model, batch)
    assert torch.equal(plain, watched)
    assert looks
    for look in looks:
        assert look.weights.isfinite().all()
        if "head" in look.axes:
            total = look.weights.flatten(3).sum(-1)
            assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", WRITERS)
def test_requests_join_and_change_places(name):
    """Two texts that began apart go on together, in the other order."""
    model, tokens = rough(name), written(name)
    sources = [source(name, rows=1, length=n) for n in (5, 3)]
    states = []
    for i, one in enumerate(sources):
        state, first = model.start(Batch(one))
        model.step(first, state)
        model.step(Text(tokens[i : i + 1, : 2 + i]), state)  # the second is ahead by a word
        states.append(state)
    states[0].append_rows(states[1])
    states[0].reorder(torch.tensor([1, 0]))
    scores = model.step(Text(torch.stack([tokens[1, 3:5], tokens[0, 2:4]])), states[0])
    for row, i, at in ((0, 1, 4), (1, 0, 3)):
        alone = teacher_forced_logits(model, Batch(sources[i], Text(tokens[i : i + 1])))
        assert_close(scores[row], alone[0, at : at + 2], rtol=1e-9, atol=1e-9)


def test_gates_and_looks_of_a_recurrent_translator():
    model = rough("bahdanau")
    with watch(model) as looks:
        teacher_forced_logits(model, Batch(source("bahdanau"), Text(written("bahdanau"))))
    shapes = {look.name: (look.axes, tuple(look.weights.shape)) for look in looks}
    assert shapes == {
        "encoder.layers.layers.0": (("batch", "time", "gate", "unit"), (2, 5, 3, 32)),
        "decoder.body.across.mechanism": (("batch", "head", "query", "key"), (2, 1, 1, 5)),
        "decoder.body.layers.layers.0": (("batch", "time", "gate", "unit"), (2, 1, 3, 32)),
    }


@pytest.mark.parametrize("name", ["spatial, soft", "spatial, hard"])
def test_looks_of_a_captioner_lie_on_the_grid(name):
    model = rough(name)
    with watch(model, "*across*") as looks:
        generate(model, Batch(source(name)), stop_ids=None, max_new_tokens=3)
    assert len(looks) == 3
    for look in looks:
        assert look.axes == ("batch", "head", "query", "row", "column")
        assert look.weights.shape == (2, 1, 1, 4, 4)
        assert (look.weights.amax((-2, -1)) == 1).all() == (name == "spatial, hard")


def test_keys_of_the_memory_are_made_once_and_score_as_defined():
    model = rough("bahdanau")
    across, calls, wanted = model.decoder.body.across, [], Additive(32).double()
    across.key.register_forward_hook(lambda *_: calls.append(1))
    batch = Batch(Text(numbers(2, 5)))
    with watch(model, "*across*") as looks:
        generate(model, batch, stop_ids=None, max_new_tokens=6)
    assert len(calls) == 1
    wanted.load_state_dict(
        across.mechanism.state_dict() | {"key." + name: x for name, x in across.key.state_dict().items()}
    )
    state, _ = model.start(batch)
    q = state.at("layers.0").get("h")[:, None, None]
    scores = wanted.scores(q, state.get("memory")[:, None])
    assert_close(looks[0].weights, scores.softmax(-1))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_single_step_with_padding_equals_the_cell(cell, both):
    module, x = Recurrent(5, 4, cell, bidirectional=both).double(), torch.randn(3, 1, 5).double()
    start = tuple(torch.randn(3, 4).double() for _ in range(module.state_count))
    keep = torch.tensor([[True], [False], [True]])
    wanted, end, _ = module.forward_reference(x, keep, start)
    out, last = module._forward_fused(x, keep, start)
    assert_close(out, wanted)
    for a, b in zip(last, end, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("make", [rnn.RNNEncoder, transformer.TransformerEncoder])
def test_readers_ignore_padding(make, left):
    model = make(RNN if make is rnn.RNNEncoder else TRANSFORMER).double().eval()
    rows = [numbers(5).tolist(), numbers(3, seed=5).tolist()]
    text = Text.pad(rows, pad_left=left)
    out = model(Batch(text))
    assert out.shape == (2, 5, model.width)
    for i, row in enumerate(rows):
        alone = model(Batch(Text(torch.tensor([row]))))[0]
        assert_close(out[i, text.keep[i]], alone, rtol=1e-9, atol=1e-9)


FAMILIES = [
    *(rnn.FAMILY, rnn.LM_FAMILY, rnn.ENCODER_FAMILY),
    *(transformer.FAMILY, transformer.LM_FAMILY, transformer.ENCODER_FAMILY),
    *(captioner.FAMILY, captioner.TRANSFORMER_FAMILY, captioner.VIT_FAMILY, dalle.FAMILY),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families_are_built_from_their_defaults(family):
    with torch.device("meta"):
        model = family.build(family.config_class())
    assert family.weight_map is None  # nothing is published under these names
    assert (hasattr(model, "start") and hasattr(model, "step")) != family.name.endswith("encoder")
    assert model.width == 256
    assert 2e6 < sum(p.numel() for p in model.parameters()) < 2e7  # sizes that two cores can train


# the transformer by name

STEPPING = [entry.name for entry in MECHANISMS if {"causal", "incremental"} <= entry.supports]


@pytest.mark.parametrize(
    ("mechanism", "position"),
    [(name, "sinusoidal") for name in STEPPING] + [("scaled_dot", entry.name) for entry in POSITIONS],
)
def test_any_mechanism_and_any_position_by_name(mechanism, position):
    torch.manual_seed(1)
    config = replace(TRANSFORMER, mechanism=mechanism, position=position, tie_embeddings=position != "concat")
    model = transformer.build_encoder_decoder(config).double().eval()
    batch = Batch(Text(numbers(2, 5)), Text(numbers(2, 6, seed=4)))
    whole = teacher_forced_logits(model, batch)
    state, text = model.start(batch)
    parts = [model.step(text, state)]
    parts += [model.step(Text(batch.target.tokens[:, t : t + 1]), state) for t in range(5)]
    assert_close(torch.cat(parts, dim=1), whole, rtol=1e-9, atol=1e-9)
    reader = transformer.TransformerEncoder(config).eval()
    assert reader(batch).shape == (2, 5, reader.width)


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="low_rank does not support causal attention"):
        transformer.build_encoder_decoder(replace(TRANSFORMER, mechanism="low_rank"))
    assert transformer.TransformerEncoder(replace(TRANSFORMER, mechanism="low_rank"))(
        Batch(Text(numbers(2, 5)))
    ).shape == (
        2,
        5,
        32,
    )
    with pytest.raises(ValueError, match="Concatenated positions widen the output"):
        transformer.build_encoder_decoder(replace(TRANSFORMER, position="concat"))
    with pytest.raises(ValueError, match=r"lsh does not support cross-attention.*additive"):
        rnn.RNNTranslator(replace(RNN, mechanism="lsh"))
    with pytest.raises(ValueError, match="known are sutskever, bahdanau, luong"):
        rnn.RNNTranslator(replace(RNN, decoder="cho"))
    with pytest.raises(ValueError, match="width must be even for a bidirectional encoder; got 31"):
        rnn.RNNEncoder(replace(RNN, width=31))
    with pytest.raises(ValueError, match=r"power of two.*got 6"):
        captioner.RNNCaptioner(replace(CAPTIONER, image_size=12, cell_size=6))
    with pytest.raises(ValueError, match="cell_size 5 does not divide image_size 16"):
        captioner.build_vit_captioner(replace(CAPTIONER, cell_size=5))
    with pytest.raises(ValueError, match="16 x 16 pixels; got 8 x 16"):
        build("patches").start(Batch(Image(torch.rand(1, 3, 8, 16))))
    with pytest.raises(ValueError, match="cell_size 5 does not divide image_size"):
        dalle.DallE(replace(PAINTER, cell_size=5))
    with pytest.raises(ValueError, match="known are gumbel, nearest"):
        dalle.DallE(replace(PAINTER, quantizer="first"))


# learning


def loss_of(model, batch):
    """The mean over real tokens of the target."""
    scores, target = teacher_forced_logits(model, batch), batch.target
    each = F.cross_entropy(scores.flatten(0, 1), target.tokens.flatten(), reduction="none").view_as(target.tokens)
    return each.mean() if target.keep is None else each[target.keep].mean()


def down(model, optimizer, loss):
    """One step of learning."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def learn(model, batch, steps=300, rate=5e-3, enough=0.02):
    """Adam on one batch until it is known by heart; with a warm-up, which a norm after the branch needs."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 30)
        loss = loss_of(model.train(), batch)
        down(model, optimizer, loss)
        if loss.item() < enough:
            break
    model.eval()


def texts(rows=8):
    """Texts of three to six words, and what is to be written after them."""
    lengths = [3 + i % 4 for i in range(rows)]
    return [numbers(n, seed=10 + i).tolist() for i, n in enumerate(lengths)]


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models_learn_eight_texts(name):
    model, rows = build(name), texts()
    sources = [[i + 3] for i in range(8)]  # a first word for each
    batch = Batch(Text.pad(sources), Text.pad([[*row, STOP] for row in rows]))
    learn(model, batch)
    assert generate(model, batch, stop_ids=STOP, max_new_tokens=9) == rows


@pytest.mark.parametrize("name", TRANSLATE)
def test_translators_learn_eight_reversals(name):
    model, rows = build(name), texts()
    wanted = [row[::-1] for row in rows]
    batch = Batch(Text.pad(rows, pad_left=True), Text.pad([[*row, STOP] for row in wanted]))
    learn(model, batch)
    assert generate(model, batch, stop_ids=STOP, max_new_tokens=9) == wanted
    assert generate(model, Batch(Text.pad(rows)), stop_ids=STOP, max_new_tokens=9) == wanted


def pictures(rows=8, size=16):
    return torch.rand(rows, 3, size, size, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("name", [name for name in CAPTION if "hard" not in name])
def test_captioners_learn_eight_pictures(name):
    model, rows = build(name), texts()
    batch = Batch(Image(pictures()), Text.pad([[*row, STOP] for row in rows]))
    learn(model, batch)
    assert generate(model, batch, stop_ids=STOP, max_new_tokens=9) == rows


def test_hard_attention_learns_from_reward():
    """The draws have no gradient: what moves the look is the reward, here the probability of the caption."""
    model, rows = build("spatial, hard"), texts()
    batch = Batch(Image(pictures()), Text.pad([[*row, STOP] for row in rows]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    target, keep, baseline = batch.target.tokens, batch.target.keep, 0.0
    for _ in range(150):
        with record_draws(model.train()) as log:
            scores = teacher_forced_logits(model, batch)
        each = F.cross_entropy(scores.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
        likely = -(each * keep).sum(1)
        assert len(log) == target.size(1)  # one draw for each word
        down(model, optimizer, -likely.mean() + reinforce_loss(log, likely.detach(), baseline))
        mean = likely.mean().item()
        baseline = 0.9 * baseline + 0.1 * mean
        if mean > -0.05:
            break
    assert model.decoder.body.across.key.weight.grad.abs().sum() > 0  # reached by reward alone
    assert generate(model.eval(), batch, stop_ids=STOP, max_new_tokens=9) == rows


def test_bahdanau_aligns_a_reversal_along_the_anti_diagonal():
    """What is written at step t stands at L - 1 - t in the source, and that is where the model looks."""
    torch.manual_seed(1)
    vocab, length, steps = 83, 8, 220
    # many words for a narrow state: it cannot carry the text by itself, so it has to look
    model = rnn.RNNTranslator(replace(RNN, vocab=vocab, bidirectional=False))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        rows = torch.randint(3, vocab, (32, length))
        down(model, optimizer, loss_of(model.train(), Batch(Text(rows), Text(rows.flip(1)))))
    rows = numbers(16, length, seed=99, high=vocab)  # not seen in training
    with watch(model.eval(), "*across*") as looks:
        wrote = generate(model, Batch(Text(rows)), stop_ids=None, max_new_tokens=length)
    assert (torch.tensor(wrote) == rows.flip(1)).float().mean() > 0.95
    weights = torch.cat([look.weights[:, 0] for look in looks], dim=1)  # (B, steps, source)
    assert (weights.argmax(2) == torch.arange(length).flip(0)).float().mean() > 0.95
    assert weights.flip(2).diagonal(dim1=1, dim2=2).mean() > 0.65  # an even look would have 1/8


# the painter and its codes


@pytest.mark.parametrize("choice", ["gumbel", "nearest"])
def test_painter_learns_eight_pictures(choice):
    torch.manual_seed(1)
    model = dalle.DallE(replace(PAINTER, quantizer=choice))
    # pictures of two plain halves: easy to tell apart and to draw
    halves = torch.rand(8, 3, 2, 1, 1, generator=torch.Generator().manual_seed(6)).round()
    pixels = halves.expand(8, 3, 2, 6, 12).flatten(2, 3)
    optimizer = torch.optim.Adam(model.autoencoder.parameters(), 3e-3)
    for step in range(200):
        if choice == "gumbel":
            model.autoencoder.choice.temperature = max(0.4, 0.98**step)
        elif step % 10 == 0 and step < 100:
            model.autoencoder.choice.reset_dead_codes(model.autoencoder.encode_features(pixels))
        down(model.autoencoder, optimizer, model.autoencoder.train()(pixels)[1])
    model.autoencoder.eval().requires_grad_(False)
    drawn = model.autoencoder(pixels)[0]
    assert F.mse_loss(drawn, pixels) < 0.1  # one grey for all would have 0.24
    rows = texts()
    batch = Batch(Text.pad(rows), model.encode_image(pixels))
    learn(model, batch)
    wrote = generate(model, batch, stop_ids=None, max_new_tokens=model.codes_per_image)
    assert wrote == batch.target.tokens.tolist()
    assert_close(model.decode_images(wrote), drawn)
    with pytest.raises(ValueError, match="has 9 codes; got 2"):
        model.decode_images([[20, 20]])


def test_a_painter_paints_codes_only():
    model = rough("dalle")
    rows = generate(
        model,
        Batch(Text.pad(texts())),
        lambda scores: scores.softmax(-1).multinomial(1)[:, 0],
        stop_ids=None,
        max_new_tokens=9,
    )
    assert min(map(min, rows)) > VOCAB
    assert max(map(max, rows)) <= VOCAB + 16
    assert model.decode_images(rows).shape == (8, 3, 12, 12)


def test_straight_through_and_soft_draws():
    near = vqvae.VectorQuantizer(5, 4)
    x = torch.randn(2, 3, 3, 4, requires_grad=True)
    vectors, _ = near(x)
    assert_close(vectors, near.table(near.assign_codes(x)))  # the value of the chosen vector
    vectors.sum().backward()
    assert_close(x.grad, torch.ones_like(x))  # the gradient of x itself
    distance = (x[0, 0, 0] - near.table.weight).norm(dim=1)
    assert near.assign_codes(x)[0, 0, 0] == distance.argmin()
    with torch.no_grad():
        near.table.weight[2:] = 1e3  # out of reach
    assert near.reset_dead_codes(x.detach()) >= 3
    assert (
        torch.cdist(near.table.weight, x.detach().flatten(0, 2)).amin(1)[2:].max() < 1e-3
    )  # idle codes are features now
    soft = vqvae.GumbelQuantizer(5, 4, temperature=1e-3)
    vectors, cost = soft.train()(x)
    nearest = torch.cdist(vectors.flatten(0, 2), soft.table.weight).amin(1)
    assert nearest.max() < 1e-2  # a cold draw is one code
    assert cost >= 0
    assert_close(soft.eval()(x)[0], soft.table(soft.score(x).argmax(-1)))
    with pytest.raises(ValueError, match="multiples of 4"):
        vqvae.DiscreteAutoencoder(near, cell_size=4)(torch.rand(1, 3, 6, 8))
    with pytest.raises(ValueError, match="power of two; got 3"):
        vqvae.DiscreteAutoencoder(near, cell_size=3)


@pytest.mark.parametrize("width", [96, 768])
def test_a_narrow_vit_adds_up_to_as_much_as_a_wide_one(width):
    torch.manual_seed(0)
    model = new("vit", vit.Config(width=width, layers=1, heads=4, ffn_width=64, image_height=8, patch_size=4))
    matrix = next(m for m in model.modules() if isinstance(m, nn.Linear) and m.in_features == width)
    with torch.no_grad():
        assert matrix(torch.randn(2000, width)).std().item() == pytest.approx(0.02 * 768**0.5, rel=0.03)

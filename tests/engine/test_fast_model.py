"""Fast models: packed layers against the plain product, rooms against plain memory, and what a fast model refuses."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from saccade import text
from saccade.attention import watch
from saccade.cli import main
from saccade.data import Batch, Text
from saccade.decoding import Sampler, StoppingCriteria, generate
from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.speculative import PromptLookup, speculate
from saccade.engine import (
    FastModel,
    KVCache,
    choose_precision,
    fast,
    kv_buffers,
    kv_cache,
    measure_quality,
    stack,
    sublayers,
)
from saccade.engine.batching.scheduler import BatchScheduler
from saccade.engine.native import ops
from saccade.engine.packed_linear import (
    Float16Linear,
    Float32Linear,
    Int8Linear,
    Int8TiledLinear,
    SharedWeightLinear,
    fuse_linears,
)
from saccade.engine.stack import FastStack
from saccade.models.build import new
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.models.families import bart, bert, dalle, electra, gpt2, llama, marian_ssru, t5, transformer
from saccade.models.load import load
from saccade.parts.feedforward import ACTIVATIONS
from saccade.parts.heads import LMHead
from saccade.parts.stack import Stack
from saccade.parts.state import State

DATA = Path(os.environ.get("SACCADE_DATA", "data"))
STUDENT = DATA / "weights" / "marian_enpt_tiny" / "model.enpt.intgemm.alphas.bin"
FORMS = [Int8Linear, Int8TiledLinear, Float16Linear, Float32Linear, SharedWeightLinear]
FINE = {
    Int8Linear: 0.02,
    Int8TiledLinear: 0.02,
    Float16Linear: 1e-3,
    Float32Linear: 1e-5,
    SharedWeightLinear: 1e-6,
}  # of the spread of the answers
GPT2 = gpt2.Config(vocab=31, width=24, layers=2, heads=3, ffn_width=37, max_positions=200, dropout=0.0)
T5 = t5.Config(31, 24, 2, heads=3, head_width=8, ffn_width=37, relative_buckets=8, dropout=0.0)
PAIR = transformer.Config(vocab=31, width=24, layers=2, heads=3, ffn_width=37, max_positions=64, dropout=0.0)


def loud(family, config, **options):
    """In evaluation, with weights large enough that every path matters."""
    torch.manual_seed(3)
    model = new(family, config, **options).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.3)
    return model


def prompt(*shape, seed=1):
    return Batch(Text(torch.randint(3, 31, shape, generator=torch.Generator().manual_seed(seed))))


# packed layers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("act", ["none", *ACTIVATIONS])
def test_a_packed_layer_is_the_plain_product(form, act):
    torch.manual_seed(0)
    weight, bias = torch.randn(53, 37), torch.randn(53)
    x, add = torch.randn(2, 5, 37), torch.randn(2, 5, 53)
    plain = F.linear(x, weight, bias)
    wanted = (plain if act == "none" else ACTIVATIONS[act](plain)) + add
    found = form(weight, bias)(x, act, add)
    assert (found - wanted).abs().max() < FINE[form] * plain.abs().max()
    alone = form(weight, bias)(x[0, 0], act)  # a row without a batch
    assert (alone + add[0, 0] - wanted[0, 0]).abs().max() < FINE[form] * plain.abs().max()


@pytest.mark.parametrize("form", FORMS)
def test_shapes_that_are_easily_forgotten(form):
    """No rows, no bias, a row of weights that is zero, and an input that lies across."""
    torch.manual_seed(0)
    weight = torch.randn(19, 24)
    weight[4] = 0.0
    layer = form(weight, None)
    assert layer(torch.zeros(0, 24)).shape == (0, 19)
    assert layer(torch.zeros(3, 0, 24)).shape == (3, 0, 19)
    across = torch.randn(24, 7).T
    assert_close(layer(across), layer(across.contiguous()))
    assert not layer(across)[:, 4].any()
    assert (layer.in_features, layer.out_features) == (24, 19)


@pytest.mark.parametrize("form", [Int8Linear, Int8TiledLinear])
@pytest.mark.parametrize("rows", [1, 2, 3, 64])
def test_large_weights_of_one_sign_do_not_saturate(form, rows):
    """Every pair of products is at its largest, which is where 16-bit sums overflow; the true sum is known."""
    for sign in (1.0, -1.0):
        layer = form(torch.full((33, 512), 7.0 * sign), None)
        x = torch.full((rows, 512), 3.0)
        x[:, ::8] = 2.9  # the range of a row is not one number
        wanted = 7.0 * sign * (64 * 2.9 + 448 * 3.0)
        assert_close(layer(x), torch.full((rows, 33), wanted), rtol=0.005, atol=0.0)


def test_rounding_stays_within_half_a_unit():
    """|error| ≤ Σ |x| s/2 + Σ |w| t/2 + n s t/4, for weights in units of s and inputs in units of t, of the wider group."""
    torch.manual_seed(1)
    weight, x = torch.randn(40, 96) * torch.logspace(-3, 3, 40)[:, None], torch.randn(5, 96) * 100
    s, t = weight.abs().amax(1) / 127, (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)) / 127
    bound = x.abs().sum(1, keepdim=True) * s / 2 + weight.abs().sum(1) * t / 2 + 96 * s * t / 4
    error = (Int8TiledLinear(weight, None)(x).double() - x.double() @ weight.double().T).abs()
    assert (error <= bound * 1.001).all()
    assert (error > 0).any()


def test_layers_side_by_side():
    torch.manual_seed(0)
    layers = [nn.Linear(7, 5), nn.Linear(7, 3, bias=False), nn.Linear(7, 2)]
    x = torch.randn(4, 7)
    assert_close(fuse_linears(layers, SharedWeightLinear)(x), torch.cat([layer(x) for layer in layers], dim=-1))
    assert fuse_linears([layers[1]], SharedWeightLinear).bias is None


def test_a_table_of_words_is_read_from_the_tiles_of_the_output():
    if not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    plain = loud("gpt2", GPT2)
    words, weight = fast(plain, "int8").body.words, plain.body.words.vectors.weight
    tokens = torch.tensor([[0, 30, 7], [7, 1, 15]])
    unit = weight.abs().amax(1, keepdim=True) / 127
    assert ((words(tokens) - weight[tokens]).abs() <= unit[tokens] / 2 * 1.001).all()
    assert torch.equal(words.vectors.weight[tokens], words(tokens))


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_the_shift_of_a_head_becomes_the_bias_of_its_product(precision):
    plain = loud(
        "bart",
        bart.Config(
            vocab=31,
            width=24,
            layers=1,
            heads=3,
            ffn_width=37,
            decoder_layers=1,
            decoder_heads=3,
            decoder_ffn_width=37,
            dropout=0.0,
        ),
    )
    nn.init.normal_(plain.body.head.shift)
    quick, x = fast(plain, precision), torch.randn(3, 24)
    with torch.no_grad():
        wanted = plain.body.head(x)
        assert (quick.body.head(x) - wanted).abs().max() < 0.02 * wanted.abs().max()
    assert type(quick.body.head) is LMHead
    assert type(plain.body.head) is BiasedLMHead
    assert plain.body.head.score.bias is None


def test_float16_refuses_what_it_cannot_hold():
    with pytest.raises(
        ValueError, match="largest float16 number is 65,504 and these weights reach 70,000; use precision='float32'"
    ):
        Float16Linear(torch.full((2, 2), 70_000.0), None)


# models


def test_the_plain_model_stays_as_it_was():
    model = loud("gpt2", GPT2)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    quick = fast(model, "float32")
    assert type(model.body.stack) is Stack
    assert isinstance(quick.body.stack, FastStack)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())
    assert any(isinstance(part, nn.Dropout) for part in model.modules())
    assert not any(isinstance(part, nn.Dropout) for part in quick.modules())
    assert quick.body.words.vectors.weight is quick.body.head.score.weights


@pytest.mark.parametrize(
    ("family", "config"),
    [("gpt2", GPT2), ("llama", llama.Config(31, 24, 2, 6, 2, 4, 37)), ("transformer", PAIR)],
)
@pytest.mark.parametrize("precision", ["int8", "float16", "float32"])
def test_one_token_at_a_time_is_the_plain_way_with_the_same_layers(family, config, precision, monkeypatch):
    """The short way for a new token against the long one, both on the same packed weights."""
    if not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    quick, batch = fast(loud(family, config), precision), prompt(3, 5)
    tokens = prompt(3, 80).source.tokens
    forward = FastStack.forward

    def scores(*, hurried, moved=0.0, seed=0):
        luck = torch.Generator().manual_seed(seed)

        def stirred(self, x, *args, **options):
            return forward(self, x * (1 + moved * torch.randn(x.shape, generator=luck)), *args, **options)

        monkeypatch.setattr(FastStack, "forward", stirred if moved else forward)
        monkeypatch.setattr(FastStack, "_can_step_fast", lambda self, x, memory, state: hurried and self.has_fast_step)
        state, first = quick.start(batch)
        parts = [quick.last_logits(first, state)]
        parts += [quick.step(Text(tokens[:, i : i + 1]), state)[:, -1] for i in range(79)]
        return torch.stack(parts, dim=1)

    short, long = scores(hurried=True), scores(hurried=False)
    if precision != "int8":
        assert_close(short, long, rtol=1e-3, atol=1e-3)
        return

    # the last bit of a sum can lift an input to the next of 128 levels, in the long way as well: what it reads, moved by 3e-7
    # of itself, tells how many tokens that reaches on this machine
    def reached(other):
        return float(((other - long).abs().amax(-1) > 1e-3).float().mean())

    assert (short - long).abs().max() < 0.05 * long.abs().max()
    assert reached(short) <= max(reached(scores(hurried=False, moved=3e-7, seed=seed)) for seed in range(1, 9)) < 0.5


@pytest.mark.parametrize(("family", "config"), [("gpt2", GPT2), ("transformer", PAIR)])
def test_without_compiled_operators_pytorch_answers(family, config, monkeypatch):
    monkeypatch.setattr(ops, "is_available", lambda: False)
    plain, batch = loud(family, config), prompt(2, 6)
    quick = fast(plain, "int8")
    assert not any(isinstance(part, Int8TiledLinear) for part in quick.modules())
    assert any(isinstance(part, Int8Linear) for part in quick.modules())
    assert generate(fast(plain, "float32"), batch, stop_ids=None, max_new_tokens=9) == generate(
        plain, batch, stop_ids=None, max_new_tokens=9
    )
    state, first = quick.start(batch)
    wanted = plain.step(first, plain.start(batch)[0]).detach()
    error = quick.step(first, state) - wanted
    assert 0 < error.square().mean().sqrt() < 0.05 * wanted.std()


@pytest.mark.parametrize("left", [True, False])
def test_greedy_texts_are_those_of_the_plain_model(left):
    plain = loud("gpt2", GPT2)
    rows = [[4, 5, 6, 7, 8], [9], [3, 4, 9]]
    batch = Batch(Text.pad(rows, pad_left=left))
    free = generate(plain, batch, stop_ids=None, max_new_tokens=40)
    stop = next(token for token in range(31) if len({[*row, token].index(token) for row in free}) == 3)
    found = generate(fast(plain, "float32"), batch, stop_ids=stop, max_new_tokens=40)
    assert found == generate(plain, batch, stop_ids=stop, max_new_tokens=40)
    assert len({len(row) for row in found}) == 3  # some stopped before others


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("family", "config"), [("gpt2", GPT2), ("transformer", PAIR)])
def test_requests_that_come_and_go_get_their_own_answer(family, config, fixed):
    """Sources of one token too; rooms are joined, padded, cut and left."""
    rows = [[4, 5, 6], [7, 8, 9, 10, 11], [3], [12, 13], [20, 21, 22, 23], [5]]
    plain = loud(family, config)
    slots = BatchScheduler(fast(plain, "float32"), batch_size=3, max_total_tokens=64, fixed_rows=fixed)
    tickets = [
        slots.submit(Batch(Text.pad([row])), StoppingCriteria(stop_ids=2, max_new_tokens=5 + 3 * i))
        for i, row in enumerate(rows)
    ]
    while slots.has_work:
        slots.step()
    wanted = [
        generate(plain, Batch(Text.pad([row])), stop_ids=2, max_new_tokens=5 + 3 * i)[0] for i, row in enumerate(rows)
    ]
    assert [ticket.tokens for ticket in tickets] == wanted


def test_speculation_rewinds_rooms():
    plain, batch = loud("gpt2", GPT2), Batch(Text.pad([[4, 5, 6, 4, 5, 6, 4]]))
    wanted = generate(plain, batch, stop_ids=None, max_new_tokens=60)
    assert (
        speculate(fast(plain, "float32"), batch, StoppingCriteria(stop_ids=None, max_new_tokens=60), PromptLookup())
        == wanted
    )


@pytest.mark.parametrize("family", ["gpt2", "transformer", "t5", "marian_ssru"])
def test_rows_that_have_ended_are_not_multiplied(family, monkeypatch):
    """Of five rows three have ended: two go through the layers, and notice nothing, to the last bit."""
    if not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    student = marian_ssru.Config(31, 24, 1, 2, 3, 37, dropout=0.0)
    configs = {"gpt2": GPT2, "transformer": PAIR, "t5": T5, "marian_ssru": student}
    plain, batch = loud(family, configs[family]), prompt(5, 4)
    quick, tokens, seen = fast(plain, "int8"), prompt(5, 4, seed=2).source.tokens, []
    forward, ended = Int8TiledLinear.forward, torch.tensor([[True], [False], [False], [True], [False]])
    found = []
    for keep in (None, ended):
        state, first = quick.start(batch)
        quick.step(first, state)
        quick.step(Text(tokens[:, :1]), state)
        monkeypatch.setattr(
            Int8TiledLinear, "forward", lambda self, x, *rest: (seen.append(x.shape), forward(self, x, *rest))[1]
        )
        seen.clear()
        found.append([quick.step(Text(tokens[:, i : i + 1], keep), state)[[0, 3]] for i in (1, 2)])
        monkeypatch.setattr(Int8TiledLinear, "forward", forward)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    rows = {shape[0] for shape in seen if len(shape) == 2}
    assert rows == {2}


@pytest.mark.parametrize(("family", "config"), [("transformer", PAIR), ("gpt2", GPT2), ("t5", T5)])
def test_beams_find_the_same(family, config):
    """Beams share their source in groups, and take their rooms along."""
    plain, batch = loud(family, config), Batch(Text.pad([[5, 6, 7, 8, 9, 10, 11], [12, 13]]))
    options = {"criteria": StoppingCriteria(2, 12), "config": BeamConfig(3), "n_best": 3}
    for found, wanted in zip(
        beam_search(fast(plain, "float32"), batch, **options), beam_search(plain, batch, **options), strict=True
    ):
        assert [one.tokens for one in found] == [one.tokens for one in wanted]
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-3)


@pytest.mark.parametrize(("family", "config"), [("gpt2", GPT2), ("transformer", PAIR)])
def test_looks_of_a_written_text_are_exact(family, config):
    """While it is watched, a fast model takes the usual way, step by step too."""
    plain, batch = loud(family, config), prompt(2, 5)
    quick, looks = fast(plain, "float32"), []
    for model in (plain, quick):
        with watch(model, "*layers.1.a*", heads=[2]) as seen:
            generate(model, batch, stop_ids=None, max_new_tokens=6)
        looks.append(seen)
    assert [look.name for look in looks[1]] == [look.name for look in looks[0]]
    assert len(looks[0]) >= 6
    for found, wanted in zip(looks[1], looks[0], strict=True):
        assert_close(found.weights, wanted.weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("left", [True, False])
def test_looks_over_padding_are_those_of_the_plain_model(left):
    """Rows of padding too: while it is watched, nothing is left out."""
    plain = loud("bert", bert.Config(31, 24, 2, 3, 37, 64, dropout=0.0))
    batch, looks = Batch(Text.pad([list(range(3, 15)), [7, 8]], pad_left=left)), []
    for model in (plain, fast(plain, "float32")):
        with torch.no_grad(), watch(model) as seen:
            model(batch)
        looks.append(seen)
    for found, wanted in zip(*looks, strict=True):
        assert_close(found.weights, wanted.weights, rtol=1e-4, atol=1e-5)


def test_a_stack_within_a_larger_memory_keeps_to_its_own_part():
    plain = loud("gpt2", GPT2)
    quick, memory, x = fast(plain, "float32").body.stack, KVCache(), torch.randn(2, 3, 24)
    with torch.no_grad():
        wanted = plain.body.stack(x)
        found = [quick(x[:, i : i + 1], None, memory.at("inner")) for i in range(3)]
    assert_close(torch.cat(found, dim=1), wanted, rtol=1e-4, atol=1e-4)
    assert memory.at("inner").at("0").at("attention").get("key").size(2) == 3


def test_padding_is_not_computed(monkeypatch):
    """Of two texts of 40 and 4 tokens, 44 vectors go through the layers, not 80; float16 has no encoder program."""
    plain = loud("bert", bert.Config(31, 24, 2, 3, 37, 64, dropout=0.0), head="tag", labels=9)
    quick, seen = fast(plain, "float16"), []
    forward = Float16Linear.forward
    monkeypatch.setattr(
        Float16Linear, "forward", lambda self, x, *rest: (seen.append(x.shape), forward(self, x, *rest))[1]
    )
    text = Text.pad([list(range(3, 23)) * 2, [7, 8, 9, 10]])
    found = quick(Batch(text))
    inside = [shape for shape in seen if len(shape) == 2]
    assert inside
    assert {shape[0] for shape in inside} == {44}
    assert_close(found[text.keep], plain(Batch(text)).detach()[text.keep], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("family", "config", "options"),
    [
        ("bert", bert.Config(31, 24, 2, 3, 37, 64, dropout=0.0), {"head": "tag", "labels": 9}),
        (
            "electra",
            electra.Config(31, 24, 2, 3, 37, 64, dropout=0.0, embedding_width=16),
            {"head": "tag", "labels": 9},
        ),
        ("gpt2", GPT2, {}),
        ("transformer", PAIR, {}),
    ],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_large_batch_is_read_a_few_rows_at_a_time(family, config, options, side, monkeypatch):
    """Seven texts of up to 11 tokens, at once and 22 tokens at a time, those of like length together: the same vectors, and the
    same texts written to them, wherever their padding is."""
    quick, sizes = fast(loud(family, config, **options), "float16"), []  # which has no encoder program
    text = Text.pad([list(range(3, 3 + long)) for long in (11, 2, 5, 9, 1, 11, 7)])
    if side == "left":
        text = Text(text.tokens.flip(1), text.keep.flip(1))
    real = FastStack.forward
    monkeypatch.setattr(
        FastStack,
        "forward",
        lambda self, x, *rest, **more: (sizes.append(x.shape[:2]), real(self, x, *rest, **more))[1],
    )
    found = []
    for together in (2**20, 22):
        sizes.clear()
        monkeypatch.setattr(stack, "MAX_TOKENS_PER_CHUNK", together)
        said = quick(Batch(text))[text.keep] if options else None
        found.append((said, None if options else generate(quick, Batch(text), stop_ids=None, max_new_tokens=9)))
    read = [size for size in sizes if size[1] > 1]
    assert read[0] == (7, 11)
    assert read[1:] == ([(2, 11), (2, 9), (3, 5)] if side == "right" else [(2, 11)] * 3 + [(1, 11)])
    assert found[0][1] == found[1][1]
    if options:
        assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-4)


def _skip_what_rounds_rows_together(precision):
    """Without operators of our own int8 is fbgemm's, which rounds a row by the largest number of all."""
    if precision == "int8" and not ops.is_available():
        pytest.skip(ops.unavailable_reason())


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("position", ["learned", "alibi"])
@pytest.mark.parametrize("beyond", [0, 3])
def test_what_stands_in_new_memory_and_behind_all_texts_changes_nothing(precision, position, beyond, monkeypatch):
    """A batch read in parts into memory that held anything before, with columns in which all is padding."""
    config = GPT2 if position == "learned" else replace(PAIR, position=position)
    quick = fast(loud("gpt2" if position == "learned" else "transformer_lm", config), precision)
    _skip_what_rounds_rows_together(precision)
    monkeypatch.setattr(kv_buffers, "mmap_empty", lambda shape, like: like.new_full(tuple(shape), torch.nan))
    monkeypatch.setattr(kv_cache, "mmap_empty", kv_buffers.mmap_empty)
    text = Text.pad([list(range(3, 3 + long)) for long in (11, 2, 5, 9, 1, 11, 7)])
    text = Text(F.pad(text.tokens, (0, beyond)), F.pad(text.keep, (0, beyond)))
    found = []
    for together in (2**20, 22):
        monkeypatch.setattr(stack, "MAX_TOKENS_PER_CHUNK", together)
        beams = beam_search(quick, Batch(text), StoppingCriteria(None, 6), BeamConfig(3))
        found.append((generate(quick, Batch(text), stop_ids=None, max_new_tokens=9), [row[0].tokens for row in beams]))
    assert found[0] == found[1]


@pytest.mark.parametrize(("family", "config"), [("transformer", PAIR), ("t5", T5)])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_keys_of_a_source_are_made_a_few_rows_at_a_time_and_its_vectors_are_forgotten(
    family, config, precision, monkeypatch
):
    """Each row is as if it were alone, also where its keys are made among others, and beams, which repeat it, find the same."""
    quick = fast(loud(family, config), precision)
    _skip_what_rounds_rows_together(precision)
    source = [list(range(3, 3 + long)) for long in (11, 2, 5, 9, 1)]
    monkeypatch.setattr(sublayers, "MAX_TOKENS_PER_CHUNK", 22)  # two rows of eleven tokens
    together = beam_search(quick, Batch(Text.pad(source)), StoppingCriteria(None, 6), BeamConfig(3))
    alone = [beam_search(quick, Batch(Text.pad([row])), StoppingCriteria(None, 6), BeamConfig(3))[0] for row in source]
    assert [row[0].tokens for row in together] == [row[0].tokens for row in alone]
    state, text = quick.start(Batch(Text.pad(source)))
    read = state.get("memory").clone()
    first = quick.last_logits(text, state)
    assert_close(first, quick.body.step(text, quick.start(Batch(Text.pad(source)))[0])[:, -1], rtol=1e-4, atol=1e-4)
    assert state.get("memory").shape == read.shape
    assert state.get("memory").untyped_storage().nbytes() == 4


@pytest.mark.parametrize(("family", "config"), [("transformer", PAIR), ("t5", T5)])
@pytest.mark.parametrize("side", ["right", "left"])
def test_no_keys_are_made_of_padding(family, config, side, monkeypatch):
    """Where nothing was written there still stands what stood there before, nobody reads it, and large rooms take no memory."""
    quick, source = fast(loud(family, config), "float32"), [list(range(3, 3 + long)) for long in (11, 2, 5, 9, 1)]
    text = Text.pad(source, pad_left=side == "left")
    if not quick.body.decoder.has_fast_step:
        pytest.skip(ops.unavailable_reason())
    monkeypatch.setattr(sublayers, "mmap_zeros", lambda shape, like: like.new_full(tuple(shape), torch.nan))
    state, first = quick.start(Batch(text))
    scores = quick.last_logits(first, state)
    for number in range(len(quick.body.decoder.layers)):
        for name in ("key", "value"):
            made = state.at(f"{number}.across").get(name).isfinite().transpose(1, 2).flatten(2)  # (B, K, G * D)
            assert made.any(2).equal(text.keep)
            assert made.all(2).equal(text.keep)
    for row, one in enumerate(source):
        alone, begin = quick.start(Batch(Text.pad([one])))
        assert_close(scores[row], quick.last_logits(begin, alone)[0], rtol=1e-4, atol=1e-4)


def test_rows_may_share_what_is_real_of_a_source():
    plain = loud("transformer", PAIR)
    quick, x, source = fast(plain, "float32"), torch.randn(3, 2, PAIR.width), torch.randn(3, 5, PAIR.width)
    keep = torch.tensor([[True, True, True, False, False]])
    with torch.no_grad():
        expected = plain.body.decoder(x, memory=source, memory_keep=keep)
        found = quick.body.decoder(x, memory=source, memory_keep=keep)
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_keys_of_int8_take_two_bytes_and_answer_alike():
    plain = loud("gpt2", GPT2)
    quick = fast(plain, "int8")
    if not any(isinstance(part, Int8TiledLinear) for part in quick.modules()):
        pytest.skip(ops.unavailable_reason())
    state, first = quick.start(prompt(2, 9))
    once = quick.last_logits(first, state)
    key = state.at("0").at("attention").get("key")
    assert key.dtype is torch.float16
    # what was read at once and what is written token by token is remembered alike
    alone, text = quick.start(Batch(Text(prompt(2, 9).source.tokens[:, :1])))
    steps = [quick.last_logits(text, alone)]
    steps += [quick.step(Text(prompt(2, 9).source.tokens[:, i : i + 1]), alone)[:, -1] for i in range(1, 9)]
    again = alone.at("0").at("attention").get("key")
    assert (
        key == again
    ).float().mean() > 0.99  # the first layer's; an input on the border of two levels may fall to either
    assert_close(once, steps[-1], rtol=0.1, atol=0.05 * float(once.abs().max()))
    state, first = fast(plain, "float32").start(prompt(2, 9))
    fast(plain, "float32").last_logits(first, state)
    assert state.at("0").at("attention").get("key").dtype is torch.float32


def test_int8_takes_a_quarter_of_the_memory():
    """Of the layers, scales and space at the edges counted."""
    quick = fast(loud("gpt2", gpt2.Config(64, 128, 2, 4, max_positions=32)), "int8")
    packed = [part.weights for part in quick.modules() if isinstance(part, Int8TiledLinear)]
    if not packed:
        pytest.skip(ops.unavailable_reason())
    held = sum(part.nbytes for x in packed for part in x.tensors)
    weights = sum(x.rows * x.columns for x in packed)
    assert held < 1.15 * weights


def test_a_fast_painter_paints():
    config = dalle.Config(
        31, 16, 1, 2, 19, max_positions=8, image_size=8, cell_size=4, codebook_size=7, code_width=5, dropout=0.0
    )
    quick = fast(loud("dalle", config), "int8")
    rows = generate(quick, prompt(2, 4), stop_ids=None, max_new_tokens=quick.body.codes_per_image)
    assert quick.body.decode_images(rows).shape == (2, 3, 8, 8)


# what is chosen and refused


def test_the_choice_says_why():
    wide = new("gpt2", gpt2.Config(64, 128, 1, 4, max_positions=32))
    assert choose_precision(wide).precision == ("int8" if ops.is_available() else "float16")
    assert "perplexity rose by at most " in str(choose_precision(wide))
    assert str(choose_precision(wide, "float16")) == "float16: requested"
    assert (
        choose_precision(new("gpt2", GPT2)).reason
        == "a model of width 24 is too narrow to gain speed from quantization"
    )
    assert fast(wide).precision_choice == choose_precision(wide)


def test_a_precision_that_lost_too_much_is_not_chosen(monkeypatch):
    module = __import__("saccade.engine.precision", fromlist=["DECODER_RESULTS"])
    wide, line = new("gpt2", gpt2.Config(64, 128, 1, 4, max_positions=32)), module.QuantizedDecoderResult
    bad = (line("one", "gpt2", "int8", 0.5, 0.02), line("one", "gpt2", "float16", 1.0, 0.0))
    monkeypatch.setattr(module, "DECODER_RESULTS", bad)
    assert choose_precision(wide).precision == "float16"
    monkeypatch.setattr(module, "DECODER_RESULTS", bad[:1])
    assert choose_precision(wide).precision == "float32"


def test_elsewhere_it_is_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled.append(self))
    with torch.device("meta"):
        model = new("transformer", PAIR).eval()
    quick = fast(model, "int8")
    assert str(quick.precision_choice) == "compiled: on meta the model is compiled, at its own precision"
    assert compiled == [quick.body.encoder, quick.body.decoder]
    assert not set(compiled) & set(model.modules())


def test_what_a_fast_model_does_not_do(tmp_path):
    model = loud("gpt2", GPT2)
    quick = fast(model)
    with pytest.raises(ValueError, match=r"cannot be trained; train the original model"):
        quick.train()
    with pytest.raises(ValueError, match="cannot be saved; save the original model"):
        quick.save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"fast model already \(float32: .*narrow"):
        fast(quick)
    with pytest.raises(ValueError, match="Unknown precision 'int4'; known are auto, int8, bfloat16, float16, float32"):
        fast(model, "int4")
    assert isinstance(quick.eval(), FastModel)
    assert not quick.training


def test_the_limit_of_positions_holds_and_nothing_is_read():
    quick = fast(loud("gpt2", gpt2.Config(31, 24, 1, 3, max_positions=6)), "float32")
    state, first = quick.start(prompt(2, 6))
    quick.last_logits(first, state)
    with pytest.raises(ValueError, match="has 6 positions and the text has 7 tokens"):
        quick.step(Text(torch.tensor([[3], [4]])), state)
    assert state.length == 6


def test_quality_is_the_perplexity_of_both():
    model = loud("gpt2", gpt2.Config(300, 24, 1, 3, max_positions=64))
    model.tokenizer = text.train_tokenizer(["abc"], "bytes")
    texts = ["hello world", "attention is a soft lookup"]
    found = measure_quality(model, texts, "float32")
    losses = []
    for one in texts:
        ids = torch.tensor([model.tokenizer.encode(one).ids])
        scores = model.step(Text(ids), State())[0, :-1]
        losses.append(F.cross_entropy(scores, ids[0, 1:], reduction="none"))
    wanted = torch.cat(losses).mean().exp().item()
    assert (found.base_perplexity, found.fast_perplexity) == (
        pytest.approx(wanted, rel=1e-4),
        pytest.approx(wanted, rel=1e-3),
    )
    assert (found.agreement, found.tokens) == (1.0, sum(len(x) for x in losses))
    assert f"100.00% of {found.tokens} tokens equal" in str(found)
    with pytest.raises(ValueError, match=r"Text 0 has . tokens; at least 2 are needed"):
        measure_quality(model, [""])


@pytest.mark.nightly
@pytest.mark.skipif(not STUDENT.exists(), reason=f"no weights in {DATA}; set SACCADE_DATA")
def test_the_evidence_for_int8_can_be_gathered_again(tmp_path):
    """Real models lose less than is allowed, and what the table says of them is true to within a few tokens."""
    assert (
        main(["import", str(STUDENT), str(tmp_path / "enpt"), "--tokenizer", str(STUDENT.parent / "vocab.enpt.spm")])
        == 0
    )
    lines = gzip.decompress((DATA / "tatoeba_deu_eng" / "deu.txt.gz").read_bytes()).decode().splitlines()
    sentences = [line.split("\t")[0] for line in lines[:: len(lines) // 150]][:150]
    found = measure_quality(load(tmp_path / "enpt"), sentences, "int8")
    assert found.perplexity_increase < 0.01
    assert found.agreement > 0.98
    story, words = DATA / "weights" / "stories260K.bin", DATA / "weights" / "tok512.bin"
    assert main(["import", str(story), str(tmp_path / "stories"), "--tokenizer", str(words)]) == 0
    teller = load(tmp_path / "stories")
    begin = teller.tokenizer.encode("Once upon a time").ids
    rows = generate(
        teller, Batch(Text.pad([begin] * 8)), Sampler(temperature=0.9, seed=1), stop_ids=None, max_new_tokens=200
    )
    found = measure_quality(teller, [teller.tokenizer.decode(begin + row) for row in rows], "int8")
    assert found.perplexity_increase < 0.01
    assert found.agreement > 0.96

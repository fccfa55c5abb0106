"""The best words of a vocabulary without the scores of all of them: the operator by sorting, and searches that use it."""

import math
from itertools import chain

import pytest
import torch

from saccade import fast
from saccade.data import Batch, Text
from saccade.decoding import (
    BadWords,
    BeamConfig,
    Sampler,
    StoppingCriteria,
    beam_search,
    generate,
    generate_texts,
    greedy,
)
from saccade.decoding.candidates import Candidates, TopKModel, topk_tokens
from saccade.decoding.loop import token_steps
from saccade.engine.native import library, ops, reference_ops
from saccade.models.build import new
from saccade.models.families import dalle, gpt2, marian

compiled = pytest.mark.skipif(not ops.is_available(), reason=ops.unavailable_reason() or "compiled")
SIZES = {"width": 128, "layers": 1, "heads": 4, "ffn_width": 64, "max_positions": 64}
FAMILIES = {
    "gpt2": gpt2.Config(vocab=611, **SIZES),
    "marian": marian.Config(
        vocab=611, decoder_layers=2, decoder_heads=4, decoder_ffn_width=64, decoder_start_id=610, **SIZES
    ),
}


@pytest.fixture(params=["compiled", "plain"])
def both(request, monkeypatch):
    """The compiled operator, and what stands in for it."""
    library._load_library.cache_clear()
    if request.param == "plain":
        monkeypatch.setenv("SACCADE_NATIVE", "0")
    yield
    monkeypatch.undo()
    library._load_library.cache_clear()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("m", "n", "k", "count"), [(1, 1, 3, 1), (5, 29, 17, 4), (3, 700, 64, 29), (7, 5003, 70, 8), (2, 9, 5, 20)]
)
def test_the_best_are_those_that_sorting_finds(m, n, k, count, threads, both):
    torch.manual_seed(n)
    torch.set_num_threads(threads)
    packed, x = ops.Int8Tiles(torch.randn(n, k), torch.randn(n)), torch.randn(m, k)
    values, rows, chances = packed.topk(x, count)
    scores = packed(x)
    order = scores.sort(descending=True).indices[:, :count]
    assert rows.equal(order)
    assert values.equal(scores.gather(1, order))
    whole = scores.double()
    torch.testing.assert_close(chances.double(), whole.amax(1) - whole.exp().sum(1).log(), rtol=1e-5, atol=1e-6)


@compiled
def test_of_equals_the_first_words_are_the_best():
    packed = ops.Int8Tiles(torch.ones(600, 8))
    assert packed.topk(torch.ones(2, 8), 5)[1].equal(torch.arange(5).expand(2, 5))


def test_a_row_ranks_alike_whoever_is_beside_it():
    packed, x = ops.Int8Tiles(torch.randn(3000, 64)), torch.randn(9, 64)
    together = packed.topk(x, 6)
    for row in range(9):
        for whole, alone in zip(together, packed.topk(x[row : row + 1], 6), strict=True):
            assert whole[row].equal(alone[0])


@compiled
def test_what_is_no_number_has_no_rank():
    packed, x = ops.Int8Tiles(torch.randn(300, 16)), torch.randn(3, 16)
    x[1, 4] = math.nan
    values, _, chances = packed.topk(x, 4)
    assert chances.isnan().tolist() == [False, True, False]
    assert values[1].eq(-math.inf).all()
    assert values[[0, 2]].isfinite().all()
    assert packed.topk(x[:0], 4)[1].shape == (0, 4)
    with pytest.raises(ValueError, match=r"takes x of shape \(\.\.\., 16\)"):
        packed.topk(torch.randn(2, 15), 4)


def test_an_offer_has_the_log_probabilities_of_the_definition():
    scores = torch.randn(5, 401) * 9
    offer = Candidates.from_topk(topk_tokens(scores, 7)).expand_rows(2)
    wanted = scores.double().log_softmax(-1).repeat_interleave(2, 0)
    torch.testing.assert_close(offer.logprobs.double(), wanted.gather(1, offer.tokens), rtol=1e-5, atol=1e-5)
    assert offer.tokens.equal(scores.topk(7).indices.repeat_interleave(2, 0))
    for one, two in zip(reference_ops.topk(scores, 7), topk_tokens(scores, 7), strict=True):
        torch.testing.assert_close(one, two)


class Scored:
    """A writer that hands out all its scores, and no ranks."""

    def __init__(self, model):
        self.start, self.step = model.start, model.step


@compiled
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "beams", [BeamConfig(4), BeamConfig(6, beam_groups=2), BeamConfig(3, length_penalty=0.5)], ids=str
)
def test_a_search_finds_the_same_by_ranks_and_by_scores(family, beams):
    torch.manual_seed(3)
    model = fast(new(family, FAMILIES[family]).eval(), "int8")
    assert isinstance(model, TopKModel)
    assert not isinstance(Scored(model), TopKModel)
    batch = Batch(Text.pad([[5, 6, 7, 9, 30], [8, 9], [11, 12, 13]]))
    found, wanted = (
        beam_search(writer, batch, StoppingCriteria(2, 9), beams, n_best=3) for writer in (model, Scored(model))
    )
    for one, two in zip(chain.from_iterable(found), chain.from_iterable(wanted), strict=True):
        assert one.tokens == two.tokens
        assert one.score == pytest.approx(two.score, abs=1e-5)
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)


@compiled
@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_token_is_the_same_by_ranks_and_by_scores_as_rows_end_one_after_another(family, monkeypatch):
    torch.manual_seed(3)
    plain = new(family, FAMILIES[family]).eval()
    for weight in plain.parameters():
        weight.data += 0.3 * torch.randn_like(weight)  # so that it does not say the same for ever
    model = fast(plain, "int8")
    batch = Batch(Text.pad([[5, 6, 7, 9, 30], [8, 9], [11, 12, 13], [40]]))
    whole = generate(Scored(model), batch, stop_ids=None, max_new_tokens=12)
    bounds = StoppingCriteria({whole[0][3], whole[2][7]}, 12)  # some rows end before others
    wanted = generate_texts(Scored(model), batch, bounds)
    assert len({len(row.tokens) for row in wanted}) > 1
    monkeypatch.setattr(model, "step", None)  # which would hand out the scores of all words
    assert generate(model, batch, stop_ids=None, max_new_tokens=12) == whole
    for one, two in zip(generate_texts(model, batch, bounds), wanted, strict=True):
        assert (one.tokens, one.hit_stop) == (two.tokens, two.hit_stop)
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)
        assert one.processed_logprobs == pytest.approx(two.processed_logprobs, abs=1e-5)
        assert one.cumulative_logprob == pytest.approx(two.cumulative_logprob, abs=1e-5)
    assert generate(model, Batch(Text.pad([])), stop_ids=None, max_new_tokens=3) == []


@compiled
def test_a_model_that_has_diverged_is_an_error_by_ranks_too():
    model = fast(new("gpt2", FAMILIES["gpt2"]).eval(), "int8")
    best, calls = model.step_topk, []

    def lost(text, state, count):
        calls.append(text)
        values, tokens, chances = best(text, state, count)
        return values.fill_(-math.inf) if len(calls) > 1 else values, tokens, chances

    model.step_topk = lost
    with pytest.raises(ValueError, match="Row 0, after 2 new tokens: the model's scores are not finite"):
        generate(model, Batch(Text.pad([[5, 6, 7], [8, 9]])), stop_ids=None, max_new_tokens=6)


@compiled
def test_rules_and_draws_have_all_scores():
    model = fast(new("gpt2", FAMILIES["gpt2"]).eval(), "int8")
    batch = Batch(Text.pad([[5, 6, 7], [8, 9]]))
    for choose, rules in ((greedy, [BadWords([[3]])]), (Sampler(seed=2), [])):
        steps = list(token_steps(model, batch, StoppingCriteria(None, 2, rules), choose))
        assert [type(step).__name__ for step in steps] == ["DecodingStep", "DecodingStep"]
    assert {type(step).__name__ for step in token_steps(model, batch, StoppingCriteria(None, 2))} == {"GreedyStep"}


@compiled
def test_a_search_never_has_all_scores_nor_repeats_its_source(monkeypatch):
    model = fast(new("marian", FAMILIES["marian"]).eval(), "int8")
    sizes: list[int] = []
    plain = model.body.decoder.forward

    def noted(x, *args, **options):
        sizes.append(len(options["memory"]))
        return plain(x, *args, **options)

    monkeypatch.setattr(model.body.decoder, "forward", noted)
    monkeypatch.setattr(model, "step", None)  # which would hand out the scores of all words
    assert len(beam_search(model, Batch(Text.pad([[5, 6, 7], [8, 9]])), StoppingCriteria(None, 5), BeamConfig(4))) == 2
    assert sizes == [2] * 5


@compiled
def test_a_painter_that_searches_writes_codes_alone():
    """Its step allows no words; ranks of all tokens would."""
    torch.manual_seed(0)
    sizes = dalle.Config(
        vocab=300,
        width=128,
        layers=1,
        heads=4,
        ffn_width=64,
        max_positions=16,
        image_size=16,
        cell_size=4,
        codebook_size=32,
    )
    model = fast(new("dalle", sizes).eval(), "int8")
    found = beam_search(model, Batch(Text.pad([[5, 6, 7]])), StoppingCriteria(None, 16), BeamConfig(3))[0][0]
    assert all(token > model.body.image_start_id for token in found.tokens)
    assert len(model.body.decode_images([found.tokens])) == 1

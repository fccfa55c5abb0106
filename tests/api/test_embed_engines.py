"""Optimized forms in `saccade.embed`: equal vectors, any pooling, and a conversion that is kept until weights change."""

import pytest
import torch

import saccade
from saccade import text
from saccade.api import embed as api_embed
from saccade.errors import UsageError
from saccade.models.families import bert
from saccade.models.pooling import Normalize, Pooling

TEXTS = ["the small red boat", "a harbour", "the boat lies in a harbour near Oslo", ""]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    tokenizer = text.train_tokenizer(TEXTS, "words", 40, token_template="bos_eos")
    sizes = bert.Config(tokenizer.vocab, width=64, layers=2, heads=4, ffn_width=128, max_positions=12)
    model = saccade.new("bert", sizes).eval()
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize(
    "pooling",
    [
        Pooling(),
        Pooling(("cls",)),
        Pooling(("max", "mean")),
        Pooling(layers=(Normalize(),)),
    ],
    ids=["mean", "first token", "max and mean", "normalized"],
)
def test_the_optimized_form_embeds_like_the_plain_model(encoder, pooling):
    encoder.pooling = pooling
    expected = saccade.embed(encoder, TEXTS)
    torch.testing.assert_close(saccade.embed(encoder, TEXTS, engine="float32"), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(saccade.embed(saccade.fast(encoder, "float32"), TEXTS), expected, rtol=1e-4, atol=1e-4)
    for engine, least in (("int8", 0.98), ("bfloat16", 0.999)):
        found = saccade.embed(encoder, TEXTS, engine=engine)
        assert torch.cosine_similarity(found, expected).min() > least


def test_long_texts_are_truncated_or_refused(encoder):
    long = " ".join(TEXTS * 9)
    expected = saccade.embed(encoder, [long])
    torch.testing.assert_close(saccade.embed(encoder, [long], engine="float32"), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="but the model reads at most 12"):
        saccade.embed(encoder, [long], truncate=False, engine="float32")


def test_the_optimized_form_is_kept_until_weights_change(encoder):
    first = api_embed.convert_model(encoder, "float32")
    assert api_embed.convert_model(encoder, "float32") is first
    before = saccade.embed(encoder, TEXTS, engine="float32")
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.mul_(1.1)
    assert api_embed.convert_model(encoder, "float32") is not first
    assert not saccade.embed(encoder, TEXTS, engine="float32").equal(before)


def test_an_unknown_engine_is_refused(encoder):
    with pytest.raises(UsageError, match="'int9'"):
        saccade.embed(encoder, TEXTS, engine="int9")

"""Which families run as one encoder program, from their declared parts, and what the others are told."""

import pytest
import torch

from saccade.attention import watch
from saccade.data import Batch, Image, Text
from saccade.engine import fast
from saccade.engine.kernels import library
from saccade.engine.kernels.encoder_program import EncoderProgram
from saccade.engine.stack import FastStack
from saccade.models.build import new
from saccade.models.families import bert, distilbert, electra, roberta, t5, transformer, vit

pytestmark = pytest.mark.skipif(not library.is_available(), reason=library.unavailable_reason() or "compiled")
SIZES = {"width": 24, "layers": 2, "heads": 3, "ffn_width": 37}
TEXT_SIZES = {"vocab": 31, "max_positions": 16, **SIZES}
CONFIGS = {
    "bert": bert.Config(**TEXT_SIZES),
    "roberta": roberta.Config(**TEXT_SIZES),
    "distilbert": distilbert.Config(**TEXT_SIZES),
    "electra": electra.Config(**TEXT_SIZES, embedding_width=13),
    "transformer_encoder": transformer.Config(**TEXT_SIZES, norm_first=True),
}
CLOSE = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 6e-2}
TEXT = Text.pad([[4, 5, 6, 7, 8], [9], [3, 4, 9, 12, 17, 2, 5]], segment_ids=[[0, 0, 1, 1, 1], [0], [0] * 7])


def build(name, config, **options):
    """A new model with weights so large that every path matters."""
    torch.manual_seed(5)
    model = new(name, config, **options).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def distance(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("name", CONFIGS)
def test_text_encoders_are_programs_and_equal_the_plain_model(name, precision):
    model = build(name, CONFIGS[name])
    quick = fast(model, precision)
    assert quick.encoder_notes == [f"stack: one program, {library.instruction_set()}"]
    assert (quick.text_program is not None) == (name != "transformer_encoder")  # whose family declares no parts
    left = Text(TEXT.tokens.flip(1), TEXT.keep.flip(1), TEXT.segment_ids.flip(1))
    for text in (TEXT, left, Text(TEXT.tokens[2:], segment_ids=TEXT.segment_ids[2:])):
        found, expected = quick.encode(Batch(text)), model.encode(Batch(text)).detach()
        assert distance(found[text.keep_mask], expected[text.keep_mask]) < CLOSE[precision]
        assert not found[~text.keep_mask].any()


@pytest.mark.parametrize("precision", CLOSE)
def test_vit_is_a_program_from_its_patches(precision):
    model = build("vit", vit.Config(image_height=24, patch_size=8, **SIZES))
    quick, batch = fast(model, precision), Batch(Image(torch.randn(2, 3, 24, 24)))
    assert quick.body.stack.encoder_program is not None
    assert distance(quick.encode(batch), model.encode(batch).detach()) < CLOSE[precision]


def test_only_the_encoder_of_an_encoder_decoder_is_a_program():
    quick = fast(build("transformer", transformer.Config(**TEXT_SIZES)), "int8")
    assert quick.encoder_notes == [f"encoder: one program, {library.instruction_set()}"]
    decoder = quick.body.decoder
    assert isinstance(decoder, FastStack)
    assert decoder.program_reason == "not all tokens attend to all others"


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("electra", electra.Config(**TEXT_SIZES, position="rotary"), "positions are encoded in its attention (Rotary)"),
        ("bert", bert.Config(**TEXT_SIZES, activation="tanh"), "its activation is tanh"),
        ("transformer_encoder", transformer.Config(**TEXT_SIZES, mechanism="additive"), "its attention is Additive"),
        (
            "t5",
            t5.Config(vocab=31, width=24, layers=2, heads=3, ffn_width=37),
            "positions are encoded in its attention",
        ),
    ],
)
def test_other_parts_are_named_and_run_layer_by_layer(name, config, reason):
    model = build(name, config)
    quick = fast(model, "float32")
    (note,) = quick.encoder_notes
    assert "layer by layer, since " + reason in note
    if name != "t5":
        assert distance(quick.encode(Batch(TEXT))[TEXT.keep], model.encode(Batch(TEXT)).detach()[TEXT.keep]) < 1e-4


def test_float16_has_no_program():
    (note,) = fast(build("bert", CONFIGS["bert"]), "float16").encoder_notes
    assert "no encoder kernels in float16" in note


def test_attention_maps_are_those_of_what_was_computed(monkeypatch):
    """While someone watches, no program runs; the maps are the mechanism's own, on the weights of the program."""
    quick = fast(build("bert", CONFIGS["bert"]), "int8")
    expected = quick.encode(Batch(TEXT))
    calls = []
    encode = EncoderProgram.encode
    monkeypatch.setattr(
        EncoderProgram, "encode", lambda *args, **options: (calls.append(1), encode(*args, **options))[1]
    )
    with watch(quick) as looks:
        found = quick.encode(Batch(TEXT))
    assert not calls
    assert len(looks) == 2
    weights = looks[0].weights[2, :, :7, :7]
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 7))
    assert distance(found[TEXT.keep], expected[TEXT.keep]) < 2e-2  # the same levels, other sums
    quick.encode(Batch(TEXT))
    assert calls

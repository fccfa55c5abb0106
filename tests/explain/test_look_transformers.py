"""`saccade.look` on models of `transformers`: the same maps as for models of saccade; texts, images and audio."""

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from torch.testing import assert_close

import saccade
from saccade.attention import Downsample, TopK
from saccade.attention.hf.weights import InterfaceCall
from saccade.decoding.config import GenerationConfig
from saccade.explain.head_stats import compute_head_stats
from saccade.explain.maps import AttentionMaps
from saccade.explain.overlay import render_overlays
from saccade.explain.rollout import attention_rollout
from saccade.explain.word_alignment import align_words
from support.hf_models import BART, WIDTHS, make_inputs, make_model
from support.hf_tokenizers import make_tokenizer

TEXT = "the bank of the river raised its rates"
TOKENIZERS = {kind: make_tokenizer([TEXT], kind) for kind in ("bert", "gpt2", "t5")}
VOCAB = {kind: len(tokenizer) for kind, tokenizer in TOKENIZERS.items()}


def make(kind):
    """A model with a tokenizer of its type."""
    vocab = VOCAB[kind]
    torch.manual_seed(0)
    if kind == "bert":
        model = hf.BertModel(hf.BertConfig(vocab_size=vocab, **WIDTHS, pad_token_id=0, max_position_embeddings=20))
    elif kind == "gpt2":
        model = hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=vocab, n_embd=24, n_layer=3, n_head=4, n_positions=32, bos_token_id=3, eos_token_id=3
            )
        )
    else:
        config = {"vocab_size": vocab, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 4}
        ends = {"decoder_start_token_id": 0, "eos_token_id": 3, "pad_token_id": 0}
        model = hf.T5ForConditionalGeneration(hf.T5Config(**config, **ends))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "given", "options"),
    [
        ("bert", "the bank of", {}),
        ("bert", ("the bank of", "the river"), {"layers": [-1], "heads": [3, 1], "queries": [2, 0]}),
        ("gpt2", "the bank of", {"decoding": GenerationConfig(max_new_tokens=4)}),
        ("gpt2", ("the bank of", " the river"), {"layers": [0, -1]}),
        ("t5", ("the bank of", "river rates"), {}),
        ("t5", "the bank of", {"decoding": GenerationConfig(max_new_tokens=4, min_new_tokens=4), "queries": [1]}),
        ("t5", "the bank of", {"decoding": GenerationConfig(max_new_tokens=4, beams=3)}),
    ],
)
def test_maps_are_those_of_a_saccade_model_with_the_same_weights(kind, given, options, tmp_path):
    theirs, tokenizer = make(kind), TOKENIZERS[kind]
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    wanted = saccade.look(saccade.load(tmp_path), given, **options)
    found = saccade.look(theirs, given, tokenizer=tokenizer, **options)
    assert found.model == wanted.model
    assert found.texts == wanted.texts
    assert found.answer == wanted.answer
    assert found.generated_text == wanted.generated_text
    assert found.truncated_at == wanted.truncated_at
    ours = {one.title: one for one in wanted}
    assert {one.title for one in found} == set(ours)
    for one in found:
        same = ours[one.title]
        assert (one.kind, one.side, one.layer, one.heads) == (same.kind, same.side, same.layer, same.heads)
        assert one.query == same.query
        assert one.key == same.key
        assert_close(one.weights, same.weights, rtol=0, atol=1e-6)
        assert_close(one.value_norms, same.value_norms, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def looks():
    return saccade.look(make("bert"), (TEXT, "its bank"), tokenizer=TOKENIZERS["bert"])


def test_plots_tables_and_files_are_as_for_models_of_saccade(looks, tmp_path):
    for name, start in {"a.png": b"\x89png", "a.html": b"<!doctype html"}.items():
        assert looks.save(tmp_path / name).read_bytes()[: len(start)].lower() == start
    assert "layer 2, self" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert looks[0].select(heads=[1]).plot().axes
    again = AttentionMaps.load(looks.save(tmp_path / "a.looks"))
    assert again[1].query == looks[1].query
    assert len(compute_head_stats(looks)) == 3 * 4
    assert "[CLS]" in looks.summary() or "[SEP]" in looks.summary()
    plain = looks.drop_special_tokens()
    assert "[CLS]" not in plain.summary()
    assert "".join(plain[0].query_names).replace("##", "") == (TEXT + "its bank").replace(" ", "")
    assert looks.merge_subwords()[0].query_names == ["[CLS]", *TEXT.split(), "[SEP]", "its", "bank", "[SEP]"]
    assert_close(attention_rollout(looks).sum(-1), torch.ones(3, len(looks[0].query)))
    assert "BertModel does not classify its input" in looks._repr_html_()


def test_words_are_aligned_by_cross_attention():
    looks = saccade.look(make("t5"), ("the bank of", "river rates"), tokenizer=TOKENIZERS["t5"])
    alignment = align_words(looks)
    assert alignment.source == ("the", "bank", "of")
    assert alignment.target == ("river", "rates")


def test_the_prediction_of_a_classifier_is_its_label():
    config = hf.BertConfig(vocab_size=VOCAB["bert"], **WIDTHS, id2label={0: "bad", 1: "good", 2: "so so"})
    model = hf.BertForSequenceClassification(config).eval()
    looks = saccade.look(model, TEXT, tokenizer=TOKENIZERS["bert"], layers=[0])
    logits = model(**TOKENIZERS["bert"](TEXT, return_tensors="pt")).logits
    assert looks.answer == config.id2label[int(logits.argmax())]
    other = saccade.look(make("bert"), TEXT, tokenizer=TOKENIZERS["bert"])
    assert other.answer == ""
    assert "BertModel does not classify its input" in other.no_answer_reason


def test_only_selected_weights_are_computed(monkeypatch):
    rows_seen = []
    compute = InterfaceCall.compute_weights

    def record(call, rows):
        if len(rows):
            rows_seen.append((call.module.layer_idx, rows.tolist()))
        return compute(call, rows)

    monkeypatch.setattr(InterfaceCall, "compute_weights", record)
    model, passes = make("gpt2"), []
    model.transformer.h[2].register_forward_hook(lambda *given: passes.append(2))
    (one,) = saccade.look(model, TEXT, tokenizer=TOKENIZERS["gpt2"], layers=[1], heads=[2], queries=[3, 5])
    assert rows_seen == [(1, [3, 5])]
    assert one.heads == (2,)
    assert one.weights.shape == (1, 2, len(one.key))
    assert len(passes) == 1  # the pass that measures; the other ends after layer 1


def test_layers_that_share_a_module_are_separate():
    model = make_model("albert")
    tokenizer = make_tokenizer([TEXT[:12]], "bert")
    model.resize_token_embeddings(len(tokenizer))
    whole = saccade.look(model, "the bank", tokenizer=tokenizer)
    assert [one.layer for one in whole] == [0, 1, 2]
    assert not torch.equal(whole[0].weights, whole[1].weights)
    with torch.no_grad(), saccade.watch(model) as seen:
        model(**tokenizer("the bank", return_tensors="pt"))
    for one, look in zip(whole, seen, strict=True):
        assert_close(one.weights, look.weights[0])
    (last,) = saccade.look(model, "the bank", tokenizer=tokenizer, layers=[-1], heads=[1], queries=[2])
    assert last.layer == 2
    assert_close(last.weights, whole[2].weights[1:2, 2:3])


def test_long_texts_are_downsampled_and_a_few_rows_are_not(monkeypatch):
    monkeypatch.setattr("saccade.explain.look.MAX_UNPOOLED_WEIGHTS", 100)
    monkeypatch.setattr("saccade.explain.look.POOLED_SIZE", 4)
    model, tokenizer = make("bert"), TOKENIZERS["bert"]
    whole = saccade.look(model, TEXT, tokenizer=tokenizer)
    assert whole[0].pooled
    assert max(whole[0].weights.shape[1:]) <= 4
    assert "…" in whole[0].key_names[0]
    (row, *_) = saccade.look(model, TEXT, tokenizer=tokenizer, queries=[1])
    assert row.weights.shape == (4, 1, len(row.key))
    assert not row.pooled
    top = saccade.look(model, TEXT, tokenizer=tokenizer, reduce=TopK(2))
    assert top[0].key_index.shape == (4, len(top[0].query), 2)
    assert saccade.look(model, TEXT, tokenizer=tokenizer, reduce=Downsample(2))[0].weights.shape == (4, 2, 2)


def test_a_text_longer_than_the_model_allows_is_truncated_and_counted():
    looks = saccade.look(make("bert"), "the bank " * 20, tokenizer=TOKENIZERS["bert"])
    assert len(looks[0].query) == 20
    assert looks[0].query_names[-1] == "[SEP]"
    assert looks.truncated_input_tokens > 0


def test_the_cells_of_an_image_are_its_patches(tmp_path):
    model = make_model("vit")
    processor = hf.ViTImageProcessorPil(size={"height": 12, "width": 12})
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    for given in (pixels, Image.fromarray(pixels), tmp_path / "a.png", processor(images=pixels, return_tensors="pt")):
        looks = saccade.look(model, given, tokenizer=processor)
        assert looks[0].key.grid == (3, 3)
        assert looks[0].key_names[:3] == ["[image]", "0,0", "0,1"]
        assert looks.image.shape == (12, 12, 3)
        assert len(render_overlays(looks)) == 4
    with torch.no_grad(), saccade.watch(model) as seen:
        model(**processor(images=pixels, return_tensors="pt"))
    assert_close(looks[2].weights, seen[2].weights[0])
    assert looks.save(tmp_path / "heads.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(saccade.UsageError, match=r"an image needs its processor.*tokenizer=AutoImageProcessor"):
        saccade.look(model, pixels)
    with pytest.raises(saccade.UsageError, match=r"ViTModel reads an image.*got int"):
        saccade.look(model, 3, tokenizer=processor)


def test_words_about_an_image_attend_to_its_patches():
    tokenizer = TOKENIZERS["gpt2"]
    encoder = hf.ViTConfig(**WIDTHS, image_size=12, patch_size=4)
    decoder = hf.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=24,
        n_layer=2,
        n_head=4,
        add_cross_attention=True,
        bos_token_id=3,
        eos_token_id=3,
    )
    model = hf.VisionEncoderDecoderModel(
        hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    ).eval()
    model.config.decoder_start_token_id = model.config.pad_token_id = 3
    looks = saccade.look(model, make_inputs("vit") | {"labels": torch.tensor([[5, 6, 7]])}, tokenizer=tokenizer)
    across = looks.select("image")
    assert [one.layer for one in across] == [0, 1]
    assert across[0].key.grid == (3, 3)
    assert len(across[0].query) == 3
    assert {one.side for one in looks} == {"encoder", "decoder"}
    assert len(render_overlays(looks)) == 3


def test_audio_and_other_arguments_are_given_as_a_mapping():
    model, inputs = make_model("whisper"), make_inputs("whisper")
    looks = saccade.look(model, inputs)
    assert {(one.side, one.kind) for one in looks} == {("encoder", "self"), ("decoder", "self"), ("decoder", "cross")}
    with torch.no_grad(), saccade.watch(model) as seen:
        model(**inputs)
    for one in looks:
        look = next(look for look in seen if look.name == one.name)
        assert_close(one.weights, look.weights[0], rtol=0, atol=1e-6)
    assert looks.select("cross")[0].query_names == [
        *(str(id) for id in inputs["decoder_input_ids"][0, 1:].tolist()),
        "[next]",
    ]
    both = saccade.look(make_model("clip"), make_inputs("clip"))
    assert {one.side for one in both} == {"text encoder", "vision encoder"}
    assert both.select(side="vision encoder")[0].key.grid == (3, 3)
    assert len(both.select(side="text encoder")[0].query) == 8
    with pytest.raises(saccade.UsageError, match="reads input_features; give its arguments as a mapping"):
        saccade.look(model, "the bank")


def test_the_first_row_of_a_batch_is_used_without_padding():
    model, tokenizer = make("bert"), TOKENIZERS["bert"]
    batch = tokenizer(["the bank", TEXT], padding=True, return_tensors="pt")
    (one, *_) = saccade.look(model, batch, tokenizer=tokenizer)
    (same, *_) = saccade.look(model, "the bank", tokenizer=tokenizer)
    assert one.query_names == [tokenizer.convert_ids_to_tokens(id) for id in tokenizer("the bank")["input_ids"]]
    assert [token.text_index for token in one.query.tokens] == [token.text_index for token in same.query.tokens]
    assert_close(one.weights, same.weights, rtol=0, atol=1e-6)
    numbers = saccade.look(model, {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]})
    assert numbers[0].query_names == [str(id) for id in tokenizer("the bank")["input_ids"]]


def test_a_tokenizer_without_offsets_finds_its_tokens_by_decoding():
    class Slow:
        """The methods of a slow tokenizer, which has no character offsets."""

        is_fast, model_max_length = False, 10**30

        def __init__(self, fast):
            self.fast = fast

        def __getattr__(self, name):
            return getattr(self.fast, name)

        def __call__(self, *given, **options):
            assert "return_offsets_mapping" not in options
            return dict(self.fast(*given, **options))

    for kind in ("bert", "t5"):
        fast = TOKENIZERS[kind]
        wanted = saccade.look(make(kind), ("the bank of", "the rates"), tokenizer=fast)
        found = saccade.look(make(kind), ("the bank of", "the rates"), tokenizer=Slow(fast))
        for one, same in zip(found, wanted, strict=True):
            assert one.query.special_tokens_mask == same.query.special_tokens_mask
            assert one.merge_subwords(found.texts).query_names == same.merge_subwords(wanted.texts).query_names
            assert torch.equal(one.weights, same.weights)


def test_unsupported_inputs_and_models_are_refused_by_name():
    bert, tokenizer = make("bert"), TOKENIZERS["bert"]
    with pytest.raises(
        saccade.UsageError, match=r"a text needs its tokenizer: look\(model, text, tokenizer=AutoTokenizer"
    ):
        saccade.look(bert, TEXT)
    with pytest.raises(saccade.UsageError, match=r"BertModel reads text.*got int"):
        saccade.look(bert, 7, tokenizer=tokenizer)
    with pytest.raises(saccade.UsageError, match=r"must be a tokenizer of transformers.*got str"):
        saccade.look(bert, TEXT, tokenizer="bert-base-uncased")
    with pytest.raises(saccade.UsageError, match="Layer 5 does not exist; the model has 3 layers, numbered from 0"):
        saccade.look(bert, TEXT, tokenizer=tokenizer, layers=[5])
    with pytest.raises(saccade.UsageError, match=r"Row 99 does not exist; the maps have \d+ rows, numbered from 0"):
        saccade.look(bert, TEXT, tokenizer=tokenizer, queries=[99])
    deberta = hf.DebertaV2Model(hf.DebertaV2Config(vocab_size=40, **WIDTHS))
    with pytest.raises(saccade.ModelError, match=r"DebertaV2Model \(deberta-v2\)"):
        saccade.look(deberta, TEXT)
    swin = hf.SwinModel(
        hf.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1], num_heads=[2], window_size=4)
    )
    with pytest.raises(saccade.ModelError, match=r"SwinModel attends in 4 separate parts.*saccade\.watch"):
        saccade.look(swin, {"pixel_values": torch.zeros(1, 3, 16, 16)})
    headless = hf.BartModel(hf.BartConfig(**(BART | {"vocab_size": VOCAB["t5"]})))
    with pytest.raises(saccade.UsageError, match="BartModel has no output head, so it cannot generate; give two texts"):
        saccade.look(headless, TEXT, tokenizer=TOKENIZERS["t5"])
    with pytest.raises(
        saccade.UsageError, match=r"regex is not supported for models of transformers; supported are beams"
    ):
        saccade.look(make("t5"), TEXT, tokenizer=TOKENIZERS["t5"], decoding=GenerationConfig(regex="a+"))
    with pytest.raises(saccade.UsageError, match="a model of saccade has its own"):
        saccade.look("runs/reviews", TEXT, tokenizer=tokenizer)
    with pytest.raises(saccade.UsageError, match="path of a run; got Linear"):
        saccade.look(torch.nn.Linear(2, 2), TEXT)


def test_sampling_is_repeatable_and_leaves_the_random_numbers_alone():
    model, tokenizer = make("gpt2"), TOKENIZERS["gpt2"]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    texts = [
        saccade.look(model, "the", tokenizer=tokenizer, layers=[0],
                     decoding=GenerationConfig(max_new_tokens=6, temperature=1.0, seed=seed)).generated_text
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_every_module_keeps_its_mode():
    model = make("bert").train()
    model.embeddings.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    saccade.look(model, TEXT, tokenizer=TOKENIZERS["bert"])
    assert {name: module.training for name, module in model.named_modules()} == modes

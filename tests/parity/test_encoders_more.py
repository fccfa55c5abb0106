"""RoBERTa, DistilBERT, ELECTRA and ViT against the `transformers` package: bodies, heads, files, and both precisions."""

import pytest
import torch
import transformers
from safetensors.torch import load_file
from test_encoders import SIZES, example
from torch.testing import assert_close

from saccade.data import Batch, Image, Text
from saccade.models import derived_families
from saccade.models.families import distilbert, electra, roberta, vit
from saccade.models.weight_map import to_ours, to_theirs
from support.parity import HiddenStates, compare, compare_gradients, convert_model, run_watched

DISTIL = {"vocab_size": 53, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 17, "max_position_embeddings": 19}
TEXT_CASES = [
    (roberta.FAMILY, SIZES | {"max_position_embeddings": 21, "type_vocab_size": 2}),
    (roberta.FAMILY, SIZES | {"max_position_embeddings": 21, "num_attention_heads": 1, "hidden_act": "relu"}),
    (
        roberta.FAMILY,
        SIZES
        | {"max_position_embeddings": 23, "pad_token_id": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}
        | {"num_attention_heads": 4, "type_vocab_size": 3},
    ),
    (derived_families.XLM_ROBERTA, SIZES | {"max_position_embeddings": 21, "type_vocab_size": 2}),
    (derived_families.CAMEMBERT, SIZES | {"max_position_embeddings": 22, "pad_token_id": 2, "type_vocab_size": 2}),
    (distilbert.FAMILY, DISTIL),
    (distilbert.FAMILY, DISTIL | {"n_heads": 1, "activation": "relu", "n_layers": 1}),
    (distilbert.FAMILY, DISTIL | {"n_heads": 6, "activation": "gelu_new", "n_layers": 3}),
    (electra.FAMILY, SIZES | {"max_position_embeddings": 19, "embedding_size": 5}),
    (electra.FAMILY, SIZES | {"max_position_embeddings": 19, "embedding_size": 12, "num_attention_heads": 1}),
    (
        electra.FAMILY,
        SIZES
        | {"max_position_embeddings": 19, "embedding_size": 16, "hidden_act": "silu", "num_attention_heads": 4}
        | {"layer_norm_eps": 1e-5, "type_vocab_size": 3},
    ),
]
VIT = {"image_size": 12, "patch_size": 4, "num_channels": 3, "hidden_size": 12, "num_hidden_layers": 2}
VIT |= {"num_attention_heads": 3, "intermediate_size": 17}
IMAGE_CASES = [
    (vit.FAMILY, VIT),
    (vit.FAMILY, VIT | {"num_attention_heads": 1, "hidden_act": "relu", "num_channels": 1, "patch_size": 2}),
    (vit.FAMILY, VIT | {"num_attention_heads": 4, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "image_size": 4}),
    (vit.FAMILY, VIT | {"num_attention_heads": 2, "num_hidden_layers": 3, "image_size": [15, 15], "patch_size": 5}),
]


def named(cases):
    return [pytest.param(family, sizes, id=f"{family.name}-{i}") for i, (family, sizes) in enumerate(cases)]


def oracle(family, sizes, architecture=None, labels=3, attention="eager"):
    """The published class of that name, with weights that are neither zero nor one."""
    torch.manual_seed(1)
    cls = getattr(transformers, architecture or family.architecture)
    theirs = cls(cls.config_class(**sizes, num_labels=labels, attn_implementation=attention)).double().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return theirs


def inputs(family, tokens, segment, keep=None):
    """What the package is called with; DistilBERT has no segments there."""
    options = {"input_ids": tokens}
    if family.name != "distilbert":
        options["token_type_ids"] = segment
    return options if keep is None else options | {"attention_mask": keep.long()}


def pieces(tokens, segment, keep, padded):
    """How the package is asked, as (rows, which tokens are real): together, or each row alone and without its left padding."""
    if padded == "left" and keep is not None:
        return [(slice(i, i + 1), keep[i]) for i in range(len(tokens))]
    return [(slice(None), None)]


def slope(x):
    """A number to take gradients of: every entry counts differently, and rows can be added up one by one."""
    return x.sin().sum()


def seen(model, batch):
    """All that a model does: what enters the layers, what leaves each, the attention maps and the answer."""
    entered = []
    hook = model.stack.enter.register_forward_hook(lambda m, a, out: entered.append(out))
    with HiddenStates(model.stack) as states:
        out, maps = run_watched(model, lambda: model(batch))
    hook.remove()
    return out, entered + states, maps


@pytest.mark.parametrize("padded", [None, "right", "left"])
@pytest.mark.parametrize("length", [1, 2, 7, 19])
@pytest.mark.parametrize(("family", "sizes"), named(TEXT_CASES))
def test_states_maps_and_gradients(family, sizes, length, padded):
    theirs = oracle(family, sizes)
    ours = convert_model(family, theirs)
    tokens, segment, keep = example(length, padded)
    ours.zero_grad()
    out, states, maps = seen(ours, Batch(Text(tokens, keep, segment if hasattr(ours, "segments") else None)))
    slope(out if keep is None else out[keep]).backward()
    for rows, real in pieces(tokens, segment, keep, padded):
        there = slice(None) if real is None else real
        mask = keep if real is None else None
        wanted = theirs(
            **inputs(family, tokens[rows, there], segment[rows, there], mask),
            output_hidden_states=True,
            output_attentions=True,
        )
        slope(wanted.last_hidden_state if mask is None else wanted.last_hidden_state[mask]).backward()
        compare(out[rows, there], wanted.last_hidden_state, real=mask)
        for state, hidden in zip(states, wanted.hidden_states, strict=True):
            compare(state[rows, there], hidden, real=mask)
        for weights, attention in zip(maps, wanted.attentions, strict=True):
            for i, row in enumerate(weights[rows]):
                queries = there if mask is None else mask[i]
                compare(row[:, queries][:, :, there], attention[i] if mask is None else attention[i][:, queries])
    compare_gradients(ours, theirs, family, family.config_from_hf(theirs.config.to_dict()))


HEADS = [
    pytest.param(family, sizes, name, id=f"{family.name}-{i}-{name}")
    for i, (family, sizes) in enumerate(TEXT_CASES)
    for name in family.heads
]


def with_head(family, name, theirs, labels=3):
    """Our body and head with the weights of theirs."""
    body = convert_model(family, theirs.base_model)
    config = family.config_from_hf(theirs.config.to_dict())
    head = family.heads[name].build(config, body, labels).double().eval()
    read = to_ours(theirs.state_dict(), family.heads[name].weight_map)
    assert not [name for name in read.unmapped if not name.startswith(family.prefix)], "head weights without a line"
    head.load_state_dict(read.tensors)
    return body, head


def compare_head_gradients(head, theirs, names):
    got = {name: p.grad for name, p in head.named_parameters(remove_duplicate=False)}
    wanted = to_ours({n: p.grad for n, p in theirs.named_parameters()}, names).tensors
    for name, grad in wanted.items():
        assert_close(got[name], grad, rtol=1e-8, atol=1e-8)
    tied = {"score.weight"} if "score.weight" not in wanted else set()
    assert wanted.keys() | tied == got.keys()


def logits(answer):
    return torch.stack([answer.start_logits, answer.end_logits], -1) if "start_logits" in answer else answer.logits


@pytest.mark.parametrize("padded", [None, "right", "left"])
@pytest.mark.parametrize(("family", "sizes", "name"), HEADS)
def test_heads(family, sizes, name, padded):
    labels = 2 if name == "span" else 3
    theirs = oracle(family, sizes, family.heads[name].architecture, labels)
    body, head = with_head(family, name, theirs, labels)
    tokens, segment, keep = example(7, padded, seed=3)
    out = head(body(Batch(Text(tokens, keep, segment if hasattr(body, "segments") else None))), keep)
    each = name != "label"  # an answer for each token
    slope(out[keep] if each and keep is not None else out).backward()
    for rows, real in pieces(tokens, segment, keep, padded):
        there = slice(None) if real is None else real
        mask = keep if real is None else None
        wanted = logits(theirs(**inputs(family, tokens[rows, there], segment[rows, there], mask)))
        slope(wanted[mask] if each and mask is not None else wanted).backward()
        compare(out[rows, there] if each else out[rows], wanted, real=mask if each else None)
    compare_gradients(body, theirs, family, family.config_from_hf(theirs.config.to_dict()))
    compare_head_gradients(head, theirs, family.heads[name].weight_map)


def test_roberta_reads_its_own_padding_as_the_package_does():
    """With padding's own id the package skips it in its positions, so whole batches can be compared, left padding too."""
    theirs = oracle(*TEXT_CASES[0])
    ours = convert_model(roberta.FAMILY, theirs)
    for padded in ("left", "right"):
        tokens, segment, keep = example(7, padded)
        tokens = tokens.masked_fill(~keep, 1)
        wanted = theirs(input_ids=tokens, attention_mask=keep.long(), token_type_ids=segment).last_hidden_state
        compare(ours(Batch(Text(tokens, keep, segment))), wanted, real=keep)


def pictures(config, seed=0, side=None):
    rows, columns = side or (config.image_height, config.image_height)
    shape = (2, config.channels, rows, columns)
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def double_softmax(monkeypatch):
    """The package's ViT takes its softmax in single precision, when it shows its maps; here it keeps to double."""
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim=None, dtype=None: softmax(x, dim=dim))


@pytest.mark.usefixtures("double_softmax")
@pytest.mark.parametrize(("family", "sizes"), named(IMAGE_CASES))
def test_pictures(family, sizes):
    theirs = oracle(family, sizes)
    ours = convert_model(family, theirs)
    config = family.config_from_hf(theirs.config.to_dict())
    pixels = pictures(config)
    out, states, maps = seen(ours, Batch(Image(pixels)))
    wanted = theirs(pixel_values=pixels, output_hidden_states=True, output_attentions=True)
    compare(out, wanted.last_hidden_state)
    for state, hidden in zip(states, wanted.hidden_states, strict=True):
        compare(state, hidden)
    for weights, attention in zip(maps, wanted.attentions, strict=True):
        compare(weights, attention)
    slope(out).backward()
    slope(wanted.last_hidden_state).backward()
    compare_gradients(ours, theirs, family, config)


@pytest.mark.parametrize(("family", "sizes"), named(IMAGE_CASES))
def test_labels_of_pictures(family, sizes):
    theirs = oracle(family, sizes, "ViTForImageClassification", attention="sdpa")
    body, head = with_head(family, "label", theirs)
    config = family.config_from_hf(theirs.config.to_dict())
    pixels = pictures(config)
    out, wanted = head(body(Batch(Image(pixels)))), theirs(pixel_values=pixels).logits
    compare(out, wanted)
    slope(out).backward()
    slope(wanted).backward()
    compare_gradients(body, theirs, family, config)
    compare_head_gradients(head, theirs, family.heads["label"].weight_map)


@pytest.mark.parametrize("cells", [(3, 5), (6, 2), (1, 1), (7, 7)])
@pytest.mark.parametrize(("family", "sizes"), named(IMAGE_CASES))
def test_pictures_of_another_size(family, sizes, cells):
    theirs = oracle(family, sizes, attention="sdpa")
    ours = convert_model(family, theirs)
    config = family.config_from_hf(theirs.config.to_dict())
    side = cells[0] * config.patch_size, cells[1] * config.patch_size
    pixels = pictures(config, side=side)
    with torch.no_grad():
        out = ours.resize_positions(*side)(Batch(Image(pixels)))
        compare(out, theirs(pixel_values=pixels, interpolate_pos_encoding=True).last_hidden_state)
    if side != (config.image_height, config.image_height):
        with pytest.raises(ValueError, match=rf"resize_positions\({side[0]}, {side[1]}\)"):
            ours(Batch(Image(pixels)))


@pytest.mark.parametrize(("family", "sizes"), named(TEXT_CASES + IMAGE_CASES))
def test_single_precision(family, sizes):
    theirs = oracle(family, sizes)
    ours = convert_model(family, theirs).float()
    theirs = theirs.float()
    if family is vit.FAMILY:
        pixels = pictures(family.config_from_hf(theirs.config.to_dict())).float()
        pairs = [(ours(Batch(Image(pixels))), theirs(pixel_values=pixels).last_hidden_state, None)]
    else:
        tokens, segment, keep = example(7, "right")
        text = Text(tokens, keep, segment if hasattr(ours, "segments") else None)
        pairs = [(ours(Batch(text)), theirs(**inputs(family, tokens, segment, keep)).last_hidden_state, keep)]
    for out, wanted, real in pairs:
        compare(out, wanted, real=real, rtol=1e-4)


@pytest.mark.parametrize(("family", "sizes"), named(TEXT_CASES + IMAGE_CASES))
def test_files_and_configs_both_ways(family, sizes, tmp_path):
    """Every tensor of the package's own file has a place, and what we would write is that file again."""
    theirs = oracle(family, sizes)
    theirs.save_pretrained(tmp_path)
    config = family.config_from_hf(theirs.config.to_dict())
    files = load_file(tmp_path / "model.safetensors")
    read = to_ours(files, family.weight_map(config))
    assert all(name.startswith("pooler.") for name in read.unmapped)
    back = to_theirs(read.tensors, family.weight_map(config))
    assert back.keys() == files.keys() - set(read.unmapped)
    for name, tensor in back.items():
        assert torch.equal(tensor, files[name])
    raw = family.config_to_hf(config)
    assert family.config_from_hf(raw) == config
    again = type(theirs.config)(**{key: value for key, value in raw.items() if key != "model_type"})
    for key in raw.keys() - {"model_type"}:
        same = getattr(theirs.config, key)
        assert getattr(again, key) == (same[0] if isinstance(same, list) else same), key


@pytest.mark.parametrize(
    ("family", "raw", "words"),
    [
        (roberta.FAMILY, {"is_decoder": True}, "is_decoder = True"),
        (roberta.FAMILY, {"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        (roberta.FAMILY, {"pad_token_id": None}, "pad_token_id = None must be one of the 50265 ids"),
        (roberta.FAMILY, {"pad_token_id": 10**18}, "one of the 50265 ids"),
        (electra.FAMILY, {"hidden_act": "mish"}, "'mish' is not supported"),
        (vit.FAMILY, {"patch_size": [16, 8]}, "is not square"),
        (vit.FAMILY, {"qkv_bias": False}, "qkv_bias = False"),
    ],
)
def test_what_is_not_built_is_refused_by_name(family, raw, words):
    with pytest.raises(ValueError, match=words):
        family.config_from_hf(raw)


def test_patches_must_tile():
    with pytest.raises(ValueError, match="image size 12 is not a multiple of patch_size 5"):
        vit.ViT(vit.Config(image_height=12, patch_size=5))

"""Whole directories, there and back: what `transformers` writes we load, what we save it loads with nothing missing and
nothing unexpected, and saving twice gives the same bytes."""

from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file

from saccade.data import Batch, Image, Text
from saccade.models.build import new
from saccade.models.families import bert, distilbert, vit
from saccade.models.load import load
from saccade.models.registry import FAMILIES

SIZES = {"vocab_size": 53, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}
READS = SIZES | {"max_position_embeddings": 19}
PAIRED = {"vocab_size": 53, "d_model": 12, "max_position_embeddings": 19, "pad_token_id": 1, "eos_token_id": 2}
PAIRED |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 17))}
PAIRED |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_start_token_id": 2}
DECODER = SIZES | {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 19}
PUBLISHED = {
    "bert": READS,
    "roberta": READS,
    "xlm_roberta": READS | {"layer_norm_eps": 1e-5},
    "camembert": READS | {"type_vocab_size": 1},
    "distilbert": {"vocab_size": 53, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 17}
    | {"max_position_embeddings": 19, "qa_dropout": 0.3, "seq_classif_dropout": 0.4},
    "electra": READS | {"embedding_size": 5, "classifier_dropout": 0.3},
    "longformer": READS | {"attention_window": [4, 6], "max_position_embeddings": 24},
    "bigbird": READS | {"block_size": 2, "num_random_blocks": 1},
    "gpt2": {"vocab_size": 53, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 19},
    "llama": DECODER,
    "mistral": DECODER | {"sliding_window": 5},
    "qwen2": DECODER,
    "qwen3": DECODER | {"head_dim": 4},
    "gpt_neox": SIZES | {"max_position_embeddings": 19, "rotary_pct": 0.5},
    "gemma3": DECODER | {"head_dim": 4, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "t5": {"vocab_size": 53, "d_model": 12, "d_kv": 4, "d_ff": 17, "num_layers": 2, "num_heads": 3},
    "bart": PAIRED,
    "marian": PAIRED | {"pad_token_id": 52, "decoder_start_token_id": 52, "decoder_vocab_size": 53},
    "vit": {
        "image_size": 12,
        "patch_size": 4,
        "encoder_stride": 4,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
    }
    | {"intermediate_size": 17},
}
WITH_FORM = [family for family in FAMILIES if family.weight_map is not None]
CASES = [pytest.param(f, head, id=f"{f.name}-{head or 'body'}") for f in WITH_FORM for head in (None, *f.heads)]
LABELS = {"id2label": {0: "neg", 1: "so so", 2: "pos"}, "label2id": {"neg": 0, "so so": 1, "pos": 2}}


def published_class(family, head):
    return getattr(transformers, family.architecture if head is None else family.heads[head].architecture)


def made(family, head):
    """A tiny model of theirs, no weight of which is what a new one would have."""
    torch.manual_seed(1)
    cls = published_class(family, head)
    labels = LABELS if head in ("label", "tag") else {}
    theirs = cls(cls.config_class(**PUBLISHED[family.name], **labels)).eval()
    for p in (p for p in theirs.parameters() if p.requires_grad):  # Marian's positions are computed, not learned
        torch.nn.init.normal_(p, std=0.3)
    return theirs


def whole(cls, directory):
    """Their model of a directory, if it finds there what it needs and nothing else."""
    theirs, info = cls.from_pretrained(directory, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return theirs.eval()


def same_bytes(one, other):
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_every_published_family_has_a_case():
    assert PUBLISHED.keys() == {family.name for family in WITH_FORM}


@pytest.mark.parametrize(("family", "head"), CASES)
def test_there_and_back(family, head, tmp_path):
    theirs = made(family, head)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert (ours.family.name, ours.head_name) == (family.name, head)
    assert not ours.report.missing
    assert not ours.report.unexpected
    ours.save(tmp_path / "ours")
    again = whole(type(theirs), tmp_path / "ours")
    wanted, found = theirs.state_dict(), again.state_dict()
    assert wanted.keys() == found.keys()
    for name, x in wanted.items():
        assert torch.equal(x, found[name]), name
    load(tmp_path / "ours").save(tmp_path / "twice")
    same_bytes(tmp_path / "ours", tmp_path / "twice")
    if head in ("label", "tag"):
        assert ours.labels == ("neg", "so so", "pos")
        assert again.config.id2label == LABELS["id2label"]
        assert again.config.label2id == LABELS["label2id"]


@pytest.mark.parametrize(("family", "head"), CASES)
def test_a_new_model_is_whole_too(family, head, tmp_path):
    """Also where the published class has parts that our body has no use for."""
    config = family.config_from_hf(published_class(family, head).config_class(**PUBLISHED[family.name]).to_dict())
    torch.manual_seed(2)
    ours = new(family, config, head=head, labels=("a", "b", "c"))
    ours.save(tmp_path / "ours")
    theirs = whole(published_class(family, head), tmp_path / "ours")
    assert not load(tmp_path / "ours").report.missing
    load(tmp_path / "ours").save(tmp_path / "twice")
    same_bytes(tmp_path / "ours", tmp_path / "twice")
    if head in ("label", "tag"):
        assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    for name, x in theirs.named_parameters():
        assert x.isfinite().all(), name
        assert x.any() or x.dim() < 2, name  # no matrix was left empty


@pytest.mark.parametrize("family", [f for f in WITH_FORM if f.heads], ids=lambda f: f.name)
def test_the_bare_body_is_what_automodel_reads(family, tmp_path):
    made(family, None).save_pretrained(tmp_path / "theirs")
    load(tmp_path / "theirs").save(tmp_path / "ours")
    whole(transformers.AutoModel, tmp_path / "ours")


def test_several_labels_at_once(tmp_path):
    cls = transformers.BertForSequenceClassification
    theirs = cls(transformers.BertConfig(**READS, **LABELS, problem_type="multi_label_classification"))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.multi_label
    ours.save(tmp_path / "ours")
    assert whole(cls, tmp_path / "ours").config.problem_type == "multi_label_classification"
    ours.multi_label = False
    ours.save(tmp_path / "one")
    assert whole(cls, tmp_path / "one").config.problem_type is None
    assert not load(tmp_path / "one").multi_label


def test_labels_asked_for(tmp_path):
    made(bert.FAMILY, "label").save_pretrained(tmp_path / "theirs")
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    other = load(tmp_path / "theirs", labels=("yes", "no"))
    assert other.labels == ("yes", "no")
    assert sorted(other.report.missing) == ["head.score.bias", "head.score.weight"]
    assert other.head.score.weight.shape == (2, 12)
    assert torch.equal(other.head.between[0].weight, stored["bert.pooler.dense.weight"])  # its pooler still fits
    named = load(tmp_path / "theirs", labels=("a", "b", "c"))
    assert torch.equal(named.head.score.weight, stored["classifier.weight"])
    assert "neg, so so, pos to a, b, c" in str(named.report)
    assert load(tmp_path / "theirs", labels=3).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    for wrong, words in (
        ("yes", "list of labels"),
        (("a", "a"), "'a' occurs more than once"),
        ((), "from 1 to"),
        (0, "from 1"),
    ):
        with pytest.raises(ValueError, match=words):
            load(tmp_path / "theirs", labels=wrong)


def test_the_head_of_one_task_is_not_taken_for_that_of_another(tmp_path):
    """BERT calls the last layer of both `classifier`."""
    made(bert.FAMILY, "tag").save_pretrained(tmp_path / "theirs")
    label = load(tmp_path / "theirs", head="label", labels=3)
    assert {"head.score.weight", "head.score.bias"} <= set(label.report.missing)
    assert "classifier.weight" in label.report.unexpected
    assert load(tmp_path / "theirs", head="label").labels == ("LABEL_0", "LABEL_1")
    body = load(tmp_path / "theirs", head="body")
    assert body.head is None
    assert body(Batch(Text(torch.tensor([[5, 7]])))).shape == (1, 2, 12)


@pytest.mark.parametrize("id2label", [[], ["a"], {"0": "a", "2": "b"}, {"x": "a"}, 7, {"-1": "a"}])
def test_labels_that_are_none(id2label, tmp_path):
    import json

    made(bert.FAMILY, "label").save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": id2label}))
    with pytest.raises(ValueError, match=r"id2label must map 0, 1, 2|do not match the config"):
        load(tmp_path / "theirs")


def test_dropout_before_a_head(tmp_path):
    """As published, both ways, and where it acts."""
    cases = [
        (bert.FAMILY, {"classifier_dropout": 0.37}, {"label": 0.37, "tag": 0.37}),
        (bert.FAMILY, {"hidden_dropout_prob": 0.21}, {"label": 0.21, "tag": 0.21}),
        (distilbert.FAMILY, {"qa_dropout": 0.33, "seq_classif_dropout": 0.44}, {"label": 0.44, "span": 0.33}),
    ]
    for number, (family, options, heads) in enumerate(cases):
        for head, rate in heads.items():
            cls = published_class(family, head)
            theirs = cls(cls.config_class(**PUBLISHED[family.name] | options))
            home = tmp_path / f"{number} {head}"
            theirs.save_pretrained(home / "theirs")
            ours = load(home / "theirs")
            assert ours.head.dropout.p == theirs.dropout.p == rate
            ours.save(home / "ours")
            back = whole(cls, home / "ours")
            assert back.dropout.p == rate
            for key, value in options.items():
                assert getattr(back.config, key) == value


@pytest.mark.parametrize(("rows", "columns", "said"), [(20, 20, 20), (8, 16, [8, 16])])
def test_a_resized_vit_says_its_new_size(rows, columns, said, tmp_path):
    made(vit.FAMILY, "label").save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    ours.body = ours.body.resize_positions(rows, columns).eval()
    ours.save(tmp_path / "ours")
    again, theirs = load(tmp_path / "ours"), whole(transformers.ViTForImageClassification, tmp_path / "ours")
    assert theirs.config.image_size == said
    pixels = torch.randn(2, 3, rows, columns, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = theirs(pixels).logits
        torch.testing.assert_close(ours(Batch(Image(pixels))), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(again(Batch(Image(pixels))), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [{"patch_size": n} for n in (0, -4, 5, 24, "4", None, 4.0, [4, 2], [4], [[4], [4]], [0, 0])]
    + [{"image_size": n} for n in (0, -12, 13, 10**9, [12], [12, 13], [12, 0], [12, "x"], [], None)]
    + [{"num_channels": n} for n in (0, -3, 10**9)],
    ids=str,
)
def test_hostile_sizes_of_a_picture(change, tmp_path):
    import json

    made(vit.FAMILY, None).save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"patch_size|image_height|image_width|channels|image_size|Patches"):
        load(tmp_path / "theirs")


def test_hostile_sizes_are_refused_when_built_too():
    tiny = vit.Config(image_height=12, patch_size=4, width=12, layers=1, heads=3, ffn_width=17)
    for change in (
        {"patch_size": 0},
        {"patch_size": -4},
        {"image_height": 0},
        {"image_height": -12},
        {"image_height": 13},
        {"image_width": 13},
        {"image_width": 0},
    ):
        with pytest.raises(ValueError, match="is not a multiple of patch_size"):
            new("vit", replace(tiny, **change))

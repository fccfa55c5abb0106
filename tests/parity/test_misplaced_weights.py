"""Weights of another family under a model_type of ours: one error that lists both sides, no model that computes otherwise."""

import json

import pytest
import torch
import transformers

import saccade
from saccade.models.build import new
from saccade.models.families import bart, bert, llama
from saccade.models.load import load

SIZES = {"vocab_size": 53, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 17}
DECODER = SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 19, "pad_token_id": 0}
PAIRED = {"vocab_size": 53, "d_model": 12, "max_position_embeddings": 19, "pad_token_id": 1, "eos_token_id": 2}
PAIRED |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 17))}
PAIRED |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_start_token_id": 2}


def under(theirs, name, home):
    """A directory of theirs that says it is of another family."""
    theirs.save_pretrained(home)
    path = home / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": name}))
    return home


@pytest.mark.parametrize(
    ("cls", "name", "sizes", "count", "words"),
    [
        (transformers.Qwen2ForCausalLM, "llama", DECODER, 6, "model.layers.0.self_attn.k_proj.bias"),
        (transformers.Qwen3ForCausalLM, "llama", DECODER | {"head_dim": 2}, 4, "self_attn.k_norm.weight"),
        (transformers.MBartForConditionalGeneration, "bart", PAIRED, 4, "model.decoder.layer_norm.weight"),
    ],
    ids=["qwen2", "qwen3", "mbart"],
)
def test_a_body_with_more_than_ours(cls, name, sizes, count, words, tmp_path):
    home = under(cls(cls.config_class(**sizes)), name, tmp_path / "theirs")
    for read in (load, saccade.load):
        with pytest.raises(ValueError, match=f"(?s)the weights are not those of {name}.*{words}") as error:
            read(home)
        said = str(error.value)
        assert "Unexpected in the files: " in said
        assert "Missing from the files: " in said
        assert f"Unexpected in the files: {count} (" in said


def test_both_sides_are_listed(tmp_path):
    """A layer that a config does not count has no place; one that it counts is missing."""
    from safetensors.torch import load_file, save_file

    new("bert", bert.Config(vocab=53, width=12, layers=2, heads=3, ffn_width=17, max_positions=19)).save(
        tmp_path / "bert"
    )
    path = tmp_path / "bert" / "model.safetensors"
    found = load_file(path)
    found["encoder.layer.7.output.dense.bias"] = found.pop("encoder.layer.1.output.dense.bias")
    found["encoder.layer.0.attention.self.query.scale"] = torch.ones(1)
    save_file(found, path, {"format": "pt"})
    with pytest.raises(ValueError, match="Unexpected in the files: 2") as error:
        load(tmp_path / "bert")
    for name in (
        "encoder.layer.7.output.dense.bias",
        "encoder.layer.0.attention.self.query.scale",
        "body.stack.layers.1.feedforward.branch.down.bias",
    ):
        assert name in str(error.value)


@pytest.mark.parametrize("family", [llama.FAMILY, bart.FAMILY], ids=lambda family: family.name)
def test_our_own_form_too(family, tmp_path):
    """What `saccade` wrote itself, with a tensor that the model has no place for."""
    from safetensors.torch import load_file, save_file

    tiny = {"vocab": 53, "width": 12, "layers": 2, "heads": 3, "ffn_width": 17, "max_positions": 19}
    more = {"decoder_layers": 2, "decoder_heads": 3, "decoder_ffn_width": 17} if family is bart.FAMILY else {}
    model = new(family, family.config_class(**tiny, **more))
    model.kept_heads = {"encoder.layers.0.attention.branch" if more else "stack.layers.0.attention.branch": (0, 1, 2)}
    model.save(tmp_path / "ours")  # with a list of heads it has no published form
    assert "saccade" in json.loads((tmp_path / "ours" / "config.json").read_text())
    path = tmp_path / "ours" / "model.safetensors"
    save_file(load_file(path) | {"body.words.shift": torch.ones(3)}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"Unexpected in the files: 1 \(body\.words\.shift\)"):
        load(tmp_path / "ours")


def test_two_names_for_one_tensor(tmp_path):
    from safetensors.torch import load_file, save_file

    new("bert", bert.Config(vocab=53, width=12, layers=1, heads=3, ffn_width=17, max_positions=19)).save(
        tmp_path / "bert"
    )
    path = tmp_path / "bert" / "model.safetensors"
    found = load_file(path)
    found["bert.embeddings.LayerNorm.weight"] = found["embeddings.LayerNorm.weight"] + 1
    save_file(found, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"embeddings\.LayerNorm\.weight and .*both map to"):
        load(tmp_path / "bert")


def test_the_first_berts_names_of_a_norm(tmp_path):
    """The published bert-base-uncased calls the weight and bias of a norm gamma and beta."""
    from safetensors.torch import load_file, save_file

    model = new("bert", bert.Config(vocab=53, width=12, layers=2, heads=3, ffn_width=17, max_positions=19), head="lm")
    for p in model.parameters():
        torch.nn.init.normal_(p)
    model.save(tmp_path / "bert")
    path = tmp_path / "bert" / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
        for name, x in load_file(path).items()
    }
    assert sum(name.endswith("gamma") for name in old) == 6
    save_file(old, path, {"format": "pt"})
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path / "bert")
    again = load(tmp_path / "bert")
    assert not again.report.unexpected
    wanted = theirs.state_dict()["bert.encoder.layer.1.output.LayerNorm.weight"]
    assert torch.equal(again.body.stack.layers[1].feedforward.norm.weight, wanted)
    for name, x in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], x), name

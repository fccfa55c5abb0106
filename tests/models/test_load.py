"""Models in and out: published directories, and our own; hostile ones are in test_hostile.py."""

import json
import os

import pytest
import torch
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.models.load import load, save

TOKENS = torch.tensor([[5, 7, 11, 3], [2, 9, 1, 4]])


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Directories as the `transformers` package writes them."""
    from transformers import BertConfig, BertForMaskedLM, BertModel, GPT2Config, GPT2LMHeadModel

    home = tmp_path_factory.mktemp("published")
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 31,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 20,
    }
    made = {
        "bert": BertModel(BertConfig(**sizes, max_position_embeddings=16)),
        "masked": BertForMaskedLM(BertConfig(**sizes, max_position_embeddings=16)),
        "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=31, n_embd=12, n_layer=2, n_head=3, n_positions=16)),
    }
    for name, model in made.items():
        model.eval().save_pretrained(home / name)
    made["gpt2"].save_pretrained(home / "shards", max_shard_size="8KB")
    return home, made


def test_bodies_heads_and_shards(published):
    home, made = published
    bert = load(home / "bert")
    with torch.no_grad():
        assert_close(bert(Batch(Text(TOKENS))), made["bert"](TOKENS).last_hidden_state, rtol=1e-4, atol=1e-4)
        masked = load(home / "masked", head="lm")
        assert_close(masked(Batch(Text(TOKENS))), made["masked"](TOKENS).logits, rtol=1e-4, atol=1e-4)
        for name in ("gpt2", "shards"):
            gpt2 = load(home / name)
            state, text = gpt2.start(Batch(Text(TOKENS)))
            assert_close(gpt2.step(text, state), made["gpt2"](TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert gpt2.body.head.score.weight is gpt2.body.words.vectors.weight
    assert masked.head.score.weight is masked.body.words.vectors.weight


def test_what_is_dropped_can_be_set_anew_and_nothing_else(published, tmp_path):
    home, _ = published
    plain, wet = load(home / "bert"), load(home / "bert", overrides={"dropout": 0.75, "width": 12})
    seen = Batch(Text(TOKENS))
    assert torch.equal(plain(seen), wet(seen)), "nothing is dropped when it is asked"
    assert [(one.p, other.p) for one, other in zip(dropouts(wet), dropouts(plain), strict=True)] == [(0.75, 0.1)] * 5
    save(wet, tmp_path / "wet")
    assert load(tmp_path / "wet").config.dropout == 0.75
    for given, said in [
        ({"width": 24}, "is a trained model with width = 12, which cannot change to 24"),
        ({"dropuot": 0.1}, "did you mean 'dropout'"),
        ({"dropout": -0.5}, "dropout is -0.5; a rate of at least 0"),
        ({"dropout": True}, "dropout is True; a rate of at least 0"),
        ({"dropout": "0.3"}, "dropout is '0.3'; a rate of at least 0"),
        ({"dropout": None}, "dropout is None; a rate of at least 0"),
        ({"use_attention_dropout": 0.5}, "use_attention_dropout is 0.5; true or false"),
    ]:
        with pytest.raises(ValueError, match=said):
            load(home / "bert", overrides=given)


def dropouts(model):
    return [part for part in model.modules() if isinstance(part, torch.nn.Dropout) and part.p]


def test_the_report_has_three_lines(published):
    home, _ = published
    model = load(home / "masked", head="label", labels=3)
    lines = str(model.report).split("\n")
    assert [line.split()[0] for line in lines] == ["loaded", "new", "unused"]
    assert "head.score.weight" in lines[1]
    assert "cls.predictions" in lines[2]
    assert model.head.score.weight.shape == (3, 12)
    assert all(p.device.type == "cpu" for p in model.parameters())


def test_out_and_in_again(published, tmp_path):
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    home, made = published
    cases = [("bert", None, AutoModel), ("masked", "lm", AutoModelForMaskedLM), ("gpt2", None, AutoModelForCausalLM)]
    for name, head, auto in cases:
        ours = load(home / name, head=head)
        save(ours, tmp_path / name)
        theirs, info = auto.from_pretrained(tmp_path / name, output_loading_info=True)
        assert not info["missing_keys"], name
        assert not info["unexpected_keys"], name
        for key, value in made[name].state_dict().items():
            assert torch.equal(theirs.state_dict()[key], value), key
        again = load(tmp_path / name, head=head)
        save(again, tmp_path / f"{name} again")
        for file in ("model.safetensors", "config.json"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / f"{name} again" / file).read_bytes()


def test_vectors_of_texts(tmp_path):
    """A sentence reader with its tokenizer and pooling: used, out, and in again."""
    import saccade
    from saccade import text
    from saccade.models.families import bert
    from saccade.models.load import Model, Pooling
    from saccade.models.pooling import Normalize

    config = bert.Config(vocab=320, width=12, layers=2, heads=3, ffn_width=20, max_positions=16)
    model = Model(bert.FAMILY, config, bert.Bert(config)).eval()
    with pytest.raises(ValueError, match="has no tokenizer"):
        saccade.embed(model, ["a"])
    model.tokenizer = text.train_tokenizer(["a bank of a river", "the bank raised rates"], "characters", 300)
    model.pooling = Pooling(layers=(Normalize(),))
    texts = ["a river", "the bank", "a"]
    states, vectors = saccade.encode(model, texts), saccade.embed(model, texts)
    for x, item, vector in zip(states, texts, vectors, strict=True):
        assert len(x) == len(model.tokenizer.encode(item).ids)
        assert_close(torch.nn.functional.normalize(x.mean(0), dim=0), vector, rtol=1e-5, atol=1e-6)
    save(model, tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.pooling == Pooling(layers=(Normalize(),))
    assert_close(saccade.embed(again, texts), vectors)
    with pytest.raises(ValueError, match="at most 16"):
        saccade.encode(model, ["river" * 20])
    assert saccade.embed(model, ["river" * 20]).shape == (1, 12)


def test_import_export_and_models_on_the_command_line(published, tmp_path, capsys):
    from saccade.cli import main
    from saccade.models.registry import FAMILIES

    home, made = published
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["import", str(home / "gpt2"), str(run)]) == 0
    assert "as gpt2" in capsys.readouterr().out
    assert main(["export", str(run), str(out), "--unaudited", "a test"]) == 0
    assert (out / "model.safetensors").exists()
    assert main(["export", str(run), str(out)]) == 2
    assert main(["import", str(tmp_path / "nothing here"), str(tmp_path / "new")]) == 4
    assert "no such directory" in capsys.readouterr().err
    old = clone(home / "gpt2", tmp_path / "old")
    (old / "model.safetensors").unlink()
    torch.save(made["gpt2"].state_dict(), old / "pytorch_model.bin")
    assert main(["import", str(old), str(tmp_path / "new")]) == 4
    assert "--convert-pickle" in capsys.readouterr().err
    assert main(["import", "--convert-pickle", str(old), str(tmp_path / "new")]) == 0
    again = load(tmp_path / "new")
    for name, p in load(run).named_parameters():
        assert torch.equal(p, again.get_parameter(name))
    capsys.readouterr()
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    for family in FAMILIES:
        assert family.name in listed
        assert main(["models", family.name]) == 0
        assert "parameters" in capsys.readouterr().out


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_malicious_pickle_runs_nothing(published, tmp_path, capsys):
    import pickle

    from saccade.cli import main

    home, _ = published
    old, mark = clone(home / "gpt2", tmp_path / "old"), tmp_path / "ran"
    (old / "model.safetensors").unlink()
    torch.save({"a": Evil(mark)}, old / "pytorch_model.bin")
    assert main(["import", "--convert-pickle", str(old), str(tmp_path / "new")]) == 4
    assert "rejected" in capsys.readouterr().err
    (old / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Evil(mark)}))
    assert main(["import", "--convert-pickle", str(old), str(tmp_path / "new")]) == 4
    assert not mark.exists()
    assert not (tmp_path / "new").exists()


def test_what_is_missing_is_listed(published, tmp_path):
    from safetensors.torch import load_file, save_file

    home, _ = published
    copy = clone(home / "bert", tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.bias"]
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"Unexpected in the files: none.*Missing from the files: 1 \(.*layers\.1\.feedforward\.branch\.down\.bias",
    ):
        load(copy)


def clone(source, target):
    import shutil

    return shutil.copytree(source, target)


def config(change):
    def apply(directory):
        path = directory / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    return apply


def pickled(name):
    def apply(directory):
        (directory / "model.safetensors").unlink()
        torch.save({"a": torch.zeros(1)}, directory / name)

    return apply


def test_code_in_a_config_is_ignored_and_said(published, tmp_path):
    home, _ = published
    directory = clone(home / "bert", tmp_path / "model")
    config({"auto_map": {"AutoModel": "evil.Model"}, "trust_remote_code": True})(directory)
    (directory / "evil.py").write_text("raise SystemExit('ran')")
    assert "auto_map, trust_remote_code" in str(load(directory).report)


def test_a_pickle_is_told_by_content(published, tmp_path):
    home, _ = published
    directory = clone(home / "bert", tmp_path / "model")
    pickled("pytorch_model.bin")(directory)
    with pytest.raises(ValueError, match=r"pickle.*saccade import --convert-pickle"):
        load(directory)


def test_paths_and_names():
    with pytest.raises(ValueError, match="no such directory"):
        load("./nowhere/at/all")
    with pytest.raises(ValueError, match="is a file"):
        load(__file__)

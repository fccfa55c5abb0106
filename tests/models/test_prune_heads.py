"""`saccade look RUN --prune`: a smaller run that answers as the large one with heads off, trains on, and goes out whole."""

import json

import pytest
import torch
from torch.testing import assert_close

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.explain.ablate import ablate_heads, parse_head
from saccade.models.build import new
from saccade.models.load import load
from saccade.models.registry import get_family
from saccade.text import train_tokenizer

SIZES = {"width": 24, "layers": 2, "heads": 4, "ffn_width": 32, "max_positions": 32, "dropout": 0.0}
CLASSES = {"bert": "BertModel", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}


def made(name, **more):
    """A model with weights large enough that heads differ."""
    torch.manual_seed(5)
    words = train_tokenizer([], "bytes")
    model = new(name, get_family(name).config_class(vocab=words.vocab, **SIZES | more)).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=0.3)
    model.tokenizer = words
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a small classifier."""
    home = tmp_path_factory.mktemp("home")
    data = home / "topics.tsv"
    assert main(["data", "get", "topics", str(data), "--count", "40"]) == 0
    small = "--model.width 24 --model.layers 2 --model.heads 4 --model.ffn-width 32 --train.max-steps 2"
    small += " --train.max-eval-examples 4"
    assert main(["train", "label", "--data", str(data), "--out", str(home / "run"), *small.split()]) == 0
    return home / "run", data


def test_a_run_becomes_smaller_and_is_a_run(run, tmp_path, capsys):
    where, data = run
    out = tmp_path / "smaller"
    capsys.readouterr()
    assert main(["look", str(where), "--prune", "0.1,0.3", "1.2", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pruned"] == ["all.self.0.1", "all.self.0.3", "all.self.1.2"]
    assert told["bytes"][1] < told["bytes"][0]
    assert told["parameters"][1] == sum(p.numel() for p in load(out).parameters()) < told["parameters"][0]
    model, smaller = load(where), load(out)
    batch = Batch(Text.pad([model.tokenizer.encode("a list of names").ids]))
    with torch.no_grad(), ablate_heads(model, [parse_head(model, name) for name in ("0.1", "0.3", "1.2")]):
        assert_close(smaller(batch), model(batch), rtol=0, atol=1e-5)
    assert main(["label", str(out), "The function returns a list."]) == 0
    assert main(["evaluate", str(out), "--data", str(data)]) == 0


def test_it_trains_on(run, tmp_path):
    where, data = run
    out, again = tmp_path / "smaller", tmp_path / "again"
    assert main(["look", str(where), "--prune", "0.1", "--out", str(out)]) == 0
    few = "--train.max-steps 3 --train.max-eval-examples 4"
    assert main(["train", "label", "--data", str(data), "--model", str(out), "--out", str(again), *few.split()]) == 0
    before, after = load(out), load(again)
    assert after.kept_heads == before.kept_heads == {"stack.layers.0.attention.branch": (0, 2, 3)}
    name = "body.stack.layers.0.attention.branch.query.weight"
    assert after.get_parameter(name).shape == before.get_parameter(name).shape == (18, 24)
    assert not torch.equal(after.get_parameter(name), before.get_parameter(name))


@pytest.mark.parametrize(
    ("name", "more", "gone"),
    [("bert", {}, "0.1 1.0"), ("gpt2", {}, "0.1 1.0"), ("llama", {"kv_heads": 2}, "0.1 0.3 1.2 1.3")],
)
def test_exported_it_has_the_full_shape_and_others_answer_the_same(name, more, gone, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    whole, out, exported = (str(tmp_path / one) for one in ("whole", "smaller", "exported"))
    made(name, **more).save(whole)
    assert main(["look", whole, "--prune", *gone.split(), "--out", out]) == 0
    assert main(["export", out, exported, "--unaudited", "a test"]) == 0
    assert "zeros" in capsys.readouterr().out
    theirs = getattr(transformers, CLASSES[name]).from_pretrained(exported).eval()
    ids = torch.tensor([[5, 80, 17, 201, 44]])
    model = load(out)
    with torch.no_grad():
        ours = model(Batch(Text(ids))) if name == "bert" else model.step(Text(ids), model.start(Batch(Text(ids)))[0])
        found = theirs(ids)
    assert_close(found.last_hidden_state if name == "bert" else found.logits, ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "said", "code"),
    [
        ("--prune 0.1", "name a new directory", 2),
        ("--prune 0.1 --out {run}", "already exists", 2),
        ("--prune 0.9 --out {new}", "has no head '0.9'", 2),
        ("--prune 0.0 0.1 0.2 0.3 --out {new}", "no heads left", 4),
        ("--prune 0.1 --ablate --out {new}", "takes no text", 2),
        ("hello --out {new}", "--out is the directory of --prune", 2),
    ],
)
def test_what_cannot_be_removed_is_said(run, tmp_path, capsys, flags, said, code):
    new_run = tmp_path / "new"
    assert main(["look", str(run[0]), *flags.format(run=run[0], new=new_run).split()]) == code
    assert said in capsys.readouterr().err
    assert not new_run.exists()


@pytest.mark.parametrize("verb", ["translate", "summarize", "caption", "paint", "generate", "label", "tag", "predict"])
def test_a_mistyped_run_is_told_its_neighbour(run, capsys, verb):
    wrong = run[0].with_name("rum")
    assert main([verb, str(wrong), "hello"]) == 4
    assert f"did you mean {run[0]}?" in capsys.readouterr().err

"""What a look says of itself: how much a token passes on, where a text was cut, and why there is no answer."""

import copy
import json

import pytest
import torch
from test_look import TEXTS, made
from torch.testing import assert_close

import saccade
from saccade.attention.watch import Pooled
from saccade.cli import main
from saccade.decoding.settings import Decoding
from saccade.explain.inputs import ask
from saccade.explain.look import look_at
from saccade.explain.looks import Looks
from saccade.models import bert as berts
from saccade.models import gpt2, llama, painter
from saccade.models.new import new
from saccade.tasks.pair import Pair
from saccade.text import train

LONG = "the bank of the river raised its rates " * 20


@pytest.fixture(scope="module")
def reader():
    return made("transformer_reader", head="label", labels=("good", "bad"))


@pytest.fixture(scope="module")
def translator():
    return made("transformer", frame="t5")


@pytest.fixture(scope="module")
def writer():
    return made("gpt2", frame="none", config=gpt2.Config(300, 8, length=40, layers=2, heads=2, inner=8, dropout=0.0))


def test_a_weight_times_its_value_norm_is_what_a_loop_over_the_vectors_gives(reader):
    """The values are caught on their way into the mechanism, and each norm is a sum of squares."""
    caught = {}
    placed = []
    for name, module in reader.named_modules():
        if hasattr(module, "watcher"):
            keep = lambda _, given, name=name: caught.__setitem__(name, given[2])
            placed.append(module.register_forward_pre_hook(keep))
    looks = saccade.look(reader, TEXTS[0])
    for handle in placed:
        handle.remove()
    for seen in looks:
        found = seen.weigh_values()
        for head in range(2):
            for key in range(len(seen.key)):
                norm = sum(float(x) ** 2 for x in caught[seen.name][0, head, key]) ** 0.5
                assert_close(found.weights[head, :, key], seen.weights[head, :, key] * norm)
        words = found.to_words(looks.texts)
        assert_close(words.weights.sum(-1)[:, 0], found.weights.sum(-1)[:, 0])  # a word passes on what its parts do


def test_value_heads_that_serve_a_group_are_told_for_every_query_head():
    config = llama.Config(300, 16, layers=1, heads=4, key_heads=2, inner=16, length=64)
    model = made("llama", frame="none", config=config)
    (seen,) = saccade.look(model, TEXTS[0], decoding=Decoding(length=2)).maps
    assert seen.value_norms.shape == (4, len(seen.key))
    assert torch.equal(seen.value_norms[0], seen.value_norms[1])
    assert not torch.equal(seen.value_norms[1], seen.value_norms[2])
    assert torch.equal(seen.pick(heads=[2]).value_norms[0], seen.value_norms[2])


def test_value_norms_are_kept_on_disk_and_missing_ones_say_why(reader, tmp_path):
    looks = saccade.look(reader, TEXTS[0])
    again = Looks.load(looks.save(tmp_path / "a.looks"))
    assert torch.equal(again[0].value_norms, looks[0].value_norms)
    pooled = saccade.look(reader, TEXTS[0], reduce=Pooled(2))[0]
    assert pooled.pooled
    assert not looks[0].pooled
    with pytest.raises(ValueError, match=r"pooled.*choose rows"):
        pooled.weigh_values()


def test_a_text_that_did_not_end_by_itself_says_where_it_was_cut(writer, tmp_path, capsys):
    looks = saccade.look(writer, TEXTS[0], decoding=Decoding(length=3))
    assert (looks.cut, len(looks[0].query) - len(writer.tokenizer.encode(TEXTS[0], special=False).ids)) == (3, 3)
    assert looks.room == 40 - len(writer.tokenizer.encode(TEXTS[0], special=False).ids)
    assert Looks.load(looks.save(tmp_path / "a.looks")).cut == 3
    longer = saccade.look(writer, TEXTS[0], decoding=Decoding(length=7))
    assert longer.written.startswith(looks.written)
    run = str(writer.save(tmp_path / "run"))
    assert main(["look", run, TEXTS[0], "--length", "5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("answer: ")
    assert out[1] == "cut at 5 tokens: the text did not end by itself; --length sets how many it may write"
    assert main(["look", run, TEXTS[0], "--length", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cut"] == 5
    assert main(["look", run, TEXTS[0], "--length", "999"]) == 0
    assert "the most that the model has room for" in capsys.readouterr().out
    assert main(["look", run, TEXTS[0], "--length", "-1"]) == 2
    assert "cut" in longer._repr_html_()


def test_a_text_that_was_given_or_ended_is_not_called_cut(translator):
    assert saccade.look(translator, (TEXTS[0], TEXTS[1])).cut is None
    assert saccade.look(translator, TEXTS[0], decoding=Decoding(length=2)).cut == 2
    end = translator.tokenizer.target.end
    ending = copy.deepcopy(translator)
    with (
        torch.no_grad()
    ):  # every state is the same vector, and the token that ends a text is the only one that likes it
        ending.body.decoder.leave.weight.zero_()
        ending.body.decoder.leave.bias.fill_(1.0)
        ending.body.head.score.weight.zero_()
        ending.body.head.score.weight[end] = 1.0
    looks = saccade.look(ending, TEXTS[0], decoding=Decoding(length=2))
    assert (looks.cut, looks.no_answer) == (None, "the text that it wrote is empty")


def test_what_the_model_did_not_read_is_counted(tmp_path, capsys):
    bert = made("bert", config=_short_bert(), head="label", labels=("a", "b"))
    whole = len(bert.tokenizer.encode(LONG).ids)
    looks = saccade.look(bert, LONG)
    assert looks.unread == whole - 24 == whole - len(looks[0].query)
    assert saccade.look(bert, TEXTS[0]).unread == 0
    assert main(["look", str(bert.save(tmp_path / "run")), LONG]) == 0
    assert f"its last {looks.unread} tokens were not read" in capsys.readouterr().out


def _short_bert():
    return berts.Config(300, 8, length=24, layers=1, heads=2, inner=8, dropout=0.0)


def test_a_model_that_does_not_answer_says_why_and_never_its_family(tmp_path, capsys):
    bare = made("transformer_reader")
    assert saccade.look(bare, TEXTS[0]).no_answer == "the model has no output head, so it only encodes what it reads"
    masked = made("bert", config=_short_bert(), head="words")
    assert "none is masked" in saccade.look(masked, TEXTS[0]).no_answer
    asks = made("bert", config=_short_bert(), head="span")
    assert "only one text was given" in saccade.look(asks, TEXTS[0]).no_answer
    paints = new("painter", painter.Config(300, 8, layers=1, heads=2, inner=8, size=8, cell=4)).eval()
    paints.tokenizer = train(TEXTS, "bpe", 300)
    assert saccade.look(paints, TEXTS[0]).no_answer == "it paints a picture instead of writing"
    for model, name in ((bare, "transformer_reader"), (masked, "bert")):
        assert main(["look", str(model.save(tmp_path / name)), TEXTS[0]]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith("no answer: the model ")
        assert name not in first
        assert name not in saccade.look(model, TEXTS[0])._repr_html_().partition("<b>")[2].partition("</b>")[0]


def test_one_text_for_a_model_of_pairs_is_no_answer(reader):
    task = Pair(labels=("good", "bad"))
    assert look_at(ask(task, reader, TEXTS[0])).no_answer == "the model compares two texts, and only one was given"
    both = look_at(ask(task, reader, (TEXTS[0], TEXTS[1])))
    assert both.no_answer == ""
    assert both.answer

"""Notes of attention maps: value norms, truncated texts, and the reason for a missing prediction."""

import copy
import json

import pytest
import torch
from test_look import TEXTS, made
from torch.testing import assert_close

import saccade
from saccade.attention.watch import Downsample
from saccade.cli import main
from saccade.decoding.config import GenerationConfig
from saccade.explain.inputs import make_input
from saccade.explain.look import look_at
from saccade.explain.maps import AttentionMaps
from saccade.models.build import new
from saccade.models.families import bert as berts
from saccade.models.families import dalle, gpt2, llama
from saccade.tasks.pair import Pair
from saccade.text import train_tokenizer

LONG = "the bank of the river raised its rates " * 20


@pytest.fixture(scope="module")
def reader():
    return made("transformer_encoder", head="label", labels=("good", "bad"))


@pytest.fixture(scope="module")
def translator():
    return made("transformer", frame="t5")


@pytest.fixture(scope="module")
def writer():
    return made(
        "gpt2", frame="none", config=gpt2.Config(300, 8, max_positions=40, layers=2, heads=2, ffn_width=8, dropout=0.0)
    )


def test_a_weight_times_its_value_norm_is_what_a_loop_over_the_vectors_gives(reader):
    """The values are captured by hooks, and each norm is a sum of squares."""
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
        found = seen.weight_by_value_norm()
        for head in range(2):
            for key in range(len(seen.key)):
                norm = sum(float(x) ** 2 for x in caught[seen.name][0, head, key]) ** 0.5
                assert_close(found.weights[head, :, key], seen.weights[head, :, key] * norm)
        words = found.merge_subwords(looks.texts)
        assert_close(words.weights.sum(-1)[:, 0], found.weights.sum(-1)[:, 0])  # the sum over its tokens


def test_value_norms_of_grouped_heads_are_repeated_for_every_query_head():
    config = llama.Config(300, 16, layers=1, heads=4, kv_heads=2, ffn_width=16, max_positions=64)
    model = made("llama", frame="none", config=config)
    (seen,) = saccade.look(model, TEXTS[0], decoding=GenerationConfig(max_new_tokens=2)).maps
    assert seen.value_norms.shape == (4, len(seen.key))
    assert torch.equal(seen.value_norms[0], seen.value_norms[1])
    assert not torch.equal(seen.value_norms[1], seen.value_norms[2])
    assert torch.equal(seen.select(heads=[2]).value_norms[0], seen.value_norms[2])


def test_value_norms_are_saved_and_missing_ones_have_a_reason(reader, tmp_path):
    looks = saccade.look(reader, TEXTS[0])
    again = AttentionMaps.load(looks.save(tmp_path / "a.looks"))
    assert torch.equal(again[0].value_norms, looks[0].value_norms)
    pooled = saccade.look(reader, TEXTS[0], reduce=Downsample(2))[0]
    assert pooled.pooled
    assert not looks[0].pooled
    with pytest.raises(ValueError, match=r"downsampled.*select rows"):
        pooled.weight_by_value_norm()


def test_truncated_output_is_noted(writer, tmp_path, capsys):
    looks = saccade.look(writer, TEXTS[0], decoding=GenerationConfig(max_new_tokens=3))
    assert (
        looks.truncated_at,
        len(looks[0].query) - len(writer.tokenizer.encode(TEXTS[0], add_special_tokens=False).ids),
    ) == (3, 3)
    assert looks.max_output_tokens == 40 - len(writer.tokenizer.encode(TEXTS[0], add_special_tokens=False).ids)
    assert AttentionMaps.load(looks.save(tmp_path / "a.looks")).truncated_at == 3
    longer = saccade.look(writer, TEXTS[0], decoding=GenerationConfig(max_new_tokens=7))
    assert longer.generated_text.startswith(looks.generated_text)
    run = str(writer.save(tmp_path / "run"))
    assert main(["look", run, TEXTS[0], "--max-new-tokens", "5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("prediction: ")
    assert out[1] == "truncated: generation stopped after 5 tokens; --max-new-tokens sets the limit"
    assert main(["look", run, TEXTS[0], "--max-new-tokens", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["truncated_at"] == 5
    assert main(["look", run, TEXTS[0], "--max-new-tokens", "999"]) == 0
    assert "the maximum length of the model" in capsys.readouterr().out
    assert main(["look", run, TEXTS[0], "--max-new-tokens", "-1"]) == 2
    assert "truncated: generation stopped after 7 tokens" in longer._repr_html_()


def test_output_that_was_given_or_ended_is_not_truncated(translator):
    assert saccade.look(translator, (TEXTS[0], TEXTS[1])).truncated_at is None
    assert saccade.look(translator, TEXTS[0], decoding=GenerationConfig(max_new_tokens=2)).truncated_at == 2
    end = translator.tokenizer.target.eos_id
    ending = copy.deepcopy(translator)
    with torch.no_grad():  # all states are equal, and only the end token has a nonzero score
        ending.body.decoder.leave.weight.zero_()
        ending.body.decoder.leave.bias.fill_(1.0)
        ending.body.head.score.weight.zero_()
        ending.body.head.score.weight[end] = 1.0
    looks = saccade.look(ending, TEXTS[0], decoding=GenerationConfig(max_new_tokens=2))
    assert (looks.truncated_at, looks.no_answer_reason) == (None, "the generated text is empty")


def test_truncated_input_is_counted(tmp_path, capsys):
    bert = made("bert", config=_short_bert(), head="label", labels=("a", "b"))
    whole = len(bert.tokenizer.encode(LONG).ids)
    looks = saccade.look(bert, LONG)
    assert looks.truncated_input_tokens == whole - 24 == whole - len(looks[0].query)
    assert saccade.look(bert, TEXTS[0]).truncated_input_tokens == 0
    assert main(["look", str(bert.save(tmp_path / "run")), LONG]) == 0
    assert f"its last {looks.truncated_input_tokens} tokens were not read" in capsys.readouterr().out


def _short_bert():
    return berts.Config(300, 8, max_positions=24, layers=1, heads=2, ffn_width=8, dropout=0.0)


def test_a_missing_prediction_has_a_reason_without_the_family(tmp_path, capsys):
    bare = made("transformer_encoder")
    assert saccade.look(bare, TEXTS[0]).no_answer_reason == "the model has no output head, so it only encodes its input"
    masked = made("bert", config=_short_bert(), head="lm")
    assert "none is masked" in saccade.look(masked, TEXTS[0]).no_answer_reason
    asks = made("bert", config=_short_bert(), head="span")
    assert "only one text was given" in saccade.look(asks, TEXTS[0]).no_answer_reason
    paints = new("dalle", dalle.Config(300, 8, layers=1, heads=2, ffn_width=8, image_size=8, cell_size=4)).eval()
    paints.tokenizer = train_tokenizer(TEXTS, "bpe", 300)
    assert saccade.look(paints, TEXTS[0]).no_answer_reason == "the model generates an image, not a text"
    for model, name in ((bare, "transformer_encoder"), (masked, "bert")):
        assert main(["look", str(model.save(tmp_path / name)), TEXTS[0]]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith("no prediction: the model ")
        assert name not in first
        assert name not in saccade.look(model, TEXTS[0])._repr_html_().partition("<b>")[2].partition("</b>")[0]


def test_a_model_of_pairs_makes_no_prediction_for_one_text(reader):
    task = Pair(labels=("good", "bad"))
    assert (
        look_at(make_input(task, reader, TEXTS[0])).no_answer_reason
        == "the model compares two texts, and only one was given"
    )
    both = look_at(make_input(task, reader, (TEXTS[0], TEXTS[1])))
    assert both.no_answer_reason == ""
    assert both.answer

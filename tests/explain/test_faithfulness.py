"""Ablation and faithfulness on models with planted weights, whose results are known."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import saccade
from saccade.cli import main
from saccade.data import Batch, Example, Text
from saccade.explain.ablate import ablate_heads, list_heads, measure_head_importance, zero_heads
from saccade.explain.faithfulness import (
    Faithfulness,
    attribute_tokens,
    measure_faithfulness,
    measure_weights_faithfulness,
)
from saccade.models.build import new
from saccade.models.families import rnn, vit
from saccade.models.families.transformer import Config
from saccade.models.load import load
from saccade.tasks.label import Label
from saccade.text import train_tokenizer

FILL = [f"w{i}" for i in range(8)]
SIDE = 12  # width of a head
OUT = 2 * SIDE - 1  # the dimension that the classifier reads


def reader(words):
    """A layer with two heads whose output is zero, and a classifier that reads one number of the mean of all tokens."""
    tokenizer = train_tokenizer([" ".join(words)], "words", 60, token_template="none")
    torch.manual_seed(1)
    sizes = Config(tokenizer.vocab, 2 * SIDE, layers=1, heads=2, ffn_width=8, position="none", dropout=0.0)
    model = new("transformer_encoder", sizes, head="label", labels=("no", "yes")).eval()
    model.tokenizer = tokenizer
    layer = model.body.stack.layers[0]
    with torch.no_grad():
        for part in (layer.attention.branch.output, layer.feedforward.branch.down, model.head.score):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
        model.head.score.weight[1, OUT] = 4.0
        model.head.score.weight[0, OUT] = -4.0
    return model, layer.attention.branch


@pytest.fixture(scope="module")
def planted():
    """Only the second head copies 'good' and 'bad' to the dimension that is read; the first writes to an unused one."""
    model, attention = reader(["good", "bad", *FILL])
    with torch.no_grad():
        table = model.body.words.vectors.weight
        table.copy_(torch.randn_like(table) * 0.2)
        table[:, [0, 1, 2, OUT]] = 0.0
        table[model.tokenizer.token_to_id("good"), 0] = 3.0
        table[model.tokenizer.token_to_id("bad"), 1] = 3.0
        nn.init.zeros_(attention.value.weight)
        attention.value.weight[SIDE, 0], attention.value.weight[SIDE, 1] = 2.0, -2.0
        attention.value.weight[0, 5] = 1.0  # of the first head, into a dimension that is not read
        attention.output.weight[OUT, SIDE] = 1.0
        attention.output.weight[7, 0] = 1.0
        model.head.score.weight[:, 2] = -model.head.score.weight[:, OUT]  # the norm changes both dimensions equally
    return model


def examples(count=16):
    chance = np.random.default_rng(0)
    for number in range(count):
        words = chance.choice(FILL, 5).tolist()
        words.insert(int(chance.integers(5)), ("good", "bad")[number % 2])
        yield Example({"text": " ".join(words), "label": ("yes", "no")[number % 2]})


def test_ablation_finds_the_planted_head(planted):
    found = measure_head_importance(Label(labels=planted.labels), planted, list(examples()), bootstrap_samples=20)
    heads = {one.head_ref.head: one for one in found if one.head_ref.head is not None}
    assert heads[1].score_drop == pytest.approx(0.5)  # from all right to half of them
    assert heads[1].low > 0.2
    assert heads[1].matters
    assert "drop 0.5 (95 % CI" in str(heads[1])
    assert str(heads[1]).endswith("helps")
    assert (heads[0].score_drop, heads[0].low, heads[0].high) == (0, 0, 0)
    assert not heads[0].matters
    assert found[0].head_ref.head in (1, None)
    whole = next(one for one in found if one.head_ref.head is None)
    assert whole.score_drop == heads[1].score_drop


def test_zeroed_heads_predict_the_same_as_ablated_ones(planted, tmp_path):
    off = [one for one in list_heads(planted) if one.head == 1]
    batch = Batch(Text(torch.tensor([planted.tokenizer.encode("w1 good w2").ids])))
    with torch.no_grad():
        plain = planted(batch)
        with ablate_heads(planted, off):
            wanted = planted(batch)
        silent = zero_heads(planted, off)
        assert_close(silent(batch), wanted)
        assert not torch.equal(wanted, plain)
        assert torch.equal(planted(batch), plain)
        assert_close(load(silent.save(tmp_path / "silent"))(batch), wanted)


def test_modules_that_cannot_be_ablated_are_named(planted):
    other = new("rnn_lm", rnn.Config(20, 8))
    with (
        pytest.raises(ValueError, match=r"no module body\.stack\.layers\.0.* to ablate"),
        ablate_heads(other, list_heads(planted)),
    ):
        pass
    writer = new("rnn", rnn.Config(20, 8))
    with pytest.raises(ValueError, match="no output projection"):
        zero_heads(writer, [one for one in list_heads(writer) if one.kind == "cross"])
    with pytest.raises(ValueError, match="Got 0 examples and 40 bootstrap samples"):
        measure_head_importance(Label(labels=planted.labels), planted, [])


COUNTS = {word: 0.3 * 1.6**i for i, word in enumerate(FILL)}  # how much each word counts
TEXT = " ".join(np.random.default_rng(4).permutation(FILL).tolist())


@pytest.fixture(scope="module")
def counting():
    """A bag of words: each word adds its own weight, and the attention output is zero."""
    model, _ = reader(FILL)
    with torch.no_grad():
        table = model.body.words.vectors.weight
        nn.init.zeros_(table)
        table[:, 0], table[:, 1] = 1.0, -1.0
        for word, weight in COUNTS.items():
            table[model.tokenizer.token_to_id(word), OUT] = 0.1 * weight
            table[model.tokenizer.token_to_id(word), OUT - 1] = -0.1 * weight
    return model


def test_a_planted_map_is_faithful_and_a_random_one_is_not(counting):
    found = attribute_tokens(counting, TEXT)
    assert found.attention_maps.answer.startswith("yes")
    weights = np.array([COUNTS[word] for word in TEXT.split()])
    right = measure_weights_faithfulness(found, weights / weights.sum(), title="planted")
    assert right.gradient_correlation > 0.95
    assert right.deletion_score > 0.95
    assert right.label.startswith("good evidence")
    chance = np.random.default_rng(0)
    drawn = [
        measure_weights_faithfulness(found, chance.random(len(weights)), title="random", seed=i) for i in range(60)
    ]
    assert abs(np.mean([one.gradient_correlation for one in drawn])) < 0.15
    assert abs(np.mean([one.deletion_score for one in drawn])) < 0.15
    wrong = measure_weights_faithfulness(found, -weights, title="the wrong way round")
    assert wrong.label.startswith("weak evidence")


def test_integrated_gradients_are_complete(counting):
    """Completeness: attributions sum to the difference between the prediction and that for zero vectors."""
    found = attribute_tokens(counting, TEXT)
    words = counting.body.words
    source = found.look_input.batch
    with torch.no_grad():
        full = found.score_answer(source)[0]
        kept = words.vectors.weight.clone()
        words.vectors.weight.zero_()
        nothing = found.score_answer(source)[0]
        words.vectors.weight.copy_(kept)
    assert float(found.integrated_gradients.sum()) == pytest.approx(float(full - nothing), rel=0.05)


def test_deleting_a_token_is_a_text_without_it(counting):
    found = attribute_tokens(counting, TEXT)
    ids = counting.tokenizer.encode(TEXT).ids
    with torch.no_grad():
        share = lambda row: counting(Batch(Text(torch.tensor([row])))).log_softmax(-1)[0, 1].item()
        wanted = [share(ids) - share(ids[:i] + ids[i + 1 :]) for i in range(len(ids))]
    assert_close(torch.tensor(found.leave_one_out), torch.tensor(wanted).double(), rtol=1e-4, atol=1e-5)


def test_a_map_of_an_unused_head_is_weak_evidence(counting):
    found = attribute_tokens(counting, TEXT)
    result = measure_faithfulness(found, found.attention_maps[0], 0)
    assert "head 0" in result.title
    assert -1 <= result.gradient_correlation <= 1
    assert Faithfulness("x", 0.1, 0.2).label.startswith("weak evidence")
    assert Faithfulness("x", 0.4, 0.9).label.startswith("some evidence")
    assert measure_faithfulness(attribute_tokens(counting, "w1 w2"), found.attention_maps[0]).label.startswith(
        "no evidence"
    )


@pytest.mark.parametrize("head", ["tag", "span", "lm"])
def test_every_output_head_can_be_explained(head, counting):
    """By the definition of each prediction: the most likely tag or word of each token, or the most likely span."""
    torch.manual_seed(0)
    model = new("transformer_encoder", counting.config, head=head, labels=("a", "b", "c")).eval()
    model.tokenizer = counting.tokenizer
    found = attribute_tokens(model, TEXT)
    with torch.no_grad():
        scores = model(found.look_input.batch)[0]  # (L, answers), of a span (L, 2)
        wanted = scores.log_softmax(0).amax(0).sum() if head == "span" else scores.log_softmax(-1).amax(-1).mean()
    assert found.score_answer(found.look_input.batch)[0].item() == pytest.approx(wanted.item(), abs=1e-4)
    assert np.isfinite(found.leave_one_out).all()
    assert measure_faithfulness(found, found.attention_maps[0]).label


def test_a_base_model_without_a_head_is_refused(counting):
    bare = new("transformer_encoder", counting.config).eval()
    bare.tokenizer = counting.tokenizer
    with pytest.raises(ValueError, match="no output head, so there is no prediction"):
        attribute_tokens(bare, TEXT)


def test_faithfulness_needs_tokens():
    model = new("vit", vit.Config(image_height=8, patch_size=4, width=8, layers=1, heads=2, ffn_width=8))
    with pytest.raises(ValueError, match="vit reads no text"):
        attribute_tokens(model, np.zeros((8, 8, 3), np.uint8))


def test_the_command_measures_importance_and_faithfulness(planted, tmp_path, capsys):
    run, data = str(planted.save(tmp_path / "run")), tmp_path / "data.tsv"
    lines = [f"{one['text']}\t{one['label']}" for one in examples(8)]
    data.write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert main(["look", run, "--ablate", "--data", str(data), "--bootstrap-samples", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "head 0" in lines[-1]
    assert main(["look", run, "w1 good w2 w3", "--faithfulness"]) == 0
    assert "evidence" in capsys.readouterr().out
    assert main(["look", run, "a text", "--ablate"]) == 2
    assert "--ablate evaluates heads on a dataset" in capsys.readouterr().err
    assert saccade.look(run, "w1 good").answer.startswith("yes")


@pytest.mark.parametrize("deletion", [-0.9, -0.1, 0.1, 0.45, 0.9, float("nan")])
def test_a_correlation_below_the_threshold_is_never_called_agreement(deletion):
    """Gradients of -0.26 do not point at the tokens of the map, whatever the deletion score; -0.9 points away from them."""
    label = Faithfulness("x", -0.26, deletion).label
    assert "gradients do not point at the same tokens" in label
    assert "good" not in label.split(":")[0]
    assert "gradients point at other tokens" in Faithfulness("x", -0.9, deletion).label
    if deletion == deletion:
        assert label.startswith("mixed evidence" if deletion > 0.3 else "weak evidence")
    assert "agree" not in label


def test_each_method_is_described_by_itself():
    assert Faithfulness("x", 0.9, 0.1).label == (
        "mixed evidence: removing the attended tokens changes the prediction no more than removing random ones, but gradients "
        "point at the same tokens"
    )
    assert "changes the prediction less than removing random ones" in Faithfulness("x", 0.9, -0.5).label
    assert "in part" in Faithfulness("x", 0.31, 0.9).label
    assert "nan" not in Faithfulness("x", float("nan"), 0.9).label

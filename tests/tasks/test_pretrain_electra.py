"""ELECTRA's objective: the game by a naive loop, who learns from what, what is kept, and that both players get better."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import chisquare
from torch.testing import assert_close

from saccade import text
from saccade.data import Batch, Example, Text
from saccade.data.samples import get_sample
from saccade.models.build import new
from saccade.models.families.electra import Config
from saccade.models.load import load
from saccade.parts.position import POSITIONS
from saccade.tasks import losses
from saccade.tasks.batches import make_batches
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.pretrain import config as settings
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.electra import ReplacedTokenDetection, run_generator, sample_replacements, sample_tokens
from saccade.tasks.pretrain.packed_rows import require_mask_id
from saccade.tasks.runs.run import open_run
from saccade.training.config import Config as Train
from saccade.training.loop import Learner, train_steps
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

LINES = ["the cat sat on the mat", "a dog saw the cat", "mat", "on a mat the dog sat and saw a cat on the mat"]
SIZES = {
    "embedding_width": 12,
    "width": 24,
    "layers": 2,
    "heads": 3,
    "ffn_width": 27,
    "max_positions": 16,
    "dropout": 0.0,
}


def made(lines=LINES, sizes=SIZES, share=0.3, **game):
    """The objective, a tiny model with its generator, and the lines as examples."""
    torch.manual_seed(3)
    tokenizer = text.train_tokenizer(lines, "words", 300, token_template="bos_eos")
    model = new("electra", Config(**sizes, vocab=tokenizer.vocab), head="replaced_token_detection")
    model.tokenizer = tokenizer
    task = ReplacedTokenDetection(settings.Config("replaced_token_detection", packing="none", mask_ratio=share, **game))
    task.attach_training_modules(model)
    return task, model, [Example({"text": line}) for line in lines]


def rough(lines=LINES, sizes=SIZES, share=0.3, **game):
    """The same in double precision, with weights so large that every path matters."""
    task, model, examples = made(lines, sizes, share, **game)
    model.double()
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.4)
    return task, model, task.batch(task.encode(examples, model))


def test_words_are_drawn_as_often_as_softmax_says():
    scores = torch.tensor([0.0, 2.0, -1.0, 0.5, -math.inf, 1.0])
    torch.manual_seed(0)
    found = Counter(sample_tokens(scores.expand(20_000, -1), torch.rand(20_000)).tolist())
    assert found[4] == 0
    seen = [i for i in range(6) if i != 4]
    wanted = [20_000 * math.exp(scores[i]) / sum(math.exp(s) for s in scores) for i in seen]
    assert chisquare([found[i] for i in seen], wanted).pvalue > 1e-3
    assert sample_tokens(scores.expand(2, -1), torch.tensor([0.0, 1.0])).tolist() == [0, 5]


def test_a_large_vocabulary_is_scored_in_pieces_with_the_same_result(monkeypatch):
    _, model, _ = rough()
    head, width = model.generator.head, model.generator.body.width
    x = torch.randn(11, width, dtype=torch.float64, requires_grad=True)
    gold, luck = torch.randint(5, model.config.vocab, (11,)), torch.rand(11)
    whole = run_generator(head, x, gold, luck)
    (slope,) = torch.autograd.grad(whole[0].sum(), x)
    monkeypatch.setattr(losses, "MAX_LOGITS_PER_CHUNK", 4 * model.config.vocab)
    pieces = run_generator(head, x, gold, luck)
    for one, other in zip(whole, pieces, strict=True):
        assert_close(one, other)
    assert_close(torch.autograd.grad(pieces[0].sum(), x)[0], slope)


def naive(task, model, batch, chance):
    """The loss row by row and token by token, each row alone and unpadded."""
    hidden = corruption.choose_masked(batch.gold, task.mask_ratio, chance[0])
    total = 0.0
    for row, item in enumerate(batch.items):
        ids, size = item.source.tolist(), len(item.source)
        gaps = [i for i in range(size) if hidden[row, i]]
        spoilt = [require_mask_id(model) if i in gaps else token for i, token in enumerate(ids)]
        vectors = model.generator.body(Batch(Text(torch.tensor([spoilt]))))[0]
        filled, nats = list(ids), 0.0
        for i in gaps:
            raised = [math.exp(s) for s in model.generator.head(vectors[i]).tolist()]
            nats += math.log(sum(raised)) - math.log(raised[ids[i]])
            below, left = 0, float(chance[1, row, i]) * sum(raised)
            while left >= raised[below]:
                left -= raised[below]
                below += 1
            filled[i] = below
        doubts = model.head(model.body(Batch(Text(torch.tensor([filled])))))[0].tolist()
        costs = [math.log1p(math.exp(-doubt if filled[i] != ids[i] else doubt)) for i, doubt in enumerate(doubts)]
        total += size * nats / len(gaps) + task.config.discriminator_weight * sum(costs)
    return total


@pytest.mark.parametrize(
    ("position", "game", "narrow"),
    [
        ("learned", {}, 8),
        ("rotary", {}, 8),
        ("rotary", {"discriminator_weight": 5.0, "generator_divisor": 2}, 12),
        ("t5_bias", {}, 8),
    ],
)
def test_the_loss_is_that_of_a_naive_loop(position, game, narrow):
    task, model, batch = rough(sizes=SIZES | {"position": position, "heads": 4}, **game)
    assert model.generator.body.width == narrow
    shared = model.generator.body.stack.position is model.body.stack.position
    assert shared == (position == "learned"), "what is added is one, what heads do is each one's own"
    assert task.config.discriminator_weight == game.get("discriminator_weight", 50.0)
    assert batch.source.keep is not None  # there is padding
    torch.manual_seed(5)
    loss = task.loss(model, batch)
    torch.manual_seed(5)
    with torch.no_grad():
        wanted = naive(task, model, batch, corruption.random_noise(batch.source, 2))
    assert loss.item() == pytest.approx(wanted, rel=1e-9)
    assert task.count_targets(batch) == sum(len(item.source) for item in batch.items) == int(batch.source.keep.sum())


@pytest.mark.parametrize("position", [entry.name for entry in POSITIONS])
def test_any_positions_that_widen_nothing_are_saved_and_read_again(position, tmp_path):
    sizes = Config(**SIZES | {"position": position}, vocab=20)
    if position == "concat":
        with pytest.raises(ValueError, match="does not support position 'concat', which makes the layers wider"):
            new("electra", sizes)
        return
    torch.manual_seed(0)
    model = new("electra", sizes, head="replaced_token_detection").eval()
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.5)
    words = torch.tensor([[3, 7, 5, 9, 4]])
    (doubts,) = model(Batch(Text(words)))
    (mixed,) = model(Batch(Text(words[:, [4, 0, 3, 1, 2]])))
    assert torch.allclose(doubts[[4, 0, 3, 1, 2]], mixed, atol=1e-5) == (position == "none"), "who sees the order"
    model.save(tmp_path / "kept")
    assert model.family.is_published(model.config) == (position == "learned")
    raw = json.loads((tmp_path / "kept" / "config.json").read_text())
    assert raw.get("model_type") == ("electra" if position == "learned" else None), "others know learned positions only"
    assert_close(load(tmp_path / "kept", head="replaced_token_detection")(Batch(Text(words)))[0], doubts)


@pytest.mark.parametrize(
    "game",
    [
        {"discriminator_weight": 0.0},
        {"discriminator_weight": math.nan},
        {"discriminator_weight": math.inf},
        {"generator_divisor": 0},
    ],
)
def test_a_game_that_nobody_can_play_is_refused(game):
    with pytest.raises(ValueError, match=f"task.{next(iter(game))} is {next(iter(game.values()))}"):
        settings.Config("replaced_token_detection", **game)


@pytest.mark.parametrize(("width", "shrink", "narrow"), [(24, 3, 8), (28, 4, 6), (28, 99, 2)])
def test_a_generator_that_turns_has_heads_of_even_width(width, shrink, narrow):
    _, model, _ = made(sizes=SIZES | {"position": "rotary", "width": width, "heads": 2}, generator_divisor=shrink)
    assert model.generator.body.width == narrow
    assert model.generator.body(Batch(Text(torch.tensor([[1, 2, 3]])))).shape == (1, 3, narrow)


def test_rows_of_one_length_lose_the_published_mean():
    """The mean over gaps and `weight` times the mean over tokens, once the loop has divided by the count."""
    task, model, batch = rough(["the cat sat on the mat", "a dog saw the cat now"])
    torch.manual_seed(5)
    found = sample_replacements(model, batch, task.mask_ratio, corruption.random_noise(batch.source, 2))
    torch.manual_seed(5)
    loss = task.loss(model, batch) / task.count_targets(batch)
    assert_close(loss, found.nats.mean() + task.config.discriminator_weight * found.token_losses.mean())


def test_the_sum_does_not_depend_on_the_batches(monkeypatch):
    task, model, batch = rough()
    chance = {id(item): torch.rand(2, len(item.source)) for item in batch.items}

    def known(source, kinds):
        out = torch.zeros(kinds, *source.tokens.shape)
        for row, item in enumerate(reading):
            out[:, row, : len(item.source)] = chance[id(item)]
        return out

    monkeypatch.setattr(corruption, "random_noise", known)
    losses = []
    for reading in (batch.items, batch.items[:1], batch.items[1:]):
        losses.append(task.loss(model, task.batch(reading)))
    assert_close(losses[0], losses[1] + losses[2])


def test_who_learns_from_what():
    """No gradient goes through the draw: each player's own weights learn from its own loss, what is shared from both."""
    task, model, batch = rough()
    found = sample_replacements(model, batch, 0.3, corruption.seeded_noise(batch.source, batch.items, 2))
    assert found.is_replaced.any()
    named = dict(model.named_parameters())
    slopes = []
    for loss in (
        found.nats.sum(),
        found.token_losses.sum(),
        found.nats.sum() + task.config.discriminator_weight * found.token_losses.sum(),
    ):
        made = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
        slopes.append(dict(zip(named, made, strict=True)))
    gave = [{name for name, slope in one.items() if slope is not None and slope.any()} for one in slopes]
    reading = {"body.words.vectors.weight", "body.segments.vectors.weight", "body.stack.position.vectors.weight"}
    reading |= {"body.stack.enter.0.weight", "body.stack.enter.0.bias"}
    assert gave[0] & gave[1] == reading
    assert all(name.startswith("generator.") for name in gave[0] - reading)
    assert all(name.startswith(("body.", "head.")) for name in gave[1])
    both = (
        slopes[0]["body.words.vectors.weight"]
        + task.config.discriminator_weight * slopes[1]["body.words.vectors.weight"]
    )
    assert_close(slopes[2]["body.words.vectors.weight"], both)
    assert named.keys() - gave[0] - gave[1] <= {name for name in named if name.endswith("key.bias")}


def test_gaps_are_masks_and_no_mask_reaches_the_discriminator():
    _, model, batch = rough()
    seen = []
    for body in (model.generator.body, model.body):
        body.register_forward_pre_hook(lambda module, given: seen.append(given[0].source.tokens))
    found = sample_replacements(model, batch, 0.3, corruption.seeded_noise(batch.source, batch.items, 2))
    gaps, filled = seen
    assert torch.equal(gaps == require_mask_id(model), found.masked)
    assert torch.equal(gaps[~found.masked], batch.source.tokens[~found.masked])
    assert torch.equal(filled[~found.masked], batch.source.tokens[~found.masked])
    assert torch.equal(found.is_replaced, filled != batch.source.tokens)
    assert not found.masked[batch.gold < 0].any()  # neither special tokens nor padding
    wanted = [max(1, round(0.3 * int((units >= 0).sum()))) for units in batch.gold]
    assert found.masked.sum(1).tolist() == wanted


def test_the_original_by_luck_counts_as_original():
    _, model, batch = rough()
    word = int(batch.source.tokens[0, 1])
    with torch.no_grad():
        model.generator.head.score.bias[word] = 1e4  # always drawn
    chance = torch.rand(2, *batch.source.tokens.shape)
    found = sample_replacements(model, batch, 0.9, chance)
    here = batch.source.tokens == word
    assert (found.masked & here).any()
    assert torch.equal(found.is_replaced, found.masked & ~here)


def test_scores_are_counts_of_tokens():
    task, model, batch = rough()
    found = sample_replacements(model, batch, task.mask_ratio, corruption.seeded_noise(batch.source, batch.items, 2))
    right = hits = false = replaced = tokens = 0
    for row, item in enumerate(batch.items):
        for i in range(len(item.source)):
            doubted, other = bool(found.logits[row, i] > 0), bool(found.is_replaced[row, i])
            tokens, replaced = tokens + 1, replaced + other
            right, hits, false = right + (doubted == other), hits + (doubted and other), false + (doubted and not other)
    assert 0 < hits < replaced
    scores = {score.name: score.value for score in task.score(task.answer(model, batch), [])}
    assert scores["recall"] == pytest.approx(hits / replaced)
    assert scores["precision"] == pytest.approx(hits / (hits + false))
    assert scores["accuracy"] == pytest.approx(right / tokens)
    assert scores["majority"] == pytest.approx(1 - replaced / tokens)
    assert scores["generator_accuracy"] == pytest.approx(float(found.correct.double().mean()))
    assert scores["perplexity"] == pytest.approx(found.nats.mean().exp().item(), rel=1e-5)


def test_an_answer_does_not_depend_on_its_neighbours():
    task, model, batch = rough()
    together = task.answer(model, batch)
    for item, answer in zip(batch.items, together, strict=True):
        assert task.answer(model, task.batch([item])) == [pytest.approx(answer, rel=1e-5)]
    assert "replaced tokens detected" in str(task.to_prediction(together[0], batch.items[0].example))


def learner(task, model, examples, steps):
    config = Train(epochs=steps, batch_tokens=4096, lr=3e-3, warmup=0.1, schedule="constant")
    return Learner(model, task, make_batches(task, examples, model, batch_tokens=4096), config)


def test_both_players_get_better_and_the_majority_is_beaten():
    lines = [
        line for line in (e["text"].strip() for e in get_sample("docs").make(400, 3)) if 5 <= len(line.split()) <= 9
    ][:8]
    task, model, examples = made(lines, SIZES | {"embedding_width": 32, "width": 48, "ffn_width": 96}, share=0.15)
    before = {score.name: score.value for score in evaluate(task, model, examples)}
    losses = [step.loss for step in train_steps(learner(task, model, examples, 200))]
    assert losses[-1] < 0.5 * losses[0]
    after = {score.name: score.value for score in evaluate(task, model, examples)}
    assert after["perplexity"] < 0.5 * before["perplexity"]
    assert after["discriminator_loss"] < 0.5 * before["discriminator_loss"]
    assert after["accuracy"] > after["majority"] + 0.03
    assert after["recall"] > 0.3
    assert after["precision"] > 0.5


def test_going_on_is_exact():
    """The generator is among the tensors of a checkpoint, each shared one once."""
    task, model, examples = made()
    whole = learner(task, model, examples, 6)
    for _ in range(3):
        whole.step()
    kept = {group: {n: x.clone() for n, x in named.items()} for group, named in whole.checkpoint_tensors().items()}
    names = kept["model"].keys()
    assert any(name.startswith("generator.body.stack.layers.") for name in names)
    assert not [name for name in names if name.startswith("generator.") and "words" in name]
    losses = [whole.step().loss for _ in range(3)]
    task, model, _ = made()
    other = learner(task, model, examples, 6)
    other.restore(kept, 3)
    assert [other.step().loss for _ in range(3)] == losses
    for name, p in whole.model.named_parameters():
        assert torch.equal(p, other.model.get_parameter(name)), name


def test_the_discriminator_is_saved_as_it_was_published(tmp_path):
    task, model, examples = made()
    batch = task.batch(task.encode(examples, model))
    model.eval().save(tmp_path / "model")
    theirs, info = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    keep = batch.source.keep
    with torch.inference_mode():
        wanted = theirs.eval()(input_ids=batch.source.tokens, attention_mask=keep.long()).logits
        assert_close(model(batch)[keep], wanted[keep], rtol=1e-4, atol=1e-5)
    _, info = transformers.ElectraModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]


def written(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES * 5) + "\n", encoding="utf-8")
    return str(file)


def test_a_run_and_what_begins_from_it(tmp_path):
    file = written(tmp_path)
    sizes = {key: value for key, value in SIZES.items() if key != "length"}
    job = Job(
        "pretrain",
        (file,),
        task_fields={"objective": "replaced_token_detection", "max_tokens": 16, "tokenizer": "words"},
        model_fields=sizes,
        train_fields={"max_steps": 3, "batch_tokens": 64},
    )
    *_, result = run_training(prepare(job), tmp_path / "run")
    assert result.scores["dev"][0].name == "perplexity"
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert not hasattr(model, "generator")  # any words stand in for its own
    found, asked = predict(task, model, [Example({"text": line}) for line in LINES])
    names = [score.name for score in task.score(found, asked)]
    assert names == ["discriminator_loss", "recall", "precision", "accuracy", "majority"]
    assert sum(answer["replaced"] for answer in found) > 0
    reviews = tmp_path / "labels.csv"
    reviews.write_text("text,label\n" + "".join(f"{line},{len(line) > 20}\n" for line in LINES * 5), encoding="utf-8")
    ready = prepare(Job("label", (str(reviews),), model=str(tmp_path / "run")))
    assert_close(
        ready.model.get_parameter("body.words.vectors.weight"), load(tmp_path / "run").body.words.vectors.weight
    )
    assert ready.model.head_name == "label"
    more = prepare(
        Job("pretrain", (file,), model=str(tmp_path / "run"), task_fields={"objective": "replaced_token_detection"})
    )
    assert hasattr(more.model, "generator")  # a new one, beside the discriminator that was saved
    assert np.isfinite(Learner(more.model, more.task, more.make_batches(), more.config).step().loss)


def test_what_cannot_be_is_said(tmp_path):
    task, model, batch = rough()
    del model.generator
    with pytest.raises(ValueError, match="no generator to train with"):
        task.loss(model, batch)
    with pytest.raises(
        ValueError, match=r"objective replaced_token_detection needs .* bert encodes a text, .* Choose electra\."
    ):
        prepare(
            Job("pretrain", (written(tmp_path),), family="bert", task_fields={"objective": "replaced_token_detection"})
        )

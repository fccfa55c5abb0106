"""Pretraining: losses by another path, rows, exact resuming, what is learnt from where, and settings that cannot be meant."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade import text
from saccade.cli.train_flags import Recipe, _default_configs
from saccade.data import Batch, Example, Text, write_examples
from saccade.data.example import Records
from saccade.data.samples import get_sample
from saccade.data.splits import Splits
from saccade.data.streaming.token_writer import tokenize_to_shards
from saccade.errors import DataError
from saccade.models.build import new
from saccade.models.families import bert, t5
from saccade.models.load import load
from saccade.tasks.batches import make_batches
from saccade.tasks.predict import evaluate, predict_items
from saccade.tasks.pretrain import OBJECTIVES, Pretrain, corruption
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.masked_lm import MaskedLM
from saccade.tasks.pretrain.packed_rows import ordinary_ids, require_mask_id, surrounding_ids
from saccade.tasks.pretrain.span_corruption import SENTINEL_TOKENS, SpanCorruption, sentinel_ids
from saccade.tasks.registry import task_class
from saccade.tasks.runs.run import open_run
from saccade.training import config as training
from saccade.training.loop import Learner, train_steps
from saccade.training.prepare import Job, PreparedRun, _build_model, make_config, prepare
from saccade.training.run import RunResult, run_training

SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 24}
TINY = {
    "causal_lm": SIZES,
    "masked_lm": SIZES,
    "span_corruption": SIZES | {"head_width": 8},
    "bart_denoising": SIZES | {"decoder_layers": 1, "decoder_heads": 2, "decoder_ffn_width": 24},
}
TEXTS = sorted(TINY)


@pytest.fixture(scope="module")
def examples():
    return get_sample("docs").make(150, 3)


def task_of(objective, **settings) -> Pretrain:
    return Pretrain(Config(**{"objective": objective, "max_tokens": 32} | settings))


def made(objective, examples, **settings) -> PreparedRun:
    """A tiny model and everything around it, held-out data being the training data."""
    task, table = task_of(objective, **settings), Records(list(examples))
    chosen = task.defaults(examples, False)
    torch.manual_seed(0)
    model = _build_model(Job("pretrain", model_fields=TINY[objective] | {"dropout": 0.0}), task, chosen, table.examples)
    task.attach_training_modules(model)
    config = make_config(
        training.Config, {"epochs": 1, "batch_tokens": 256, "save_minutes": 0.0, "max_steps": 2}, "train"
    )
    return PreparedRun(Job("pretrain"), task, model, Splits(table, table, None, digest="some"), config, chosen, [])


@pytest.fixture(scope="module")
def reader(examples):
    tokenizer = text.train_tokenizer([example["text"] for example in examples], "bpe", 400, token_template="bos_eos")
    torch.manual_seed(1)
    model = new("bert", bert.Config(vocab=tokenizer.vocab, max_positions=64, dropout=0.0, **SIZES), head="lm").double()
    model.tokenizer = tokenizer
    return model


def test_the_loss_of_masked_words_is_that_of_the_whole_vocabulary_at_every_token(reader, examples):
    task = MaskedLM(Config(max_tokens=32, mask_ratio=0.2))
    batch = task.batch(task.encode(examples, reader)[:7] + task.encode(examples[:1], reader))
    assert batch.source.keep is not None
    torch.manual_seed(5)
    found = task.loss(reader, batch)
    torch.manual_seed(5)
    chance = torch.rand(3, *batch.source.tokens.shape)
    hidden = corruption.choose_masked(batch.gold, 0.2, chance[0])
    spoilt = corruption.apply_mlm_mask(
        batch.source.tokens,
        hidden,
        chance[1],
        chance[2],
        mask_id=require_mask_id(reader),
        ordinary_ids=ordinary_ids(reader),
    )
    scores = reader(Batch(replace(batch.source, tokens=spoilt)))  # (B, L, V), every one of them
    gold = batch.source.tokens.masked_fill(~hidden, -100)
    naive = F.cross_entropy(scores.flatten(0, 1), gold.flatten(), ignore_index=-100, reduction="sum")
    torch.testing.assert_close(found, naive, rtol=1e-10, atol=1e-10)
    assert task.count_targets(batch) == int(hidden.sum())
    ours, theirs = (torch.autograd.grad(loss, reader.body.words.vectors.weight)[0] for loss in (found, naive))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_special_tokens_padding_and_unknown_words_are_never_hidden(examples):
    tokenizer = text.train_tokenizer(["a few words and a few more"] * 3, "words", 10, token_template="bos_eos")
    model = new("bert", bert.Config(vocab=tokenizer.vocab, max_positions=64, **SIZES), head="lm")
    model.tokenizer = tokenizer
    lines = [Example({"text": line}) for line in ("a few unheard words\n", "and a strange few more\n")]
    batch = MaskedLM().batch(MaskedLM(Config(max_tokens=9)).encode(lines, model))
    free = torch.isin(batch.source.tokens, torch.tensor(list(tokenizer.special_tokens.values())))
    assert torch.equal(batch.gold < 0, free)
    assert int((batch.source.tokens == tokenizer.unk_id).sum()) == 2
    assert not torch.isin(ordinary_ids(model), torch.tensor(list(tokenizer.special_tokens.values()))).any()
    assert len(ordinary_ids(model)) == tokenizer.vocab - len(tokenizer.special_tokens)


def test_a_running_text_is_cut_into_windows_and_nothing_is_lost(reader, examples):
    task = MaskedLM(Config(max_tokens=20))
    items = task.encode(examples, reader)
    before, after = surrounding_ids(reader.tokenizer)
    inner = [item.source[len(before) : len(item.source) - len(after)] for item in items]
    whole = reader.tokenizer.encode("".join(e["text"] for e in examples[:5]), add_special_tokens=False).ids
    assert np.concatenate(inner)[: len(whole)].tolist() == whole
    assert {len(item.source) for item in items[:-1]} == {20}
    assert all(item.source[0] == before[0] and item.source[-1] == after[0] for item in items)


@pytest.mark.parametrize("whole_words", [False, True])
def test_texts_packed_into_rows_are_learnt_as_if_each_were_alone(reader, examples, whole_words):
    alone = MaskedLM(Config(max_tokens=64, packing="none", whole_word_masking=whole_words))
    packed = MaskedLM(Config(max_tokens=64, packing="packed", whole_word_masking=whole_words))
    singles, rows = (task.encode(examples, reader) for task in (alone, packed))
    assert len(rows) < 0.6 * len(singles)
    assert sum(len(item.source) for item in rows) == sum(len(item.source) for item in singles)
    batch = packed.batch(rows)
    read = reader.body(batch)
    known = {tuple(item.source.tolist()): item for item in singles}
    checked = 0
    for row, item in enumerate(rows[:10]):
        for part in range(int(item.gold.document_ids.max()) + 1):
            at = np.flatnonzero(item.gold.document_ids == part)
            single = known[tuple(item.source[at].tolist())]
            torch.testing.assert_close(read[row, at], reader.body(alone.batch([single]))[0], rtol=1e-6, atol=1e-6)
            shifted = item.gold.unit_ids[at]
            assert np.array_equal(np.where(shifted < 0, -1, shifted - shifted.max()), _from_last(single.gold.unit_ids))
            checked += 1
    assert checked >= 15
    assert float(packed.loss(reader, batch).detach()) > 0
    assert all(len(np.unique(item.gold.unit_ids)) == item.gold.unit_ids.max() + 2 for item in rows)


def _from_last(units):
    return np.where(units < 0, -1, units - units.max())


@pytest.mark.parametrize("objective", ["span_corruption", "bart_denoising"])
def test_what_is_read_and_written_makes_the_text(examples, objective):
    ready = made(objective, examples)
    task, model = ready.task.objective, ready.model
    batch = task.batch(task.encode(examples, model))
    spoilt = task.corrupt_batch(model, batch, corruption.random_noise(batch.source, task.noise_channels))
    assert spoilt.target is not None
    assert task.count_targets(batch) == sum(_real(spoilt.target, row).numel() for row in range(len(batch.items)))
    end = model.tokenizer.eos_id
    for row, item in enumerate(batch.items):
        read, written = (_real(side, row).tolist() for side in (spoilt.source, spoilt.target))
        assert read[-1] == written[-1] == end
        if objective == "span_corruption":
            mended = corruption.restore_spans(read[:-1], written[:-1], sentinel_ids(model))
            assert mended == item.source[:-1].tolist()
        else:
            assert written == item.source.tolist()
            assert model.tokenizer.mask_id in read
            kept = [token for token in read if token != model.tokenizer.mask_id]
            assert not set(kept) - set(written)
            assert len(kept) < len(written)


def _real(side: Text, row: int) -> torch.Tensor:
    return side.tokens[row] if side.keep is None else side.tokens[row][side.keep[row]]


def test_the_loss_of_spans_is_that_of_the_spoilt_batch_by_itself(examples):
    from saccade.tasks.losses import seq2seq_loss

    ready = made("span_corruption", examples)
    model = ready.model.double()
    batch = ready.task.batch(ready.task.encode(examples[:40], model))
    torch.manual_seed(3)
    found = ready.task.loss(model, batch)
    torch.manual_seed(3)
    spoilt = ready.task.objective.corrupt_batch(model, batch, corruption.random_noise(batch.source, 2))
    torch.testing.assert_close(found, seq2seq_loss(model, spoilt), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("objective", TEXTS)
def test_each_step_has_other_noise_and_the_same_step_the_same(examples, objective):
    def steps(count):
        ready = made(objective, examples)
        learner = Learner(ready.model, ready.task, ready.make_batches(), replace(ready.config, lr=1e-12, epochs=5))
        return learner, [learner.step().loss for _ in range(count)]

    learner, losses = steps(4)
    assert steps(4)[1] == losses
    if objective == "causal_lm":
        return
    # weights that hardly move and one and the same batch: what differs is the noise
    batch = learner.batch_source.batches(0)[0]
    with torch.no_grad():
        torch.manual_seed(0)
        first, second = (float(learner.task.loss(learner.model, batch)) for _ in range(2))
        torch.manual_seed(0)
        assert float(learner.task.loss(learner.model, batch)) == first != second


@pytest.mark.parametrize("objective", TEXTS)
def test_a_run_goes_on_exactly(examples, objective):
    def learner():
        ready = made(objective, examples)
        return Learner(ready.model, ready.task, ready.make_batches(), replace(ready.config, epochs=3))

    whole, first, second = learner(), learner(), learner()
    for _ in range(5):
        whole.step()
    for _ in range(2):
        first.step()
    kept = {group: {k: v.clone() for k, v in named.items()} for group, named in first.checkpoint_tensors().items()}
    second.restore(kept, first.step_count)
    for _ in range(3):
        second.step()
    for ours, theirs in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("objective", ["masked_lm", "span_corruption", "bart_denoising"])
def test_scores_are_the_same_in_batches_of_any_size_and_of_perfect_answers_perfect(examples, objective):
    ready = made(objective, examples)
    task, items = ready.task, ready.task.encode(examples, ready.model)
    together = predict_items(task, ready.model, items)
    alone = [predict_items(task, ready.model, [item])[0] for item in items]
    for a, b in zip(together, alone, strict=True):
        assert (a["correct"], a["targets"]) == (b["correct"], b["targets"])
        assert a["nats"] == pytest.approx(b["nats"], rel=1e-4)
    assert sum(a["targets"] for a in together) == task.count_targets(task.batch(items))
    perplexity, accuracy = task.score([{"nats": 0.0, "correct": 5, "targets": 5}] * 2, [])
    assert (perplexity.value, accuracy.value) == (1.0, 1.0)
    assert task.score([{"nats": 4.0, "correct": 1, "targets": 4}], [])[1].value == 0.25
    assert "of" in str(task.to_prediction(together[0], examples[0]))


@pytest.mark.parametrize(
    ("objective", "then"),
    [
        ("masked_lm", "label"),
        ("masked_lm", "tag"),
        ("causal_lm", "language"),
        ("span_corruption", "translate"),
        ("bart_denoising", "translate"),
    ],
)
def test_what_was_pretrained_is_where_another_task_begins(tmp_path, examples, objective, then):
    ready = made(objective, examples)
    *_, result = run_training(ready, tmp_path / "run")
    assert isinstance(result, RunResult)
    assert result.steps == 2
    body = {name: x.clone() for name, x in ready.model.body.named_parameters()}
    data = tmp_path / ("some.conll" if then == "tag" else "some.jsonl")
    write_examples(data, get_sample(task_class(then).sample).make(60, 1))
    made_of = prepare(Job(then, data=(str(data),), model=str(tmp_path / "run")))
    fresh = {name for name, x in made_of.model.body.named_parameters() if not torch.equal(x, body[name])}
    assert not fresh
    assert body.keys() == dict(made_of.model.body.named_parameters()).keys()
    batch = made_of.make_batches().batches(0)[0]
    made_of.task.loss(made_of.model, batch).backward()


def test_a_masked_run_is_read_by_transformers(tmp_path, examples):
    transformers = pytest.importorskip("transformers")
    ready = made("masked_lm", examples)
    list(run_training(ready, tmp_path / "run"))
    theirs, told = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run/model", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    ours = load(tmp_path / "run")
    ids = torch.tensor([[2, 17, 4, 33, 3]])
    with torch.no_grad():
        scores = theirs.eval()(input_ids=ids).logits
        torch.testing.assert_close(ours(Batch(Text(ids))), scores, rtol=1e-4, atol=1e-5)
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert isinstance(task, Pretrain)
    assert task.objective.name == "masked_lm"
    again = evaluate(task, model, examples)
    assert again[0].value == pytest.approx(evaluate(ready.task, ready.model, examples)[0].value, rel=1e-5)
    bare = open_run(tmp_path / "run/model").task  # without settings: its head says what it is for
    assert bare.name == "pretrain"


def test_a_text_too_large_to_be_held_is_read_from_shards(tmp_path, examples):
    ready = made("masked_lm", examples)
    tokenizer = ready.model.tokenizer
    ids = [found.ids for found in tokenizer.encode_batch([e["text"] for e in examples], add_special_tokens=False)]
    *_, shards = tokenize_to_shards((e["text"] for e in examples), lambda lines: [
        found.ids for found in tokenizer.encode_batch(lines, add_special_tokens=False)
    ], tmp_path / "tokens", vocab=tokenizer.vocab, separator=None)  # fmt: skip
    fed = make_batches(ready.task, shards, ready.model, batch_tokens=256)
    whole = np.concatenate(ids)
    for batch in fed.batches(0) + fed.batches(1):
        for item in batch.items:
            assert len(item.source) == 32
            inner = item.source[1:-1]
            assert any(np.array_equal(whole[i : i + 30], inner) for i in range(len(whole)))
            assert np.array_equal(item.gold.unit_ids, [-1, *range(30), -1])
    learner = Learner(ready.model, ready.task, fed, ready.config)
    assert next(train_steps(learner)).loss > 0
    with pytest.raises(ValueError, match="whole_word_masking"):
        make_batches(task_of("masked_lm", whole_word_masking=True), shards, ready.model, batch_tokens=256)


def test_sentinels_are_special_and_no_text_can_forge_them(examples):
    tokenizer = text.train_tokenizer(
        [e["text"] for e in examples], "bpe", 500, extra_special_tokens=SENTINEL_TOKENS, token_template="t5"
    )
    assert set(SENTINEL_TOKENS) <= tokenizer.special_tokens.keys()
    marks = {tokenizer.token_to_id(name) for name in SENTINEL_TOKENS}
    assert len(marks) == 100
    assert not marks & set(tokenizer.encode("see <extra_id_0> and <extra_id_99>").ids)
    with pytest.raises(ValueError, match=r"at least|from 361"):
        text.train_tokenizer(["a"], "bpe", 300, extra_special_tokens=SENTINEL_TOKENS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": "maskd"}, "masked_lm"),
        ({"mask_ratio": 1.0}, "fraction"),
        ({"mean_span_length": 0.5}, "span"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"packing": "pack"}, "packed"),
        ({"objective": "span_corruption", "whole_word_masking": True}, "whole_word_masking"),
        ({"objective": "causal_lm", "packing": "packed"}, "task.packing"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        Pretrain(Config(**settings))


def test_models_that_cannot_do_it_are_refused_by_name(examples, reader):
    with pytest.raises(ValueError, match=r"--task\.packing none"):
        made("span_corruption", examples, packing="packed").make_batches()
    bare = new("t5", t5.Config(vocab=reader.tokenizer.vocab, head_width=8, **SIZES))
    bare.tokenizer = reader.tokenizer
    with pytest.raises(ValueError, match=r"<extra_id_0>.*has 0"):
        SpanCorruption(Config()).encode(examples, bare)
    with pytest.raises(ValueError, match="writes"):
        prepare(Job("pretrain", family="bert", task_fields={"objective": "span_corruption"}, model_fields=SIZES))
    with pytest.raises(DataError, match="0 tokens"):
        MaskedLM(Config(packing="none")).encode([Example({"text": "\n"})], reader)


def test_flags_are_those_of_the_family_that_the_objective_chooses():
    found = {
        name: type(_default_configs(Recipe("pretrain"), "", "", (), ["--task.objective", name])["model"])
        for name in TEXTS
    }
    assert found["masked_lm"] is bert.Config
    assert found["span_corruption"] is t5.Config
    assert (
        type(_default_configs(Recipe("pretrain"), "", "", (), ["--task.objective=span_corruption"])["model"])
        is t5.Config
    )
    recipe = Recipe("pretrain", tables={"model": {}, "task": {"objective": "span_corruption"}, "train": {}})
    assert type(_default_configs(recipe, "", "", ())["model"]) is t5.Config


def test_every_objective_has_a_name_of_its_own_and_is_a_task():
    names = [entry.name for entry in OBJECTIVES]
    assert len(set(names)) == len(names)
    assert task_class("pretrain") is Pretrain
    assert {"causal_lm", "masked_lm", "span_corruption", "bart_denoising"} <= set(names)

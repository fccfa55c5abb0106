"""The mean of the weights, the best of them, and when a run ends early."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from saccade.metrics import Score
from saccade.tasks.label import Label
from saccade.tasks.predict import mean_loss
from saccade.tasks.runs.run import open_run
from saccade.training.checkpoint.disk import Disk
from saccade.training.events import DevEvaluation, Message
from saccade.training.loop import train_steps
from saccade.training.run import Trainer, run_training
from saccade.training.signals import StopSignals
from support.small_runs import clone_weights, get_result, make_learner, prepare_run, read_outputs, weights_equal


def test_the_mean_is_a_plain_loop(home):
    one = make_learner(home, ema=0.8)
    mean = {name: p.detach().clone().double() for name, p in one.trainable_parameters.items()}
    for n in range(12):
        one.step()
        stay = min(0.8, (1 + n) / (10 + n))
        mean = {
            name: stay * mean[name] + (1 - stay) * p.detach().double() for name, p in one.trainable_parameters.items()
        }
    assert_close(one.ema, {name: x.float() for name, x in mean.items()}, rtol=1e-5, atol=1e-6)
    before = clone_weights(one.model)
    with one.with_ema() as model:
        assert weights_equal(dict(model.named_parameters()), one.ema)
    assert weights_equal(clone_weights(one.model), before)


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """The looks on the way find these scores, one after the other; whoever asks about all held-out data finds 0."""
    left = iter(values)
    inside = [False]
    look = Trainer.evaluate

    def looking(self: Trainer, stops: StopSignals) -> DevEvaluation:
        inside[0] = True
        try:
            return look(self, stops)
        finally:
            inside[0] = False

    def score(self: Label, answers: Any, examples: Any) -> list[Score]:
        return [Score("accuracy", next(left) if inside[0] else 0.0, 0.0, 1.0, 7)]

    monkeypatch.setattr(Trainer, "evaluate", looking)
    monkeypatch.setattr(Label, "score", score)


def test_patience_ends_a_run_and_the_best_is_what_is_written(home, monkeypatch):
    scripted(monkeypatch, [0.2, 0.6, 0.55, 0.5, 0.7, math.nan, 0.6, 0.1])
    given = {"eval_every": 2, "save_every": 1, "epochs": 6}
    events = list(run_training(prepare_run(home, patience=2, **given), home / "out"))
    result = get_result(events)
    assert (result.steps, result.stop_reason) == (8, "early stopping: 2 evaluations without improvement")
    assert [event.best for event in events if isinstance(event, DevEvaluation)] == [True, True, False, False]
    stored = load_file(home / "out" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert weights_equal(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert (
        get_result(list(run_training(prepare_run(home, patience=2, **given), home / "out"))).steps == 8
    )  # it is over, and stays so
    assert (
        get_result(list(run_training(prepare_run(home, patience=3, **given), home / "out"))).steps == 16
    )  # who has more patience goes on
    stored = load_file(home / "out" / "checkpoints" / "step-00000010" / "model.safetensors")
    assert weights_equal(load_file(home / "out" / "model" / "model.safetensors"), stored)


def looks(monkeypatch: pytest.MonkeyPatch, values: list[tuple[float, float, float]]) -> None:
    """Evaluations find these scores of two kinds and these losses, one after the other."""
    left = iter(values)

    def scores(self: Trainer, model: Any, stops: StopSignals) -> dict[str, Any]:
        bleu, chrf, loss = next(left)
        found = [Score("bleu", bleu, 0.0, 1.0, 7), Score("chrf", chrf, 0.0, 1.0, 7)]
        return {"scores": [vars(score) for score in found], "loss": loss}

    monkeypatch.setattr(Trainer, "_score_dev_subset", scores)


@pytest.mark.parametrize(
    ("values", "kept", "rival"),
    [
        ([(0.0, 1, 3.0), (0.0, 2, 2.0), (0.0, 3, 2.5)], 4, "step 6 had chrf 3; the best model had 2"),
        ([(0.0, 1, 3.0), (0.0, 2, 3.0), (0.0, 2, 3.0)], 6, ""),
        ([(0.5, 1, 3.0), (0.4, 2, 2.0), (0.4, 1, 2.0)], 2, "step 4 had chrf 2; the best model had 1"),
        ([(0.5, 1, 3.0), (0.4, 2, 2.0), (0.6, 1, 2.0)], 6, ""),
        ([(0.5, 1, 3.0), (math.nan, math.nan, math.nan), (0.5, 1, math.nan)], 6, ""),
    ],
)
def test_of_equal_scores_the_lower_loss_is_kept_and_then_the_later(home, monkeypatch, values, kept, rival):
    looks(monkeypatch, values)
    events = list(
        run_training(prepare_run(home, eval_every=2, save_every=1, max_steps=6, patience=3, epochs=3), home / "out")
    )
    mark = json.loads((home / "out" / "checkpoints" / "best.json").read_text())
    assert f"step-{kept:08d}" in str(mark)
    stored = load_file(home / "out" / "checkpoints" / f"step-{kept:08d}" / "model.safetensors")
    assert weights_equal(load_file(home / "out" / "model" / "model.safetensors"), stored)
    said = [event.text for event in events if isinstance(event, Message) and "every other score" in event.text]
    assert [text.endswith(rival) and f"the best model by bleu is that of step {kept};" in text for text in said] == (
        [True] if rival else []
    )


def test_equal_scores_do_not_renew_patience(home, monkeypatch):
    looks(monkeypatch, [(0.5, 1, 3.0 - step / 10) for step in range(9)])
    result = get_result(list(run_training(prepare_run(home, eval_every=2, patience=2, epochs=6), home / "out")))
    assert (result.steps, result.stop_reason) == (6, "early stopping: 2 evaluations without improvement")


def test_the_loss_on_held_out_data_is_written_down(home):
    work = prepare_run(home, "translate", epochs=1, eval_every=5, max_steps=5)
    list(run_training(work, home / "out"))
    told = [json.loads(line) for line in (home / "out" / "metrics.jsonl").read_text().splitlines()]
    found = next(line["dev"]["loss"] for line in told if "dev" in line)
    model, task = work.model.eval(), work.task
    nats = tokens = 0.0
    for item in task.encode(work.splits.dev.examples, model):
        with torch.no_grad():
            nats += float(task.loss(model, task.batch([item])))
        tokens += len(item.target)
    assert found == pytest.approx(nats / tokens, rel=1e-5)
    state = torch.random.get_rng_state()
    mean_loss(task, model, task.encode(work.splits.dev.examples, model))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_best_is_marked_even_if_its_writer_died_before(home, monkeypatch):
    """Between a checkpoint and the mark that it is the best, a process can be killed."""
    scripted(monkeypatch, [0.2, 0.6, 0.1, 0.2, 0.6, 0.1])
    list(run_training(prepare_run(home), home / "calm"))
    real = Disk.rename

    def rename(self: Disk, old: Path, new: Path) -> None:
        if new.name == "best.json" and (home / "wild" / "checkpoints" / "best.json").exists():
            raise KeyboardInterrupt
        real(self, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            list(run_training(prepare_run(home), home / "wild"))
    list(run_training(prepare_run(home), home / "wild"))
    marks = [json.loads((home / out / "checkpoints" / "best.json").read_text()) for out in ("calm", "wild")]
    assert marks[0] == marks[1]
    assert read_outputs(home / "calm") == read_outputs(home / "wild")


def test_a_run_that_ends_before_its_first_look_writes_what_it_has(home):
    list(run_training(prepare_run(home, max_steps=3), home / "out"))
    stored = load_file(home / "out" / "checkpoints" / "step-00000003" / "model.safetensors")
    assert weights_equal(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert "dev" not in (home / "out" / "metrics.jsonl").read_text()


def test_bfloat16_learns(home):
    one = make_learner(home, precision="bfloat16", epochs=30, lr=1e-2)
    losses = [step.loss for step in train_steps(one)]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert {p.dtype for p in one.model.parameters()} == {torch.float32}
    other = make_learner(home, epochs=30, lr=1e-2)
    assert other.step().loss != losses[0]
    assert other.step().loss == pytest.approx(losses[1], rel=0.05)


def test_a_translator_into_chinese_is_scored_by_characters_and_opened_with_the_same_tokenizer(tmp_path):
    rows = [
        f"{i} May {1900 + i}\t一九{'〇一二三四五六七八九'[i // 10]}{'〇一二三四五六七八九'[i % 10]}年五月"
        for i in range(99)
    ]
    (tmp_path / "translate.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")
    result = get_result(list(run_training(prepare_run(tmp_path, "translate", max_steps=2), tmp_path / "out")))
    assert "tok:zh" in result.scores["dev"][0].signature
    assert open_run(tmp_path / "out").task.config.bleu_tokenizer == "zh"
    chosen = prepare_run(tmp_path, "translate", task_fields={"bleu_tokenizer": "char"})
    assert chosen.task.config.bleu_tokenizer == "char"
    with pytest.raises(ValueError, match="no BLEU tokenizer 'zhh'"):
        prepare_run(tmp_path, "translate", task_fields={"bleu_tokenizer": "zhh"})

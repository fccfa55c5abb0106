"""Training does what its settings say, leaves the weights alone when something is wrong, and goes on exactly where it was."""

import copy
import errno
import json
import math
import os
import random
import re
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.testing import assert_close

from saccade import cli
from saccade.models import bert, gpt2, rnn, transformer, vit
from saccade.models.new import new
from saccade.tasks import task as tasks
from saccade.tasks.feed import feed
from saccade.tasks.label import Label
from saccade.tasks.metrics import Score
from saccade.tasks.task import word_loss
from saccade.training.config import Config
from saccade.training.disk import Disk, DiskFull
from saccade.training.events import Event, Looked, Refused, Result, Said
from saccade.training.job import Job, Ready, prepare
from saccade.training.loop import Diverged, Learner, train
from saccade.training.optimizer import optimizer, shares
from saccade.training.run import Run, run
from saccade.training.schedule import rate
from saccade.training.stops import Stops

SIZES = {"width": 8, "layers": 2, "heads": 2, "inner": 12, "dropout": 0.0}
TRAIN = {"epochs": 3, "tokens": 80, "rate": 3e-3, "save_every": 4, "save_minutes": 0.0}
TASKS = ("label", "tag", "translate", "language")


@pytest.fixture
def home(tmp_path) -> Path:
    draw = random.Random(3)
    words = ["ash", "birch", "elm", "fir", "oak", "pine", "yew", "red", "blue", "green", "old", "young", "tall"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(50)]
    rows = {
        "label": ["label\ttext"] + [f"{'odd' if len(text.split()) % 2 else 'even'}\t{text}" for text in texts],
        "translate": ["source\ttarget"] + [f"{text}\t{' '.join(text.split()[::-2])}" for text in texts],
        "tag": [
            line
            for text in texts
            for line in [*(f"{word} {'B-OAK' if word == 'oak' else 'O'}" for word in text.split()), ""]
        ],
        "language": texts[:20],
    }
    for name, lines in rows.items():
        suffix = {"tag": "conll", "language": "txt"}.get(name, "tsv")
        (tmp_path / f"{name}.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def ready(
    home: Path, task: str = "label", *, sizes: dict[str, Any] = SIZES, of: dict[str, Any] | None = None, **given: Any
) -> Ready:
    data = next(home.glob(f"{task}.*"))
    told = of or ({"length": 16} if task == "language" else {})
    return prepare(
        Job(task, (str(data),), "transformer", model_fields=sizes, task_fields=told, train_fields=TRAIN | given)
    )


def learner(home: Path, task: str = "label", *, double: bool = False, **given: Any) -> Learner:
    made = ready(home, task, **given)
    model = made.model.double() if double else made.model
    config = made.config
    read = feed(
        made.task, made.splits.train.examples, model, tokens=config.tokens, rows=config.rows or None, seed=config.seed
    )
    return Learner(model, made.task, read, config)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def gradients(one: Learner) -> list[dict[str, Tensor]]:
    """A list that gets the gradients of every step just before the weights move."""
    seen: list[dict[str, Tensor]] = []
    real = one.optimizer.step

    def step() -> None:
        seen.append({name: p.grad.clone() for name, p in one.learnt.items() if p.grad is not None})
        real()

    one.optimizer.step = step  # type: ignore[assignment, method-assign]
    return seen


def ended(events: list[Event]) -> Result:
    assert isinstance(events[-1], Result)
    return events[-1]


def left(out: Path) -> list[bytes]:
    """What has to be the same, bit for bit: the model and the metrics."""
    return [(out / "model" / "model.safetensors").read_bytes(), (out / "metrics.jsonl").read_bytes()]


# a step in parts


@pytest.mark.parametrize("task", TASKS)
def test_parts_of_a_step_give_the_same_step(home, task):
    """In one, two, three and five parts, and example by example without the loop; lengths differ and rows do not divide."""
    whole = learner(home, task, double=True, clip=0.0)
    seen = gradients(whole)
    steps = [whole.step() for _ in range(3)]
    read = [whole.feed.batches(step)[0].rows for step in range(3)]
    assert task == "language" or any(len({item.lengths for item in rows}) > 1 for rows in read)
    for parts in (2, 3, 5):
        other = learner(home, task, double=True, clip=0.0, parts=parts)
        assert len(other.feed.batches(0, parts=parts)) > 1
        again = gradients(other)
        for step in steps:
            assert other.step().loss == pytest.approx(step.loss, abs=1e-12)
        for a, b in zip(seen, again, strict=True):
            assert_close(a, b, rtol=1e-10, atol=1e-12)
        assert_close(weights(whole.model), weights(other.model), rtol=0, atol=1e-10)
    alone = learner(home, task, double=True)
    items = alone.feed.batches(0)[0].rows
    batches = [alone.task.batch([item]) for item in items]
    loss: Any = sum(alone.task.loss(alone.model, batch) for batch in batches) / sum(map(alone.task.count, batches))
    loss.backward()
    assert_close({n: p.grad for n, p in alone.learnt.items() if p.grad is not None}, seen[0], rtol=1e-10, atol=1e-12)


def test_the_last_step_of_an_epoch_is_not_worth_less(home):
    """A loss is per example, however few are left for the last batch."""
    one = learner(home, double=True)
    losses = []
    for step in range(one.feed.plan.steps(0)):
        batch = one.feed.batches(step)[0]
        losses.append(one.task.loss(one.model, batch).item() / len(batch.rows))
    sizes = [len(one.feed.batches(step)[0].rows) for step in range(len(losses))]
    assert len(set(sizes)) > 1
    for i, loss in enumerate(losses):
        one.done = i
        one.optimizer.param_groups[0]["lr"] = 0.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.optimizer, "step", lambda: None)
            assert one.step().loss == pytest.approx(loss, rel=1e-12)


def test_rows_bound_a_step_of_every_task(home):
    for task in TASKS:
        one = learner(home, task, rows=2)
        assert {len(one.feed.batches(step)[0].rows) for step in range(one.horizon)} <= {1, 2}


# what is not finite


def poison(monkeypatch: pytest.MonkeyPatch, one: Any, where: str, value: float, at: int) -> None:
    """At one step the loss, or one gradient, is not finite; the learner is looked up when the step comes."""
    real = Label.loss

    def loss(self: Label, model: Any, batch: Any) -> Tensor:
        out = real(self, model, batch)
        if one().done != at:
            return out
        if where == "loss":
            return out * value
        grown = list(model.parameters())[3]
        grown.register_hook(lambda grad: torch.where(torch.arange(grad.numel()).view_as(grad) == 1, value, grad))
        return out

    monkeypatch.setattr(Label, "loss", loss)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_never_reaches_the_weights(home, monkeypatch, where, value):
    for at in (0, 1, 4, 9):
        for clip in (0.0, 1.0):
            one = learner(home, average=0.9, clip=clip)
            with monkeypatch.context() as patch:
                poison(patch, lambda one=one: one, where, value, at)
                for _ in range(at):
                    one.step()
                before = copy.deepcopy(one.tensors())
                with pytest.raises(Diverged, match=f"step {at + 1}: .*nothing was learnt") as caught:
                    one.step()
            assert caught.value.batches[0].rows == one.feed.batches(at)[0].rows
            assert one.done == at
            after = one.tensors()
            assert all(same(before[group], after[group]) for group in ("model", "optimizer", "mean"))
            assert all(p.grad is None for p in one.model.parameters())


def test_a_run_that_diverges_names_the_examples_and_can_go_on(home, monkeypatch, capsys):
    args = ["train", "label", "--data", str(home / "label.tsv"), "--model", "transformer"]
    args += [f"--model.{key}={value}" for key, value in SIZES.items()]
    args += [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()]
    assert cli.main([*args, "--out", str(home / "calm")]) == 0
    made: list[Learner] = []
    real = Learner.__init__

    def remember(self: Learner, *given: Any) -> None:
        real(self, *given)
        made.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "__init__", remember)
        poison(patch, lambda: made[-1], "loss", math.nan, 6)
        for _ in range(2):
            capsys.readouterr()
            assert cli.main([*args, "--out", str(home / "wild")]) == 6
            said = capsys.readouterr().err
            assert re.search(r"saccade train: step 7: the loss is nan .* Lower train.rate", said)
            assert "Traceback" not in said
    rows = [json.loads(line) for line in (home / "wild" / "diverged.jsonl").read_text().splitlines()]
    read = made[-1].feed.batches(6)[0].rows
    assert [row["line"] for row in rows] == [item.example.line for item in read]
    lines = (home / "label.tsv").read_text().splitlines()
    for row in rows:
        assert lines[row["line"] - 1] == f"{row['example_label']}\t{row['example_text']}"
        assert (row["step"], Path(row["file"]).name) == (7, "label.tsv")
    assert cli.main([*args, "--out", str(home / "wild")]) == 0
    assert left(home / "wild") == left(home / "calm")


def test_a_window_of_running_text_is_written_down_as_text(home, monkeypatch):
    made = ready(home, "language")
    monkeypatch.setattr(
        type(made.task), "loss", lambda self, model, batch: sum(p.sum() for p in model.parameters()) * math.nan
    )
    with pytest.raises(Diverged):
        list(run(made, home / "out"))
    rows = [json.loads(line) for line in (home / "out" / "diverged.jsonl").read_text().splitlines()]
    text = (home / "language.txt").read_text()
    assert rows
    assert all(len(row["example_text"]) == 16 and row["example_text"] in text for row in rows)


@pytest.mark.parametrize("name", ["rate", "clip", "decay", "warmup"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_settings_are_finite(name, value):
    with pytest.raises(ValueError, match=rf"train\.{name} is {value}"):
        Config(**{name: value})


# going on with something else


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "train.seed was 0 and is 1"),
        ({"tokens": 81}, "train.tokens was 80 and is 81"),
        ({"rate": 1e-3}, "train.rate was 0.003 and is 0.001"),
        ({"parts": 2}, "train.parts was 1 and is 2"),
        ({"precision": "bfloat16"}, "train.precision was 'float32' and is 'bfloat16'"),
        ({"epochs": 4}, "train.epochs was 3 and is 4"),
        ({"sizes": SIZES | {"width": 16}}, "model.width was 8 and is 16"),
        ({"of": {"smoothing": 0.1}}, "task.smoothing was 0.0 and is 0.1"),
    ],
)
def test_a_run_refuses_to_go_on_with_other_settings(home, change, words):
    list(run(ready(home, max_steps=4), home / "out"))
    before = (home / "out" / "metrics.jsonl").read_bytes()
    with pytest.raises(Refused, match=f"out cannot go on.*{re.escape(words)}.*--out"):
        list(run(ready(home, **change), home / "out"))
    assert (home / "out" / "metrics.jsonl").read_bytes() == before


def test_a_run_refuses_other_data_and_other_labels(home, capsys):
    path = home / "label.tsv"
    old = path.read_text()
    list(run(ready(home, max_steps=4), home / "out"))
    path.write_text(old.replace("\told ", "\tyoung ", 1))
    with pytest.raises(Refused, match=r"has changed: data was '\w+' and is '\w+'\. Go back"):
        list(run(ready(home, max_steps=6), home / "out"))
    path.write_text(old.replace("odd\t", "unlike\t"))
    with pytest.raises(Refused, match=r"data was .*; labels was \['even', 'odd'\] and is \['even', 'unlike'\]"):
        list(run(ready(home, max_steps=6), home / "out"))
    told = [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()]
    told += [f"--model.{key}={value}" for key, value in SIZES.items()]
    assert (
        cli.main(["train", "label", "--data", str(path), "--model", "transformer", "--out", str(home / "out"), *told])
        == 2
    )
    assert "cannot go on, since what it learns from has changed" in capsys.readouterr().err
    path.write_text(old)
    assert ended(list(run(ready(home, max_steps=6), home / "out"))).steps == 6


def test_what_only_says_when_to_stop_or_to_save_may_change(home):
    list(run(ready(home), home / "calm"))
    free: list[dict[str, Any]] = [
        {"max_steps": 3},
        {"max_steps": 7, "save_every": 1},
        {"max_steps": 9, "save_minutes": 1e-9, "patience": 50},
        {"max_time": 1e-9},
        {"max_time": 60.0, "device": "cpu", "save_every": 0, "save_minutes": 5.0},
    ]
    steps = [ended(list(run(ready(home, **change), home / "wild"))).steps for change in free]
    assert steps[:4] == [3, 7, 9, 9]
    assert left(home / "wild") == left(home / "calm")


def test_a_seed_is_a_run(home):
    for out, seed in (("one", 5), ("same", 5), ("other", 6)):
        list(run(ready(home, seed=seed, sizes=SIZES | {"dropout": 0.3}), home / out))
    assert left(home / "one") == left(home / "same")
    assert all(a != b for a, b in zip(left(home / "one"), left(home / "other"), strict=True))


# rates


def test_schedules_follow_their_formulas():
    for horizon, warmup in ((50, 7), (50, 0.2), (31, 0), (3, 5), (1, 0.1)):
        warm = warmup if warmup >= 1 else round(warmup * horizon)
        for step in range(horizon):
            found = {
                name: rate(step, horizon, highest=2.0, schedule=name, warmup=warmup)
                for name in ("linear", "cosine", "inverse_sqrt", "constant")
            }
            if step < warm:
                assert set(found.values()) == {2.0 * (step + 1) / warm}
                continue
            gone = (step - warm) / (horizon - warm)
            assert found["linear"] == pytest.approx(2.0 * (1 - gone))
            assert found["cosine"] == pytest.approx(2.0 * math.cos(math.pi * gone / 2) ** 2)
            assert found["inverse_sqrt"] == pytest.approx(
                2.0 * (max(1, warm) / max(1, warm, step if warm else step + 1)) ** 0.5
            )
            assert found["constant"] == 2.0
            assert found["linear"] > 0


def test_the_loop_sets_the_rate_of_every_group(home):
    one = learner(home, layer_rate=0.5, warmup=3, schedule="cosine")
    for step in train(one):
        now = rate(step.number - 1, one.horizon, highest=3e-3, schedule="cosine", warmup=3)
        assert step.rate == now
        assert {group["lr"] for group in one.optimizer.param_groups} == {
            now * share for share in (1.0, 0.5, 0.25, 0.125)
        }
    assert one.done == one.horizon


def test_the_fused_optimiser_is_adamw(home):
    """Against torch's plain loop over parameters, on gradients of very unlike size."""
    one = ready(home, decay=0.1).model
    other = copy.deepcopy(one)
    fast = optimizer(one, Config(rate=1e-2, decay=0.1))
    assert fast.defaults["fused"]
    groups = [
        {"params": [p for p in other.parameters() if (p.dim() > 1) is matrix], "weight_decay": 0.1 if matrix else 0.0}
        for matrix in (True, False)
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-8, foreach=False, fused=False)
    for _ in range(10):
        for i, (p, q) in enumerate(zip(one.parameters(), other.parameters(), strict=True)):
            p.grad = torch.randn(p.shape) * 10 ** (-i % 5)
            q.grad = p.grad.clone()
        fast.step()
        plain.step()
    assert_close(list(one.parameters()), list(other.parameters()), rtol=1e-6, atol=1e-7)


READER = {"vocab": 11, "width": 8, "layers": 3, "heads": 2, "inner": 12, "length": 9}
BUILT: dict[
    str, tuple[Any, str | None, set[str], set[str]]
] = {  # config, head, what stands below the layers, and above
    "bert": (
        bert.Config(**READER),
        "label",
        {
            "words.vectors.weight",
            "segments.vectors.weight",
            "stack.position.vectors.weight",
            "stack.enter.0.weight",
            "stack.enter.0.bias",
        },
        set(),
    ),
    "gpt2": (
        gpt2.Config(**READER),
        None,
        {"words.vectors.weight", "stack.position.vectors.weight"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
    "transformer_reader": (
        transformer.Config(**READER),
        "tag",
        {"words.vectors.weight"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
    "rnn_reader": (rnn.Config(11, 8, layers=3), "label", {"words.vectors.weight"}, set()),
    "vit": (
        vit.Config(side=8, patch=4, width=8, layers=3, heads=2, inner=12),
        "label",
        {"whole", "patches.project.weight", "patches.project.bias", "stack.position.vectors"},
        {"stack.leave.weight", "stack.leave.bias"},
    ),
}


@pytest.mark.parametrize("family", BUILT)
def test_rates_decay_and_freezing_reach_what_they_should(family):
    config, head, below, above = BUILT[family]
    model = new(family, config, head=head)
    named = dict(model.named_parameters())
    level = {f"body.{name}": 0 for name in below} | {f"body.{name}": 4 for name in above}
    level |= {name: 4 for name in named if name.startswith("head.")}
    for name in named.keys() - level.keys():
        level[name] = 1 + int(re.findall(r"layers\.(\d)\.", name)[-1])
    assert level.keys() == named.keys()
    assert {0, 1, 2, 3} <= set(level.values())
    names = {id(p): name for name, p in named.items()}

    told = {names[id(p)]: share for p, share in shares(model, Config(layer_rate=0.5))}
    assert told == {name: 0.5 ** (4 - level[name]) for name in named}
    for freeze in (0, 1, 2, 3, -1):
        learnt = {names[id(p)] for p, _ in shares(model, Config(freeze=freeze))} if head or freeze >= 0 else set()
        stays = {
            name for name in named if name.startswith("body.") and (freeze < 0 or (freeze and level[name] <= freeze))
        }
        assert learnt == named.keys() - stays or not head
        assert {name for name, p in named.items() if p.requires_grad} == learnt or not head
    decayed = {
        names[id(p)]: group["weight_decay"]
        for group in optimizer(model, Config(decay=0.3)).param_groups
        for p in group["params"]
    }
    matrices = {
        name
        for name, p in named.items()
        if re.search(r"weight(_[ih]h_l0(_reverse)?)?$|vectors$", name) and "norm" not in name
    }
    matrices -= {name for name in named if re.search(r"(enter\.0|leave)\.weight$", name)}
    assert {name for name, decay in decayed.items() if decay} == matrices
    assert set(decayed.values()) == {0.0, 0.3}


def test_with_everything_frozen_nothing_is_left():
    with pytest.raises(ValueError, match=r"Nothing is left to learn: .* Lower train.freeze"):
        optimizer(new("gpt2", gpt2.Config(**READER)), Config(freeze=-1))


def test_frozen_layers_stay_and_the_others_move(home):
    one = learner(home, freeze=1)
    before = weights(one.model)
    for _ in range(3):
        one.step()
    moved = {name for name, x in weights(one.model).items() if not torch.equal(x, before[name])}
    still = {name for name in before if name.startswith(("body.words.", "body.stack.layers.0."))}
    assert still
    # a key's bias moves all scores of a query alike, so nothing comes of it but the rounding of its gradient
    idle = {name for name in before if "key.bias" in name}
    assert before.keys() - moved - idle == still - idle
    assert set(one.tensors()["model"]) == before.keys()


def test_gradients_are_clipped(home):
    free, tight, loose = (learner(home, clip=clip, double=True) for clip in (0.0, 0.05, 1e9))
    seen = [gradients(one) for one in (free, tight, loose)]
    steps = [one.step() for one in (free, tight, loose)]
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in seen[0][0].values()))
    assert norm > 0.05
    for step in steps:
        assert step.norm == pytest.approx(norm, rel=1e-9)
    for name, grad in seen[0][0].items():
        assert_close(seen[1][0][name], grad * 0.05 / norm, rtol=1e-4, atol=0)
        assert torch.equal(seen[2][0][name], grad)


# the mean of the weights, and the best of them


def test_the_mean_is_a_plain_loop(home):
    one = learner(home, average=0.8)
    mean = {name: p.detach().clone().double() for name, p in one.learnt.items()}
    for n in range(12):
        one.step()
        stay = min(0.8, (1 + n) / (10 + n))
        mean = {name: stay * mean[name] + (1 - stay) * p.detach().double() for name, p in one.learnt.items()}
    assert_close(one.mean, {name: x.float() for name, x in mean.items()}, rtol=1e-5, atol=1e-6)
    before = weights(one.model)
    with one.averaged() as model:
        assert same(dict(model.named_parameters()), one.mean)
    assert same(weights(one.model), before)


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """The looks on the way find these scores, one after the other; whoever asks about all held-out data finds 0."""
    left = iter(values)
    inside = [False]
    look = Run.look

    def looking(self: Run, stops: Stops) -> Looked:
        inside[0] = True
        try:
            return look(self, stops)
        finally:
            inside[0] = False

    def score(self: Label, answers: Any, examples: Any) -> list[Score]:
        return [Score("accuracy", next(left) if inside[0] else 0.0, 0.0, 1.0, 7)]

    monkeypatch.setattr(Run, "look", looking)
    monkeypatch.setattr(Label, "score", score)


def test_patience_ends_a_run_and_the_best_is_what_is_written(home, monkeypatch):
    scripted(monkeypatch, [0.2, 0.6, 0.6, 0.5, 0.7, math.nan, 0.6, 0.1])
    given = {"look_every": 2, "save_every": 1, "epochs": 6}
    events = list(run(ready(home, patience=2, **given), home / "out"))
    result = ended(events)
    assert (result.steps, result.why) == (8, "no better score for long")
    assert [event.best for event in events if isinstance(event, Looked)] == [True, True, False, False]
    stored = load_file(home / "out" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert ended(list(run(ready(home, patience=2, **given), home / "out"))).steps == 8  # it is over, and stays so
    assert ended(list(run(ready(home, patience=3, **given), home / "out"))).steps == 16  # who has more patience goes on
    stored = load_file(home / "out" / "checkpoints" / "step-00000010" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)


def test_the_best_is_marked_even_if_its_writer_died_before(home, monkeypatch):
    """Between a checkpoint and the mark that it is the best, a process can be killed."""
    scripted(monkeypatch, [0.2, 0.6, 0.1, 0.2, 0.6, 0.1])
    list(run(ready(home), home / "calm"))
    real = Disk.rename

    def rename(self: Disk, old: Path, new: Path) -> None:
        if new.name == "best.json" and (home / "wild" / "checkpoints" / "best.json").exists():
            raise KeyboardInterrupt
        real(self, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            list(run(ready(home), home / "wild"))
    list(run(ready(home), home / "wild"))
    marks = [json.loads((home / out / "checkpoints" / "best.json").read_text()) for out in ("calm", "wild")]
    assert marks[0] == marks[1]
    assert left(home / "calm") == left(home / "wild")


def test_a_run_that_ends_before_its_first_look_writes_what_it_has(home):
    list(run(ready(home, max_steps=3), home / "out"))
    stored = load_file(home / "out" / "checkpoints" / "step-00000003" / "model.safetensors")
    assert same(load_file(home / "out" / "model" / "model.safetensors"), stored)
    assert "dev" not in (home / "out" / "metrics.jsonl").read_text()


def test_bfloat16_learns(home):
    one = learner(home, precision="bfloat16", epochs=30, rate=1e-2)
    losses = [step.loss for step in train(one)]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert {p.dtype for p in one.model.parameters()} == {torch.float32}
    other = learner(home, epochs=30, rate=1e-2)
    assert other.step().loss != losses[0]
    assert other.step().loss == pytest.approx(losses[1], rel=0.05)


# the disk


class Full(Disk):
    """A disk that is full from its n-th write on."""

    def __init__(self, writes: int):
        self.writes = writes

    def write(self, file: FileIO, piece: memoryview) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, piece)


def test_a_full_disk_costs_nothing_but_time(home):
    list(run(ready(home), home / "calm"))
    for writes in (0, 5, 31, 44, 70):
        out = home / f"wild{writes}"
        with pytest.raises(DiskFull, match=r"the disk is full\. Saving needs .* Make room and start again"):
            list(run(ready(home), out, disk=Full(writes)))
        names = sorted(path.name for path in (out / "checkpoints").iterdir())
        assert not [name for name in names if name.startswith(".")]
        said = [event.text for event in run(ready(home), out) if isinstance(event, Said)]
        saved = [int(name[-8:]) for name in names if name.startswith("step-")]
        assert said == ([f"going on after step {max(saved)} of {learner(home).horizon}"] if saved else [])
        assert left(out) == left(home / "calm")


def test_a_full_disk_is_exit_code_5(home, monkeypatch, capsys):
    args = ["train", "label", "--data", str(home / "label.tsv"), "--out", str(home / "out"), "--model", "transformer"]
    args += [f"--model.{key}={value}" for key, value in SIZES.items()]
    monkeypatch.setattr(Disk, "free", lambda self, path: 1000)
    assert cli.main([*args, "--train.max-steps", "2"]) == 5
    said = capsys.readouterr().err
    assert re.search(r"the disk is full\. Saving needs [\d.]+ MB to be free; 0\.0 MB are\. Make room", said)
    assert "Traceback" not in said


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "facts.json", "manifest.json"])
def test_a_torn_checkpoint_is_passed_over_aloud(home, file):
    list(run(ready(home), home / "calm"))
    list(run(ready(home, max_steps=9), home / "wild"))
    path = home / "wild" / "checkpoints" / "step-00000009" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    said = [event.text for event in run(ready(home, max_steps=9), home / "wild") if isinstance(event, Said)]
    assert "step-00000009" in said[0]
    assert "Using the one before." in said[0]
    assert said[1].startswith("going on after step 8 of")
    said = [event.text for event in run(ready(home), home / "wild") if isinstance(event, Said)]
    assert len(said) == 1  # the torn one has been written again
    assert said[0].startswith("going on after step 9 of")
    assert left(home / "wild") == left(home / "calm")


# the vocabulary in pieces


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 23, 40, 23 * 17, 10**6])
def test_the_loss_in_pieces_is_the_cross_entropy(monkeypatch, chunk, smoothing):
    monkeypatch.setattr(tasks, "CHUNK", chunk)
    head = new("rnn_language", rnn.Config(23, 8)).double().body.head
    x, gold = torch.randn(19, 8, dtype=torch.float64), torch.randint(23, (19,))
    found, wanted = [], []
    for out, pieces in ((found, True), (wanted, False)):
        leaf = x.clone().requires_grad_()
        head.zero_grad()
        if pieces:
            loss = word_loss(head, leaf, gold, smoothing)
        else:  # the definition: all but a share of the weight on the gold word, the share spread over all words
            logs = head(leaf).log_softmax(-1)
            loss = -((1 - smoothing) * logs[range(19), gold] + smoothing * logs.mean(-1)).sum()
        loss.backward()
        out += [loss.detach(), leaf.grad, *(p.grad.clone() for p in head.parameters())]
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("task", ["translate", "language"])
def test_a_writers_loss_is_that_of_its_own_scores(home, monkeypatch, task):
    """Against `step`, which scores every place, padded or not."""
    one = learner(home, task, double=True, of={"smoothing": 0.2} if task == "translate" else {"length": 11})
    batch = one.feed.batches(0)[0]
    target = batch.target
    assert target is not None
    monkeypatch.setattr(tasks, "CHUNK", 100)
    one.model.train()
    found = one.task.loss(one.model, batch)
    found.backward()
    grads = {name: p.grad.clone() for name, p in one.learnt.items() if p.grad is not None}
    one.model.zero_grad()
    state, first = one.model.start(batch)
    text = (
        first if task == "language" else type(first)(torch.cat([first.tokens, target.tokens[:, :-1]], 1), target.keep)
    )
    scores = one.model.step(text, state)
    gold = target.tokens if target.keep is None else target.tokens.masked_fill(~target.keep, -100)
    smoothing = 0.2 if task == "translate" else 0.0
    wanted = F.cross_entropy(scores.flatten(0, 1), gold.flatten(), reduction="sum", label_smoothing=smoothing)
    wanted.backward()
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert_close(grads, {name: p.grad for name, p in one.learnt.items() if p.grad is not None}, rtol=1e-9, atol=1e-12)


def test_a_disk_that_is_too_small_is_noticed_before_the_first_step(tmp_path):
    class Small(Disk):
        def free(self, path):
            return 1000

    made = prepare(Job("regress"))
    with pytest.raises(DiskFull, match="free"):
        list(run(made, tmp_path / "run", disk=Small()))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()

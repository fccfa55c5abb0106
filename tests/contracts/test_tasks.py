"""What every task must do, over TASKS: score its own gold perfectly, overfit eight examples, answer what has no gold."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from saccade.data import Example
from saccade.data.example import Records
from saccade.data.samples import get_sample
from saccade.data.splits import Splits
from saccade.tasks.batches import make_batches
from saccade.tasks.paint_pictures import to_png
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.registry import TASKS, task_class
from saccade.tasks.runs.run import open_run
from saccade.training.config import Config
from saccade.training.loop import Learner, train_steps
from saccade.training.prepare import Job, PreparedRun, prepare
from saccade.training.run import RunResult, run_training

TINY = {  # a model that learns eight examples by heart in seconds
    "regress": {},
    "language": {"width": 64, "layers": 2, "ffn_width": 128, "heads": 2, "dropout": 0.0},
    "pretrain": {"width": 64, "layers": 2, "ffn_width": 128, "heads": 2, "dropout": 0.0},
    "label": {"width": 32, "layers": 1, "ffn_width": 64, "heads": 2, "dropout": 0.0},
    "grade": {"width": 32, "layers": 1, "ffn_width": 64, "heads": 2, "dropout": 0.0},
    "pair": {"width": 32, "layers": 1, "ffn_width": 64, "heads": 2, "dropout": 0.0},
    "span": {"width": 32, "layers": 2, "ffn_width": 64, "heads": 2, "dropout": 0.0},
    "tag": {"width": 32, "layers": 1, "ffn_width": 64, "heads": 2, "dropout": 0.0},
    "translate": {"width": 64, "layers": 1, "ffn_width": 128, "heads": 2, "dropout": 0.0},
    "summarize": {"width": 64, "layers": 1, "ffn_width": 128, "heads": 2, "dropout": 0.0},
    "caption": {"width": 48, "layers": 1, "ffn_width": 96, "heads": 2, "dropout": 0.0},
    "transcribe": {"width": 48, "layers": 1, "ffn_width": 96, "heads": 2, "channels": 8, "dropout": 0.0},
    "paint": {
        "width": 64,
        "layers": 1,
        "ffn_width": 128,
        "heads": 2,
        "image_size": 16,
        "cell_size": 4,
        "codebook_size": 64,
        "dropout": 0.0,
    },
}
EPOCHS = {
    "regress": 5,
    "language": 300,
    "pretrain": 300,
    "label": 120,
    "grade": 150,
    "pair": 150,
    "span": 150,
    "tag": 150,
    "translate": 200,
    "summarize": 200,
    "caption": 160,
    "transcribe": 220,
    "paint": 300,
}
GOLD_ROLES = {"caption": ("caption",), "paint": ("image",), "transcribe": ("text",)}
GOLD = ("label", "labels", "tags", "target", "y", "answers", "score")
NAMES = [task.name for task in TASKS]


def eight(name):
    """Eight examples of the task's own sample, of different labels where it has labels."""
    found = get_sample(task_class(name).sample).make(400, 3)
    if name == "label":
        by: dict[str, list[Example]] = {}
        for example in found:
            by.setdefault(example["label"], []).append(example)
        return [group[i] for i in range(2) for group in list(by.values())[:4]]
    return found[:8]


def ready(name, examples, **train_fields) -> PreparedRun:
    """What `prepare` would make of these examples, with a tiny model; dev is the same eight."""
    from saccade.training import prepare as job

    task = task_class(name)()
    if name == "translate":
        task = task_class(name)(task.Config(label_smoothing=0.0, tokenizer="characters"))
    if name in ("summarize", "caption"):
        task = task_class(name)(task.Config(label_smoothing=0.0))
    if name == "transcribe":
        task = task_class(name)(task.Config(augment="none"))
    if name == "paint":
        task = task_class(name)(task.Config(autoencoder_fraction=0.6))
    task.fit(examples)
    table = Records(list(examples))
    chosen = task.defaults(examples, False)
    torch.manual_seed(0)
    model = job._build_model(Job(name, model_fields=TINY[name]), task, chosen, table.examples)
    config = dataclasses.replace(
        job.make_config(Config, chosen.train, "train"),
        **{"epochs": EPOCHS[name], "warmup": 0.05, "lr": 3e-3, "eval_every": 10_000, "save_minutes": 0.0}
        | train_fields,
    )
    return PreparedRun(Job(name), task, model, Splits(table, table, None, digest="eight"), config, chosen, [])


def perfect(task, examples):
    """The answers that the gold would be."""
    if task.name in ("label", "pair"):
        return [{"label": e["label"], "scores": {e["label"]: 1.0}} for e in examples]
    if task.name == "span":
        spans = [[{"text": text, "score": 1.0} for _, text in e["answers"]] for e in examples]
        return [{"null": 0.0, "best": best} for best in spans]
    if task.name == "tag":
        return [e["tags"] for e in examples]
    if task.name == "caption":
        return [e["caption"] for e in examples]
    if task.name == "paint":
        pictures = [to_png(torch.tensor(e["image"]).movedim(-1, 0) / 255) for e in examples]
        return [{"png": png, "error": 0.0, "rebuilt": 0.0, "nats": 0.0, "codes": 64} for png in pictures]
    if task.name == "transcribe":
        return [{"text": e["text"], "words": []} for e in examples]
    if task.name == "regress":
        return [{"y": e["y"]} for e in examples]
    if task.name == "grade":
        return [{"score": e["score"]} for e in examples]
    return [e["target"] for e in examples]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("language", "pretrain")])
def test_its_own_gold_is_perfect_and_anything_else_is_not(name):
    examples = eight(name)
    task = task_class(name)()
    task.fit(examples)
    best = task.score(perfect(task, examples), examples)
    assert [score.value for score in best] == pytest.approx(
        [0.0 if s.better == "lower" else _top(s.name) for s in best]
    )
    wrong = perfect(task, examples[1:] + examples[:1])
    if name == "tag":
        wrong = [["O"] * len(e["tags"]) for e in examples]
    watched = 3 if name == "paint" else 0  # what an answer cost was told with it, but what it shows is seen
    worse = task.score(wrong, examples)[watched]
    assert worse.value != best[watched].value
    assert (worse.value > best[watched].value) == (worse.better == "lower")


def _top(name):
    return {"bleu": 100.0, "chrf": 100.0, "cider": 10.0}.get(name, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_eight_examples_are_learnt_by_heart(name):
    made = ready(name, eight(name))
    learner = Learner(
        made.model,
        made.task,
        make_batches(made.task, made.splits.train.examples, made.model, batch_tokens=2048),
        made.config,
    )
    losses = [step.loss for step in train_steps(learner)]
    scores = evaluate(made.task, made.model, made.splits.train.examples)
    if name == "regress":  # it has the points, and a width is all it learns
        assert losses[-1] <= losses[0]
        return
    assert losses[-1] < 0.05 * losses[0], (losses[0], losses[-1])
    if name in ("language", "pretrain"):
        assert scores[0].value < 1.3, scores  # perplexity
    elif name == "paint":
        assert scores[0].value < 0.01, scores  # the squared error of a pixel
    else:
        assert scores[0].value == pytest.approx(0.0 if scores[0].better == "lower" else _top(scores[0].name)), scores


@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_the_sample_to_its_report_and_back(name, tmp_path):
    made = ready(name, eight(name), epochs=2)
    events = list(run_training(made, tmp_path / "run"))
    result = events[-1]
    assert isinstance(result, RunResult)
    assert result.signal is None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert str(result.scores["dev"][0].name) in page
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert task.name == name
    again = evaluate(task, model, made.splits.dev.examples)
    assert again[0].value == pytest.approx(result.scores["dev"][0].value, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_questions_without_gold_are_answered(name):
    made = ready(name, eight(name))
    gold = GOLD_ROLES.get(name, GOLD)
    bare = [Example({k: v for k, v in e.values.items() if k not in gold}) for e in made.splits.train.examples]
    assert len(bare[0].values) < len(made.splits.train.examples[0].values) or name in ("language", "pretrain"), (
        "no gold was taken away"
    )
    found, asked = predict(made.task, made.model, bare)
    assert len(found) == len(asked) >= 1
    for answer, example in zip(found, asked, strict=True):
        prediction = made.task.to_prediction(answer, example)
        assert prediction.as_dict()
        assert json.loads(json.dumps(prediction.as_dict())) == prediction.as_dict()


@pytest.mark.parametrize("name", NAMES)
def test_prepare_reads_the_sample_and_builds_what_suits_it(name):
    made = prepare(Job(name))
    assert len(made.splits.train.examples) > 5 * len(made.splits.dev.examples) > 0
    assert sum(p.numel() for p in made.model.parameters()) > 0
    assert any("sample" in line for line in made.notes)


def test_an_unknown_setting_names_the_nearest(tmp_path: Path):
    with pytest.raises(ValueError, match="epochs"):
        prepare(Job("regress", train_fields={"epoch": 3}))
    with pytest.raises(ValueError, match="translate"):
        prepare(Job("translat"))

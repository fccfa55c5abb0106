"""What a training says of its chances: too few examples to start from scratch, and a score that is no better than a baseline."""

import json
import random

import pytest

from saccade.cli import main
from saccade.data import Example
from saccade.metrics import Score
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.runs.run import Run
from saccade.tasks.span import Span
from saccade.tasks.tag import Tag
from saccade.training.baseline_check import (
    MIN_EXAMPLES,
    MIN_STEPS,
    check_example_count,
    compare_with_baseline,
    fit_best_baseline,
    make_training_hint,
    measure_baselines,
    task_scores,
)
from saccade.training.evaluate import evaluate_run
from saccade.training.events import BaselineResult, Message, RunResult
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

TINY = {"width": 8, "layers": 1, "ffn_width": 8, "heads": 2}


def pairs(home, words: int, rows: int = 60):
    """Pairs of texts with no rule: the label is drawn, and yes is the more frequent."""
    draw = random.Random(1)
    text = lambda: " ".join(f"w{draw.randrange(words)}" for _ in range(12))
    lines = [f"{text()}\t{text()}\t{'yes' if draw.random() < 0.7 else 'no'}" for _ in range(rows)]
    (home / "pairs.tsv").write_text("first\tsecond\tlabel\n" + "\n".join(lines) + "\n")
    return (str(home / "pairs.tsv"),)


def ready(data, model="", task="pair"):
    fields = {} if model else TINY
    return prepare(Job(task, data, model=model, model_fields=fields, train_fields={"max_steps": 2}))


def test_few_examples_of_many_words_are_said_before_training(tmp_path):
    events = run_training(ready(pairs(tmp_path, 5000)), tmp_path / "run")
    first = next(events)
    assert isinstance(first, Message)
    assert "54 training examples with" in first.text
    assert "--model minilm" in first.text
    result = [event for event in events if isinstance(event, RunResult)][-1]
    again = list(run_training(ready(pairs(tmp_path, 5000)), tmp_path / "run"))  # which was said, and is over
    assert not any(isinstance(event, Message) and "few for a model" in event.text for event in again)
    model = str(tmp_path / "run" / "model")
    assert check_example_count(ready(pairs(tmp_path, 5000), model)) == ""  # it starts from trained weights
    assert result.scores


def test_a_small_world_and_the_sample_have_a_chance(tmp_path):
    assert check_example_count(ready(pairs(tmp_path, 20))) == ""  # every word comes often
    assert check_example_count(ready((), task="tag")) == ""
    (tmp_path / "lines.txt").write_text("\n".join(f"word{i} word{i + 1}" for i in range(200)))
    assert Language.min_examples == 0


def test_a_rehearsal_says_it_too(tmp_path, capsys):
    data = pairs(tmp_path, 5000)
    sizes = [part for name, value in TINY.items() for part in (f"--model.{name}", str(value))]
    assert main(["train", "pair", "--data", *data, "--dry-run", *sizes]) == 0
    assert "warning      54 training examples" in capsys.readouterr().out


def test_a_score_at_the_baseline_is_named_so_beside_it_and_written_down(tmp_path, capsys):
    data = pairs(tmp_path, 5000)
    sizes = [part for name, value in TINY.items() for part in (f"--model.{name}", str(value))]
    out = tmp_path / "run"
    assert main(["train", "pair", "--data", *data, "--out", str(out), *sizes, "--train.max-steps", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (note,) = [line for line in lines if "is not better than a baseline: always predicting 'yes' reaches" in line]
    assert note.startswith("dev: accuracy ")
    assert lines.index(note) == max(i for i, line in enumerate(lines) if line.startswith("dev ")) + 1
    assert lines[lines.index(note) - 1].startswith("dev   baseline accuracy ")
    assert json.loads((out / "result.json").read_text())["notes"] == [note]
    assert "always predicting" in (out / "report.html").read_text()


def test_a_score_above_the_baseline_needs_no_note(tmp_path):
    lines = [f"thing {i // 2 % 50} of {('red', 'blue')[i % 2]} {i % 7}\t{('warm', 'cold')[i % 2]}" for i in range(200)]
    (tmp_path / "colours.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    job = Job("label", (str(tmp_path / "colours.tsv"),), model_fields=TINY, train_fields={"epochs": 12, "lr": 0.01})
    result = list(run_training(prepare(job), tmp_path / "run"))[-1]
    assert isinstance(result, RunResult)
    assert result.scores["dev"][0].value > 0.9
    assert not any("baseline" in note for note in result.notes)
    assert not any(
        "baseline" in note for note in json.loads((tmp_path / "run" / "result.json").read_text()).get("notes", ())
    )


def rule(task, train):
    """The baseline that needs no fitting."""
    found = fit_best_baseline(task, train, ())
    assert found is not None
    return found


def test_rules_answer_by_the_counts_of_training():
    task = Label(labels=("a", "b"))
    majority = rule(task, [Example({"label": label}) for label in "abb"])
    assert majority.description == "always predicting 'b'"
    gold = [Example({"label": label}) for label in "bbba"]
    assert task_scores(task, majority, gold)[0].value == 0.75
    train = [
        Example({"words": ["New", "York", "is", "big"], "tags": ["B-LOC", "I-LOC", "O", "O"]}),
        Example({"words": ["York", "Minster"], "tags": ["I-LOC", "I-LOC"]}),
    ]
    text = Example({"words": ["big", "York", "New", "York", "unseen"]})
    assert rule(Tag(), train).predict([text]) == [["O", "B-LOC", "B-LOC", "I-LOC", "O"]]


def test_without_a_method_nothing_is_compared():
    assert Label(Label.Config(multi_label=True)).baselines() == ()
    assert fit_best_baseline(Span(), [Example({"context": "a b"})], ()) is None  # it has no rule, only a method to fit
    assert compare_with_baseline("dev", [Score("f1", 0.1, 0.0, 0.2, 10)], None, "train longer") == ""


def texts(count, seed=0):
    """Texts whose label is in one of their words."""
    draw = random.Random(seed)
    rows = [(draw.choice(["yes", "no"]), [f"w{draw.randrange(50)}" for _ in range(6)]) for _ in range(count)]
    return [Example({"text": " ".join([*words, f"is{label}"]), "label": label}) for label, words in rows]


def test_the_best_baseline_on_dev_is_scored_on_every_split():
    task, train, dev, test = Label(labels=("no", "yes")), texts(300), texts(40, 1), texts(50, 2)
    measured, skipped = measure_baselines(task, train, {"dev": dev, "test": test}, steps=1000)
    assert skipped == []
    assert list(measured) == ["dev", "test"]
    assert {result.method for result in measured.values()} == {"linear classifier on TF-IDF"}
    assert measured["test"].scores[0].value == 1.0
    assert measured["test"].scores[0].count == 50
    again = fit_best_baseline(task, train, dev, measured["dev"].method)
    assert again is not None
    assert task_scores(task, again, test) == measured["test"].scores
    assert BaselineResult.from_dict(measured["dev"].as_dict()) == measured["dev"]


@pytest.mark.parametrize(("examples", "steps"), [(300, MIN_STEPS - 1), (MIN_EXAMPLES - 1, 1000)])
def test_short_trainings_fit_no_baseline(examples, steps):
    measured, _ = measure_baselines(Label(labels=("no", "yes")), texts(examples), {"dev": texts(40, 1)}, steps=steps)
    assert measured["dev"].method == "most frequent label"


def test_methods_after_the_time_limit_are_skipped_and_named(monkeypatch):
    monkeypatch.setattr("saccade.training.baseline_check.MAX_SECONDS", -1.0)
    measured, skipped = measure_baselines(Label(labels=("no", "yes")), texts(300), {"dev": texts(40, 1)}, steps=1000)
    assert measured["dev"].method == "most frequent label"
    assert skipped == ["linear classifier on TF-IDF (more than -1 s)"]


def test_a_method_that_fails_does_not_end_the_training():
    one_label = [Example({"text": f"text {i}", "label": "yes"}) for i in range(300)]
    measured, skipped = measure_baselines(Label(labels=("no", "yes")), one_label, {"dev": texts(40, 1)}, steps=1000)
    assert measured["dev"].method == "most frequent label"
    assert skipped[0].startswith("linear classifier on TF-IDF (ValueError: ")


@pytest.mark.parametrize(
    ("value", "low", "high", "better", "words"),
    [
        (0.9, 0.85, 0.95, "higher", ""),
        (0.8, 0.75, 0.85, "higher", "not clearly better than"),
        (0.7, 0.65, 0.75, "higher", "not better than"),
        (0.5, 0.4, 0.6, "lower", ""),
        (0.77, 0.7, 0.8, "lower", "not clearly better than"),
        (float("nan"), float("nan"), float("nan"), "higher", "not better than"),
    ],
)
def test_a_score_is_better_if_its_whole_interval_is(value, low, high, better, words):
    baseline = BaselineResult("m", "some method", [Score("loss", 0.78, 0.7, 0.8, 100, better=better)])
    score = Score("loss", value, low, high, 100, better=better)
    note = compare_with_baseline("test", [score], baseline, "train longer")
    assert (f"is {words} a baseline: some method reaches 0.780" in note) if words else note == ""


def test_a_published_model_is_advised_where_one_can_be_used(tmp_path):
    """A text encoder can start from one; a language model trained from scratch has its own tokenizer and text."""
    assert "--model minilm" in make_training_hint(ready(pairs(tmp_path, 20)))
    assert "--model minilm" not in make_training_hint(ready((), task="translate"))


def test_a_run_ends_with_its_baseline_and_evaluation_finds_it_again(tmp_path, capsys):
    """A model of two steps' worth of learning loses to a linear one, and the report begins with that."""
    rows = [f"{example['text']}\t{example['label']}" for example in texts(300)]
    (tmp_path / "texts.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    fields = {"max_steps": MIN_STEPS, "lr": 1e-9, "batch_size": 4}
    job = Job("label", (str(tmp_path / "texts.tsv"),), model_fields=TINY, train_fields=fields)
    result = list(run_training(prepare(job), tmp_path / "run"))[-1]
    assert isinstance(result, RunResult)
    assert result.baselines["dev"].scores[0].value == 1.0
    assert "dev   baseline accuracy 1.000" in str(result)
    assert "is not better than a baseline: LinearSVC" in result.notes[0]
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert BaselineResult.from_dict(stored["baselines"]["dev"]) == result.baselines["dev"]
    report = (tmp_path / "run" / "report.html").read_text()
    assert report.index("is not better than a baseline") < report.index("training examples")
    evaluation = evaluate_run(Run(tmp_path / "run"))
    assert evaluation.baseline == result.baselines["dev"].scores
    assert evaluation.baseline_description == result.baselines["dev"].description

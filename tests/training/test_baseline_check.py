"""What a training says of its chances: too few examples to start from scratch, and a score that is no better than a baseline."""

import json
import random

import pytest

from saccade.cli import main
from saccade.data import Example
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.pair import Pair
from saccade.tasks.span import Span
from saccade.tasks.tag import Tag
from saccade.training.baseline_check import check_example_count
from saccade.training.events import Message, RunResult
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
    assert "baseline" not in (tmp_path / "run" / "result.json").read_text()


def test_rules_answer_by_the_counts_of_training():
    task = Label(labels=("a", "b"))
    rule = task.baseline([Example({"label": label}) for label in "abb"])
    assert rule.description == "always predicting 'b'"
    gold = [Example({"label": label}) for label in "bbba"]
    assert task.score([rule.answer(example) for example in gold], gold)[0].value == 0.75
    train = [
        Example({"words": ["New", "York", "is", "big"], "tags": ["B-LOC", "I-LOC", "O", "O"]}),
        Example({"words": ["York", "Minster"], "tags": ["I-LOC", "I-LOC"]}),
    ]
    tagged = Tag().baseline(train)
    assert tagged.answer(Example({"words": ["big", "York", "New", "York", "unseen"]})) == [
        "O",
        "B-LOC",
        "B-LOC",
        "I-LOC",
        "O",
    ]


@pytest.mark.parametrize(
    "task", [Span(), Pair(Pair.Config(target_type="number")), Label(Label.Config(multi_label=True))]
)
def test_where_there_is_no_such_rule_nothing_is_compared(task):
    assert task.baseline([Example({"label": "1"})]) is None

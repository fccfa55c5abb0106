"""The checkpoint is chosen on dev, test is scored once at the end, and a run with dev alone says so."""

import json

import pytest

from saccade.audit.card import build_card
from saccade.audit.run_records import find_task, open_records
from saccade.data import held_out
from saccade.tasks.runs.run import Run, describe_selection
from saccade.training import finish
from saccade.training.evaluate import evaluate_run
from saccade.training.events import DevEvaluation
from saccade.training.resume import check_same_run
from saccade.training.run import run_training
from support.small_runs import get_result, prepare_run


@pytest.fixture
def few_are_enough(monkeypatch):
    monkeypatch.setattr(held_out, "MIN_TEST_EXAMPLES", 5)


def texts(table):
    return [example["text"] for example in table.examples]


def test_the_checkpoint_is_chosen_on_dev_and_test_is_scored_once(home, few_are_enough, monkeypatch):
    scored = []
    predict = finish.predict
    monkeypatch.setattr(finish, "predict", lambda task, model, examples, **rest: (
        scored.append([example["text"] for example in examples]) or predict(task, model, examples, **rest)
    ))  # fmt: skip
    prepared = prepare_run(home)
    sizes = {name: len(table.examples) for name, table in prepared.splits.as_dict().items()}
    events = list(run_training(prepared, home / "out"))
    result, test = get_result(events), prepared.splits.test
    assert test is not None
    assert scored.count(texts(test)) == 1
    looked_at = [event.scores[0].count for event in events if isinstance(event, DevEvaluation)]
    assert looked_at == [sizes["dev"]] * 3
    assert result.scores["test"][0].count == sizes["test"]
    stored = json.loads((home / "out" / "result.json").read_text())
    assert stored["examples"] == sizes
    assert stored["evaluations"] == 3
    note = "The checkpoint is the best of 3 on dev, so only test is new to it: report the score on test."
    assert note in stored["notes"]
    assert note in str(result)


def test_a_run_reads_back_the_same_splits_and_evaluates_on_test(home, few_are_enough):
    prepared = prepare_run(home, epochs=1)
    list(run_training(prepared, home / "out"))
    run = Run(home / "out")
    assert run.settings["train"]["test_size"] == 0.1
    assert run.data is not None
    assert {name: texts(table) for name, table in run.data.as_dict().items()} == {
        name: texts(table) for name, table in prepared.splits.as_dict().items()
    }
    lines = []
    evaluation = evaluate_run(run, log=lines.append)
    assert [score.value for score in evaluation.scores] == [score.value for score in run.scores["test"]]
    assert not any("best of" in line for line in lines)  # one evaluation: nothing was chosen


def test_a_run_with_dev_alone_says_that_its_score_is_of_these_records(home):
    prepared = prepare_run(home)
    assert any("there is no test set: the score will be that of the records" in line for line in prepared.notes)
    result = get_result(list(run_training(prepared, home / "out")))
    note = describe_selection(["dev"], 3)
    assert note.startswith("The checkpoint is the best of 3 on dev, and its score is of the same records")
    assert note in result.notes
    assert note in (home / "out" / "report.html").read_text()
    assert note in build_card(open_records(home / "out"), find_task(home / "out"))
    lines = []
    evaluate_run(Run(home / "out"), log=lines.append)
    assert note in lines
    assert Run(home / "out").settings["train"]["test_size"] == 0.0


def test_nothing_is_said_of_a_single_evaluation_or_of_other_data():
    assert describe_selection(["dev"], 1) == describe_selection([], 5) == describe_selection(["test"], 5) == ""


def test_a_checkpoint_from_before_resumes_if_its_splits_are_the_same(home, few_are_enough):
    prepared, as_before = prepare_run(home), prepare_run(home, test_size=0.0)
    facts = as_before.resume_facts()
    for name in ("test_size", "group_by", "fold"):
        del facts[f"train.{name}"]
    check_same_run(facts, as_before, home)
    with pytest.raises(ValueError, match=r"train\.test_size was 0\.0 and is 0\.1"):
        check_same_run(facts, prepared, home)


def test_a_damaged_setting_of_a_run_is_an_error_that_names_it(home, few_are_enough):
    list(run_training(prepare_run(home, epochs=1), home / "out"))
    path = home / "out" / "config.toml"
    text = path.read_text()
    for bad, said in (('"much"', r"train\.test_size.*a finite number is needed"), ("7.0", "from 0 to 0.5")):
        path.write_text(text.replace("test_size = 0.1", f"test_size = {bad}"))
        with pytest.raises(ValueError, match=said):
            _ = Run(home / "out").data

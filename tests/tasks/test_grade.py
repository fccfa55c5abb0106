"""A number for a text: the units of the data, the loss by hand, scores against scipy, and what a file is taken for."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from saccade.cli import main
from saccade.data import Example
from saccade.data.samples import get_sample
from saccade.errors import DataError, ModelError
from saccade.models.build import new
from saccade.models.families import transformer
from saccade.tasks.grade import Config, Grade
from saccade.tasks.infer_task import infer_task
from saccade.tasks.predict import predict
from saccade.tasks.runs.run import open_run
from saccade.text.train import train_tokenizer

TINY = {"width": 16, "layers": 1, "ffn_width": 16, "heads": 2, "dropout": 0.0}


def made(examples):
    task = Grade()
    task.fit(examples)
    tokenizer = train_tokenizer([example["text"] for example in examples], "words", 200, token_template="bos_eos")
    torch.manual_seed(0)
    model = new(
        "transformer_encoder", transformer.Config(**TINY, vocab=tokenizer.vocab), head="label", labels=task.labels
    )
    model.tokenizer = tokenizer
    return task, model.eval()


def test_the_loss_is_the_squared_error_in_units_of_the_data_and_answers_are_in_theirs():
    examples = get_sample("ratings").make(20, 0)
    task, model = made(examples)
    gold = np.array([example["score"] for example in examples])
    batch = task.batch(task.encode(examples, model))
    said = model(batch).squeeze(-1).detach().double().numpy()
    by_hand = ((said - (gold - gold.mean()) / gold.std()) ** 2).sum()
    assert float(task.loss(model, batch).detach()) == pytest.approx(by_hand, rel=1e-5)
    given = [answer["score"] for answer in task.answer(model, batch)]
    assert given == pytest.approx(gold.mean() + gold.std() * said, rel=1e-5)


def test_scores_are_those_of_scipy_and_numpy():
    random = np.random.default_rng(0)
    gold = random.integers(0, 9, 50) / 2
    given = gold + random.normal(size=50)
    examples = [Example({"text": "", "score": float(value)}) for value in gold]
    found = {score.name: score.value for score in Grade().score([{"score": value} for value in given], examples)}
    assert found == pytest.approx(
        {
            "pearson": stats.pearsonr(gold, given)[0],
            "spearman": stats.spearmanr(gold, given)[0],
            "mse": ((gold - given) ** 2).mean(),
            "mae": np.abs(gold - given).mean(),
        }
    )
    assert Grade(Config(metric="mae")).score([{"score": 1.0}] * 50, examples)[0].name == "mae"


def test_numbers_that_never_vary_are_refused():
    with pytest.raises(DataError, match=r"all 3 texts have the number 2, so there is nothing to learn"):
        Grade().fit([Example({"text": "a", "score": 2.0})] * 3)
    with pytest.raises(ValueError, match=r"task.metric is 'r2'; known are pearson, spearman, mse, mae"):
        Grade(Config(metric="r2"))


@pytest.mark.parametrize(
    ("header", "values", "task"),
    [
        ("text,rating", [0.5 + i % 5 for i in range(40)], "grade"),
        ("text,stars", [i % 5 + 1 for i in range(40)], "label"),  # a few whole numbers are classes
        ("review,mark", [i % 20 for i in range(200)], "grade"),
        ("source,target", range(40), "translate"),
        ("text,label", ["good", "bad"] * 20, "label"),
    ],
)
def test_what_a_file_is_taken_for(tmp_path, header, values, task):
    path = tmp_path / "a.csv"
    path.write_text(header + "\n" + "".join(f"this is text number {i}x,{value}\n" for i, value in enumerate(values)))
    assert infer_task([path])[0].name == task


def test_the_command_line_trains_answers_and_evaluates(tmp_path, capsys):
    file, out = tmp_path / "ratings.csv", tmp_path / "run"
    rows = [f'"{example["text"]}",{example["score"]}' for example in get_sample("ratings").make(60, 0)]
    file.write_text("review,stars\n" + "\n".join(rows) + "\n")
    sizes = [part for name, value in TINY.items() for part in (f"--model.{name}", str(value))]
    flags = ["--columns", "text=review,score=stars", "--out", str(out), "--train.max-steps", "2", *sizes]
    assert main(["train", "score", "--data", str(file), *flags]) == 0  # an alias
    task = open_run(out).task
    assert isinstance(task, Grade)
    assert 1 < task.config.target_mean < 5
    capsys.readouterr()
    for verb in ("grade", "score", "predict"):
        assert main([verb, str(out), "Every dish was superb, and they were quick.", "--json"]) == 0
        (answer,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert set(answer) == {"value"}
    assert main(["evaluate", str(out), "--json"]) == 0
    assert '"pearson"' in capsys.readouterr().out


def test_a_model_directory_without_its_run_is_still_for_one_text(tmp_path):
    _, model = made(get_sample("ratings").make(20, 0))
    model.save(tmp_path / "model")
    opened = open_run(tmp_path / "model")
    assert opened.task.name == "grade"
    examples = [Example({"text": "superb"})]
    (answer,), _ = predict(opened.task, opened.model, examples)
    with torch.inference_mode():
        output = model(opened.task.batch(opened.task.encode(examples, model)))
    assert answer["score"] == pytest.approx(output.item())


def test_the_task_that_is_named_decides_between_tasks_with_the_same_head(tmp_path, capsys):
    _, model = made(get_sample("ratings").make(20, 0))
    model.labels = ("LABEL_0",)  # as most published configs name it
    model.save(tmp_path / "model")
    where = str(tmp_path / "model")
    assert open_run(where).task.name == "pair"
    assert open_run(where, "grade").task.name == open_run(where, "score").task.name == "grade"
    assert main(["grade", where, "superb", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"value"}
    assert main(["label", where, "superb"]) == 4
    assert "was trained for the task pair (" in capsys.readouterr().err
    two = new("transformer_encoder", model.config, head="label", labels=("no", "yes"))
    two.tokenizer = model.tokenizer
    two.save(tmp_path / "two")
    assert open_run(tmp_path / "two").task.name == "label"
    assert open_run(tmp_path / "two", "pair").task.name == "pair"
    with pytest.raises(ModelError, match="was trained for label, not for grade"):
        open_run(tmp_path / "two", "grade")


def test_an_exchange_of_groups_is_measured_as_a_change_of_the_number():
    task = Grade()
    assert task.predicts_number
    assert task.to_comparable({"score": 1.5}, Example({"text": ""})) == 1.5
    assert task.counterfactual_roles == ("text",)

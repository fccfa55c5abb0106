"""Evaluation in Python and at the command line: report, classes, mistakes as a file, and the comparison of two runs."""

import json

import pandas as pd
import pytest
from sklearn.metrics import classification_report, confusion_matrix

import saccade
from saccade.cli import main
from saccade.errors import UsageError

SHORT = {
    "architecture": {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16},
    "train": {"max_steps": 1, "max_eval_examples": 4},
}


@pytest.fixture
def ask(capsys):
    def call(*argv):
        capsys.readouterr()
        code = main([str(word) for word in argv])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def gold_and_given(trained, reviews):
    frame = pd.read_csv(reviews)
    return frame, frame["stars"].tolist(), [one.label for one in trained["good"].predict(frame, engine="off")]


def test_the_report_is_that_of_scikit_learn(trained, reviews, gold_and_given, ask):
    _, gold, given = gold_and_given
    code, out, _ = ask("evaluate", trained["good"].path, "--data", reviews)
    assert code == 0
    assert out.strip() == trained["good"].evaluate(str(reviews)).report()
    report = classification_report(gold, given, output_dict=True, zero_division=0)
    rows = {line[:14].strip(): line[14:].split() for line in out.splitlines()}
    for name in ("bad", "good", "macro avg", "weighted avg"):
        numbers = [f"{report[name][key]:.3f}" for key in ("precision", "recall", "f1-score")]
        assert rows[name][:4] == [*numbers, f"{report[name]['support']:.0f}"]
    matrix = out.partition("confusion matrix")[2].splitlines()
    assert matrix[1].split() == ["bad", "good"]
    counts = confusion_matrix(gold, given).tolist()
    assert [list(map(int, line.split()[1:])) for line in matrix[2:4]] == counts
    wrong = sum(a != b for a, b in zip(gold, given, strict=True))
    assert f"{wrong} of {len(gold)} examples are mistakes" in out
    assert "--mistakes FILE writes all" in out


def test_json_has_everything_that_python_has(trained, reviews, ask):
    run, other = trained["good"], trained["poor"]
    code, out, _ = ask("evaluate", run.path, other.path, "--data", reviews, "--json")
    assert code == 0
    found = json.loads(out)
    assert found == run.evaluate(str(reviews), other=other).as_dict()
    assert {"scores", "confusion", "classes", "averages", "mistakes", "comparison"} <= found.keys()
    assert {row["label"] for row in found["classes"]} == {"bad", "good"}


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        (".csv", pd.read_csv),
        (".jsonl", lambda path: pd.read_json(path, lines=True)),
        (".parquet", pd.read_parquet),
    ],
)
def test_all_mistakes_are_written_the_most_confident_first(
    trained, reviews, gold_and_given, ask, tmp_path, suffix, read
):
    frame, gold, given = gold_and_given
    path = tmp_path / f"wrong{suffix}"
    code, _, said = ask("evaluate", trained["good"].path, "--data", reviews, "--mistakes", path)
    assert code == 0
    table = read(path)
    wrong = [n for n, (a, b) in enumerate(zip(gold, given, strict=True)) if a != b]
    assert f"wrote {len(wrong)} mistakes to {path}" in said
    assert sorted(table["id"]) == sorted(frame["id"][wrong])
    assert table["probability"].is_monotonic_decreasing
    by_id = frame.set_index("id")
    lines = reviews.read_text().splitlines()
    for row in table.to_dict("records"):
        assert row["gold"] == by_id.loc[row["id"], "stars"]
        assert row["answer"] != row["gold"]
        assert row["text"] == by_id.loc[row["id"], "review"]
        assert lines[row["line"] - 1].startswith(f"{row['id']},")
        probabilities = trained["good"].predict(row["text"], engine="off").probabilities
        assert row["probability"] == pytest.approx(probabilities[row["answer"]], abs=1e-6)


def test_mistakes_that_cannot_be_written_are_refused_first(trained, reviews, ask, tmp_path):
    code, _, said = ask("evaluate", trained["good"].path, "--data", reviews, "--mistakes", tmp_path / "a.xlsx")
    assert (code, ".csv, .tsv, .jsonl, .parquet" in said) == (2, True)
    run = saccade.train(
        "translate",
        out=tmp_path / "t",
        architecture={"width": 16, "layers": 1, "heads": 2, "ffn_width": 16},
        train={"max_steps": 1, "max_eval_examples": 4},
    )
    code, _, said = ask("evaluate", run.path, "--mistakes", tmp_path / "a.csv")
    assert code == 2
    assert "an answer of translate is not right or wrong; saccade predict" in said


def test_the_better_of_two_runs_is_named(trained, reviews, ask):
    run, other = trained["good"], trained["poor"]
    found = run.evaluate(str(reviews), other=str(other.path))
    assert found.comparisons == run.evaluate(str(reviews)).compare(other.evaluate(str(reviews)))
    assert found.comparisons[0].is_significant
    code, out, _ = ask("evaluate", run.path, other.path, "--data", reviews)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("  accuracy")]
    assert line.endswith(f"{run.path} is better")
    code, out, _ = ask("evaluate", other.path, run.path, "--data", reviews)
    assert f"{run.path} is better" in out  # from the other side, too
    code, out, _ = ask("evaluate", run.path, run.path, "--data", reviews)
    assert "no significant difference" in out
    assert saccade.evaluate(run.path, str(reviews), other=other).comparisons == found.comparisons


def test_runs_for_different_tasks_are_not_compared(trained, reviews, tmp_path):
    tag = saccade.train(
        "tag",
        out=tmp_path / "tag",
        architecture={"width": 16, "layers": 1, "heads": 2, "ffn_width": 16},
        train={"max_steps": 1, "max_eval_examples": 4},
    )
    with pytest.raises(UsageError, match=r"for the task label and .* one for tag; only models for the same task"):
        trained["good"].evaluate(str(reviews), other=tag)
    found = tag.evaluate()
    assert {one.label for one in found.per_class}
    assert sum(one.support for one in found.per_class) == sum(
        tags.startswith("B-") for example in found.evaluated for tags in example["tags"]
    )
    assert found.confusion is None
    assert "span_f1" in found.report()


def test_many_classes_are_cut(trained):
    from saccade.metrics import ClassScore, confusion_matrix
    from saccade.training.evaluation.format_report import _format_classes, _format_confusion

    labels = [f"class number {n:02}" for n in range(40)]
    scores = [ClassScore(label, n / 40, n / 40, n / 40, 5) for n, label in enumerate(labels)]
    lines = _format_classes(scores[::-1])
    assert "30 of 40 classes with the lowest F1" in lines[0]
    assert lines[2].startswith("class number 00")
    assert lines[-2].split()[:2] == ["macro", "avg"]
    assert float(lines[-2].split()[2]) == pytest.approx(sum(range(40)) / 1600, abs=1e-3)
    gold = labels * 3
    answers = [*labels, *labels[1:], labels[0], *labels[1:], labels[0]]
    listed = _format_confusion(confusion_matrix(gold, answers))
    assert "largest confusions" in listed[0]
    assert len(listed) == 11
    assert all(line.split()[0] == "2" for line in listed[1:])


def test_mistakes_of_several_labels_are_ranked_by_the_most_confident_wrong_decision():
    from saccade.data import Example
    from saccade.tasks.label import Config, Label

    task = Label(Config(multi_label=True), labels=("a", "b", "c"))
    example = Example({"text": "t", "labels": ["a", "b"]}, "f", 1)
    answer = {"labels": ["a", "c"], "scores": {"a": 0.9, "c": 0.7, "b": 0.1}}
    row = task.error_row(answer, example)
    assert row is not None
    assert (row.cells["gold"], row.cells["answer"]) == ("a, b", "a, c")
    assert row.confidence == pytest.approx(0.9)  # b is missing with 90 %, c is predicted with 70 %
    assert task.error_row({"labels": ["b", "a"], "scores": {"a": 0.9, "b": 0.7, "c": 0.1}}, example) is None


def test_a_run_whose_training_data_are_gone_is_scored_without_a_baseline(tmp_path, ask):
    rows = [f"a {word} film {n},{label}" for n in range(12) for word, label in (("fine", "good"), ("dull", "bad"))]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(["text,label", *rows]) + "\n")
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    run = saccade.train(
        "label", str(tmp_path / "train.csv"), out=tmp_path / "run", architecture=sizes, train={"max_steps": 1}
    )
    _, out, _ = ask("evaluate", run.path, "--data", tmp_path / "test.csv")
    assert "baseline, always predicting" in out
    (tmp_path / "train.csv").unlink()
    code, out, said = ask("evaluate", run.path, "--data", tmp_path / "test.csv")
    assert code == 0
    assert "baseline" not in out
    assert "no baseline, because the training data cannot be read" in said

"""What a Python shell and a notebook show of the values that people hold: a few lines with the facts, never the internals."""

import re

import pytest

import saccade
from saccade.cli import main
from saccade.data import Example
from saccade.metrics import Score
from saccade.tasks.grade import Grade


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return saccade.train(
        "label",
        out=tmp_path_factory.mktemp("runs") / "topics",
        architecture={"width": 16, "layers": 2, "heads": 2, "ffn_width": 16},
        train={"max_steps": 3, "max_eval_examples": 20},
    )


def test_every_value_is_shown_in_a_few_lines_and_as_html(run):
    evaluation, text = run.evaluate(), "The lock is released."
    with saccade.watch(run.model) as watched:
        run.predict([text], engine="off")
    looks = run.look(text)
    shown = {
        "Run(": run,
        f"Evaluation({evaluation.examples} examples)": evaluation,
        "Score(name='accuracy', value=": evaluation.scores[0],
        "Predictions(": evaluation.predictions,
        "AttentionMaps(": looks,
        "AttentionMap(": looks[0],
        f"Looks({len(watched)})": watched,
        "Look(": watched[0],
    }
    for beginning, value in shown.items():
        lines = repr(value).splitlines()
        assert lines[0].startswith(beginning), lines[0]
        assert len(lines) <= 15
        assert max(map(len, lines)) < 200
        assert " object at 0x" not in repr(value)
        assert "<" in value._repr_html_()
    assert all(str(score) in repr(evaluation) for score in evaluation.scores)
    assert "baseline" in repr(evaluation)
    assert len(repr(looks).splitlines()) == 1 + len(looks)
    assert len(repr(watched).splitlines()) == 1 + len(watched)


def test_many_looks_are_counted(run):
    looks = run.look("The lock is released.")
    many = type(looks)(looks.model, looks.maps * 30, looks.texts)
    assert repr(many).splitlines()[-1] == f"  ... and {len(many) - 12} more"


def test_a_score_is_rounded():
    assert repr(Score("accuracy", 0.951234, 0.9361, 0.966, 1821)) == (
        "Score(name='accuracy', value=0.9512, low=0.9361, high=0.966, count=1821)"
    )


def test_mistakes_name_the_probability(run):
    mistakes = run.evaluate().mistakes
    assert mistakes[0].cells["probability"] == f"{mistakes[0].confidence:.0%}"
    assert mistakes[0].as_dict()["probability"] == mistakes[0].confidence
    assert not re.search(r"\bsure\b", mistakes._repr_html_() + repr(mistakes[:3]))


@pytest.mark.parametrize("name", ["grade", "regress", "pair"])
def test_predicted_numbers_are_sorted_by_their_absolute_error(name, tmp_path, capsys):
    rows = [{"text": f"{'good ' * (i % 5)}film {i}", "score": str(0.5 + i % 5)} for i in range(40)]
    if name == "regress":
        rows = [{"x": str(i / 10), "y": str((i % 7) ** 2)} for i in range(40)]
    if name == "pair":
        rows = [{"first": row["text"], "second": "a film", "label": row["score"]} for row in rows]
    sizes = {} if name == "regress" else {"width": 8, "layers": 1, "heads": 2}
    settings = {"target_type": "number"} if name == "pair" else {}
    run = saccade.train(
        name, data=rows, out=tmp_path / "run", architecture=sizes, task=settings, train={"max_steps": 2}
    )
    mistakes = run.evaluate(rows).mistakes
    gold = [float(row.get("score", row.get("y", row.get("label")))) for row in rows]
    values = [prediction.value for prediction in run.predict(rows, engine="off")]
    expected = sorted((abs(a - b) for a, b in zip(gold, values, strict=True)), reverse=True)
    assert [one.absolute_error for one in mistakes] == pytest.approx([e for e in expected if e], rel=1e-5)
    first = mistakes[0].as_dict()
    assert first["absolute_error"] == pytest.approx(abs(first["gold"] - first["answer"]))
    assert "largest absolute error first" in mistakes._repr_html_()
    report = run.evaluate(rows).report()
    assert f"largest absolute errors of {len(rows)} examples; --mistakes FILE writes all" in report
    assert main(["evaluate", str(run.path), "--mistakes", str(tmp_path / "m.csv")]) == 0, capsys.readouterr().err
    assert "absolute_error" in (tmp_path / "m.csv").read_text(encoding="utf-8").splitlines()[0]


def test_an_exact_number_is_no_mistake():
    task = Grade()
    assert task.error_row({"score": 2.5}, Example({"text": "a", "score": 2.5})) is None

"""`saccade.open_run`, `Run.predict` and `Run.evaluate`: every kind of input and output, against the task's own functions."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import saccade
from saccade.cli import main
from saccade.data import Example
from saccade.errors import DataError, ModelError, UsageError
from saccade.tasks.interface.predictions import EntitiesPrediction, LabelPrediction, NumberPrediction, TextPrediction
from saccade.tasks.predict import predict

SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
WORDS = {"lovely": "good", "great": "good", "awful": "bad", "boring": "bad"}
ROWS = [
    {"id": f"{word}-{n}", "review": f"a {word} film {n}", "stars": WORDS[word]} for n in range(40) for word in WORDS
]
COLUMNS = {"text": "review", "label": "stars"}


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(ROWS).set_index("id")


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory):
    out = tmp_path_factory.mktemp("label") / "run"
    return saccade.train(
        "label", frame, columns=COLUMNS, out=out, architecture=SIZES, train={"max_steps": 40, "lr": 1e-2}
    )


def plain(run, texts):
    """The probabilities by the task itself, without the engine."""
    answers, _ = predict(run.task, run.model, [Example({"text": text}) for text in texts])
    return np.array([[answer["scores"][label] for label in run.task.labels] for answer in answers])


def test_a_string_is_one_text_and_a_list_of_one_is_a_list(run):
    one, many = run.predict("a lovely film"), run.predict(["a lovely film"])
    assert isinstance(one, LabelPrediction)
    assert list(many) == [one]
    assert one.label == max(one.probabilities, key=lambda label: one.probabilities[label])
    assert one.probability == one.probabilities[one.label]
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert saccade.predict(run.path, "a lovely film") == one
    assert saccade.open_run(run.path).predict("a lovely film", engine="off").label == one.label


def test_probabilities_are_those_of_the_task_in_the_order_of_the_examples(run):
    texts = [row["review"] + " and more" * (number % 7) for number, row in enumerate(ROWS[:50])]
    found = run.predict(texts, engine="off")
    np.testing.assert_allclose(found.probabilities, plain(run, texts), atol=1e-6)
    np.testing.assert_allclose(
        run.predict(texts, engine="off", batch_size=3).probabilities, found.probabilities, atol=1e-6
    )
    assert found.labels == run.task.labels == ("bad", "good")
    assert [one.label for one in found[10:13]] == [one.label for one in found][10:13]


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: [row["review"] for row in rows],
        lambda rows: pd.Series([row["review"] for row in rows]),
        lambda rows: pl.Series([row["review"] for row in rows]),
        lambda rows: np.array([row["review"] for row in rows]),
        lambda rows: pa.array([row["review"] for row in rows]),
        lambda rows: rows,
        pd.DataFrame,
        pl.DataFrame,
        lambda rows: pa.Table.from_pylist(rows),
        lambda rows: pa.RecordBatch.from_pylist(rows),
    ],
    ids=[
        "list",
        "pandas series",
        "polars series",
        "numpy",
        "arrow array",
        "dicts",
        "pandas",
        "polars",
        "arrow",
        "batch",
    ],
)
def test_every_container_gives_the_same_predictions(run, convert):
    assert run.predict(convert(ROWS[:9])) == run.predict([row["review"] for row in ROWS[:9]])


def test_a_file_a_record_and_an_iterator(run, tmp_path):
    wanted = run.predict([row["review"] for row in ROWS[:5]])
    pd.DataFrame(ROWS[:5]).to_csv(tmp_path / "new.csv", index=False)
    assert run.predict(tmp_path / "new.csv") == wanted
    one = run.predict(ROWS[0])
    assert (one.label, one.probability) == (wanted[0].label, pytest.approx(wanted[0].probability, abs=1e-6))
    read = []

    def texts():
        for number in range(5000):
            read.append(number)
            yield ROWS[number % 5]["review"]

    lazy = run.predict(texts())
    assert len(read) <= 1  # the first tells what the items are
    first = [next(lazy) for _ in range(5)]
    assert [one.label for one in first] == [one.label for one in wanted]
    assert len(read) < 2500  # memory is that of one window, not of all there is


def test_a_frame_keeps_its_index(run, frame):
    some = frame.iloc[3:7]
    for data in (some, some["review"]):
        table = run.predict(data).to_pandas()
        assert list(table.index) == list(some.index)
        assert list(table.columns) == ["label", "probability", "probabilities"]
    assert run.predict(some)[1:3].to_pandas().index.tolist() == list(some.index[1:3])


def test_json_of_the_command_line_is_the_prediction(run, capsys):
    capsys.readouterr()
    assert main(["predict", str(run.path), "a lovely film", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == run.predict("a lovely film").as_dict()


def test_wrong_inputs_say_what_is_needed(run, frame):
    with pytest.raises(UsageError, match=r"no keyword 'temprature'; did you mean 'temperature'"):
        run.predict("a", temprature=1)
    with pytest.raises(UsageError, match="label generates no text, so beams does not apply"):
        run.predict("a", beams=2)
    with pytest.raises(UsageError, match=r"Item 2 is 3; label reads text\. Pass one string per example"):
        run.predict(["a", 3])
    with pytest.raises(UsageError, match="got int"):
        run.predict(3)
    with pytest.raises(UsageError, match=r"engine is 'int9'; did you mean 'int8'"):
        run.predict("a", engine="int9")
    with pytest.raises(DataError, match=r"data:2: .*review"):
        run.predict(pd.DataFrame({"review": ["good", None]}))
    with pytest.raises(DataError, match=r"no column for text: looked for review; there are words, stars"):
        run.predict(frame.rename(columns={"review": "words"}))
    with pytest.raises(ModelError, match="was trained for the task label, not tag"):
        saccade.open_run(run.path, task="tag")


def test_nothing_gives_no_predictions(run):
    assert len(run.predict([])) == len(run.predict(pd.Series([], dtype=str))) == 0
    assert list(run.predict(iter(()))) == []


def test_evaluation_has_scores_classes_and_mistakes(run, frame):
    found = run.evaluate(frame)
    gold = [row["stars"] for row in ROWS]
    given = [one.label for one in run.predict(frame, engine="off")]
    assert found.examples == len(ROWS)
    assert found.scores[0].name == "accuracy"
    assert found.scores[0].value == pytest.approx(np.mean([a == b for a, b in zip(gold, given, strict=True)]))
    for one in found.per_class:
        hits = sum(a == b == one.label for a, b in zip(gold, given, strict=True))
        assert one.precision == pytest.approx(hits / max(1, given.count(one.label)))
        assert one.recall == pytest.approx(hits / gold.count(one.label))
        assert one.support == gold.count(one.label)
    wrong = [number for number, (a, b) in enumerate(zip(gold, given, strict=True)) if a != b]
    assert len(found.mistakes) == len(wrong)
    assert [one.confidence for one in found.mistakes] == sorted(
        (one.confidence for one in found.mistakes), reverse=True
    )
    table = found.to_pandas()
    assert table["is_mistake"].sum() == len(wrong)
    assert list(table["predicted_label"]) == given
    assert json.loads(json.dumps(found.as_dict()))["confusion"]["labels"] == ["bad", "good"]
    assert saccade.evaluate(run.path, frame).scores == found.scores


def test_held_out_data_come_with_a_baseline(run):
    found = run.evaluate()
    assert found.baseline[0].name == "accuracy"
    assert "always predicting" in found.baseline_description
    assert "baseline" in found.as_dict()


def test_a_paired_comparison_knows_the_better_model(run, frame, tmp_path):
    other = saccade.train(
        "label", frame, columns=COLUMNS, out=tmp_path / "run", architecture=SIZES, train={"max_steps": 1, "lr": 1e-9}
    )
    mine, theirs = run.evaluate(frame), other.evaluate(frame)
    accuracy, *_ = mine.compare(theirs)
    assert accuracy.name == "accuracy"
    assert accuracy.difference == pytest.approx(mine.scores[0].value - theirs.scores[0].value)
    assert accuracy.low <= accuracy.difference <= accuracy.high
    # by another path: the same draws of examples, the difference of their means
    right = [
        np.array(
            [one["is_mistake"] is False or not one["is_mistake"] for one in some.to_pandas().to_dict("records")], float
        )
        for some in (mine, theirs)
    ]
    draws = np.random.Generator(np.random.PCG64(0)).integers(len(ROWS), size=(1000, len(ROWS)))
    low, high = np.quantile((right[0] - right[1])[draws].mean(1), [0.025, 0.975])
    assert (accuracy.low, accuracy.high) == (pytest.approx(low), pytest.approx(high))
    same, *_ = mine.compare(mine)
    assert (same.difference, same.is_significant) == (0, False)
    with pytest.raises(UsageError, match="the same examples"):
        mine.compare(other.evaluate(frame.iloc[:10]))


def test_a_run_prints_what_it_is(run):
    assert repr(run).startswith(f"Run({str(run.path)!r})\n  task     label\n  model    transformer_encoder, ")
    assert "accuracy" in repr(run)
    assert f"Run {run.path}" in run._repr_html_()
    assert "<table>" in run._repr_html_()
    assert run.predict(["a", "b"])._repr_html_().count("<tr>") == 3  # the header and two examples
    assert repr(run.predict(["a"] * 12)).endswith("... and 2 more")


def test_the_same_call_again_returns_the_finished_run_and_another_table_is_refused(run, frame):
    settings = {"columns": COLUMNS, "out": run.path, "architecture": SIZES, "train": {"max_steps": 40, "lr": 1e-2}}
    before = (Path(run.path) / "result.json").read_bytes()
    again = saccade.train("label", frame, **settings)
    assert (Path(run.path) / "result.json").read_bytes() == before
    assert again.scores == run.scores
    with pytest.raises(DataError, match="trained on another table"):
        saccade.train("label", frame.iloc[:50], **settings)


def test_tag_translate_grade_and_language(tmp_path):
    short = {"max_steps": 2, "max_eval_examples": 10}
    tag = saccade.train("tag", out=tmp_path / "tag", architecture=SIZES, train=short)
    found = tag.predict("Ada Lovelace wrote to Charles in London.")
    assert isinstance(found, EntitiesPrediction)
    for entity in found.entities:
        assert found.text[entity.start : entity.end] == entity.text
        assert 0 < entity.score <= 1
    translate = saccade.train("translate", out=tmp_path / "translate", architecture=SIZES, train=short)
    one, best = translate.predict("3 mai 2019"), translate.predict("3 mai 2019", beams=3, max_new_tokens=5)
    assert isinstance(one, TextPrediction)
    assert one.score is None
    assert best.score is not None
    grade = saccade.train("grade", out=tmp_path / "grade", architecture=SIZES, train=short)
    assert isinstance(grade.predict("Superb."), NumberPrediction)
    with pytest.raises(UsageError, match="Only label predictions have probabilities"):
        _ = grade.predict(["Superb."]).probabilities
    language = saccade.train("language", out=tmp_path / "language", architecture=SIZES, train=short)
    text = "Once upon a time there was a boat. " * 40  # several windows
    long, short_one = language.predict([text, "Once"])
    assert long["tokens"] > 256 > short_one["tokens"]
    assert long["perplexity"] == pytest.approx(np.exp(long["nats"] / long["tokens"]))


def test_pairs_are_tuples_and_images_are_files_or_arrays(tmp_path):
    short = {"max_steps": 1, "max_eval_examples": 10}
    pair = saccade.train("pair", out=tmp_path / "pair", architecture=SIZES, train=short)
    one = pair.predict(("No dogs sleep.", "Some dogs sleep."))
    assert list(pair.predict([("No dogs sleep.", "Some dogs sleep.")])) == [one]
    assert pair.predict({"first": "No dogs sleep.", "second": "Some dogs sleep."}) == one
    with pytest.raises(UsageError, match="reads first and second"):
        pair.predict(["No dogs sleep."])
    caption = saccade.train(
        "caption", out=tmp_path / "caption", architecture={"width": 16, "ffn_width": 16}, train=short
    )
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    texts = [
        caption.predict(value).text
        for value in (pixels, Image.fromarray(pixels), tmp_path / "one.png", str(tmp_path / "one.png"))
    ]
    assert len(set(texts)) == 1
    assert len(caption.predict([pixels, pixels])) == 2

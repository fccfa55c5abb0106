"""Decision thresholds of several labels are those of a search through all cut points, and every use of a run has them."""

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score

import saccade
from saccade.cli import main
from saccade.data import Example
from saccade.errors import ModelError, UsageError
from saccade.metrics import best_f1_threshold
from saccade.tasks.classification.label_values import format_label_values, parse_label_values
from saccade.tasks.classification.thresholds import MIN_POSITIVES, parse_thresholds, tune_thresholds
from saccade.tasks.label import Config, Label


def best_f1_of_all_cuts(probabilities, gold):
    cuts = [*sorted(set(probabilities)), 2.0]
    return max(f1_score(gold, [p >= cut for p in probabilities], zero_division=0) for cut in cuts)


@pytest.mark.parametrize("seed", range(8))
def test_no_cut_point_has_a_higher_f1(seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.integers(1, 20, 37) / 20 if seed % 2 else rng.random(37)  # with and without ties
    gold = rng.random(37) < probabilities**2
    threshold = best_f1_threshold(probabilities.tolist(), gold.tolist())
    reached = f1_score(gold, probabilities >= threshold)
    assert reached == pytest.approx(best_f1_of_all_cuts(probabilities.tolist(), gold.tolist()))
    assert not (probabilities == threshold).any()  # between two probabilities, so that rounding changes nothing


def make_dev(seed=3, count=120):
    """Labels of different frequency, the last with too few examples for a threshold of its own."""
    rng = np.random.default_rng(seed)
    gold = rng.random((count, 3)) < [0.5, 0.2, 0.0]
    gold[: MIN_POSITIVES - 1, 2] = True
    probabilities = np.clip(0.25 * gold + 0.5 * rng.random((count, 3)) * [0.4, 1.0, 0.7], 1e-3, 0.999)
    return probabilities, gold


def test_every_label_has_its_best_threshold_and_a_rare_one_the_common():
    probabilities, gold = make_dev()
    tuned = tune_thresholds(probabilities, gold, ("art", "law", "war"))
    for i, label in enumerate(("art", "law")):
        reached = f1_score(gold[:, i], probabilities[:, i] >= tuned.values[label])
        assert reached == pytest.approx(best_f1_of_all_cuts(probabilities[:, i].tolist(), gold[:, i]))
    assert tuned.small == ("war",)
    micro = f1_score(gold.ravel(), probabilities.ravel() >= tuned.values["war"])
    assert micro == pytest.approx(best_f1_of_all_cuts(probabilities.ravel().tolist(), gold.ravel()))
    gold[MIN_POSITIVES - 1, 2] = True  # one example more is enough
    assert tune_thresholds(probabilities, gold, ("art", "law", "war")).small == ()
    assert f"war (fewer than {MIN_POSITIVES} dev examples)" in str(tuned)


def test_with_hardly_any_examples_nothing_is_tuned():
    tuned = tune_thresholds(np.array([[0.2, 0.9]] * 4), np.array([[1, 0]] * 4), ("a", "b"))
    assert tuned.values == {"a": 0.5, "b": 0.5}


def as_answers(probabilities, labels):
    return [{"labels": [], "scores": dict(zip(labels, row, strict=True))} for row in probabilities.tolist()]


def test_answers_are_decided_by_the_thresholds_of_the_task_and_given_ones_are_kept():
    probabilities, gold = make_dev()
    labels = ("art", "law", "war")
    rows = [[label for label, has in zip(labels, row, strict=True) if has] for row in gold]
    examples = [Example({"text": "t", "labels": row}) for row in rows]
    task = Label(Config(multi_label=True, thresholds="law=0.9"), labels)
    answers = as_answers(probabilities, labels)
    task.tune(answers, examples)
    free = tune_thresholds(probabilities, gold, labels).values
    assert task.label_thresholds == pytest.approx({"art": free["art"], "law": 0.9, "war": free["war"]}, abs=1e-6)
    for answer, example, row in zip(answers, examples, probabilities, strict=True):
        expected = {label for label, p in zip(labels, row, strict=True) if p >= task.label_thresholds[label]}
        assert set(task.to_prediction(answer, example).labels) == expected
        assert set(task.to_comparable(answer, example)) == expected
    reloaded = Label(Config(multi_label=True, **task.tuned_settings), labels)
    assert reloaded.label_thresholds == task.label_thresholds
    assert reloaded.score(answers, examples) == task.score(answers, examples)
    assert reloaded.class_scores(answers, examples) == task.class_scores(answers, examples)
    for one in (
        Label(Config(multi_label=True, thresholds="0.5"), labels),
        Label(Config(), labels),
    ):
        one.tune(answers if one.multi_label else [], examples)
        assert not one.tuned_settings


@pytest.mark.parametrize(
    "values", [{"a": 0.5}, {"a, b": 0.25, "c": 0.5}, {"x=y": 0.125, " z": 0.5}, {"{": 0.5, 5: 0.25}]
)
def test_values_of_labels_are_read_as_they_are_written(values):
    assert parse_label_values(format_label_values(values)) == {str(label): value for label, value in values.items()}


@pytest.mark.parametrize(
    "setting", ["a", "a=", "a=0", "a=1", "1.5", "a=nan", "=0.5", "a=0.5,", "{}x", '{"a": "b"}', '{"a": []}']
)
def test_what_is_no_threshold_is_refused(setting):
    with pytest.raises(UsageError, match="write one probability between 0 and 1 for all labels"):
        parse_thresholds(setting, ("a", "b"))


def test_a_threshold_for_an_unknown_label_names_the_nearest_and_one_label_has_none():
    with pytest.raises(UsageError, match=r"threshold for 'wra'.*war"):
        parse_thresholds("wra=0.5", ("art", "war"))
    with pytest.raises(UsageError, match=r"several labels per example; set task\.multi_label"):
        Label(Config(thresholds="0.4")).fit([Example({"text": "t", "label": label}) for label in "ab"])


def test_flags_with_an_equals_sign_in_their_value_reach_the_run(tmp_path, capsys):
    rows = [{"text": f"day {i}", "labels": [word]} for i in range(20) for word in ("art", "war")]
    (tmp_path / "days.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    argv = (
        f"train label --data {tmp_path}/days.jsonl --out {tmp_path}/run --task.multi-label --task.thresholds art=0.25"
    )
    assert main([*argv.split(), "--task.class-weights=war=2", "--train.max-steps", "2"]) == 0, capsys.readouterr().err
    stored = saccade.open_run(tmp_path / "run").task
    assert (stored.label_thresholds["art"], stored.config.class_weights) == (0.25, "war=2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    rng = np.random.default_rng(5)
    rows = []
    for i in range(600):
        words = [word for word in ("brush", "court", "tank") if rng.random() < 0.4]
        meaning = {"brush": "art", "court": "law", "tank": "war"}
        labels = [meaning[word] for word in words if rng.random() < 0.7]
        rows.append({"text": " ".join(["the", *words, f"w{i % 50}"]), "labels": ";".join(labels)})
    return saccade.train(
        "label",
        data=[row for row in rows if row["labels"]],
        out=tmp_path_factory.mktemp("runs") / "several",
        task={"multi_label": True, "thresholds": {"law": 0.625}},
        train={"epochs": 3, "lr": 3e-3},
        architecture={"width": 8, "layers": 1, "heads": 2},
    )


def test_a_run_stores_its_thresholds_and_every_use_has_them(trained):
    stored = parse_label_values(trained.settings["task"]["thresholds"])
    assert set(stored) == {"art", "law", "war"}
    assert stored["law"] == 0.625
    assert any("Decision thresholds, tuned on dev" in note for note in trained.result["notes"])
    report = (trained.path / "report.html").read_text(encoding="utf-8")
    assert "Decision thresholds, tuned on dev for the F1 of each label" in report
    raw = json.loads((trained.path / "model" / "config.json").read_text(encoding="utf-8"))
    assert raw["label_thresholds"] == stored
    texts = [" ".join(words) for words in (["the"], ["brush"], ["court"], ["tank", "brush"], ["court", "tank"])]
    for run in (
        saccade.open_run(trained.path),
        saccade.open_run(trained.path / "model"),
    ):  # the weights alone, as exported
        for prediction in run.predict(texts, engine="off"):
            expected = {label for label, p in prediction.probabilities.items() if p >= stored[label]}
            assert set(prediction.labels) == expected
    ours = trained.evaluate().scores[0].value
    assert ours == pytest.approx(trained.scores["dev"][0].value)
    everything = saccade.evaluate(trained.path, settings={"thresholds": "0.000001"})
    assert all(set(p.labels) == {"art", "law", "war"} for p in everything.predictions)


def test_damaged_thresholds_of_a_model_are_refused(trained, tmp_path):
    model = saccade.load(trained.path / "model")
    model.save(tmp_path / "copy")
    path = tmp_path / "copy" / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(raw | {"label_thresholds": {"art": 2.0}}), encoding="utf-8")
    with pytest.raises(ModelError, match="label_thresholds must map labels to probabilities between 0 and 1"):
        saccade.load(tmp_path / "copy")

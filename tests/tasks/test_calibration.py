"""Temperature scaling: the temperature that scipy finds, the error that a loop counts, and answers that stay as they are."""

import json
import math
import random

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import saccade
from saccade.cli import main
from saccade.tasks.classification.calibration import (
    BINS,
    calibrate_classes,
    calibrate_multi_label,
    measure_calibration,
    scaled_logits,
)
from saccade.tasks.label import Config, Label
from saccade.tasks.pair import Config as PairConfig
from saccade.tasks.pair import Pair

SIZES = {"width": 8, "layers": 1, "heads": 2, "ffn_width": 12}


def draw_logits(sharpness, count=400, classes=3):
    """Logits that are too sharp by a factor for the labels drawn from them."""
    draw = np.random.default_rng(7)
    logits = draw.normal(size=(count, classes)) * 1.5
    gold = np.array([draw.choice(classes, p=softmax(row)) for row in logits])
    return logits * sharpness, gold


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_the_temperature_is_the_one_that_scipy_finds(sharpness):
    logits, gold = draw_logits(sharpness)
    found = calibrate_classes(softmax(logits, axis=1), gold)
    theirs = minimize_scalar(
        lambda t: -log_softmax(logits / t, axis=1)[np.arange(len(gold)), gold].mean(), bounds=(0.05, 20), method="bounded",
        options={"xatol": 1e-7},
    )  # fmt: skip
    assert found is not None
    assert found.temperature == pytest.approx(theirs.x, rel=1e-4)
    assert found.temperature == pytest.approx(sharpness, rel=0.25)  # by how much they were too sharp
    if sharpness != 1.0:
        assert found.after.expected_calibration_error < found.before.expected_calibration_error


def test_independent_labels_have_one_temperature_too():
    draw = np.random.default_rng(3)
    logits = draw.normal(size=(300, 4)) * 2
    gold = (draw.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(float)
    sharp = 2.5 * logits
    found = calibrate_multi_label(1 / (1 + np.exp(-sharp)), gold)
    theirs = minimize_scalar(
        lambda t: np.logaddexp(0, -(2 * gold - 1) * sharp / t).mean(), bounds=(0.05, 20), method="bounded"
    )
    assert found is not None
    assert found.temperature == pytest.approx(theirs.x, rel=1e-3)


def test_the_expected_calibration_error_is_a_loop_over_bins():
    draw = random.Random(2)
    confidence = [draw.random() for _ in range(500)] + [1.0, 0.0, 0.2]
    correct = [draw.random() < value**2 for value in confidence]
    expected = 0.0
    for i in range(BINS):
        inside = [
            (c, right)
            for c, right in zip(confidence, correct, strict=True)
            if i / BINS <= c < (i + 1) / BINS or (i == BINS - 1 and c == 1)
        ]
        if inside:
            gap = sum(right for _, right in inside) / len(inside) - sum(c for c, _ in inside) / len(inside)
            expected += len(inside) / len(confidence) * abs(gap)
    found = measure_calibration(np.array(confidence), np.array(correct))
    assert found.expected_calibration_error == pytest.approx(expected)
    assert found.counts.sum() == 503


def test_too_few_examples_and_predictions_without_a_mistake_are_left_alone():
    logits, gold = draw_logits(3.0, count=99)
    assert calibrate_classes(softmax(logits, axis=1), gold) is None
    logits, _ = draw_logits(3.0)
    assert calibrate_classes(softmax(logits, axis=1), logits.argmax(1)) is None
    assert calibrate_multi_label(np.full((200, 2), 0.9), np.ones((200, 2))) is None


def test_probabilities_that_were_rounded_to_0_and_1_do_not_disturb():
    probabilities = np.array([[1.0, 0.0]] * 150 + [[0.0, 1.0]] * 150)
    gold = np.array(([0] * 9 + [1]) * 15 + ([1] * 9 + [0]) * 15)
    found = calibrate_classes(probabilities, gold)
    assert found is not None
    assert math.isfinite(found.temperature)
    assert np.isfinite(found.after.confidence).all()


def test_it_can_be_switched_off_and_numbers_have_none():
    logits, gold = draw_logits(3.0)
    answers = [{"scores": dict(zip("abc", row, strict=True))} for row in softmax(logits, axis=1).tolist()]
    examples = [saccade.data.Example({"text": "", "label": "abc"[i]}) for i in gold]
    assert Label(Config(), "abc").calibrate(answers, examples) is not None
    assert Label(Config(calibrate="off"), "abc").calibrate(answers, examples) is None
    assert Pair(PairConfig(target_type="label"), "abc").calibrate(answers, examples) is not None
    assert Pair(PairConfig(target_type="number")).calibrate([{"score": 1.0}] * 200, examples[:200]) is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training with and without calibration, on labels of which a fifth is wrong."""
    home, draw = tmp_path_factory.mktemp("calibration"), random.Random(1)
    rows = [{"text": f"{'red' if i % 2 else 'blue'} {draw.random():.3f}", "label": "ab"[i % 2]} for i in range(1200)]
    for row in rows:
        if draw.random() < 0.2:
            row["label"] = "b" if row["label"] == "a" else "a"
    call = {"data": rows, "architecture": SIZES, "train": {"epochs": 2, "lr": 1e-2}}
    return [
        saccade.train("label", out=home / setting, task={"calibrate": setting}, **call)
        for setting in ("temperature", "off")
    ]


def test_a_run_is_calibrated_wherever_it_is_used_and_answers_the_same(runs, tmp_path):
    calibrated, plain = runs
    facts = calibrated.result["calibration"]
    assert "calibration" not in plain.result
    assert set(facts) == {"temperature", "examples", "expected_calibration_error"}
    texts = [f"{color} {i / 40:.3f}" for i in range(20) for color in ("red", "blue")]
    before, after = (run.predict(texts, engine="off") for run in (plain, calibrated))
    assert [p.label for p in before] == [p.label for p in after]
    expected = softmax(np.log(before.probabilities) / facts["temperature"], axis=1)
    np.testing.assert_allclose(after.probabilities, expected, rtol=1e-4)
    assert not np.allclose(before.probabilities, after.probabilities, rtol=1e-3)
    assert main(["export", str(calibrated.path), str(tmp_path / "out"), "--unaudited", "a test"]) == 0
    again = saccade.predict(tmp_path / "out", texts, engine="off")
    np.testing.assert_allclose(again.probabilities, after.probabilities, rtol=1e-5)


def test_the_outcome_names_temperature_and_error_and_the_report_draws_them(runs):
    calibrated, plain = runs
    path = calibrated.path / "result.json"
    notes = json.loads(path.read_text())["notes"]
    assert any("Probabilities are calibrated with temperature" in note for note in notes)
    assert "Reliability diagram" in (calibrated.path / "report.html").read_text()
    assert "Reliability diagram" not in (plain.path / "report.html").read_text()
    assert [score.value for score in calibrated.scores["dev"]] == [score.value for score in plain.scores["dev"]]


def test_the_weights_are_as_before_after_the_context(runs):
    model = saccade.load(runs[1].path)
    layer = model.head.score
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    with scaled_logits(model, 3.0):
        torch.testing.assert_close(layer.weight * 3, weight)
        torch.testing.assert_close(layer.bias * 3, bias)
    assert torch.equal(layer.weight, weight)
    assert torch.equal(layer.bias, bias)

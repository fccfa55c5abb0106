"""The study of hard and soft attention: looks and noise by brute force, and the whole study in a second of training."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from saccade.cli import main
from saccade.data import Example
from saccade.data.samples.shapes import BACKGROUND, IMAGE_SIZE, SAMPLES, Scene, SceneObject, make, render_scene
from saccade.models.build import new
from saccade.models.families import captioner
from saccade.studies.hard_vs_soft import study
from saccade.studies.hard_vs_soft.measure import (
    collect_attention,
    compute_gradient,
    find_object_words,
    mark_object_cells,
    measure_attention_mass,
    relative_variance,
)
from saccade.tasks.caption import Caption
from saccade.tasks.learn_tokenizer import learn_tokenizer

SIZES = {
    "width": 8,
    "image_size": 32,
    "cell_size": 8,
    "channels": 3,
    "block_type": "plain",
    "dropout": 0.0,
    "max_positions": 16,
}


def a_captioner(*, hard):
    examples = make(6, 3)
    task = Caption(Caption.Config(tokenizer="words", label_smoothing=0.0, max_caption_tokens=16))
    tokenizer = learn_tokenizer(
        list(task.tokenizer_texts(examples)), "words", None, token_template="t5", is_text_stream=False
    )
    torch.manual_seed(5)
    model = new(
        "captioner_rnn",
        captioner.Config(vocab=tokenizer.vocab, decoder_start_id=tokenizer.bos_id, hard_attention=hard, **SIZES),
    )
    model.tokenizer = tokenizer
    return task, model, examples


@pytest.mark.parametrize("side", [4, 8])
def test_cells_of_a_thing_are_those_that_its_drawing_touches(side):
    for example in make(20, 7):
        for thing in example["scene"].objects:
            step = IMAGE_SIZE // side
            drawn = (render_scene(Scene((thing,))) != np.array(BACKGROUND)).any(-1)
            touched = drawn.reshape(side, step, side, step).any((1, 3))
            found = mark_object_cells(thing, side)
            assert not (touched & ~found).any(), (thing, "a cell with paint is a cell of the thing")
            rows, columns = found.any(1), found.any(0)
            assert (found == rows[:, None] & columns).all()


def test_a_square_fills_its_cells():
    thing = SceneObject("square", "red", "", 16.0, 10.0)  # 10.75 to 21.25 across, 4.75 to 15.25 down
    drawn = (render_scene(Scene((thing,))) != np.array(BACKGROUND)).any(-1)
    assert (mark_object_cells(thing, IMAGE_SIZE) == drawn).all()


def test_words_name_the_thing_they_stand_with():
    assert find_object_words("a ring at the top left") == [(1, 0)]
    assert find_object_words("an orange cross below a large cyan ring") == [(1, 0), (2, 0), (5, 1), (6, 1), (7, 1)]


@pytest.mark.parametrize("hard", [False, True])
def test_looks_are_shares_one_for_each_word(hard):
    task, model, examples = a_captioner(hard=hard)
    found = collect_attention(task, model, examples)
    for look, example in zip(found, examples, strict=True):
        assert look.shape == (len(example["caption"].split()), 4, 4)
        np.testing.assert_allclose(look.sum((1, 2)), 1, rtol=1e-5)
        if hard:
            assert ((look == 0) | (look == 1)).all()


def test_looks_of_a_batch_are_those_of_one_at_a_time():
    task, model, examples = a_captioner(hard=False)
    together = collect_attention(task, model, examples)
    for number, example in enumerate(examples):
        np.testing.assert_allclose(collect_attention(task, model, [example])[0], together[number], atol=1e-6)


def test_the_mass_of_looks_by_hand():
    things = (SceneObject("circle", "red", "small ", 4.0, 4.0), SceneObject("square", "blue", "small ", 28.0, 28.0))
    example = Example({"caption": "a red circle above a blue square", "scene": Scene(things)})
    look = np.zeros((7, 4, 4))
    look[:, 0, 0] = 0.25  # the circle's only cell
    look[:, 3, 3] = 0.5  # the square's
    look[:, 1, 1] = 0.25
    found = measure_attention_mass([look], [example])
    assert found["named_object"].value == pytest.approx((2 * 0.25 + 2 * 0.5) / 4)
    assert found["other_object"].value == pytest.approx((2 * 0.5 + 2 * 0.25) / 4)
    assert found["chance"].value == pytest.approx(1 / 16)


def test_soft_attention_has_no_noise_of_its_own_and_hard_has():
    for hard in (False, True):
        task, model, examples = a_captioner(hard=hard)
        batch = task.batch(task.encode(examples, model))
        found = relative_variance([compute_gradient(task, model, batch, seed) for seed in range(3)])
        assert found > 1e-4 if hard else found < 1e-12


def test_a_gradient_is_that_of_the_loss_over_its_words():
    task, model, examples = a_captioner(hard=False)
    batch = task.batch(task.encode(examples, model))
    found = compute_gradient(task, model, batch, 0)
    words = sum(len(example["caption"].split()) + 1 for example in examples)  # and an end
    weight = model.body.decoder.head.score.bias
    at = sum(p.numel() for p in list(model.parameters())[: [p is weight for p in model.parameters()].index(True)])
    step = 1e-2
    with torch.no_grad():
        sides = []
        for move in (step, -step):
            weight[3] += move
            sides.append(task.loss(model, batch).item() / words)
            weight[3] -= move
    assert found[at + 3].item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=0.05, abs=1e-4)


def test_noise_is_the_variance_over_the_squared_length():
    torch.manual_seed(2)
    table = torch.randn(7, 11) + 1
    ours = relative_variance(list(table))
    mean = table.double().numpy().mean(0)
    by_hand = ((table.double().numpy() - mean) ** 2).sum() / 6 / (mean**2).sum()
    assert ours == pytest.approx(by_hand)
    with pytest.raises(ValueError, match="two gradients"):
        relative_variance([table[0]])


def test_pictures_that_are_asked_about_were_not_learnt_from():
    learnt = {example["scene"] for example in make(200, 0)}
    assert not learnt & {example["scene"] for example in study.make_test_examples(0)[:200]}


def test_the_whole_study(tmp_path, monkeypatch, capsys):
    few = replace(SAMPLES[0], default_count=60)
    monkeypatch.setattr("saccade.tasks.runs.read_data.get_sample", lambda name: few)
    monkeypatch.setattr(study, "MODEL_CONFIG", SIZES)
    monkeypatch.setattr(study, "BATCH_SIZE", 8)
    monkeypatch.setattr(study, "TEST_IMAGES", 8)
    monkeypatch.setattr(study, "SEED_COUNT", 1)
    monkeypatch.setattr(study, "GRADIENT_REPEATS", 2)
    monkeypatch.setattr(study, "MAX_EXAMPLES_SHOWN", 1)
    study.make_test_examples.cache_clear()
    out = tmp_path / "study"
    assert main(["study", "hard_vs_soft", "--out", str(out), "--minutes", "0.002"]) == 0
    study.make_test_examples.cache_clear()
    assert "attention on the named object, %" in capsys.readouterr().out
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    assert [line["kind"] for line in record["runs"]] == ["soft", "hard"]
    soft, hard = record["kinds"]
    assert soft["noise_of_one_batch"]["mean"] < 1e-12 < hard["noise_of_one_batch"]["mean"]
    for line in record["runs"]:
        assert 0 < line["attention_mass"]["chance"]["value"] < 1
        assert 0 <= line["attention_mass"]["named_object"]["value"] <= 1
        assert line["true_captions"] >= line["scores"]["exact_match"]["value"]
    for name in ("plot.png", "overlay.png"):
        assert (out / name).stat().st_size > 5_000


def test_data_are_refused(capsys):
    assert main(["study", "hard_vs_soft", "--data", "x.tsv", "--dry-run"]) == 2
    assert "generates its images" in capsys.readouterr().err

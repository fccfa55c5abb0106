"""Painting: the reader of pictures that judges it, the two parts of a run, draws, costs, and the files that come out."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.cli import main
from saccade.data import Example
from saccade.data.example import Records
from saccade.data.samples import get_sample
from saccade.data.samples.shape_parser import parse_shapes
from saccade.data.samples.shapes import BACKGROUND, Scene, SceneObject, describe_scene, render_scene
from saccade.data.splits import Splits
from saccade.metrics.images import score_scenes
from saccade.models.load import load
from saccade.tasks.batches import make_batches
from saccade.tasks.paint import Config, Paint
from saccade.tasks.paint_pictures import PerRowSampler, from_png
from saccade.tasks.predict import evaluate, predict
from saccade.training import prepare
from saccade.training.config import Config as Train
from saccade.training.loop import Learner
from saccade.training.prepare import Job, PreparedRun
from saccade.training.run import run_training

SMALL = {
    "width": 16,
    "layers": 1,
    "ffn_width": 32,
    "heads": 2,
    "image_size": 16,
    "codebook_size": 16,
    "code_width": 8,
    "cell_size": 4,
}
EXAMPLES = get_sample("scenes").make(6, 11)
TEXTS = [example["caption"] for example in EXAMPLES]


def made(config=None, **sizes):
    task = Paint(config)
    torch.manual_seed(2)
    chosen = task.defaults(EXAMPLES, False)
    return task, prepare._build_model(Job("paint", model_fields=SMALL | sizes), task, chosen, list(EXAMPLES))


def learner(config=None, **sizes):
    task, model = made(config, **sizes)
    read = make_batches(task, EXAMPLES, model, batch_tokens=4096, batch_size=4)
    return Learner(model, task, read, Train(epochs=5, batch_size=4, lr=1e-3))  # ten steps


# the reader of pictures


@pytest.mark.parametrize("name", ["scenes", "shapes"])
def test_true_pictures_are_read_right(name):
    found = [(parse_shapes(example["image"]), example["caption"]) for example in get_sample(name).make(400, 17)]
    right = [scene is not None and describe_scene(scene) == caption for scene, caption in found]
    assert np.mean(right) > 0.99


def test_a_picture_with_noise_is_read_all_the_same():
    chance = np.random.default_rng(0)
    right = 0
    for example in get_sample("scenes").make(100, 18):
        noisy = example["image"].astype(float) + chance.normal(0, 8, (32, 32, 3))
        scene = parse_shapes(np.clip(noisy, 0, 255).astype(np.uint8))
        right += scene is not None and describe_scene(scene) == example["caption"]
    assert right > 95


def test_what_is_not_of_this_world_has_no_scene():
    empty = np.full((32, 32, 3), BACKGROUND, np.uint8)
    assert parse_shapes(empty) is None
    things = [SceneObject("circle", "red", "small ", x, y) for x, y in ((5, 5), (26, 5), (5, 26))]
    assert parse_shapes(render_scene(Scene(tuple(things)))) is None
    with pytest.raises(ValueError, match="Resize it"):
        parse_shapes(np.zeros((16, 16, 3), np.uint8))


def test_what_a_picture_shows_is_counted_by_thing():
    asked = "a red circle above a small blue square"
    true = Scene((SceneObject("circle", "red", "", 16, 8), SceneObject("square", "blue", "small ", 16, 24)))
    wrong = Scene((SceneObject("circle", "green", "", 16, 8), SceneObject("square", "blue", "small ", 16, 24)))
    turned = Scene((SceneObject("circle", "red", "", 16, 24), SceneObject("square", "blue", "small ", 16, 8)))
    pictures = [
        render_scene(true),
        render_scene(wrong),
        render_scene(turned),
        np.full((32, 32, 3), BACKGROUND, np.uint8),
    ]
    found = {score.name: score.value for score in score_scenes([asked] * 4, pictures)}
    assert found == {"scenes_correct": 1 / 4, "colors": (2 + 1 + 2 + 0) / 8, "shapes": (2 + 2 + 2 + 0) / 8}
    more = score_scenes(
        ["a red circle in the centre"], [render_scene(true)]
    )  # one thing was asked for and two are there
    assert [score.value for score in more] == [0.0, 1 / 2, 1 / 2]
    assert score_scenes(["a dog on a sofa"], pictures[:1]) == []
    assert score_scenes([asked], [np.zeros((16, 16, 3), np.uint8)]) == []


# a run in two parts


@pytest.mark.parametrize("choice", ["nearest", "gumbel"])
def test_first_the_autoencoder_learns_and_then_the_painter(choice):
    work = learner(Config(autoencoder_fraction=0.4), quantizer=choice)
    assert work.total_steps == 10
    for number in range(10):
        before = {name: x.clone() for name, x in work.model.state_dict().items()}
        work.step()
        changed = {name for name, x in work.model.state_dict().items() if not torch.equal(x, before[name])}
        inside = {name.startswith("body.autoencoder.") for name in changed}
        assert inside == {number < 4}, number


def test_a_run_goes_on_in_the_middle_of_either_part():
    for stop in (2, 4, 7):
        straight, first, second = (learner(Config(autoencoder_fraction=0.4)) for _ in range(3))
        for _ in range(10):
            straight.step()
        for _ in range(stop):
            first.step()
        second.restore({k: {n: x.clone() for n, x in v.items()} for k, v in first.checkpoint_tensors().items()}, stop)
        for _ in range(10 - stop):
            second.step()
        for name, x in straight.model.state_dict().items():
            assert torch.equal(x, second.model.state_dict()[name]), (stop, name)


def test_heat_falls_from_one_to_a_sixteenth():
    task, model = made(Config(autoencoder_fraction=0.5), quantizer="gumbel")
    heats = []
    for done in range(100):
        task.before_step(model, done, 100)
        heats.append(model.body.autoencoder.choice.temperature)
    assert heats[0] == 1.0
    assert heats[25] == pytest.approx(1 / 4)
    assert heats[49] == heats[99] == pytest.approx(16 ** (-49 / 50))


def test_an_untaught_autoencoder_paints_the_mean_colour():
    _, model = made()
    mean = np.mean([example["image"].mean((0, 1)) for example in EXAMPLES], axis=0) / 255
    np.testing.assert_allclose(model.body.autoencoder.up[-1].bias.sigmoid().detach(), mean, atol=1e-5)


# answers


def test_a_picture_does_not_depend_on_its_neighbours():
    task, model = made()
    asked = [Example({"caption": text}) for text in TEXTS]
    together, _ = predict(task, model, asked)
    alone = [predict(task, model, [example])[0][0] for example in asked]
    assert [answer["png"] for answer in together] == [answer["png"] for answer in alone]


def test_a_seed_chooses_the_picture_and_no_temperature_the_likeliest():
    asked = [Example({"caption": TEXTS[0]})]
    _, model = made()
    paint_with = lambda **given: predict(Paint(Config(**given)), model, asked)[0][0]["png"]
    assert paint_with(seed=1) == paint_with(seed=1) != paint_with(seed=2)
    assert paint_with(temperature=0.0) == paint_with(temperature=0.0, seed=2) == paint_with(temperature=1e-4)


def test_draws_have_the_shares_of_the_softmax():
    scores = torch.tensor([[0.0, 1.0, 2.0]])
    count = 4000
    drawn = PerRowSampler(range(count), temperature=0.5)(scores.expand(count, 3))
    shares = torch.bincount(drawn, minlength=3) / count
    torch.testing.assert_close(shares, (2 * scores[0]).softmax(0), atol=0.03, rtol=0)


def test_costs_are_those_of_codes_written_one_by_one():
    task, model = made()
    model.eval()
    found, _ = predict(task, model, EXAMPLES)
    body = model.body
    for answer, item in zip(found, task.encode(EXAMPLES, model), strict=True):
        batch = task.batch([item])
        with torch.no_grad():
            codes = body.autoencoder.encode(batch.gold)
            rebuilt = body.autoencoder.decode(codes)
            state, text = body.start(batch)
            nats, row, best = 0.0, codes.flatten() + body.image_start_id + 1, []
            for code in row:
                scores = body.step(text, state)[0, -1]
                nats -= float(scores.log_softmax(0)[code])
                best.append(int(scores.argmax()))
                text = type(text)(code.view(1, 1))
            guessed = body.decode_images([best])
        assert answer["nats"] == pytest.approx(nats, rel=1e-4)
        assert answer["codes"] == 16
        assert answer["rebuilt"] == pytest.approx(float((rebuilt - batch.gold).square().mean()), rel=1e-4)
        assert answer["error"] == pytest.approx(float((guessed - batch.gold).square().mean()), rel=1e-4)


def test_of_several_texts_all_are_learnt_and_the_first_is_painted():
    task, model = made()
    two = Example({"image": EXAMPLES[0]["image"], "caption": [TEXTS[0], TEXTS[1]]})
    items = task.encode([two, EXAMPLES[2]], model)
    assert len(items) == 3
    found, asked = predict(task, model, [two, EXAMPLES[2]])
    assert len(found) == len(asked) == 2
    assert found[0]["png"] == predict(task, model, [Example({"caption": TEXTS[0]})])[0][0]["png"]


def test_other_pictures_have_costs_alone():
    other = [Example({"image": e["image"], "caption": f"picture number {n}"}) for n, e in enumerate(EXAMPLES)]
    task, model = made(image_size=32)
    assert [score.name for score in evaluate(task, model, other)] == ["error", "rebuilt", "nats_per_code"]
    assert [score.name for score in evaluate(task, model, EXAMPLES)][3:] == ["scenes_correct", "colors", "shapes"]


def test_a_text_that_stands_for_many_pictures_counts_once():
    task, model = made(image_size=32)
    scores = evaluate(task, model, [*EXAMPLES, EXAMPLES[0], EXAMPLES[0]])
    assert [score.count for score in scores] == [8, 8, 8, 6, 6, 6]


def test_wrong_settings_and_models_are_refused():
    for given in ({"autoencoder_fraction": 1.0}, {"autoencoder_fraction": -0.1}, {"temperature": -1.0}):
        with pytest.raises(ValueError, match=r"task.autoencoder_fraction must be in \[0, 1\)"):
            Paint(Config(**given))
    with pytest.raises(ValueError, match="transformer does not"):
        Paint().encode(EXAMPLES, prepare.new("transformer", None))


def test_a_run_paints_files_and_needs_nothing_else(tmp_path, capsys):
    task, model = made()
    table = Records(list(EXAMPLES))
    splits = Splits(table, table, None, digest="six")
    config = Train(epochs=1, batch_size=4, eval_every=100)
    ready = PreparedRun(Job("paint"), task, model, splits, config, task.defaults(EXAMPLES, False), [])
    list(run_training(ready, tmp_path / "run"))
    again = load(tmp_path / "run")
    bare = [Example({"caption": text}) for text in TEXTS[:2]]
    assert predict(task, again, bare)[0] == predict(task, model, bare)[0]
    capsys.readouterr()
    out = tmp_path / "new" / "pictures"
    assert main(["paint", str(tmp_path / "run"), TEXTS[0], TEXTS[0], "../!", "--out", str(out), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(path.name for path in out.iterdir()) == sorted(line["file"].split("/")[-1] for line in told)
    assert [line["file"] for line in told[1:]] == [told[0]["file"][:-4] + "-2.png", str(out / "image.png")]
    with Image.open(told[0]["file"]) as opened:
        assert opened.size == (16, 16)
        np.testing.assert_array_equal(np.asarray(opened), from_png(predict(task, model, bare)[0][0]["png"]))
    assert main(["predict", str(tmp_path / "run"), TEXTS[0], "--json"]) == 0
    png = json.loads(capsys.readouterr().out)["png"]
    assert Image.open(io.BytesIO(base64.b64decode(png))).size == (16, 16)
    assert main(["paint", str(tmp_path / "run"), TEXTS[0], "--out", str(out), "--temperature", "-1"]) == 2

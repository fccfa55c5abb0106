"""Hidden patches: pixels by plain slicing, the loss by a loop, the published model, what explains nothing, and that it learns."""

import math
import struct
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Picture
from scipy.stats import chisquare
from torch.testing import assert_close

from saccade.data import Example
from saccade.data.samples import get_sample
from saccade.models.build import new
from saccade.models.families.vit import Config
from saccade.models.load import load
from saccade.models.registry import get_family
from saccade.tasks.batches import make_batches
from saccade.tasks.needs import check_fit
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.pretrain import config as settings
from saccade.tasks.pretrain.masked_image import (
    MaskedImage,
    choose_masked_patches,
    normalize_patches,
    patchify,
    reconstruct_patches,
    render_reconstruction,
    seeded_noise,
)
from saccade.tasks.runs.run import open_run
from saccade.training.config import Config as Train
from saccade.training.loop import Learner, train_steps
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

SIZES = {"image_height": 12, "patch_size": 4, "channels": 3, "width": 24, "layers": 2, "heads": 3, "ffn_width": 31}


def pictures(count, seed=0, side=12):
    """Upright or lying waves of three phases, and a little noise: what is hidden follows from what is seen."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    found = []
    for _ in range(count):
        turn, phase = math.pi * random.integers(2) / 2, 2 * math.pi * random.integers(3) / 3
        wave = 127.5 + 110 * np.sin(0.8 * (math.cos(turn) * x + math.sin(turn) * y) + phase)
        wave += random.uniform(-15, 15, wave.shape)
        found.append(Example({"image": np.repeat(wave[..., None], 3, 2).round().astype(np.uint8)}))
    return found


def made(share=0.5, **sizes):
    torch.manual_seed(2)
    model = new("vit", Config(**SIZES | sizes), head="pixels")
    task = MaskedImage(settings.Config("masked_image", mask_ratio=share))
    task.attach_training_modules(model)
    return task, model


def rough(count=3, share=0.4):
    """In double precision, with weights so large that every path matters."""
    task, model = made(share)
    model.double()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    batch = task.batch(task.encode(pictures(count), model))
    batch.source.pixels = batch.source.pixels.double()
    return task, model, batch


def test_patches_are_squares_row_by_row():
    task, model, batch = rough()
    found = patchify(batch, model)
    assert found.shape == (3, 9, 48)
    for number in range(9):
        row, column = 4 * (number // 3), 4 * (number % 3)
        assert_close(found[:, number], batch.source.pixels[:, :, row : row + 4, column : column + 4].flatten(1))
    assert task.count_targets(batch) == 3


def test_the_mean_and_the_spread_of_a_patch_are_not_asked_for():
    torch.manual_seed(1)
    x = torch.randn(2, 5, 48, dtype=torch.float64)
    for row, given in zip(normalize_patches(x).flatten(0, 1), x.flatten(0, 1), strict=True):
        values = given.tolist()
        mean = sum(values) / 48
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / 48 + 1e-6)
        assert row.tolist() == pytest.approx([(v - mean) / spread for v in values])
    assert_close(normalize_patches(3 * x + 7), normalize_patches(x), rtol=1e-5, atol=1e-5)
    assert normalize_patches(torch.full((1, 1, 48), 0.7)).abs().max() < 1e-3


def test_every_patch_is_hidden_equally_often():
    torch.manual_seed(0)
    hidden = choose_masked_patches(torch.rand(2000, 7), 0.45)
    assert hidden.sum(1).unique().tolist() == [3]
    assert chisquare(hidden.sum(0)).pvalue > 1e-3
    assert choose_masked_patches(torch.rand(1, 7), 0.01).sum() == 1
    where = Counter(map(tuple, hidden.int().tolist()))
    assert len(where) == math.comb(7, 3)


def test_the_loss_is_that_of_a_naive_loop():
    task, model, batch = rough()
    torch.manual_seed(5)
    loss = task.loss(model, batch)
    torch.manual_seed(5)
    hidden, said, gold = (
        choose_masked_patches(torch.rand(3, 9, dtype=torch.float32), 0.4),
        None,
        normalize_patches(patchify(batch, model)),
    )
    with torch.no_grad():
        said = reconstruct_patches(model, batch, hidden)
    total = 0.0
    for row in range(3):
        off = [
            float((said[row, number, i] - gold[row, number, i]) ** 2)
            for number in range(9)
            if hidden[row, number]
            for i in range(48)
        ]
        total += sum(off) / len(off)
    assert loss.item() == pytest.approx(total, rel=1e-12)


def test_what_is_hidden_is_not_seen():
    _, model, batch = rough()
    hidden = choose_masked_patches(torch.rand(3, 9), 0.5)
    with torch.no_grad():
        before = reconstruct_patches(model, batch, hidden)
        cells = hidden.view(3, 1, 3, 3).repeat_interleave(4, 2).repeat_interleave(4, 3)
        batch.source.pixels = torch.where(cells, torch.rand_like(batch.source.pixels), batch.source.pixels)
        assert torch.equal(reconstruct_patches(model, batch, hidden), before)
        batch.source.pixels = batch.source.pixels + 0.1
        assert not torch.allclose(reconstruct_patches(model, batch, hidden), before)


def test_it_is_what_the_published_class_computes(tmp_path):
    _, model, batch = rough()
    model.float().eval().save(tmp_path / "model")
    cls = transformers.ViTForMaskedImageModeling
    theirs, info = cls.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    hidden, pixels = choose_masked_patches(torch.rand(3, 9), 0.5), batch.source.pixels.float()
    batch.source.pixels = pixels
    with torch.inference_mode():
        wanted = theirs.eval()(pixels, bool_masked_pos=hidden).reconstruction  # (B, C, rows, columns)
        found = reconstruct_patches(model, batch, hidden)
    batch.source.pixels = wanted
    assert_close(found, patchify(batch, model), rtol=1e-3, atol=1e-3)
    again = load(tmp_path / "model")
    assert again.head_name == "pixels"
    assert not again.report.missing
    assert not again.report.unexpected


def test_the_mean_patch_explains_nothing_and_the_truth_all(monkeypatch):
    task, model, batch = rough(5)
    gold = normalize_patches(patchify(batch, model))
    hidden = choose_masked_patches(seeded_noise(batch.items, 9), 0.4)
    mean = gold[hidden].mean(0)

    def scores(said):
        monkeypatch.setattr(
            "saccade.tasks.pretrain.masked_image.reconstruct_patches", lambda model, batch, hidden: said
        )
        return {score.name: score.value for score in task.score(task.answer(model, batch), [])}

    nothing = scores(mean.expand_as(gold))
    assert nothing["explained"] == pytest.approx(0, abs=1e-9)
    assert nothing["mse"] == pytest.approx(nothing["mse_of_mean"])
    assert nothing["mse"] == pytest.approx(float((gold[hidden] - mean).square().mean()))
    assert scores(gold)["explained"] == 1
    half = scores(gold + torch.where(torch.rand_like(gold) < 0.5, 1.0, -1.0))
    assert half["explained"] == pytest.approx(1 - 1 / nothing["mse"])
    flat = task.batch(task.encode([Example({"image": np.full((12, 12, 3), 9, np.uint8)})], model))
    flat_gold = normalize_patches(patchify(flat, model))
    for said, wanted in ((flat_gold, 1.0), (flat_gold + 1, 0.0)):  # nothing varies
        monkeypatch.setattr(
            "saccade.tasks.pretrain.masked_image.reconstruct_patches", lambda model, batch, hidden, said=said: said
        )
        assert task.score(task.answer(model, flat), [])[0].value == wanted


def test_it_learns_to_mend_what_follows_from_the_rest():
    task, model = made()
    config = Train(epochs=25, batch_tokens=64, batch_size=64, lr=5e-3, warmup=0.1)
    loop = Learner(model, task, make_batches(task, pictures(256), model, batch_tokens=64, batch_size=64), config)
    losses = [step.loss for step in train_steps(loop)]
    assert losses[-1] < 0.5 * losses[0]
    held = evaluate(task, model, pictures(64, seed=1))
    assert held[0].name == "explained"
    assert held[0].value > 0.4
    again = evaluate(task, model, pictures(64, seed=1))
    assert again == held


def test_a_picture_of_all_three():
    _, model = made()
    image = pictures(1)[0]["image"]
    drawn = render_reconstruction(model.eval(), image)
    assert drawn.shape == (12, 36, 3)
    seen, mend, true = np.split(drawn, 3, axis=1)
    assert np.array_equal(true, image)
    plain = (seen == 128).all(2)
    assert plain.sum() == 4 * 16  # of nine patches four are hidden
    assert np.array_equal(mend[~plain], image[~plain])
    assert not np.array_equal(mend[plain], image[plain])


def folder(where):
    """A folder for each class, ten pictures in each."""
    for number, example in enumerate(get_sample("shapes").make(20, 1)):
        home = where / ("one" if number % 2 else "two")
        home.mkdir(parents=True, exist_ok=True)
        Picture.fromarray(example["image"]).save(home / f"{number}.png")
    return str(where)


def test_a_run_on_a_folder_and_labels_that_begin_from_it(tmp_path):
    data = folder(tmp_path / "data")
    job = Job(
        "pretrain",
        (data,),
        task_fields={"objective": "masked_image"},
        model_fields={"width": 24, "layers": 1, "heads": 3, "ffn_width": 31},
        train_fields={"max_steps": 2, "batch_size": 8},
    )
    *_, result = run_training(prepare(job), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert (model.family.name, model.head_name, model.config.image_height, model.config.patch_size) == (
        "vit",
        "pixels",
        32,
        4,
    )
    examples = prepare(job).splits.dev.examples
    found, asked = predict(task, model, examples)
    assert task.score(found, asked)[0].value == pytest.approx(result.scores["dev"][0].value, rel=1e-4)
    assert "masked patches" in str(task.to_prediction(found[0], asked[0]))
    ready = prepare(Job("label", (data,), model=str(tmp_path / "run"), train_fields={"max_steps": 2, "batch_size": 8}))
    assert ready.model.head_name == "label"
    assert_close(ready.model.get_parameter("body.whole"), model.get_parameter("body.whole"))
    *_, result = run_training(ready, tmp_path / "labels")
    assert result.scores["dev"][0].name == "accuracy"


def test_idx_files_need_no_labels(tmp_path):
    pixels = np.stack([example["image"][..., 0] for example in pictures(30)])
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">IIII", 2051, *pixels.shape) + pixels.tobytes())
    made = prepare(Job("pretrain", (str(path),), task_fields={"objective": "masked_image"}))
    assert made.model.config.channels == 1
    assert made.model.config.image_height == 12
    assert np.isfinite(Learner(made.model, made.task, made.make_batches(), made.config).step().loss)


def test_what_cannot_be_is_said():
    task, _ = made()
    with pytest.raises(ValueError, match=r"needs .* a head for 'pixels'; senet encodes an image, .* Choose vit\."):
        check_fit(task, get_family("senet"))
    other = new("vit", Config(**SIZES), head="label")
    with pytest.raises(ValueError, match="a vit with the head pixels"):
        task.loss(other, task.batch(task.encode(pictures(2), other)))

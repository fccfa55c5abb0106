"""Sounds with labels: recognized from the data, augmented in training only, and told from texts and images."""

import numpy as np
import pytest
import torch

from saccade.audio.load_audio import to_wav
from saccade.data import Audio, Example
from saccade.data.samples.syllables import Voice, speak
from saccade.errors import UsageError
from saccade.models.build import new
from saccade.models.capabilities import Modality
from saccade.tasks.label import Config, Label
from saccade.tasks.predict import evaluate
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training


@pytest.fixture(scope="module")
def vowels(tmp_path_factory):
    """A folder of sounds for each of two vowels, spoken by different voices."""
    home = tmp_path_factory.mktemp("vowels")
    for label in "ai":
        (home / label).mkdir()
        for number in range(16):
            voice = Voice(pitch=100 + 9 * number, size=0.95 + 0.01 * number, speed=1.0, noise=0.003)
            (home / label / f"{number}.wav").write_bytes(to_wav(speak(label, voice, number)))
    return str(home)


def test_vowels_are_learned_from_folders_of_sounds(vowels, tmp_path):
    sizes = {"width": 16, "channels": 4, "layers": 1, "heads": 2, "ffn_width": 32, "dropout": 0.0}
    settings = {"epochs": 30, "lr": 3e-3, "batch_size": 16}
    made = prepare(Job("label", (vowels,), model_fields=sizes, train_fields=settings))
    assert (made.task.labels, made.model.family.name) == (("a", "i"), "speech_encoder")
    assert made.model.tokenizer is None
    assert made.task.hub_pipeline == "audio-classification"
    list(run_training(made, tmp_path / "run"))
    assert evaluate(made.task, made.model, made.splits.dev.examples)[0].value == 1.0


def test_augmentation_changes_the_training_loss_only():
    torch.manual_seed(0)
    model = new("speech_encoder", head="label", labels=("a", "b"), width=16, channels=2, layers=1, heads=2, dropout=0.0)
    rng = np.random.default_rng(0)
    examples = [Example({"audio": rng.normal(0, 0.1, 9_000).astype(np.float32), "label": label}) for label in "ab"]
    losses = {}
    for augment in ("none", "masks"):
        task = Label(Config(augment=augment))
        task.fit(examples)
        batch = task.batch(task.encode(examples, model))
        assert isinstance(batch.source, Audio)
        for mode in (True, False):
            model.train(mode)
            losses[augment, mode] = [task.loss(model, batch).item() for _ in range(2)]
    assert losses["none", True] == losses["none", False] == losses["masks", False]
    assert len({*losses["masks", True], losses["none", True][0]}) == 3


@pytest.mark.parametrize(
    ("value", "augment", "said"),
    [
        (
            {"audio": np.zeros(9, np.float32)},
            "crop",
            "crop does not apply to a recording; choose one of none, masks, speed",
        ),
        ({"image": np.zeros((2, 2), np.uint8)}, "masks", "masks does not apply to an image; choose one of none, flip"),
        ({"text": "good"}, "speed", "speed does not apply to a text; choose one of none, counterfactual"),
    ],
)
def test_an_augmentation_of_another_input_is_refused(value, augment, said):
    with pytest.raises(UsageError, match=said):
        Label(Config(augment=augment)).fit([Example(value | {"label": label}) for label in "ab"])


def test_a_stored_model_says_what_it_reads():
    model = new("speech_encoder", head="label", labels=("a", "b"), width=16, channels=2, layers=1, heads=2)
    task = Label.from_head(model)
    assert task is not None
    assert task.modality is Modality.AUDIO
    assert [role.name for role in task.input_roles()] == ["audio"]


def test_recordings_for_a_model_of_texts_are_refused_by_name():
    task = Label()
    examples = [Example({"audio": np.ones(9, np.float32), "label": label}) for label in "ab"]
    task.fit(examples)
    with pytest.raises(
        UsageError, match=r"data are recordings, and transformer_encoder encodes a text.*speech_encoder"
    ):
        task.encode(examples, new("transformer_encoder", head="label", labels=("a", "b"), width=8, layers=1, heads=2))

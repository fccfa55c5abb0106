"""TASKS x FAMILIES: every pair trains a step, is saved, loaded and answers, or is refused before any data is read."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from PIL import Image
from test_families import SIZES

from saccade.audio.load_audio import to_wav
from saccade.cli import main
from saccade.data.samples import get_sample
from saccade.errors import UsageError
from saccade.models.capabilities import Modality
from saccade.models.registry import FAMILIES
from saccade.tasks.needs import check_fit, find_family
from saccade.tasks.predict import predict
from saccade.tasks.pretrain import OBJECTIVES
from saccade.tasks.registry import TASKS, task_class
from saccade.tasks.runs import read_data
from saccade.tasks.runs.run import open_run, task_from_model
from saccade.training import prepare as job
from saccade.training.events import RunResult
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

BEFORE = json.loads((Path(__file__).parent / "task_family_pairs.json").read_text())["works"]
SETTLED_BY_DATA = {"vocab", "decoder_start_id", "points", "features", "outputs"}
PLAIN = [(task.name, {}) for task in TASKS if task.name != "pretrain"]
MADE = [*PLAIN, *(("pretrain", {"objective": objective.name}) for objective in OBJECTIVES)]
PAIRS = [(name, settings, family) for name, settings in MADE for family in FAMILIES]


def make(name, settings):
    kind = task_class(name)
    return kind(kind.Config(**settings))


def fits(name, settings, family):
    task = make(name, settings)
    return task.needs.is_satisfied_by(find_family(family.name, task))


def title(name, settings, family):
    return f"{' '.join([name, *settings.values()])}-{family.name}"


FITTING = [pair for pair in PAIRS if fits(*pair)]


def every_change(pair):
    """One pair for each family and one for each task or objective: those that every change trains; the others are nightly."""
    name, settings, family = pair
    of_family = next(other for other in FITTING if other[2] is family)
    of_task = next(other for other in FITTING if other[:2] == (name, settings))
    return pair in (of_family, of_task)


def marked(pair):
    return pytest.param(*pair, id=title(*pair), marks=() if every_change(pair) else pytest.mark.nightly)


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(read_data, "get_sample", lambda name: replace(get_sample(name), default_count=60))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A directory of images for each of two labels."""
    home = tmp_path_factory.mktemp("images")
    for number, example in enumerate(get_sample("scenes").make(24, 0)):
        path = home / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(example["image"]).save(path)
    return str(home)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """A directory of sounds for each of two labels."""
    home = tmp_path_factory.mktemp("sounds")
    for number, example in enumerate(get_sample("syllables").make(24, 0)):
        path = home / "ab"[number % 2] / f"{number}.wav"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(to_wav(example["audio"]))
    return str(home)


def sized(family):
    """Small models, but with room for the texts."""
    known = {item.name for item in fields(family.config_class)} - SETTLED_BY_DATA
    given = {name: value for name, value in SIZES[family.name].items() if name in known}
    return given | ({"max_positions": 256} if "max_positions" in given else {})


@pytest.mark.parametrize(("name", "settings", "family"), [marked(pair) for pair in FITTING])
def test_a_pair_that_fits_trains_a_step_is_saved_loaded_and_answers(name, settings, family, images, sounds, tmp_path):
    train = {"max_steps": 1, "batch_tokens": 256, "batch_size": 2, "max_eval_examples": 2, "device": "cpu"}
    if name == "regress":
        del train["batch_size"]
    chosen = find_family(family.name, make(name, settings))
    folders = {Modality.IMAGE: (images,), Modality.AUDIO: (sounds,)}  # the sample of label is of texts
    data = folders.get(chosen.capabilities(chosen.config_class()).input, ()) if name == "label" else ()
    ready = prepare(Job(name, data, family.name, model_fields=sized(chosen), task_fields=settings, train_fields=train))
    dev = ready.splits.dev.examples = ready.splits.dev.examples[:2]
    *_, result = (event for event in run_training(ready, tmp_path / "run") if isinstance(event, RunResult))
    assert result.steps == 1
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert task.name == name
    assert model.family is chosen
    found, _ = predict(task, model, dev)
    assert found
    assert task.is_text_stream or len(found) == len(dev)
    predictions = [task.to_prediction(answer, example) for answer, example in zip(found, dev, strict=False)]
    assert all(prediction.as_dict() for prediction in predictions)
    inferred = task_from_model(model)  # without the run; no head says which objective it was pretrained with
    assert (
        (inferred.needs.head == task.needs.head)
        if inferred
        else task.needs.head in ("replaced_token_detection", "pixels")
    )


@pytest.mark.parametrize(
    ("name", "settings", "family"), [pytest.param(*pair, id=title(*pair)) for pair in PAIRS if pair not in FITTING]
)
def test_any_other_pair_is_refused_by_both_names_with_a_choice_that_fits(name, settings, family, monkeypatch):
    monkeypatch.setattr(job, "read_splits", lambda *_: pytest.fail("data were read before the pair was refused"))
    with pytest.raises(UsageError) as error:
        prepare(Job(name, (), family.name, task_fields=settings))
    said = str(error.value)
    task = make(name, settings)
    assert said.startswith(f"{task.title} needs a model that ")
    assert f"; {family.name} " in said
    *_, advice = said.split(" Choose ")
    for choice in advice.removesuffix(".").replace(" or ", ", ").split(", "):
        check_fit(task, find_family(choice, task))


def test_no_pair_that_trained_before_is_refused():
    fitting = {title(*pair) for pair in FITTING}
    assert not {f"{name}-{family}" for name, families in BEFORE.items() for family in families} - fitting


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "language --family t5",
            "language needs a model that continues a text; t5 reads a text and writes a target text.",
        ),
        ("translate --family captioner_rnn", "captioner_rnn reads an image and writes a target text."),
        ("caption --family dalle", "dalle reads a text and writes the codes of an image."),
        (
            "tag --family vit",
            "tag needs a model that encodes a text and can have a head for 'tag'; vit encodes an image.",
        ),
        ("label --family gpt2", "gpt2 continues a text, and has no heads. Choose transformer, "),
    ],
)
def test_the_command_line_refuses_a_pair_with_exit_code_2(words, said, capsys):
    assert main(["train", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_images_are_labelled_by_models_of_images_and_texts_by_models_of_texts(images):
    with pytest.raises(UsageError, match=r"label needs a model that encodes a text .*; vit encodes an image\. Choose"):
        prepare(Job("label", (), "vit"))  # its own sample is of texts
    with pytest.raises(UsageError, match=r"label needs a model that encodes an image .*; bert encodes a text"):
        prepare(Job("label", (images,), "bert"))


def test_sounds_are_labelled_by_models_of_sounds(sounds):
    with pytest.raises(UsageError, match=r"label needs a model that encodes a recording .*; vit encodes an image"):
        prepare(Job("label", (sounds,), "vit"))

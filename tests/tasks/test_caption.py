"""Captions: several of a picture, the three captioners, hard attention, and what data and calls are refused."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.cli import main
from saccade.cli.inputs import read_examples as read_inputs
from saccade.data import Example, read_examples
from saccade.data.example import CAPTION, IMAGE, Records
from saccade.data.samples import get_sample
from saccade.data.splits import Splits
from saccade.errors import DataError
from saccade.explain.look import collect_attention_maps
from saccade.tasks.caption import Caption, Config, get_captions, infer_image_sizes
from saccade.tasks.infer_task import infer_task
from saccade.tasks.losses import seq2seq_loss
from saccade.tasks.needs import find_family
from saccade.tasks.paint import Paint
from saccade.tasks.predict import evaluate, predict
from saccade.training import prepare
from saccade.training.config import Config as Train
from saccade.training.prepare import Job, PreparedRun
from saccade.training.run import run_training

SMALL = {"width": 16, "layers": 1, "ffn_width": 32, "heads": 2, "dropout": 0.0}
EXAMPLES = get_sample("scenes").make(6, 11)


def made(family="captioner_rnn", examples=EXAMPLES, **sizes):
    task = Caption()
    torch.manual_seed(2)
    chosen = task.defaults(examples, False)
    given = Job("caption", family=family, model_fields=SMALL | sizes)
    return task, prepare._build_model(given, task, chosen, list(examples))


def several(example, *texts):
    return Example({"image": example["image"], "caption": [example["caption"], *texts]})


def test_each_caption_is_learnt_and_each_picture_asked_about_once():
    examples = [several(EXAMPLES[0], "one more"), EXAMPLES[1], several(EXAMPLES[2], "a second", "a third")]
    task, model = made(examples=examples)
    items = task.encode(examples, model)
    assert [item.gold for item in items] == [0, 1, 0, 0, 1, 2]
    written = [model.tokenizer.target.decode(item.target.tolist()) for item in items]
    assert written == [text for example in examples for text in get_captions(example)]
    found, asked = predict(task, model, examples)
    assert len(found) == len(asked) == 3
    assert found == predict(task, model, [Example({"image": e["image"]}) for e in examples])[0]


def test_captions_in_a_list_and_in_several_records_score_alike():
    texts = ["a red thing", "something red here", "it is red"]
    listed = [several(EXAMPLES[0], *texts), EXAMPLES[1]]
    image = EXAMPLES[0]["image"]
    apart = [Example({"image": image, "caption": text}) for text in get_captions(listed[0])] + [EXAMPLES[1]]
    said = ["something red", EXAMPLES[1]["caption"]]
    one = Caption().score(said, listed)
    other = Caption().score([said[0]] * 4 + said[1:], apart)
    assert [score.value for score in one] == [score.value for score in other]
    assert [score.count for score in one] == [2, 2, 2]
    assert {score.name: score.value for score in one}["exact_match"] == 0.5
    assert next(score.name for score in Caption(Config(metric="bleu")).score(said, listed)) == "bleu"


@pytest.mark.parametrize("family", ["captioner_rnn", "captioner_transformer", "captioner_vit"])
def test_a_batch_loses_what_its_pictures_lose_one_by_one(family):
    task, model = made(family)
    model.eval()
    items = task.encode(EXAMPLES, model)
    assert len({len(item.target) for item in items}) > 1  # so that there is padding
    whole = task.loss(model, task.batch(items))
    single = sum(task.loss(model, task.batch([item])) for item in items)
    torch.testing.assert_close(whole, single, rtol=1e-4, atol=1e-4)
    assert task.count_targets(task.batch(items)) == sum(len(item.target) for item in items)


@pytest.mark.parametrize("name", ["rnn", "transformer", "vit"])
def test_a_captioner_is_found_by_what_it_is_made_of(name):
    assert find_family(name, Caption()).name == f"captioner_{name}"
    assert find_family(f"captioner_{name}", Caption()).name == f"captioner_{name}"


def test_hard_attention_learns_where_to_look_from_reward():
    task, model = made(hard_attention=True)
    batch = task.batch(task.encode(EXAMPLES, model))
    scores = [p for name, p in model.named_parameters() if "across.mechanism" in name]
    assert scores
    model.train()
    torch.manual_seed(0)
    words = seq2seq_loss(model, batch, 0.1)
    words.backward()
    assert all(p.grad is None or not p.grad.any() for p in scores)  # a draw has no gradient
    model.zero_grad()
    torch.manual_seed(0)
    loss = task.loss(model, batch)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in scores)
    model.eval()
    torch.testing.assert_close(task.loss(model, batch), seq2seq_loss(model, batch))


@pytest.mark.parametrize(
    ("shape", "size", "channels"), [((32, 32, 3), 32, 3), ((28, 28), 32, 1), ((500, 375, 3), 128, 3)]
)
def test_a_new_model_sees_a_picture_in_a_size_that_suits_it(shape, size, channels):
    found = infer_image_sizes(np.zeros(shape, np.uint8))
    assert found == {"channels": channels, "image_size": size, "cell_size": size // 4}


def test_a_model_that_reads_text_is_refused_by_name():
    task = Caption()
    with pytest.raises(
        ValueError,
        match=r"transformer reads a text and writes a target text. Choose .* captioner_transformer for captions",
    ):
        task.encode(EXAMPLES, prepare.new("transformer", None))


@pytest.fixture
def folder(tmp_path):
    for number, example in enumerate(EXAMPLES):
        Image.fromarray(example["image"]).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.png").write_text("no picture")
    return tmp_path


def lines(folder, *rows):
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_file_may_give_one_caption_or_several(folder):
    path = lines(folder, {"image": "0.png", "captions": ["one", "two"]}, {"image": "1.png", "captions": "three"})
    found = read_examples([path], (IMAGE, CAPTION)).examples
    assert [get_captions(example) for example in found] == [["one", "two"], ["three"]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"image": "0.png", "captions": []}, "expected a text, got a list"),
        ({"image": "0.png", "captions": ["fine", " "]}, "the text is empty"),
        ({"image": "0.png", "captions": ["fine", None]}, "the text is missing"),
        ({"image": "0.png", "captions": ["fine", ["deep"]]}, "expected a text, got a list"),
        ({"image": "9.png", "captions": "fine"}, "there is no such image"),
        ({"image": "../0.png", "captions": "fine"}, "leads out of the folder"),
        ({"image": "notes.png", "captions": "fine"}, "not an image"),
    ],
)
@pytest.mark.parametrize("task", [Caption, Paint])
def test_bad_records_are_named_with_their_line(folder, task, row, words):
    path = lines(folder, {"image": "1.png", "captions": "good"}, row)
    with pytest.raises(DataError, match=words) as caught:
        read_examples([path], task().roles([str(path)]))
    assert caught.value.line == 2
    assert caught.value.hint


def test_the_question_is_the_path_of_a_picture(folder):
    found = read_inputs(Caption(), [str(folder / "0.png")], [], "")
    assert found[0]["image"] == str(folder / "0.png")


def test_a_run_captions_files_from_the_command_line(folder, tmp_path, capsys):
    task, model = made()
    table = Records(list(EXAMPLES))
    config = Train(epochs=1, batch_size=4, eval_every=100)
    ready = PreparedRun(
        Job("caption"),
        task,
        model,
        Splits(table, table, None, digest="six"),
        config,
        task.defaults(EXAMPLES, False),
        [],
    )
    list(run_training(ready, tmp_path / "run"))
    capsys.readouterr()
    paths = [str(folder / f"{number}.png") for number in range(3)]
    assert main(["caption", str(tmp_path / "run"), *paths, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in told] == paths
    assert [line["text"] for line in told] == predict(task, model.eval(), EXAMPLES[:3])[0]
    for wrong in ("gone.png", "notes.png"):
        assert main(["caption", str(tmp_path / "run"), str(folder / wrong)]) == 3
        assert wrong in capsys.readouterr().err
    assert evaluate(task, model, EXAMPLES)[0].name == "cider"


@pytest.mark.parametrize("family", ["captioner_rnn", "captioner_transformer", "captioner_vit"])
def test_each_word_looks_at_the_cells_of_the_picture(family):
    task, model = made(family)
    item = task.encode(EXAMPLES, model)[0]
    looks = [look for look in collect_attention_maps(task, model, item) if "across" in look.name]
    assert looks
    for look in looks:
        assert look.weights.shape[1:] == (len(item.target), 16)
        torch.testing.assert_close(look.weights.sum(-1), torch.ones(look.weights.shape[:2]))
        *words, end = look.query_names
        assert "".join(words) == model.tokenizer.target.decode(item.target[:-1].tolist())
        assert end == model.tokenizer.target.id_to_token(int(item.target[-1]))


def test_data_are_guessed_and_checked(folder, capsys):
    rows = [{"image": f"{number}.png", "caption": f"picture {number} of a few"} for number in range(6)]
    path = lines(folder, *rows, {"image": "0.png", "caption": ["one", "two"]})
    task, roles = infer_task([path])
    assert (task.name, roles) == ("caption", (IMAGE, CAPTION))
    assert main(["data", "check", str(path), "--task", "paint"]) == 0
    assert "task: paint\n" in capsys.readouterr().out

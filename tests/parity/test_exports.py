"""What we write, `transformers` reads as we do: the same ids, the same predictions and the same greedy texts."""

import json

import numpy as np
import PIL.Image
import pytest
import torch
import transformers

from saccade.data import Batch, Example, Text
from saccade.decoding import generate
from saccade.decoding.generator import vocab_processors
from saccade.models.build import new
from saccade.models.load import load
from saccade.tasks.base import Defaults
from saccade.tasks.label import Label
from saccade.tasks.pair import Pair
from saccade.tasks.span import Span
from saccade.text import TOKENIZER_KINDS
from saccade.training import prepare
from saccade.training.prepare import Job
from support.exports import ENCODERS, GENERATIVE, PUBLISHED, export_model, make_config, make_model, plain_texts

FIRST = ["the cat sat on the mat", "so it goes", "naïve café für 5 €", "12 = 42", "a mat on a cat, and so on", "it"] * 4
SECOND = ["it goes on", "didn't it?", "the mat", "漢字", "12"] * 4 + ["on and on", "5 €", "so", "cat"]
HEADS = [pytest.param(f, head, id=f"{f.name}-{head}") for f in ENCODERS for head in ("label", "tag", "span")]
WORDY = [family for family in PUBLISHED if family.name != "vit"]


def read(words, *rows):
    return words(*map(list, rows), padding=True, return_tensors="pt")


@pytest.mark.parametrize("family", WORDY, ids=lambda f: f.name)
def test_ids_and_segments(family, tmp_path):
    made = export_model(make_model(family), tmp_path / "out")
    found = plain_texts(made.tokenizer)
    ours = made.tokenizer.encode_batch(found)
    assert made.words(found)["input_ids"] == [one.ids for one in ours]
    pairs = made.tokenizer.encode_batch(FIRST, SECOND)
    theirs = made.words(FIRST, SECOND)
    assert theirs["input_ids"] == [one.ids for one in pairs]
    assert ("token_type_ids" in theirs) == (family.name in ("bert", "electra", "bigbird"))
    if "token_type_ids" in theirs:
        assert theirs["token_type_ids"] == [one.segment_ids for one in pairs]
        assert any(any(row) for row in theirs["token_type_ids"])


@pytest.mark.parametrize("family", WORDY, ids=lambda f: f.name)
def test_special_ids(family, tmp_path):
    made = export_model(make_model(family), tmp_path / "out")
    tokenizer, config = made.tokenizer, made.theirs.config
    assert (config.bos_token_id, config.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    if family.name not in ("gpt2", "llama") or config.pad_token_id is not None:
        assert config.pad_token_id == tokenizer.pad_id
    if family.name in ("longformer", "bigbird"):  # their classes for answers look for it
        assert config.sep_token_id == tokenizer.eos_id
    if family in GENERATIVE:
        wanted = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
        stated = made.theirs.generation_config.to_dict()
        assert {key: stated[key] for key in wanted} == wanted


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("frame", ["none", "t5", "roberta", "bos_eos"])
def test_ids_of_every_kind_of_new_tokenizer(kind, frame, tmp_path):
    made = export_model(make_model(GENERATIVE[0], kind=kind, frame=frame), tmp_path / "out")
    found = plain_texts(made.tokenizer, 300)
    ours = made.tokenizer.encode_batch(found)
    assert made.words(found)["input_ids"] == [one.ids for one in ours]
    for text, one in zip(found[:60], ours, strict=False):
        assert made.words.decode(one.ids, skip_special_tokens=True) == made.tokenizer.decode(one.ids), repr(text)


def balanced(model, batch):
    """The model with a bias that makes no answer likelier than another on the whole, so that the texts decide."""
    score = model.head.read.score if model.family.name == "bigbird" and model.head_name == "span" else model.head.score
    with torch.no_grad():
        score.bias -= model(batch)[batch.source.keep_mask if model.head_name != "label" else ...].mean(0)
    return model


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_predictions(family, head, tmp_path):
    model = make_model(family, head)
    task = {"label": Label, "tag": Label, "span": Span}[head]
    if head == "span":
        examples = [Example({"question": q, "context": f"{c} and {c}"}) for q, c in zip(SECOND, FIRST, strict=True)]
        rows = [[e["question"] for e in examples], [e["context"] for e in examples]]
    else:
        examples = [Example({"text": text}) for text in FIRST]
        rows = [FIRST]
    doing = task(task.Config(), labels=model.labels)
    batch = doing.batch(doing.encode(examples, model))
    made = export_model(balanced(model, batch), tmp_path / "out")
    asked = read(made.words, *rows)
    with torch.no_grad():
        ours, theirs = made.ours(batch), made.theirs(**asked)
    assert torch.equal(asked["input_ids"].masked_fill(asked["attention_mask"] == 0, 0), batch.source.tokens)
    if head == "span":
        theirs = torch.stack([theirs.start_logits, theirs.end_logits], -1)
        inside = torch.zeros(ours.shape[:2], dtype=torch.bool)
        for i, row in enumerate(batch.items):
            inside[i, row.text_start : row.text_start + len(row.offsets)] = True
        inside[:, 0] = True  # no answer
        ours, theirs = ours[inside], theirs[inside]
    else:
        theirs = theirs.logits
        real = batch.source.keep_mask if head == "tag" else ...
        ours, theirs = ours[real], theirs[real]
        assert [made.ours.labels[i] for i in ours.argmax(-1)] == [
            made.theirs.config.id2label[int(i)] for i in theirs.argmax(-1)
        ]
        assert len(set(ours.argmax(-1).tolist())) > 1
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ENCODERS, ids=lambda f: f.name)
def test_predictions_of_pairs(family, tmp_path):
    model = make_model(family, "label")
    task = Pair(Pair.Config(), labels=model.labels)
    examples = [Example({"first": a, "second": b}) for a, b in zip(FIRST, SECOND, strict=True)]
    batch = task.batch(task.encode(examples, model))
    made = export_model(balanced(model, batch), tmp_path / "out")
    with torch.no_grad():
        ours, theirs = made.ours(batch), made.theirs(**read(made.words, FIRST, SECOND)).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    said = [answer["label"] for answer in task.answer(made.ours, batch)]
    assert said == [made.theirs.config.id2label[int(i)] for i in theirs.argmax(-1)]
    assert len(set(said)) > 1


LIMIT = 24


def ours_written(made, prompts):
    tokenizer = made.tokenizer
    rules = vocab_processors(made.ours, tokenizer.target)
    rows = [tokenizer.encode(prompt).ids for prompt in prompts]
    return [
        generate(
            made.ours, Batch(Text.pad([row])), stop_ids=tokenizer.target.eos_id, max_new_tokens=LIMIT, processors=rules
        )[0]
        for row in rows
    ]


def theirs_written(made, prompts):
    """Greedy, all prompts at once, with nothing said but what the directory says."""
    whole = made.theirs.config.is_encoder_decoder
    made.words.padding_side = "right" if whole else "left"
    asked = read(made.words, prompts)
    out = made.theirs.generate(**asked, max_new_tokens=LIMIT, do_sample=False)
    end, pad, found = made.tokenizer.target.eos_id, made.tokenizer.pad_id, []
    for row in out[:, 1 if whole else asked["input_ids"].size(1) :].tolist():
        stop = row.index(end) if end in row else len(row)
        assert set(row[stop + 1 :]) <= {pad}  # nothing is written after the end
        found.append(row[:stop])
    return found


@pytest.mark.parametrize("spare", [5, pytest.param(0, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("family", GENERATIVE, ids=lambda f: f.name)
def test_greedy_texts(family, spare, tmp_path):
    """Some stop and some do not; ids without a token are never written."""
    rows = []
    for seed in range(25):
        model = make_model(family, kind="words", spare=spare, seed=seed)
        with torch.no_grad():
            model.body.head.score.weight[model.tokenizer.eos_id] *= 3  # so that some texts end
        made = export_model(model, tmp_path / str(seed))
        prompts = [text for text in FIRST[:6] if made.tokenizer.encode(text).ids]
        ours = ours_written(made, prompts)
        assert theirs_written(made, prompts) == ours
        rows += ours
        if {len(row) < LIMIT for row in rows} == {True, False}:
            return
    raise AssertionError("No model wrote both a text that ends and one that does not.")


@pytest.mark.parametrize("family", ["roberta", "longformer", "bert"])
def test_a_new_reader_of_pairs(family, tmp_path):
    """Positions are counted from padding in RoBERTa's kin, and unknown words are no padding; one segment is enough for a pair."""
    rows = [{"first": a, "second": b, "label": "ab"[i % 2]} for i, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))]
    task, examples = Pair(Pair.Config(tokenizer="words"), labels=("a", "b")), [Example(row) for row in rows]
    sizes = {"vocab": 12, "width": 12, "layers": 2, "heads": 3, "ffn_width": 17}
    sizes |= {"attention_windows": (4,)} if family == "longformer" else {}
    torch.manual_seed(1)
    model = prepare._build_model(
        Job("pair", family=family, model_fields=sizes), task, Defaults(family), examples
    ).eval()
    batch = task.batch(task.encode(examples, model))
    assert (batch.source.tokens == model.tokenizer.unk_id).any()
    assert task.loss(model, batch).isfinite()
    made = export_model(model, tmp_path / "out")
    asked = read(made.words, FIRST, SECOND)
    assert torch.equal(
        asked["input_ids"], batch.source.tokens.masked_fill(~batch.source.keep_mask, made.words.pad_token_id)
    )
    with torch.no_grad():
        torch.testing.assert_close(made.ours(batch), made.theirs(**asked).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures(channels, tmp_path):
    """Pictures of the model's size give the same scores; others are scaled and cut alike, up to the rounding of a resampler."""
    family = next(family for family in PUBLISHED if family.name == "vit")
    torch.manual_seed(1)
    model = new(
        family, make_config(family, image_height=24, channels=channels), head="label", labels=("a", "b", "c")
    ).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    model.save(tmp_path / "out")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    eye = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    draw = np.random.default_rng(2)
    for shape, tolerance in (((24, 24), 1e-6), ((48, 96), 0.05), ((97, 60), 0.05)):
        smooth = draw.integers(0, 256, (6, 6, 3), np.uint8)
        picture = PIL.Image.fromarray(smooth).resize(shape[::-1], PIL.Image.Resampling.BICUBIC)
        picture = picture if channels == 3 else picture.convert("L")
        task = Label(labels=model.labels)
        batch = task.batch(task.encode([Example({"image": np.asarray(picture)})], model))
        given = picture if channels == 3 else np.asarray(picture)[None]
        pixels = eye(given, return_tensors="pt", **({} if channels == 3 else {"input_data_format": "channels_first"}))
        assert (pixels["pixel_values"] - batch.source.pixels).abs().mean() < tolerance
        if tolerance < 1e-3:
            with torch.no_grad():
                torch.testing.assert_close(model(batch), theirs(**pixels).logits, rtol=1e-4, atol=1e-4)


def test_pixels_that_are_made_otherwise_are_said(tmp_path):
    family = next(family for family in PUBLISHED if family.name == "vit")
    new(family, make_config(family), head="label", labels=2).save(tmp_path / "out")
    assert "image_mean" not in str(load(tmp_path / "out").report)
    path = tmp_path / "out" / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"image_mean": [0.485, 0.456, 0.406]}))
    assert "ignored    image_mean = [0.485, 0.456, 0.406] in preprocessor_config.json" in str(
        load(tmp_path / "out").report
    )

"""Readers in their fast form, from the command line: the answers of the plain model, and a choice that is said."""

import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade import text
from saccade.cli import main
from saccade.data import Example
from saccade.engine import choose_precision, fast
from saccade.engine import precision as precision_module
from saccade.engine.precision import ENCODER_PROGRAM_RESULTS, MAX_CHANGED_FRACTION
from saccade.models.build import new
from saccade.models.families import bert, gpt2
from saccade.tasks.runs.run import open_run

LINE = "the small red boat of Ann lies in a harbour near Oslo and nobody has seen her for days"
WORDS = LINE.split()
TEXTS = [" ".join(WORDS[a:b]) for a, b in ((0, 2), (3, 17), (5, 6), (2, 9), (9, 18))]  # of mixed length
TOKENIZER = text.train_tokenizer([LINE], "words", 40, token_template="bos_eos")
HEADS = {"label": ("bad", "fair", "good"), "tag": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), "span": ()}
SIZES = bert.Config(TOKENIZER.vocab, width=24, layers=2, heads=3, ffn_width=37, max_positions=32, dropout=0.0)
CLOSE = {
    "float32": 1e-4,
    "float16": 2e-3,
    "bfloat16": 3e-2,
    "int8": 1e-1,
}  # how far a probability may be from the plain model's


def reader(head, config=SIZES):
    """With weights so large that every path matters."""
    torch.manual_seed(3)
    model = new("bert", config, head=head, labels=HEADS[head]).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.3)
    model.tokenizer = TOKENIZER
    return model


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A directory for each head."""
    where = tmp_path_factory.mktemp("readers")
    return {head: str(reader(head).save(where / head)) for head in HEADS}


@pytest.fixture
def say(capsys):
    """A command: what it printed as JSON, and what it said on standard error."""

    def ask(*argv):
        capsys.readouterr()
        assert main([*argv, "--json"]) == 0
        told = capsys.readouterr()
        return [json.loads(line) for line in told.out.splitlines()], told.err

    return ask


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("verb", ["label", "predict"])
def test_labels_are_the_plain_models(runs, say, verb, precision):
    plain, _ = say(verb, runs["label"], *TEXTS, "--engine", "off")
    found, _ = say(verb, runs["label"], *TEXTS, "--engine", precision)
    assert len(plain) == len(TEXTS)
    assert len({row["label"] for row in plain}) > 1
    for got, wanted in zip(found, plain, strict=True):
        second, first = sorted(wanted["probabilities"].values())[-2:]
        assert got["label"] == wanted["label"] or first - second < CLOSE[precision]  # as good as equal
        assert got["probabilities"].keys() == wanted["probabilities"].keys()
        assert got["probabilities"] == pytest.approx(wanted["probabilities"], abs=CLOSE[precision])
    if precision == "int8":
        assert found != plain  # it is another computation


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_tags_are_the_plain_models(runs, say, precision):
    plain, _ = say("tag", runs["tag"], *TEXTS, "--engine", "off")
    found = say("tag", runs["tag"], *TEXTS, "--engine", precision)[0]
    spans = lambda rows: [[(span["start"], span["end"], span["label"]) for span in row["entities"]] for row in rows]
    assert spans(found) == spans(plain)
    for row, other in zip(plain, found, strict=True):
        for span, same in zip(row["entities"], other["entities"], strict=True):
            assert same["score"] == pytest.approx(span["score"], abs=CLOSE[precision])
    assert len({span["label"] for row in plain for span in row["entities"]}) > 1


@pytest.mark.parametrize("precision", CLOSE)
def test_answers_are_the_plain_models(runs, say, precision):
    asked = ("answer", runs["span"], "--context", TEXTS[1], "who has seen her", "the boat of Ann")
    plain, _ = say(*asked, "--engine", "off")
    found, _ = say(*asked, "--engine", precision)
    for got, wanted in zip(found, plain, strict=True):
        assert got["answer"] == wanted["answer"]
        assert got["no_answer"] == pytest.approx(wanted["no_answer"], abs=CLOSE[precision])


def test_scores_of_an_evaluation_are_the_plain_models(runs, say, tmp_path):
    rows = [f"{line}\t{HEADS['label'][number % 3]}\n" for number, line in enumerate(TEXTS)]
    (tmp_path / "gold.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    asked = ("evaluate", runs["label"], "--data", str(tmp_path / "gold.tsv"))
    plain, quiet = say(*asked, "--engine", "off")
    found, said = say(*asked, "--engine", "float32", "--verbose")
    values = lambda told: [{**score, "signature": ""} for score in told[0]["scores"]]
    assert values(found) == values(plain)
    assert (found[0]["engine"], plain[0]["engine"]) == ("float32", "off")
    assert "engine" not in quiet
    assert "engine float32: requested; " in said


def test_the_choice_is_said_and_can_be_forced(runs, say):
    for engine, words in (
        ("auto", "float32: a model of width 24 is too narrow"),
        ("int8", "int8: requested"),
        ("off", "off:"),
    ):
        _, said = say("label", runs["label"], TEXTS[0], "--engine", engine, "--verbose")
        assert said.startswith(f"engine {words}")


def test_a_device_can_be_asked_for(runs, say, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert say("label", runs["label"], TEXTS[0], "--device", "auto") == say("label", runs["label"], TEXTS[0])
    assert main(["label", runs["label"], TEXTS[0], "--device", "cuda"]) == 2
    # what is there besides the CPU gets the plain model, compiled: told by where its numbers lie
    with torch.device("meta"):
        elsewhere = reader(
            "label", bert.Config(TOKENIZER.vocab, width=12, layers=1, heads=3, ffn_width=8, max_positions=32)
        )
    assert str(choose_precision(elsewhere)) == "compiled: on meta the model is compiled, at its own precision"


def test_nobody_reads_padding(runs):
    """A batch of mixed lengths, whose real tokens are gathered, is its texts one by one."""
    opened = open_run(runs["label"])
    task, model = opened.task, opened.model
    quick = fast(model, "float32")
    batch = task.batch(task.encode([Example({"text": line}) for line in TEXTS], model))
    assert float(batch.source.keep.float().mean()) < 0.7
    alone = [model(task.batch(task.encode([Example({"text": line})], model))) for line in TEXTS]
    assert_close(quick(batch), torch.cat(alone).detach(), rtol=1e-4, atol=1e-4)


def test_a_wide_reader_takes_the_quickest_form_that_keeps_its_answers(monkeypatch):
    made = reader("label", bert.Config(TOKENIZER.vocab, width=132, layers=1, heads=3, ffn_width=8, max_positions=32))
    monkeypatch.setattr(precision_module.library, "has_native_bfloat16", lambda: False)
    assert choose_precision(made).precision == "float32"
    monkeypatch.setattr(precision_module.library, "has_native_bfloat16", lambda: True)
    chosen = choose_precision(made)
    assert chosen.precision in ("int8", "bfloat16")
    lines = [line for line in ENCODER_PROGRAM_RESULTS if line.precision == chosen.precision]
    assert lines
    assert all(1 - line.agreement < MAX_CHANGED_FRACTION for line in lines)
    assert chosen.reason.startswith(
        f"at most {max(1 - line.agreement for line in lines):.2%} of an encoder's predictions changed"
    )
    writer = new("gpt2", gpt2.Config(vocab=31, width=132, layers=1, heads=3))
    assert "perplexity" in choose_precision(writer).reason


def test_weights_that_float16_cannot_hold_stay_in_float32(monkeypatch):
    """Where the layers are no encoder program, which has no float16."""
    monkeypatch.setattr(precision_module, "encoder_unsupported_reason", lambda stack, name: "it has another part")
    made = reader("label", bert.Config(TOKENIZER.vocab, width=132, layers=1, heads=3, ffn_width=8, max_positions=32))
    with torch.no_grad():
        made.get_parameter("head.score.weight")[0, 0] = 7e4
    assert str(choose_precision(made)) == "float32: some of its weights are beyond the range of float16"

"""Asking a writer by examples: its likelihoods by full passes without a state, its prompts by brute force, no weight moved."""

import json
import math
import os
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from torch import nn

from saccade import text
from saccade.cli import main
from saccade.data import Batch, Example, Text
from saccade.decoding.loop import teacher_forced_logits
from saccade.errors import DataError
from saccade.models.build import new
from saccade.models.registry import get_family
from saccade.parts.state import State
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.prompting.few_shot import Config, FewShot, make_few_shot_task
from saccade.tasks.prompting.prompts import PromptTemplate

TEXTS = [
    "a fine film, really good",
    "a dull film, truly dreadful and bad",
    "Text:\nLabel: => N/A\n\n",
    "good bad dreadful fine",
]
SIZES = {
    "width": 16,
    "layers": 2,
    "heads": 2,
    "ffn_width": 24,
    "decoder_layers": 2,
    "decoder_heads": 2,
    "decoder_ffn_width": 24,
}
CAUSAL = ["transformer_lm", "rnn_lm", "gpt2", "llama"]
PAIRED = ["transformer", "rnn", "t5", "bart"]
LABELS = ("good", "really bad", "dreadful")


def writer(name, *, length=256, pieces="bpe", frame="none"):
    """A new writer in double precision, with a tokenizer of its own."""
    torch.manual_seed(2)
    tokenizer = text.train_tokenizer(TEXTS, pieces, 300 if pieces == "bpe" else None, token_template=frame)
    kind = get_family(name)
    given = SIZES | {
        "vocab": tokenizer.vocab,
        "max_positions": length,
        "kv_heads": None,
        "decoder_start_id": tokenizer.bos_id,
    }
    known = {item.name for item in fields(kind.config_class)}
    model = new(
        kind, kind.config_class(**{key: value for key, value in given.items() if key in known and value is not None})
    )
    model.tokenizer = tokenizer
    for parameter in model.parameters():  # farther from uniform than new weights are
        parameter.data *= 3
    return model.double().eval()


def shot(words, label):
    return Example({"text": words, "label": label})


SHOTS = (shot("a fine film", "good"), shot("a dull film", "really bad"), shot("truly", "dreadful"))
ASKED = [Example({"text": words}) for words in ("fine and good", "dull", "a film, really", "bad bad bad")]


def alike(rows):
    """How many tokens the rows begin with in common."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))


def brute(model, task, example, label, shots=SHOTS):
    """The log likelihood of a label after the whole prompt, in one pass over both, without any state that was used before."""
    prompt = "".join(f"Text: {s['text']}\nLabel: {s['label']}\n\n" for s in shots) + f"Text: {example['text']}\nLabel:"
    tokenizer = model.tokenizer
    if hasattr(model.body, "encoder"):
        ids = tokenizer.encode(label, add_special_tokens=False).ids
        batch = Batch(Text.pad([tokenizer.encode(prompt).ids]), Text.pad([ids]))
        scores = teacher_forced_logits(model, batch)[0].log_softmax(-1)
        return [float(row[token]) for row, token in zip(scores, ids, strict=True)]
    whole = [tokenizer.encode(f"{prompt} {other}", add_special_tokens=False).ids for other in task.labels]
    start = alike([*whole, tokenizer.encode(prompt, add_special_tokens=False).ids])
    ids = whole[task.labels.index(label)]
    scores = model.step(Text.pad([ids]), State())[0].log_softmax(-1)
    return [float(scores[i - 1][ids[i]]) for i in range(start, len(ids))]


@pytest.mark.parametrize("name", CAUSAL + PAIRED)
def test_likelihoods_are_those_of_whole_passes(name):
    model = writer(name, frame="none" if name in CAUSAL else "t5")
    task = FewShot(shots=SHOTS)
    assert task.labels == LABELS
    found, _ = predict(task, model, ASKED)
    with torch.no_grad():
        for answer, example in zip(found, ASKED, strict=True):
            wanted = {label: sum(brute(model, task, example, label)) for label in LABELS}
            assert answer["logs"] == pytest.approx(wanted, abs=1e-9)
            total = sum(math.exp(value) for value in wanted.values())
            assert answer["scores"] == pytest.approx({k: math.exp(v) / total for k, v in wanted.items()}, abs=1e-9)
            assert answer["label"] == max(wanted, key=lambda label: wanted[label])
            assert any(len(brute(model, task, example, label)) > 1 for label in LABELS)


@pytest.mark.parametrize("pieces", ["characters", "bytes", "bpe"])
def test_a_border_within_a_token_is_no_harm(pieces):
    """With "{text}{label}" the label's first letters may melt into the last token of the text."""
    model = writer("gpt2", pieces=pieces)
    task = FewShot(Config(template="{text}{label}"), labels=("ful", "ly"))
    (answer,), _ = predict(task, model, [Example({"text": "dread"})])
    tokenizer = model.tokenizer
    rows = [tokenizer.encode(words, add_special_tokens=False).ids for words in ("dread", "dreadful", "dreadly")]
    start = alike(rows)
    with torch.no_grad():
        for label, ids in zip(("ful", "ly"), rows[1:], strict=True):
            scores = model.step(Text.pad([ids]), State())[0].log_softmax(-1)
            assert answer["logs"][label] == pytest.approx(
                sum(float(scores[i - 1][ids[i]]) for i in range(start, len(ids)))
            )


def test_the_order_of_the_labels_and_of_the_questions_does_not_matter():
    model = writer("gpt2")
    one, _ = predict(FewShot(labels=LABELS, shots=SHOTS), model, ASKED)
    other, _ = predict(FewShot(labels=LABELS[::-1], shots=SHOTS), model, ASKED[::-1])
    for a, b in zip(one, other[::-1], strict=True):
        assert a["logs"] == pytest.approx(b["logs"], abs=1e-9)
        assert list(a["scores"]) == list(b["scores"])


def test_the_order_of_the_shots_matters():
    model = writer("gpt2")
    one, _ = predict(FewShot(labels=LABELS, shots=SHOTS), model, ASKED)
    other, _ = predict(FewShot(labels=LABELS, shots=SHOTS[::-1]), model, ASKED)
    assert one[0]["logs"] != pytest.approx(other[0]["logs"], abs=1e-6)


def test_means_over_tokens_and_calibration_are_their_formulas():
    model = writer("llama")
    blank = Example({"text": "N/A"})
    mean, _ = predict(FewShot(Config(length_normalize=True), shots=SHOTS), model, ASKED)
    calibrated, _ = predict(FewShot(Config(calibrate=True), shots=SHOTS), model, ASKED)
    task = FewShot(shots=SHOTS)
    with torch.no_grad():
        for label in LABELS:
            for number, example in enumerate(ASKED):
                tokens = brute(model, task, example, label)
                assert mean[number]["logs"][label] == pytest.approx(sum(tokens) / len(tokens), abs=1e-9)
                less = sum(brute(model, task, blank, label))
                assert calibrated[number]["logs"][label] == pytest.approx(sum(tokens) - less, abs=1e-9)


def test_no_weight_changes_and_no_gradient_is_left():
    model = writer("gpt2")
    before = {name: x.clone() for name, x in model.state_dict().items()}
    evaluate(FewShot(shots=SHOTS), model, [shot("fine", "good"), shot("dull", "dreadful")])
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# what does not fit


def test_the_oldest_shots_are_left_out_and_that_is_said():
    shots = [shot(f"film number {'a' * (i % 5)}", LABELS[i % 3]) for i in range(30)]
    long = Example({"text": "a fine film " * 6})
    model = writer("gpt2", length=128)
    task = FewShot(shots=shots)
    items = task.encode([ASKED[0], long], model)
    for item, example in zip(items, (ASKED[0], long), strict=True):
        fits = []
        for kept in range(len(shots) + 1):
            (whole,) = FewShot(labels=LABELS, shots=shots[len(shots) - kept :]).encode(
                [example], writer("gpt2", length=9999)
            )
            if len(whole.source) + max(map(len, whole.endings)) - 1 <= 128:  # type: ignore[attr-defined]
                fits.append((kept, whole.source.tolist()))
        kept, source = fits[-1]
        assert 0 < kept < 30
        assert item.source.tolist() == source
        assert item.dropped_shots == 30 - kept  # type: ignore[attr-defined]
    most = max(item.dropped_shots for item in items)  # type: ignore[attr-defined]
    (said,) = task.notes
    assert "2 of 2 prompts exceed the model's 128 positions" in said
    assert f"the oldest shots are dropped, up to {most} of 30" in said
    predict(task, model, [ASKED[0], long])  # and the model can read it
    task.encode([ASKED[0]], writer("rnn_lm"))
    assert task.notes == ()  # it has no limit


def test_a_question_too_long_by_itself_keeps_its_end():
    model = writer("gpt2", length=32)
    (item,) = FewShot(shots=SHOTS).encode([Example({"text": "a fine film " * 40})], model)
    whole = model.tokenizer.encode("Text: " + "a fine film " * 40 + "\nLabel:", add_special_tokens=False).ids
    assert item.source.tolist() == whole[-len(item.source) :]
    assert item.dropped_shots == 3  # type: ignore[attr-defined]
    predict(FewShot(shots=SHOTS), model, [Example({"text": "a fine film " * 40})])


# answers that are written


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_a_written_answer_is_the_greedy_one_up_to_the_line_s_end(name):
    model = writer(name, pieces="characters", frame="none" if name == "gpt2" else "t5")
    shots = [Example({"source": "fine", "target": "good"}), Example({"source": "dull", "target": "bad"})]
    task = FewShot(Config(max_new_tokens=12), shots=shots, task="translate")
    asked = [Example({"source": words}) for words in ("film", "a dreadful film", "really")]
    found, _ = predict(task, model, asked)
    tokenizer = model.tokenizer
    for answer, example in zip(found, asked, strict=True):
        prompt = f"fine => good\ndull => bad\n{example['source']} =>"
        read = tokenizer.encode(prompt, add_special_tokens=name != "gpt2").ids
        written: list[int] = []
        with torch.no_grad():
            for _ in range(12):  # without a state
                if name == "gpt2":
                    scores = model.step(Text.pad([read + written]), State())[0, -1]
                else:
                    scores = teacher_forced_logits(model, Batch(Text.pad([read]), Text.pad([[*written, 0]])))[0, -1]
                written.append(int(scores.argmax()))
        text = tokenizer.decode(written[: written.index(tokenizer.eos_id)] if tokenizer.eos_id in written else written)
        assert answer == text.lstrip(" ").split("\n")[0].strip()
    assert task.score(["good"], [Example({"target": "good"})])[0].value == 1.0


class Speller(nn.Module):
    """A writer that says the same words, whatever it is asked."""

    def __init__(self, tokenizer, words):
        super().__init__()
        self.words = nn.Parameter(torch.eye(tokenizer.vocab)[tokenizer.encode(words, add_special_tokens=False).ids])
        self.head = nn.Identity()

    def start(self, batch):
        return State(), batch.source

    def hidden_states(self, text, state):
        state.advance(tuple(text.tokens.shape))
        said = 0 if text.tokens.size(1) > 1 else state.length - state.prompt
        state.prompt = state.length if text.tokens.size(1) > 1 else state.prompt
        return self.words[said][None, None].expand(1, text.tokens.size(1), -1)

    step = hidden_states


@pytest.mark.parametrize(
    ("template", "wanted"), [("{source} => {target}\\n", "good; dull"), ("{source} => {target};", "good")]
)
def test_an_answer_ends_with_its_line_or_with_what_parts_two_examples(template, wanted):
    model = writer("gpt2", pieces="characters")
    model.body = Speller(model.tokenizer, " good; dull\nbad")
    (answer,), _ = predict(
        FewShot(Config(template=template), task="translate"), model, [Example({"source": "fine film"})]
    )
    assert answer == wanted


# templates


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{text}", r"needs \{text\} and \{label\}, with \{label\} once and last"),
        ("{label} {text}", "once and last"),
        ("{text} {label} {label}", "once and last"),
        ("{txt} {label}", r"has a slot \{txt\}; did you mean 'text'"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template, said):
    with pytest.raises(ValueError, match=said):
        PromptTemplate(template, ["text", "label"])


def test_a_template_is_filled_as_it_stands():
    template = PromptTemplate(r'{{"{text}"}} is: {label}.\n', ["text", "label"])
    values = {"text": "a {label} of {braces}", "label": "good"}
    assert template.format_example(values) == '{{"a {label} of {braces}"}} is: good.\n'
    assert template.format_question(values) + template.format_answer("good") + ".\n" == template.format_example(values)


# files and commands


@pytest.fixture
def directory(tmp_path):
    model = writer("gpt2").float()
    model.save(tmp_path / "gpt")
    return str(tmp_path / "gpt")


def test_the_command_reads_shots_and_answers(directory, tmp_path, capsys):
    (tmp_path / "shots.tsv").write_text("text\tlabel\na fine film\tgood\na dull film\tbad\n")
    shots = ["--few-shot", str(tmp_path / "shots.tsv")]
    assert main(["predict", directory, *shots, "fine", "dull", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(row["probabilities"]) for row in found] == [{"good", "bad"}] * 2
    (tmp_path / "asked.tsv").write_text("text\nfine\ndull\n")
    assert main(["predict", directory, *shots, "--data", str(tmp_path / "asked.tsv"), "--json"]) == 0
    in_file = [row | {"line": line} for line, row in enumerate(found, 2)]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == in_file
    assert main(["predict", directory, "--labels", "good, bad", "--template", r"{text} is {label}.\n", "fine"]) == 0
    assert capsys.readouterr().out.split()[0] in ("good", "bad")


def test_the_kind_of_question_is_seen_from_the_file_the_columns_or_the_template(tmp_path):
    model = writer("gpt2")
    files = {
        "label": ("text,label\na fine film,good\nbad,bad\n", None),
        "pair": ("premise,hypothesis,label\na,b,yes\nc,d,no\n", None),
        "translate": ("source,target\ngood,bon\nbad,mauvais\n", None),
        "named": ("x,y\ngood,bon\nbad,mauvais\n", {"source": "x", "target": "y"}),
    }
    for name, (content, columns) in files.items():
        (tmp_path / "a.csv").write_text(content)
        task = make_few_shot_task(model, [str(tmp_path / "a.csv")], columns=columns)
        assert len(task.shots) == 2
        assert task.is_free_text == (name in ("translate", "named"))
        assert [role.name for role in task.prompt_roles][:-1] == {"label": ["text"], "pair": ["first", "second"]}.get(
            name, ["source"]
        )
    assert make_few_shot_task(model, config=Config(template="{source}: {target}")).is_free_text
    (tmp_path / "a.csv").write_text("1,2\n2,4\n3,9\n")
    with pytest.raises(DataError, match=r"a\.csv: this is data for regress; shots need texts with labels"):
        make_few_shot_task(model, [str(tmp_path / "a.csv")])


def test_what_cannot_be_asked_is_refused_by_name(directory, tmp_path, capsys):
    assert main(["predict", directory, "--labels", "good", "fine"]) == 2
    assert "At least two labels are needed, got ['good']" in capsys.readouterr().err
    assert main(["predict", directory, "--labels", "good,bad", "--template", "{label}", "fine"]) == 2
    assert "{label} once and last" in capsys.readouterr().err
    assert main(["predict", directory, "--few-shot", str(tmp_path / "none.tsv"), "fine"]) == 3
    assert "none.tsv" in capsys.readouterr().err
    tokenizer = text.train_tokenizer(TEXTS, "bpe", 300)
    kind = get_family("transformer_encoder")
    reader = new(
        kind, kind.config_class(vocab=tokenizer.vocab, width=8, layers=1, heads=2), head="label", labels=("a", "b")
    )
    reader.tokenizer = tokenizer
    reader.save(tmp_path / "reader")
    assert main(["predict", str(tmp_path / "reader"), "--labels", "good,bad", "fine"]) == 4
    assert "needs a model that generates text; transformer_encoder does not" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_real_model_is_asked():
    """stories260K: a model of 0.26 M that has read stories; it prefers words that stories go on with."""
    from saccade.models.families import llama
    from saccade.models.foreign import llama2c
    from saccade.models.model import Model

    where = Path(os.environ["SACCADE_DATA"]) / "weights"
    config, tensors = llama2c.read_llama2c(where / "stories260K.bin")
    body = llama.FAMILY.build(config)
    body.load_state_dict(tensors, strict=False)
    model = Model(llama.FAMILY, config, body).eval()
    model.tokenizer = text.load_llama2c_tokenizer(where / "tok512.bin")
    task = FewShot(Config(template="{text} {label}"), labels=("time", "tame"))
    (answer,), _ = predict(task, model, [Example({"text": "Once upon a"})])
    assert answer["label"] == "time"
    assert answer["scores"]["time"] > 0.99

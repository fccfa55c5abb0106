"""Calls that cannot be meant are usage errors before anything is read, and nothing that others wrote acts on a terminal."""

import io
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hostile.bases import VOCAB, spec
from saccade.cli import main
from saccade.cli.exit_codes import describe_memory_error, run_command
from saccade.cli.terminal import escape_control_characters
from saccade.cli.train_progress import TrainProgress
from saccade.models import check_weights
from saccade.models.build import new
from saccade.models.families import bert
from saccade.models.foreign.marian_bin import FLOAT32, VERSION
from saccade.models.load import load
from saccade.training.events import Message

ESCAPES = "\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "a\rb", "\x08\x08", "\x7f"
LABELS = ("good\x1b[2J", "bad\x1b]0;owned\x07\x9b1m")
SIZES: dict[str, Any] = {"vocab": VOCAB, "width": 12, "layers": 2, "heads": 3, "ffn_width": 20, "max_positions": 16}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(home: Path) -> str:
    """A model whose labels would clear the screen and rename the window."""
    torch.manual_seed(0)
    new("bert", bert.Config(**SIZES), head="label", labels=LABELS).save(home / "model")
    (home / "model" / "tokenizer.json").write_text(json.dumps(spec()), encoding="utf-8")
    return "model"


USAGE = {
    "train label --model.width 0": "--model.width = 0",
    "train label --model.width -8": "--model.width = -8",
    "train label --model.heads 0": "--model.heads = 0",
    "train label --model.layers 100000": "--model.layers = 100000",
    "train label --model.dropout 3": "--model.dropout = 3",
    "train label --model.dropout nan": "--model.dropout = nan",
    "train label --task.max-tokens 0": "--task.max-tokens = 0",
    "train label --task.label-smoothing nan": "--task.label-smoothing = nan",
    "train translate --task.eval-beams -2": "beams",
    "train label --data": "--data needs a value",
    "train label --data --out x": "--data needs a value",
    "train label --data= --out x": "--data needs a value",
    "train label --data '' --out x": "--data needs a value",
    "train label --data a.tsv '' --out x": "--data needs a value",
    "train label --out ''": "--out needs a value",
    "evaluate model --data": "--data needs a value",
    "predict model --data": "--data needs a value",
    "look model text --layer --json": "--layer needs a value",
    "serve --port 99999": "--port is 99999; it must be from 1 to 65,535",
    "serve --port -1": "--port is -1; it must be from 1 to 65,535",
    "serve nothing --port 65536": "--port is 65536; it must be from 1 to 65,535",
}


@pytest.mark.parametrize("call", USAGE)
def test_a_wrong_call(home: Path, capsys: pytest.CaptureFixture[str], call: str):
    words = [word.replace("''", "") for word in call.split()]
    assert main(words) == 2
    said = capsys.readouterr()
    assert USAGE[call] in said.err + said.out
    assert "reading" not in said.out
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("flag", ["--png", "--html", "--safetensors"])
def test_a_directory_in_place_of_a_file_is_refused(model: str, capsys: pytest.CaptureFixture[str], flag: str):
    before = sorted(Path().rglob("*"))
    assert main(["look", model, "the bank", flag, "."]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(("flag", "name"), [("--png", "look.txt"), ("--png", "look"), ("--html", "look.png")])
def test_a_file_of_another_kind_is_refused(model: str, capsys: pytest.CaptureFixture[str], flag: str, name: str):
    assert main(["look", model, "the bank", flag, name]) == 2
    assert "the file name must end in" in capsys.readouterr().err


def is_harmless(text: str) -> bool:
    return all(c in "\n\t" or c.isprintable() for c in text)


@pytest.mark.parametrize("text", ESCAPES)
def test_a_control_character_is_shown_and_not_printed(text: str):
    assert is_harmless(escape_control_characters(f"x{text}y\n"))
    assert json.loads(escape_control_characters(json.dumps([text], ensure_ascii=False))) == [text]
    assert escape_control_characters("ordinary 中文 עברית é\t😀\n") == "ordinary 中文 עברית é\t😀\n"


def test_labels_and_texts_with_escapes_are_printed_harmlessly(model: str, capsys: pytest.CaptureFixture[str]):
    Path("data.tsv").write_text(f"text\tlabel\nthe bank\t{LABELS[0]}\na b\tnew\x1b[31m\n", encoding="utf-8")
    for call in (
        ["predict", model, "the \x1b[2J bank"],
        ["look", model, "the \x1b[2J bank"],
        ["evaluate", model, "--data", "data.tsv"],
        ["data", "check", "data.tsv"],
        ["predict", "no\x1b[2Jthing", "x"],
        ["predict", model, "--data", "no\x1b[2Jfile"],
    ):
        main(call)
        said = capsys.readouterr()
        assert said.out + said.err
        assert is_harmless(said.out + said.err), call
    assert main(["predict", model, "the bank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in LABELS


def test_training_says_labels_harmlessly(home: Path, capsys: pytest.CaptureFixture[str]):
    rows = "".join(f"word {i}\t{LABELS[i % 2]}\n" for i in range(20))
    Path("data.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    sizes = ["--model.width", "8", "--model.layers", "1", "--model.heads", "2", "--train.max-steps", "1"]
    assert main(["train", "label", "--data", "data.tsv", "--out", "run", *sizes]) == 0
    said = capsys.readouterr()
    assert "good\\u001b[2J" in said.out
    assert is_harmless(said.out + said.err)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_moves_the_cursor_itself_and_lets_nobody_else():
    stream = Terminal()
    with TrainProgress(Path("run"), stream) as progress:
        progress.show(Message("label \x1b]0;owned\x07"))
    assert "\x1b]0;owned" not in stream.getvalue()
    assert "label \\u001b]0;owned" in stream.getvalue()


def test_streams_are_as_they_were_afterwards():
    before = sys.stdout, sys.stderr
    assert run_command("predict", lambda: 0) == 0
    assert (sys.stdout, sys.stderr) == before


def llama(layers: int) -> bytes:
    """A whole file of llama2.c: width 2, one head, one word."""
    numbers = 2 + layers * (2 + 4 * 4 + 2 + 3 * 2) + 2 + 2
    return struct.pack("<7i", 2, 1, layers, 1, 1, 1, 1) + b"\0" * (4 * numbers)


def marian(names: list[bytes]) -> bytes:
    """Marian's own file with a tensor of one number for each name."""
    table = b"".join(struct.pack("<4Q", len(name) + 1, FLOAT32, 1, 4) for name in names)
    words = b"".join(name + b"\0" for name in names)
    shapes = struct.pack("<i", 1) * len(names)
    return (
        VERSION + struct.pack("<Q", len(names)) + table + words + shapes + struct.pack("<Q", 0) + b"\0" * 4 * len(names)
    )


FILES = {
    "llama2.c with 20,000 layers": (llama(20_000), ("layers = 20000", "512")),
    "Marian with 60,000 names, the last of them twice": (
        marian([*(f"t{i}".encode() for i in range(60_000)), b"t59999"]),
        ("t59999", "twice"),
    ),
    "Marian with 200,000 names": (marian([f"t{i}".encode() for i in range(200_000)]), ("200,000 items",)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_claims_too_much_is_refused_at_once(home: Path, capsys: pytest.CaptureFixture[str], name: str):
    content, says = FILES[name]
    Path("weights.bin").write_bytes(content)
    start = time.process_time()
    assert main(["import", "weights.bin", "run"]) == 4
    assert time.process_time() - start < 5
    said = capsys.readouterr().err
    assert all(word in said for word in says), said
    assert not Path("run").exists()


def test_a_model_that_does_not_fit_in_memory_says_how_much_it_needs(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(check_weights, "available_memory", lambda: 10_000)
    needed = 4 * sum(p.numel() for p in new("bert", bert.Config(**SIZES), head="label", labels=2).parameters()) / 1e9
    with pytest.raises(MemoryError, match=f"need {needed:.1f} GB of memory, and 0.0 GB are free"):
        load(model)
    assert main(["predict", model, "x"]) == 5
    assert ": not enough memory: model: the weights need" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), ("not enough memory: this process uses", "are available")),
        (MemoryError("Unable to allocate 3.7 GiB for an array"), ("Unable to allocate 3.7 GiB", "are available")),
        (
            RuntimeError("can't allocate memory: you tried to allocate 4300000000 bytes."),
            ("cannot allocate 4.3 GB", "this process uses"),
        ),
    ],
)
def test_a_lack_of_memory_says_what_and_how_much(error: BaseException, words: tuple[str, ...]):
    said = describe_memory_error("predict", error)
    assert all(word in said for word in words), said
    assert "--train.micro-batches" not in said
    assert "--train.micro-batches" in describe_memory_error("train", error)

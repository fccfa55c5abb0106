"""What is served from a folder of runs that others wrote: an odd file hides itself alone, and no link leads out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from hostile.bases import VOCAB, spec
from saccade.models.build import new
from saccade.models.check_weights import copy_weights
from saccade.models.families import bert
from saccade.models.load import load
from saccade.serving.app import make_app
from saccade.serving.runs import RunFolder
from saccade.serving.session import ModelSession

WHOLE = '{"step": 1, "loss": 2.5}\n'
ODD: dict[str, bytes] = {
    "a list": b"[1, 2]\n",
    "a number": b"3\n",
    "null": b"null\n",
    "a text": b'"step"\n',
    "NaN": b'{"step": 1, "loss": NaN}\n',
    "Infinity": b'{"step": 1, "loss": -Infinity}\n',
    "a huge number": b'{"step": 1, "loss": 1' + b"0" * 400 + b"}\n",
    "5,000 digits": b'{"step": 1, "loss": ' + b"9" * 5_000 + b"}\n",
    "a huge step": b'{"step": 1' + b"0" * 400 + b', "loss": 1.0}\n',
    "a step that is a text": b'{"step": "x", "loss": 1.0}\n',
    "a step that is true": b'{"step": true, "loss": 1.0}\n',
    "a table as a value": b'{"step": 1, "loss": {"a": 1}}\n',
    "10,000 lists deep": b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "not UTF-8": b'{"step": 1, "l\xff": 1.0}\n',
    "half a character": b'{"step": 1, "\\ud800": 1.0}\n',
    "UTF-16": WHOLE.encode("utf-16"),
    "NULs": b"\0" * 5_000,
    "a line of 5 MB": b'{"step": 1, "x": "' + b"y" * 5 * 2**20 + b'"}\n',
    "100,000 names": json.dumps({"step": 1} | {f"n{i}": 1.0 for i in range(50_000)}).encode() + b"\n",
}
SETTINGS = {"run is a text": "run = 'x'", "deep": "a = " + "[" * 10_000, "no TOML": "\0", "a task": "run.task = ['x']"}


def client(folder: Path, rooms: dict[str, ModelSession] | None = None) -> TestClient:
    return TestClient(
        make_app(rooms or {}, RunFolder(folder)), base_url="http://127.0.0.1", raise_server_exceptions=False
    )


def put(folder: Path, name: str, metrics: bytes = WHOLE.encode()) -> Path:
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_bytes(metrics)
    return folder / name


def test_one_odd_run_does_not_take_down_the_page_of_all_runs(tmp_path: Path):
    for name, content in ODD.items():
        put(tmp_path, name, content + WHOLE.encode())
    for name, text in SETTINGS.items():
        (put(tmp_path, f"settings: {name}") / "config.toml").write_text(text, encoding="utf-8")
    put(tmp_path, os.fsdecode(b"name \xff"))
    (tmp_path / "a loop").mkdir()
    (tmp_path / "a loop" / "metrics.jsonl").symlink_to("metrics.jsonl")
    page = client(tmp_path)
    answer = page.get("/api/runs")
    assert answer.status_code == 200, answer.text
    found = {run["name"]: run for run in answer.json()}
    assert found.keys() == ODD.keys() | {f"settings: {name}" for name in SETTINGS} | {"name ?"}
    for name, run in found.items():
        if name not in ("UTF-16", "100,000 names", "NULs"):
            assert [1, 2.5] in run["curves"]["loss"], name
        assert run["task"] is None


FILES = ("report.html", "card.html", "model/README.md")
LINKS = [("model/README.md", "directory"), *((file, how) for file in FILES for how in ("file", "absolute", "loop"))]


@pytest.mark.parametrize(("file", "how"), LINKS)
def test_a_link_out_of_a_run_is_not_served(tmp_path: Path, file: str, how: str):
    folder = tmp_path / "runs"
    folder.mkdir()
    run = put(folder, "first")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "README.md").write_text("SECRET", encoding="utf-8")
    path = run / file
    if how == "directory":
        path.parent.symlink_to("../../secret")
    else:
        path.parent.mkdir(exist_ok=True)
        up = "../" * (len(Path(file).parts) + 1)
        target = {"file": f"{up}secret/README.md", "absolute": tmp_path / "secret" / "README.md", "loop": path.name}[
            how
        ]
        path.symlink_to(target)
    page = client(folder)
    for kind in ("report", "card", "samples"):
        answer = page.get(f"/api/{kind}/first")
        assert answer.status_code == 400
        assert "SECRET" not in answer.text
    (told,) = page.get("/api/runs").json()
    assert not told["has_report"]
    assert not told["has_card"]


def test_a_link_inside_a_run_is_served(tmp_path: Path):
    run = put(tmp_path, "first")
    (run / "other.html").write_text("hello", encoding="utf-8")
    (run / "report.html").symlink_to("other.html")
    assert client(tmp_path).get("/api/report/first").text == "hello"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A BERT whose words fill many pages of memory."""
    sizes: dict[str, Any] = {
        "vocab": 200_000,
        "width": 12,
        "layers": 1,
        "heads": 3,
        "ffn_width": 20,
        "max_positions": 16,
    }
    new("bert", bert.Config(**sizes)).save(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(spec()), encoding="utf-8")
    return tmp_path / "model"


def test_weights_that_change_while_they_are_served_are_noticed(model: Path, tmp_path: Path):
    page = client(tmp_path, {"model": ModelSession(model)})
    assert page.post("/api/look/model", json={"text": "the bank"}).status_code == 200
    file = model / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-4:] = b"\0\0\0\0"
    os.truncate(file, 0)
    file.write_bytes(content)
    answer = page.post("/api/look/model", json={"text": "the bank"})
    assert (answer.status_code, "has changed since the model was loaded" in answer.json()["error"]) == (400, True)


def test_weights_that_are_cut_while_they_are_served_end_in_an_error(model: Path):
    """In a process of its own, which the system would end (SIGBUS) where the file is still mapped."""
    program = """
import os, sys
from saccade.serving.session import LookRequest, ModelSession
room = ModelSession(sys.argv[1])
os.truncate(sys.argv[1] + "/model.safetensors", 100)
print(sum(p.sum().item() for p in room.model.parameters()) > -1e9)
try:
    room.look(LookRequest("the bank"))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, str(model)], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    assert done.stdout.startswith("True\n")
    assert "has changed since the model was loaded" in done.stdout


def test_a_copy_of_the_weights_is_the_same_model(tmp_path: Path):
    sizes: dict[str, Any] = {"vocab": VOCAB, "width": 12, "layers": 2, "heads": 3, "ffn_width": 20, "max_positions": 16}
    new("bert", bert.Config(**sizes), head="lm").save(tmp_path)  # whose words are shared by both ends
    one, other = load(tmp_path), load(tmp_path)
    copied = copy_weights(other)
    for (name, a), (_, b) in zip(one.state_dict().items(), copied.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    shared = [p.data_ptr() for p in one.state_dict().values()]
    assert len(set(shared)) == len({p.data_ptr() for p in copied.state_dict().values()}) < len(shared)
    assert not set(shared) & {p.data_ptr() for p in copied.state_dict().values()}

"""Call commands on hostile runs one after the other and write down how each ended: `python -m hostile.call HOME < names`.

The commands run in this process, so that hundreds of calls take seconds; `serve` is asked over its own application instead of a
socket. A line of JSON goes out before and after each run, so whoever reads can tell which one killed the process.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from starlette.testclient import TestClient

import saccade.serving.server
from hostile import runs
from hostile.bases import VOCAB, pieces, spec
from saccade import cli
from saccade.errors import ModelError
from saccade.models.build import new
from saccade.models.families import bert, marian

SECONDS, MEMORY = 30, 4 << 30  # of the processor; what kills the process, and the test asks for less
PATIENCE = 600  # seconds of the clock, for what waits for something that never comes
DATA = "text\tlabel\nthe bank\tgood\na b c\tbad\n"
PAIRS = "source\ttarget\na b\tb a\nc\tc\n"


def build(home: Path) -> None:
    """A run that labels, and one that translates."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab": VOCAB, "width": 12, "layers": 2, "heads": 3, "ffn_width": 20, "max_positions": 16}
    new("bert", bert.Config(**sizes), head="label", labels=("bad", "good")).save(home / "run" / "model")
    (home / "run" / "model" / "tokenizer.json").write_text(json.dumps(spec()), encoding="utf-8")
    (home / "run" / runs.FILE).write_text(runs.toml(), encoding="utf-8")
    both: dict[str, Any] = {"decoder_layers": 2, "decoder_heads": 3, "decoder_ffn_width": 20, "decoder_start_id": 319}
    new("marian", marian.Config(**sizes, **both)).save(home / "translator" / "model")
    for name in ("source.spm", "target.spm"):
        (home / "translator" / "model" / name).write_bytes(pieces())
    vocab = {x: i for i, x in enumerate(["</s>", "<unk>", "\u2581a", "\u2581b", "\u2581c"])} | {"<pad>": 319}
    (home / "translator" / "model" / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    settings = runs.toml(runs.RUN | {"task": "translate", "family": "marian"}, {"max_tokens": 16})
    (home / "translator" / runs.FILE).write_text(settings, encoding="utf-8")


def ask_app(app: Any, door: Any, told: Any, **_: Any) -> None:
    """In place of a server that waits for a browser: a look and the list of runs."""
    door.close()
    with TestClient(app, base_url="http://127.0.0.1") as page:
        for answer in (page.get("/api/runs"), page.post("/api/look/served", json={"text": "the bank"})):
            if answer.status_code >= 400:
                raise (ModelError if answer.status_code < 500 else AssertionError)(answer.json()["error"])


def attempt(arguments: list[str]) -> dict[str, Any]:
    """The exit code of a command and what it said; a traceback is an exit code of 1, as for a user."""
    out, start = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = cli.main(arguments)
        except BaseException:
            code = 1
            traceback.print_exc(file=out)
    return {"code": code, "said": out.getvalue(), "seconds": time.process_time() - start}


def commands(path: Path, base: str) -> dict[str, list[str]]:
    """Every command that opens a run."""
    data = "pairs.tsv" if base == "translator" else "data.tsv"
    return {
        "predict": ["predict", str(path), "the bank"],
        "look": ["look", str(path), "the bank"],
        "evaluate": ["evaluate", str(path), "--data", data],
        "serve": ["serve", str(path), "--port", "0"],
    }


def main(home: Path, names: list[str]) -> None:
    saccade.serving.server.run_server = ask_app
    build(home / "bases")
    cases = {one.name: one for one in runs.CASES}
    os.chdir(home)
    for name, content in {"data.tsv": DATA, "pairs.tsv": PAIRS, "outside.toml": runs.toml()}.items():
        Path(name).write_text(content, encoding="utf-8")
    for base in ("run", "translator"):  # whole ones answer; and what is imported late is imported now
        shutil.copytree(home / "bases" / base, home / "served")
        for arguments in commands(home / "served", base).values():
            found = attempt(arguments)
            assert found["code"] == 0, (base, arguments, found["said"])
        shutil.rmtree(home / "served")
    virtual = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + MEMORY, virtual + MEMORY))
    for name in names:
        print(json.dumps({"name": name}), flush=True)
        one, path = cases[name], home / "served"
        shutil.copytree(home / "bases" / one.base, path)
        one.write(path)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(PATIENCE)
        found = {verb: attempt(arguments) for verb, arguments in commands(path, one.base).items()}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(json.dumps({"name": name, "found": found}), flush=True)
        shutil.rmtree(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), json.load(sys.stdin))

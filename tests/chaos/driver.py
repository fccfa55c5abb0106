"""Tiny trainings that are killed at random moments and started again: what is left must be what an undisturbed one leaves.

    python tests/chaos/driver.py HOME SEED KILLS [NAME...]      one line of JSON for each training

One process imports everything and never computes; each life of a training is a fork of it, so that a start costs
milliseconds. A life ends by SIGKILL after a random time, or by its own hand in the middle of a random operation of the disk.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from io import FileIO
from pathlib import Path

import torch
from PIL import Image

from saccade.training.checkpoint.disk import Disk
from saccade.training.checkpoint.store import CheckpointStore
from saccade.training.metrics_log import MetricsLog
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

TRAIN = {"epochs": 3, "batch_tokens": 80, "lr": 3e-3, "save_every": 3, "save_minutes": 0.0, "device": "cpu"}
SMALL = {"width": 8, "layers": 1}
STACK = dict(**SMALL, heads=2, ffn_width=12, dropout=0.2)

JOBS = {
    "label": Job("label", ("label.tsv",), "transformer", model_fields=STACK, train_fields=TRAIN),
    "label by rnn": Job(
        "label",
        ("label.tsv",),
        "rnn",
        model_fields=SMALL,
        train_fields=TRAIN | {"clip_grad_norm": 0.1, "freeze_layers": 1},
    ),
    "label by longformer": Job(
        "label",
        ("label.tsv",),
        "longformer",
        model_fields={"width": 8, "layers": 1, "heads": 2, "ffn_width": 12, "attention_windows": (4,)},
        task_fields={"max_tokens": 32},
        train_fields=TRAIN | {"layer_decay": 0.9},
    ),
    "label pictures": Job(
        "label",
        ("pictures",),
        "senet",
        model_fields={"width": 8, "stages": 2, "blocks_per_stage": 1, "se_reduction": 2},
        train_fields=TRAIN | {"batch_tokens": 8},
    ),
    "tag": Job(
        "tag", ("tag.conll",), "transformer", model_fields=STACK, train_fields=TRAIN | {"micro_batches": 2, "ema": 0.9}
    ),
    "translate": Job("translate", ("pairs.tsv",), "transformer", model_fields=STACK, train_fields=TRAIN | {"ema": 0.9}),
    "translate by rnn": Job(
        "translate", ("pairs.tsv",), "rnn", model_fields=SMALL, train_fields=TRAIN | {"eval_every": 4}
    ),
    "language": Job(
        "language",
        ("text.txt",),
        "transformer",
        model_fields=STACK,
        task_fields={"max_tokens": 16},
        train_fields=TRAIN | {"precision": "bfloat16"},
    ),
    "language by rnn": Job(
        "language",
        ("text.txt",),
        "rnn",
        model_fields=SMALL,
        task_fields={"max_tokens": 16},
        train_fields=TRAIN | {"patience": 2},
    ),
}


def write_data(home: Path) -> None:
    """Some lines for each task, drawn with a seed of their own."""
    draw = random.Random(5)
    words = ["ash", "birch", "elm", "fir", "oak", "pine", "yew", "red", "blue", "green", "old", "young", "tall"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(60)]
    labelled = [f"{'odd' if text.count(' ') % 2 else 'even'}\t{text}" for text in texts]
    (home / "label.tsv").write_text("\n".join(["label\ttext", *labelled]) + "\n", encoding="utf-8")
    pairs = [f"{text}\t{' '.join(reversed(text.split()))}" for text in texts]
    (home / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n", encoding="utf-8")
    tagged = ["\n".join(f"{word} {'B-TREE' if word in words[:7] else 'O'}" for word in text.split()) for text in texts]
    (home / "tag.conll").write_text("\n\n".join(tagged) + "\n", encoding="utf-8")
    for i in range(40):
        path = home / "pictures" / ("dark" if i % 3 else "light") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = bytes(draw.randrange(0, 200) + (0 if i % 3 else 50) for _ in range(64))
        Image.frombytes("L", (8, 8), pixels).save(path)
    (home / "text.txt").write_text("\n".join(texts[:30]) + "\n", encoding="utf-8")


def job(name: str, home: Path) -> Job:
    """A training by its name in JOBS, on the data in `home`."""
    return replace(JOBS[name], data=tuple(str(home / file) for file in JOBS[name].data))


class Mortal(Disk):
    """A disk whose n-th operation is the last thing that the process does; a write dies half done."""

    def __init__(self, last: int | None):
        self.left = last

    def _count(self) -> bool:
        if self.left is not None:
            self.left -= 1
        return self.left == 0

    def create(self, path: Path) -> FileIO:
        self._die(self._count())
        return super().create(path)

    def write(self, file: FileIO, piece: memoryview) -> None:
        now = self._count()
        super().write(file, piece[: len(piece) // 2] if now else piece)
        self._die(now)

    def rename(self, old: Path, new: Path) -> None:
        self._die(self._count())
        super().rename(old, new)

    def mkdir(self, path: Path) -> None:
        self._die(self._count())
        super().mkdir(path)

    def remove(self, path: Path) -> None:
        self._die(self._count())
        super().remove(path)

    def sync(self, file: FileIO) -> None:
        """Nobody pulls the plug of the machine that runs the test."""

    def sync_directory(self, path: Path) -> None:
        """Nor here."""

    @staticmethod
    def _die(now: bool) -> None:
        if now:
            os.kill(os.getpid(), signal.SIGKILL)


def live(what: Job, out: Path, *, last: int | None = None) -> int:
    """A process that trains, or goes on training, in `out`; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for _ in run_training(prepare(what), out, disk=Mortal(last)):
            pass
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int, *, within: float) -> int:
    """How a process ended; it is killed when its time is over."""
    limit = time.monotonic() + within
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= limit:
            os.kill(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(0.002)


def contents(out: Path) -> dict[str, bytes]:
    """The bytes of all that a run leaves but what tells the time: the model, metrics, the newest and the best checkpoint.

    Whoever is killed while removing an older checkpoint, after the last save, leaves that one too.
    """
    store = CheckpointStore(out)
    kept = {found.path.name for found in (store.read_newest(warn=print), store.read_best(warn=print)) if found}
    old = {path for path in (out / "checkpoints").glob("step-*") if path.name not in kept}
    found = [path for path in sorted(out.rglob("*")) if path.is_file() and path.parent not in old]
    timed = ("speed.jsonl", "report.html", "facts.json", "manifest.json")
    return {str(path.relative_to(out)): b"" if path.name in timed else path.read_bytes() for path in found}


def differences(one: Path, other: Path) -> list[str]:
    """The files that are not the same, by name."""
    a, b = contents(one), contents(other)
    return sorted(name for name in {**a, **b} if a.get(name) != b.get(name))


def lost(out: Path) -> int:
    """How many steps a run that was killed has to take again."""
    rows = MetricsLog(out / "metrics.jsonl").read()
    saved = [int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")]
    return max((row["step"] for row in rows), default=0) - max(saved, default=0)


def story(name: str, home: Path, draw: random.Random, kills: int) -> dict[str, object]:
    """A training undisturbed, and again with so many kills, in as many lives as it takes."""
    what, calm = job(name, home), home / "calm"
    began = time.monotonic()
    code = ended(live(what, calm), within=600)
    whole = time.monotonic() - began
    told: dict[str, object] = {"name": name, "seconds": round(whole, 2), "codes": [code]}
    codes, wrong, most, files = [code], [], 0, len(contents(calm))
    tried = killed = 0
    while killed < kills:
        tried += 1
        out, code = home / f"wild{tried}", -9
        while code == -9:
            by_hand = killed < kills and draw.random() < 0.5
            last = draw.randint(1, 150) if by_hand else None
            code = ended(
                live(what, out, last=last), within=60 if by_hand or killed >= kills else draw.uniform(0.1, 1) * whole
            )
            killed += code == -9
            most = max(most, lost(out)) if code == -9 else most
        codes.append(code)
        wrong += differences(calm, out)
    return told | {
        "codes": codes,
        "kills": killed,
        "wrong": wrong,
        "lost": most,
        "files": files,
        "every": what.train_fields["save_every"],
    }


def stories(home: Path, seed: int, kills: int, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Every training in turn; the kills are shared out among them."""
    draw = random.Random(seed)
    for i, name in enumerate(names):
        place = home / name.replace(" ", "_")
        place.mkdir()
        write_data(place)
        yield story(name, place, draw, kills // len(names) + (i < kills % len(names)))


if __name__ == "__main__":
    for late in ("torch._dynamo", "numpy.ctypeslib", "saccade.render.plot", "saccade.training.write_report"):
        import_module(late)  # here and once, not in every life
    torch.set_num_threads(1)
    home, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for told in stories(home, seed, kills, sys.argv[4:] or list(JOBS)):
        print(json.dumps(told), flush=True)

"""Trainings in several processes of this machine, each a fork of one that has imported everything and never computes.

    python tests/chaos/ranks.py HOME WHAT...      one line of JSON for each thing that is tried; kills-SEED-COUNT is one

What each one leaves is compared by the tests: gradients, losses, the examples that were read, tensors of checkpoints.
"""

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from driver import contents, differences, job, write_data
from torch import Tensor

from saccade.training.checkpoint.store import CheckpointStore
from saccade.training.distributed import join_world, strategy
from saccade.training.distributed.heartbeat import Heartbeat
from saccade.training.events import Message, RunResult
from saccade.training.loop import Learner, NonFiniteLoss
from saccade.training.prepare import PreparedRun, prepare
from saccade.training.run import Trainer, run_training

LIMIT = 300.0  # seconds for work that should take one second, on a busy machine
PORTS = range(
    20000, 32768
)  # below the ports that Linux gives to outgoing connections, so that none of them takes a port first


def together(size: int, work: Callable[[], Any], home: Path, *, kill: tuple[int, float] | None = None) -> list[Any]:
    """The result of `work` in each of `size` processes, by rank; an exception is returned as text.

    `kill` is a rank and the seconds after which it is killed. Processes that have met must notice by themselves that a peer is
    lost. A process that has not met its peers would wait for them for half an hour, as torch does. A launcher ends it as soon
    as one of them has ended, and so does this function.
    """
    port = free_port()
    children = {rank: _child(rank, size, port, work, home) for rank in range(size)}
    codes: dict[int, int] = {}
    start = time.monotonic()
    try:
        while len(codes) < size:
            now = time.monotonic() - start
            if kill is not None and now >= kill[1]:
                _kill({kill[0]} - {*codes}, children)
                kill = None
            for rank in sorted({*children} - {*codes}):
                done, status = os.waitpid(children[rank], os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    if not _met(home, rank).exists():
                        _kill({*children} - {*codes}, children)
            if now > LIMIT:
                raise TimeoutError(f"ranks {sorted({*children} - {*codes})} did not end in {LIMIT:.0f} seconds")
            time.sleep(0.005)
    finally:
        _kill({*children} - {*codes}, children)
    return [_result(home / f"said-{rank}.json", codes[rank]) for rank in range(size)]


def free_port() -> str:
    """A port that is free and stays free: rank 0 listens on it only when it has read its data, seconds later."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return str(port)
    raise OSError(f"no free port in {PORTS}")


def _kill(ranks: set[int], children: dict[int, int]) -> None:
    """Kill processes that have not been waited for; one that has ended is a zombie until then."""
    for rank in ranks:
        os.kill(children[rank], signal.SIGKILL)


def _result(path: Path, code: int) -> Any:
    """What a process has written; if nothing, how it ended. Its heartbeat thread ends a process with code 5."""
    if path.exists():
        return json.loads(path.read_text())
    return "killed" if code == -signal.SIGKILL else f"ended with code {code}"


def _met(home: Path, rank: int) -> Path:
    """The file that a process leaves when it has met the others."""
    return home / f"met-{rank}"


def _child(rank: int, size: int, port: str, work: Callable[[], Any], home: Path) -> int:
    path, met = home / f"said-{rank}.json", _met(home, rank)
    path.unlink(missing_ok=True)
    met.unlink(missing_ok=True)
    child = os.fork()
    if child:
        return child
    start = Heartbeat.start

    def start_and_tell(self: Heartbeat) -> None:
        met.touch()
        start(self)

    Heartbeat.start = start_and_tell  # type: ignore[method-assign]
    try:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        made = work()
    except BaseException as error:
        traceback.print_exc()
        made = f"{type(error).__name__}: {error}"
    path.with_suffix(".part").write_text(json.dumps(made))
    path.with_suffix(".part").rename(path)
    os._exit(0)


def ready(name: str, home: Path, **train: Any) -> PreparedRun:
    """A training of the driver's, without dropout, with other settings."""
    what = job(name, home)
    sizes = {**what.model_fields, "dropout": 0.0}
    given = {**what.train_fields, "precision": "float32", **train}
    return prepare(replace(what, model_fields=sizes, train_fields=given))


def learner(made: PreparedRun, world: Any, *, double: bool = False) -> Learner:
    model = made.model.double() if double else made.model
    return Learner(model, made.task, made.make_batches(model), made.config, world)


def whole(x: Any) -> Tensor:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def gradients(name: str, home: Path, steps: int = 3, **train: Any) -> list[dict[str, list[float]]]:
    """The whole gradients of the first steps in float64, just before the weights move."""
    seen: list[dict[str, list[float]]] = []
    with join_world("cpu") as world:
        one = learner(ready(name, home, **train), world, double=True)
        real = one.optimizer.step

        def step() -> None:
            grads = {
                name: whole(p.grad).flatten().tolist()
                for name, p in one.trainable_parameters.items()
                if p.grad is not None
            }
            seen.append(grads)
            real()

        one.optimizer.step = step  # type: ignore[assignment, method-assign]
        norms = [one.step().grad_norm for _ in range(steps)]
        for grads, norm in zip(seen, norms, strict=True):
            grads["norm"] = [norm]
    return seen


def losses(name: str, home: Path, steps: int = 50, **train: Any) -> list[float]:
    with join_world("cpu") as world:
        one = learner(ready(name, home, epochs=100, **train), world)
        return [one.step().loss for _ in range(steps)]


def read(name: str, home: Path, **train: Any) -> list[list[int]]:
    """The lines of the examples that this process learns from in each step of an epoch, all of which are taken."""
    with join_world("cpu") as world:
        made = ready(name, home, epochs=1, **train)
        lines: list[list[int]] = []
        one = learner(made, world)
        while one.step_count < one.total_steps:
            lines.append([item.example.line for batch in one._read_batches() for item in batch.items])
            one.step()
        return lines


def spoilt(name: str, home: Path, **train: Any) -> dict[str, Any]:
    """In the fourth step the loss of the last process alone is not finite; what each process then knows."""
    with join_world("cpu") as world:
        one = learner(ready(name, home, **train), world)
        for _ in range(3):
            one.step()
        before = [
            x.clone()
            for group in one.checkpoint_tensors().values()
            for x in one.strategy.to_local(list(group.values()))
        ]
        loss = type(one.task).loss
        if world.rank == world.size - 1:
            type(one.task).loss = lambda self, *given: loss(self, *given) * float("nan")  # type: ignore[method-assign]
        try:
            one.step()
            step, lines = 0, []
        except NonFiniteLoss as error:
            step, lines = error.step, [item.example.line for batch in error.batches for item in batch.items]
        after = [x for group in one.checkpoint_tensors().values() for x in one.strategy.to_local(list(group.values()))]
        same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        whole_step = [item.example.line for batch in one.batch_source.batches(3) for item in batch.items]
        return {"step": step, "same": same, "all": lines == whole_step, "done": one.step_count}


def ran(name: str, home: Path, out: str, **train: Any) -> list[str]:
    """A run; what it said, and how it ended."""
    events = list(run_training(ready(name, home, **train), home / out))
    said = [event.text for event in events if isinstance(event, Message)]
    last = events[-1]
    assert isinstance(last, RunResult)
    return [*said, f"{last.steps} steps, {last.stop_reason}"]


def reread(name: str, home: Path, out: str, new: str, **train: Any) -> int:
    """Go on from a checkpoint and write at once what was read, to another place; the step."""
    with join_world("cpu") as world:
        made = ready(name, home, **train)
        work = Trainer(made, home / out, world)
        list(work.resume())
        work.learner.strategy.save(
            CheckpointStore(home / new), work.learner.step_count, work.learner.checkpoint_tensors(), {}, best=False
        )
        return work.learner.step_count


def unlike(one: Path, other: Path, which: str = "newest") -> list[str]:
    """The tensors of the newest or the best checkpoints of two runs that are not the same, bit for bit."""
    found = [getattr(CheckpointStore(out), f"read_{which}")(warn=print) for out in (one, other)]
    assert found[0].step == found[1].step
    assert found[0].groups == found[1].groups
    tables = [{f"{group}/{k}": v for group in it.groups for k, v in it.read_tensors(group).items()} for it in found]
    return [key for key in {**tables[0], **tables[1]} if not torch.equal(tables[0][key], tables[1][key])]


def apart(a: Any, b: Any) -> float:
    """The largest difference between two tables of gradients."""
    assert [list(x) for x in a] == [list(x) for x in b]
    pairs = [(u, v) for x, y in zip(a, b, strict=True) for key in x for u, v in zip(x[key], y[key], strict=True)]
    return max(abs(u - v) for u, v in pairs)


def disturbed(name: str, home: Path, draw: random.Random, kills: int, **train: Any) -> dict[str, Any]:
    """A run of two processes undisturbed, and again with one of them killed at random moments, as often as it takes."""
    what = job(name, home)
    what = replace(what, train_fields={**what.train_fields, **train})

    def work(out: Path) -> int:
        events = list(run_training(prepare(what), out))
        return getattr(events[-1], "steps", 0)

    began = time.monotonic()
    calm = together(2, lambda: work(home / "calm"), home)
    whole, killed, codes, wrong = time.monotonic() - began, 0, [calm], []
    while killed < kills:
        out, said = home / f"wild{killed}", ["killed"]
        while not all(isinstance(one, int) for one in said):
            kill = (draw.randrange(2), draw.uniform(0.1, 1) * whole) if killed < kills else None
            said = together(2, lambda out=out: work(out), home, kill=kill)
            killed += "killed" in said
            # whoever was not killed heard of it at once, and was not waiting until its time was over
            codes += [said] if not all(one == "killed" or "PeerLost" in str(one) for one in said) else []
        # in a file of parts the order of what its header tells is not fixed, so its tensors are compared
        wrong += [file for file in differences(home / "calm", out) if "/shard-" not in file]
        wrong += [name for which in ("newest", "best") for name in unlike(home / "calm", out, which)]
    return {"codes": codes, "killed": killed, "wrong": wrong, "files": len(contents(home / "calm")), "seconds": whole}


def lost_before_meeting(home: Path) -> Any:
    """Two runs of three processes, one of which fails or is killed before it meets the others."""

    def work(rank: str, lose: Callable[[], Any]) -> int:
        if os.environ["RANK"] == rank:
            lose()
        with join_world("cpu") as world:
            return world.size

    def fail() -> None:
        raise OSError("no data")

    ways = {"fails": ("0", fail), "is killed": ("2", lambda: os.kill(os.getpid(), signal.SIGKILL))}
    return {name: together(3, partial(work, *way), home) for name, way in ways.items()}


# what is tried: name -> a function of a directory with data


def same_gradients(home: Path) -> Any:
    told = {}
    for name in ("label", "label by rnn", "tag", "translate", "language", "label by longformer"):
        alone = together(1, lambda name=name: gradients(name, home), home)[0]
        assert isinstance(alone, list), alone
        for shard in (False, True):
            found = together(2, lambda name=name, shard=shard: gradients(name, home, fsdp=shard), home)
            told[f"{name}, {'shards' if shard else 'copies'}"] = [
                apart(alone, one) if isinstance(one, list) else one for one in found
            ]
    alone = together(1, lambda: gradients("translate", home), home)[0]
    found = together(2, lambda: as_large("translate", home), home)
    return told | {"translate, shards of a large model": [apart(alone, one) for one in found]}


def as_large(name: str, home: Path) -> list[dict[str, list[float]]]:
    """The same as if the model were too large to stay put together from the forward to the backward pass."""
    strategy.MAX_UNSHARDED_BYTES = 0
    return gradients(name, home, fsdp=True)


def same_losses(home: Path) -> Any:
    alone = together(1, lambda: losses("translate", home), home)[0]
    told: dict[str, Any] = {"fell": alone[0] - alone[-1]}
    for shard in (False, True):
        for one in together(2, lambda shard=shard: losses("translate", home, fsdp=shard), home):
            apart = max(abs(a - b) for a, b in zip(one, alone, strict=True)) if isinstance(one, list) else one
            told.setdefault("shards" if shard else "copies", []).append(apart)
    return told


def uneven(home: Path) -> Any:
    """Steps of one example each, which leave most processes without any, and steps of a few in several parts."""
    told: dict[str, Any] = {"all": together(1, lambda: read("label", home), home)[0]}
    for shard in (False, True):
        ways = {"one row": {"batch_size": 1}, "parts": {"batch_size": 3, "micro_batches": 2}}
        for way, train in ways.items():
            found = together(3, lambda train=train, shard=shard: read("label", home, fsdp=shard, **train), home)
            told[f"{way}, {'shards' if shard else 'copies'}"] = found
    return told


def not_finite(home: Path) -> Any:
    return {
        way: together(2, lambda s=s: spoilt("label", home, fsdp=s), home)
        for way, s in (("copies", False), ("shards", True))
    }


def any_number(home: Path) -> Any:
    """Saved by two, read by one, two and four, and by the other way of spreading."""
    told: dict[str, Any] = {}
    for way, shard in (("copies", False), ("shards", True)):
        told[f"{way} ran"] = together(2, lambda w=way, s=shard: ran("tag", home, w, fsdp=s, max_steps=6), home)
        for size in (1, 2, 4):
            for other in (False, True):
                new = f"{way}-{size}-{other}"
                done = together(size, lambda w=way, n=new, o=other: reread("tag", home, w, n, fsdp=o), home)
                told[new] = [done, unlike(home / way, home / new) if done == [6] * size else None]
        told[f"{way} again"] = together(1, lambda w=way: ran("tag", home, w, max_steps=8), home)
    told["files"] = sorted(path.name for path in (home / "shards" / "checkpoints").rglob("*.safetensors"))
    return told


def kills(home: Path, seed: int, count: int) -> Any:
    """As many kills for copies of the model as for parts of it."""
    draw, told = random.Random(seed), {}
    for name, shard in (("translate", False), ("tag", True)):
        place = home / name
        place.mkdir()
        write_data(place)
        told[name] = disturbed(name, place, draw, count // 2, fsdp=shard)
    return told


TRIED = {
    tried.__name__: tried
    for tried in (same_gradients, same_losses, uneven, not_finite, any_number, lost_before_meeting)
}

if __name__ == "__main__":
    for late in ("torch._dynamo", "numpy.ctypeslib", "saccade.render.plot", "saccade.training.write_report"):
        import_module(late)
    for late in ("torch.distributed.fsdp", "saccade.training.distributed.sharded_checkpoint"):
        import_module(late)
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        place = Path(sys.argv[1]) / name
        place.mkdir()
        write_data(place)
        tried = TRIED.get(name) or (lambda home, name=name: kills(home, *map(int, name.split("-")[1:])))
        print(json.dumps({"name": name, "told": tried(place)}), flush=True)

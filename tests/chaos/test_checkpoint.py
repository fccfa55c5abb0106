"""Checkpoints survive a crash, an error or a power cut at every single operation, and no changed byte is overlooked."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from faults import Crash, FaultyDisk, PowerCut
from torch import Tensor

from saccade.training.checkpoint.disk import DiskFull, lock_directory
from saccade.training.checkpoint.run_lock import RunLocked
from saccade.training.checkpoint.serialize import dump_with_checksum, load_with_checksum
from saccade.training.checkpoint.store import Checkpoint, CheckpointStore, bytes_needed


@cache
def tensors(step: int) -> dict[str, dict[str, Tensor]]:
    """What a run of two parameters would hold at a step; `tied` shares the memory of `weight`."""
    draw = torch.Generator().manual_seed(step)
    weight = torch.randn(5, 7, generator=draw)
    return {
        "model": {"weight": weight, "tied": weight.t(), "bias": torch.randn(3, generator=draw).bfloat16()},
        "optimizer": {"mean": torch.randn(5, 7, generator=draw), "count": torch.tensor(step)},
        "random": {"cpu": draw.get_state()[:61]},
    }


def facts(step: int) -> dict:
    return {"step": step, "loss": 1 / (step + 3), "best": float("inf"), "seeds": [1, 2**64]}


def is_whole(found: Checkpoint) -> bool:
    """Everything is as it was given, bit for bit."""
    same = found.facts == facts(found.step) and found.groups == ("model", "optimizer", "random")
    for group, named in tensors(found.step).items():
        back = found.read_tensors(group)
        same = same and back.keys() == named.keys() and all(torch.equal(back[name], named[name]) for name in named)
    return same


def save(store: CheckpointStore, step: int, *, best: bool = False) -> None:
    store.save(step, tensors(step), facts(step), best=best)


def silent(said: str) -> None:
    raise AssertionError(said)


def listed(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir()) if (run / "checkpoints").exists() else []


STORIES: dict[
    str, tuple[int, list[tuple[int, bool]]]
] = {  # how many are kept, then (step, best); the last one goes wrong
    "the first": (2, [(10, False)]),
    "the first, the best": (2, [(10, True)]),
    "the second": (2, [(10, False), (20, False)]),
    "the third, one goes": (2, [(10, False), (20, False), (30, False)]),
    "only one is kept": (1, [(10, False), (20, False)]),
    "the best stays": (1, [(10, True), (20, False), (30, False)]),
    "the best changes, two go": (1, [(10, True), (20, False), (30, True)]),
    "the same step again": (1, [(10, False), (20, False), (20, False)]),
    "the best again": (1, [(10, True), (10, True)]),
}


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in memory where there is one: these tests make and remove some ten thousand."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


@pytest.fixture(params=STORIES)
def story(request, home) -> "Story":
    return Story(home, *STORIES[request.param])


class Story:
    """A run up to its last save, to be told again from a copy with every possible end."""

    def __init__(self, home: Path, keep: int, saves: list[tuple[int, bool]]):
        self.home, self.keep, self.saves = home, keep, saves
        self.start, self.run = home / "start", home / "run"
        self.start.mkdir()
        store = CheckpointStore(self.start, max_to_keep=keep, disk=FaultyDisk())
        for step, best in saves[:-1]:
            save(store, step, best=best)
        self.before = self.seen(self.start)
        self.again()
        disk = FaultyDisk()
        self.finish(disk)
        self.operations = len(disk.log)
        self.after, self.tidy = self.seen(self.run), listed(self.run)

    def again(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.start, self.run)

    def finish(self, disk: FaultyDisk) -> None:
        step, best = self.saves[-1]
        save(CheckpointStore(self.run, max_to_keep=self.keep, disk=disk), step, best=best)

    def seen(self, run: Path) -> tuple[int | None, int | None]:
        """The steps of the newest and of the best, each found whole by a store that knows nothing of what happened."""
        store = CheckpointStore(run, max_to_keep=self.keep, disk=FaultyDisk())
        assert not [name for name in listed(run) if name.startswith(".")]
        steps = []
        for found in (store.read_newest(warn=silent), store.read_best(warn=silent)):
            assert found is None or is_whole(found)
            steps.append(None if found is None else found.step)
        return steps[0], steps[1]

    def check(self) -> None:
        """The checkpoint before or the new one is there, and the best before or the new one."""
        newest, best = self.seen(self.run)
        assert newest in (self.before[0], self.after[0])
        assert best in (self.before[1], self.after[1])

    def goes_on(self) -> None:
        """Saving again ends as if nothing had happened."""
        self.finish(FaultyDisk())
        assert (self.seen(self.run), listed(self.run)) == (self.after, self.tidy)


def test_stories_end_as_told(story):
    """What is kept is said by the arguments alone."""
    steps = sorted({step for step, _ in story.saves})
    marked = [step for step, best in story.saves if best][-1:]
    kept = sorted({*steps[-story.keep :], *marked})
    assert story.tidy == ["best.json"] * len(marked) + [f"step-{step:08d}" for step in kept]
    assert story.after == (steps[-1], marked[0] if marked else None)
    assert story.operations > 20


def test_a_crash_at_any_operation(story):
    for at in range(story.operations):
        story.again()
        with pytest.raises(Crash):
            story.finish(FaultyDisk(at, Crash()))
        story.check()
        story.goes_on()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_operation(story, number, lasting):
    """What was half written is gone at once, not at the next start, unless the disk is so broken that nothing can be removed."""
    for at in range(story.operations):
        story.again()
        disk = FaultyDisk(at, OSError(number, os.strerror(number)), lasting=lasting)
        with pytest.raises(OSError, match="full" if number == errno.ENOSPC else "Input/output") as caught:
            story.finish(disk)
        assert isinstance(caught.value, DiskFull) == (number == errno.ENOSPC)
        if not lasting or number == errno.ENOSPC:
            assert not [name for name in listed(story.run) if name.startswith(".")], disk.log
        story.check()


def test_a_used_up_share_is_a_full_disk(pair):
    disk = FaultyDisk(7, OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)))
    with pytest.raises(DiskFull, match="the disk is full"):
        save(CheckpointStore(pair, disk=disk), 3)
    assert listed(pair) == ["best.json", "step-00000001", "step-00000002"]


def power_cuts(story: Story, syncs: tuple[str, ...] = ("file", "directory")) -> Iterator[bool]:
    """Every operation at which the power can fail; unsynced changes are lost in all directories, in any one, or in none."""
    for at in range(story.operations + 1):
        chances: list[set[Path]] | None = None
        while chances is None or chances:
            story.again()
            shutil.rmtree(story.home / "bin", ignore_errors=True)
            disk = PowerCut(story.home / "bin", at, syncs=syncs)
            with suppress(Crash):
                story.finish(disk)
            if chances is None:
                touched = {entry.directory for entry in disk.entries}
                chances = [set(), *({one} for one in touched), *([touched] if len(touched) > 1 else [])]
            disk.lose(chances.pop())
            yield not chances


@pytest.mark.parametrize(
    "name", ["the first, the best", "the third, one goes", "the best changes, two go", "the same step again"]
)
def test_a_power_cut_at_any_operation(home, name):
    story = Story(home, *STORIES[name])
    for last in power_cuts(story):
        story.check()
        if last:
            story.goes_on()


@pytest.mark.parametrize("syncs", [("file",), ("directory",)])
def test_without_either_sync_a_power_cut_would_lose_all(home, syncs):
    """The test above can fail: it does when the disk forgets one kind of sync."""
    story = Story(home, *STORIES["only one is kept"])
    lost = 0
    for _ in power_cuts(story, syncs):
        lost += CheckpointStore(story.run).read_newest(warn=lambda said: None) is None
    assert lost


@pytest.mark.parametrize("target", ["nowhere", "step-00000009", "/dev/null"])
def test_a_link_in_place_of_a_checkpoint_is_a_damaged_one(home, target):
    """One that leads nowhere, to itself or to no directory: the one before is used, and the next save takes its place."""
    run = home / f"links-{len(target)}"
    save(CheckpointStore(run), 3)
    (run / "checkpoints" / "step-00000009").symlink_to(target)
    warned: list[str] = []
    found = CheckpointStore(run).read_newest(warn=warned.append)
    assert found is not None
    assert found.step == 3
    assert "step-00000009" in warned[0]
    store = CheckpointStore(run)
    save(store, 9)
    found = store.read_newest(warn=silent)
    assert found is not None
    assert found.step == 9
    assert is_whole(found)


KILLED = """
import os, random, signal, sys, time
import torch
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1])))
from test_checkpoint import CheckpointStore, is_whole, save, silent
torch.set_num_threads(1)
draw, run, last, caught = random.Random(int(sys.argv[3])), Path(sys.argv[2]), -1, 0
for trial in range(int(sys.argv[4])):
    ear, mouth = os.pipe()
    child = os.fork()
    if not child:
        store, step = CheckpointStore(run), last
        while True:
            os.write(mouth, b".")
            step += 1
            save(store, step, best=step % 3 == 0)
    for _ in range(draw.randint(1, 3)):
        os.read(ear, 1)
    time.sleep(draw.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ear)
    os.close(mouth)
    caught += any(path.name.startswith(".") for path in (run / "checkpoints").glob(".*"))
    store = CheckpointStore(run)
    found, best = store.read_newest(warn=silent), store.read_best(warn=silent)
    step = -1 if found is None else found.step
    assert step >= last, (step, last)
    assert (found is None or is_whole(found)) and (best is None or (is_whole(best) and best.step % 3 == 0))
    assert not list((run / "checkpoints").glob(".*"))
    last = step
print(last, caught)
"""


@pytest.mark.parametrize("trials", [20, pytest.param(400, marks=pytest.mark.nightly)])
def test_a_saving_process_can_be_killed(tmp_path, trials):
    """No step that a reader has once seen is ever lost again; the seed is 7."""
    args = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path), "7", str(trials)]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last, caught = map(int, done.stdout.split())
    assert last > trials // 2  # some saves were finished, and some kills came in the middle of one
    assert caught > trials // 10


# what is changed after it was written


@pytest.fixture
def pair(home) -> Path:
    """A run with two checkpoints, the second marked as the best."""
    store = CheckpointStore(home / "run")
    save(store, 1)
    save(store, 2, best=True)
    return home / "run"


def falls_back(run: Path, named: str) -> None:
    """The damage is seen and told by the name of the file, and the checkpoint before is used."""
    said: list[str] = []
    found = CheckpointStore(run).read_newest(warn=said.append)
    assert found is not None, said
    assert found.step == 1
    assert is_whole(found)
    assert len(said) == 1
    assert str(run / "checkpoints" / "step-00000002") in said[0]
    assert named in said[0]


def files(run: Path) -> list[Path]:
    found = sorted((run / "checkpoints" / "step-00000002").iterdir())
    assert [path.name for path in found] == [
        "facts.json",
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "random.safetensors",
    ]
    return found


def test_every_truncation_is_seen(pair, record_property):
    record_property("trials", 64 * len(files(pair)))
    for path in files(pair):
        content = path.read_bytes()
        for point in {len(content) * i // 64 for i in range(64)}:
            path.write_bytes(content[:point])
            falls_back(pair, path.name)
        path.write_bytes(content)
    assert CheckpointStore(pair).read_newest(warn=silent).step == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.nightly)])
def test_every_flipped_bit_is_seen(pair, count, record_property):
    record_property("trials", count)
    draw = random.Random(11)
    for _ in range(count):
        path = draw.choice(files(pair))
        content = path.read_bytes()
        place, bit = draw.randrange(len(content)), draw.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        falls_back(pair, path.name)
        path.write_bytes(content)
    assert CheckpointStore(pair).read_newest(warn=silent).step == 2  # type: ignore[union-attr]


def test_every_changed_byte_of_the_sealed_files_is_seen(pair):
    """No manifest vouches for these two, so every byte is tried; the format number is one of them."""
    for path in (pair / "checkpoints" / "step-00000002" / "manifest.json", pair / "checkpoints" / "best.json"):
        content = path.read_bytes()
        for place in range(len(content)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            said: list[str] = []
            assert CheckpointStore(pair).read_best(warn=said.append) is None
            assert len(said) == 1
            assert path.name in said[0]
        path.write_bytes(content)
    assert CheckpointStore(pair).read_best(warn=silent).step == 2  # type: ignore[union-attr]


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARM: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "a directory": replace_by_directory,
    "from the one before": lambda path: swap(path, path.parents[1] / "step-00000001" / path.name),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a loose link": lambda path: (path.unlink(), path.symlink_to("nowhere"))[1],
}


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("harm", [name for name in HARM if name != "from the one before"])
def test_harm_to_one_file_is_seen(pair, harm, index):
    path = files(pair)[index]
    HARM[harm](path)
    falls_back(pair, path.name)


def test_files_swapped_within_and_between_checkpoints_are_seen(pair):
    facts_, manifest, model, optimizer, randoms = files(pair)
    for one, other in ((model, optimizer), (facts_, randoms), (facts_, manifest)):
        swap(one, other)
        falls_back(pair, "step-00000002")
        swap(one, other)
    for path in (facts_, model, optimizer, randoms):  # the same name and size, of another step
        HARM["from the one before"](path)
        said: list[str] = []
        assert CheckpointStore(pair).read_newest(warn=said.append) is None
        assert len(said) == 3  # both are told, then that nothing is left
        assert "all 2 checkpoints are corrupt" in said[-1]
        HARM["from the one before"](path)
    swap(pair / "checkpoints" / "step-00000001", pair / "checkpoints" / "step-00000002")
    said = []
    assert CheckpointStore(pair).read_newest(warn=said.append) is None
    assert "belongs to step-00000001" in said[0]


def test_a_newer_format_is_refused_not_passed_over(pair):
    """Falling back would throw away what the newer saccade has done."""
    path = pair / "checkpoints" / "step-00000002" / "manifest.json"
    path.write_bytes(dump_with_checksum(load_with_checksum(path.read_bytes()) | {"format": 2}))
    with pytest.raises(
        ValueError, match=r"manifest.json: written by a newer saccade, in format 2; this one reads up to"
    ):
        CheckpointStore(pair).read_newest(warn=silent)


@pytest.mark.parametrize("body", [{}, {"format": "1"}, {"format": 1}, {"format": 1, "step": 2, "files": {"a": 3}}])
def test_a_sealed_manifest_of_something_else_is_damage(pair, body):
    (pair / "checkpoints" / "step-00000002" / "manifest.json").write_bytes(dump_with_checksum(body))
    falls_back(pair, "manifest.json")


def test_damaged_ones_do_not_count_as_kept(pair):
    """With a damaged 2, saving 3 must leave 1 as well: else there would be one where two were asked for."""
    files(pair)[2].write_bytes(b"")
    (pair / "checkpoints" / "best.json").unlink()
    store = CheckpointStore(pair, max_to_keep=2)
    assert store.read_newest(warn=lambda said: None).step == 1  # type: ignore[union-attr]
    save(store, 3)
    assert listed(pair) == ["step-00000001", "step-00000003"]
    save(store, 4)
    assert listed(pair) == ["step-00000003", "step-00000004"]


def test_a_damaged_one_is_replaced_when_its_step_comes_again(pair):
    files(pair)[2].write_bytes(b"")
    store = CheckpointStore(pair)
    assert store.read_newest(warn=lambda said: None).step == 1  # type: ignore[union-attr]
    save(store, 2)
    assert store.read_newest(warn=silent).step == 2  # type: ignore[union-attr]
    assert store.read_best(warn=silent).step == 2  # type: ignore[union-attr]
    assert listed(pair) == ["best.json", "step-00000001", "step-00000002"]


def test_nothing_goes_while_the_best_is_not_known(pair):
    (pair / "checkpoints" / "best.json").write_bytes(b"{}")
    store = CheckpointStore(pair, max_to_keep=1)
    save(store, 3)
    assert listed(pair) == ["best.json", *(f"step-0000000{i}" for i in (1, 2, 3))]
    save(store, 4, best=True)
    assert listed(pair) == ["best.json", "step-00000004"]


# room, and other processes


class Small(FaultyDisk):
    room = 0

    def free_bytes(self, path: Path) -> int:
        return self.room


def test_no_room_is_said_before_anything_is_written(pair):
    disk = Small()
    disk.room = 12_345
    with pytest.raises(DiskFull, match=r"Saving needs 0\.\d MB; 0\.0 MB are free\. Free some space") as caught:
        save(CheckpointStore(pair, disk=disk), 3)
    assert (caught.value.errno, caught.value.bytes_free) == (errno.ENOSPC, 12_345)
    assert caught.value.bytes_needed is not None
    assert disk.log == ["sync_directory"]
    disk.room = caught.value.bytes_needed
    with pytest.raises(DiskFull):
        save(CheckpointStore(pair, disk=disk), 3)
    disk.room += 1
    save(CheckpointStore(pair, disk=disk), 3)
    assert CheckpointStore(pair).read_newest(warn=silent).step == 3  # type: ignore[union-attr]


def test_need_is_what_is_written(pair):
    sizes = [-(-path.stat().st_size // 4096) for path in files(pair)]
    assert bytes_needed(tensors(2)) == 4096 * (sum(sizes) + 2)  # and the directory, and best.json


def test_a_living_writer_is_left_alone(pair):
    part = pair / "checkpoints" / ".part-step-00000003"
    part.mkdir()
    with lock_directory(pair / "checkpoints"):
        store = CheckpointStore(pair)
        assert part.exists()
        assert store.read_newest(warn=silent).step == 2  # type: ignore[union-attr]
        with pytest.raises(RunLocked, match="another process is saving here"):
            save(store, 3)
        assert part.exists()
    CheckpointStore(pair)
    assert not part.exists()


def test_a_reader_is_not_misled_by_a_writer_that_prunes(pair, monkeypatch):
    """Between its look at the directory and its look at the files, the checkpoint it has seen gives way to a newer one."""
    reader = CheckpointStore(pair, max_to_keep=1)
    seen = reader._list_steps

    def slow() -> dict[int, Path]:
        monkeypatch.setattr(reader, "_list_steps", seen)
        found = seen()
        save(CheckpointStore(pair, max_to_keep=1), 3, best=True)
        return found

    monkeypatch.setattr(reader, "_list_steps", slow)
    assert reader.read_newest(warn=silent).step == 3  # type: ignore[union-attr]


def test_what_is_not_ours_stays(pair):
    (pair / "checkpoints" / "notes.txt").write_text("mine")
    (pair / "checkpoints" / "step-1-copy").mkdir()
    save(CheckpointStore(pair, max_to_keep=1), 3, best=True)
    assert listed(pair) == ["best.json", "notes.txt", "step-00000003", "step-1-copy"]


def test_manifest_and_facts_are_plain_json(pair):
    facts_, manifest, *_ = files(pair)
    found = json.loads(manifest.read_bytes())
    assert (found["format"], found["step"]) == (1, 2)
    assert json.loads(facts_.read_bytes()) == {"step": 2, "loss": 0.2, "best": "float:inf", "seeds": [1, 2**64]}
    sums = subprocess.run(["sha256sum", *files(pair)], capture_output=True, text=True, check=True).stdout.split()
    for path, digest in zip(files(pair), sums[::2], strict=True):
        if path != manifest:
            assert found["files"][path.name] == {"size": path.stat().st_size, "sha256": digest}

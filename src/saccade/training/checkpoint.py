"""Checkpoints that are whole or not there: written aside, synced, renamed, and verified byte for byte before use."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.training.disk import (
    Disk,
    DiskFull,
    digest,
    is_full,
    locked,
    make_directory,
    remove_tree,
    replace_file,
    write_file,
)
from saccade.training.packing import check_tensors, length, pieces, seal, to_json
from saccade.training.run_lock import RunLocked
from saccade.training.verify import FORMAT, Checkpoint, Damaged, name_of, read, read_sealed

BLOCK = 4096  # bytes; what a file system rounds files up to
MARGIN = 1.05  # of the room needed, since others write too
Write = Callable[[Path, Mapping[str, Tensor]], None]
PART, ASIDE, GONE = ".part-", ".aside-", ".gone-"  # being written, making way for one of its step, being removed


def need(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """The bytes on disk of a checkpoint of these tensors, but for its facts."""
    blocks = [-(-length(named) // BLOCK) for named in tensors.values()]
    return BLOCK * (sum(blocks) + 4)  # the manifest, the facts and the directory, and one for the mark of the best


class Store:
    """The checkpoints of one run, in `checkpoints/` of its directory: the newest `keep`, and the best where one is marked.

    One process writes at a time; any number may read meanwhile. What a dead writer left half done is swept at the start.
    """

    def __init__(self, directory: Path, *, keep: int = 2, disk: Disk | None = None):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 checkpoint has to be kept to go on from.")
        self.directory, self.keep, self.disk = Path(directory) / "checkpoints", keep, disk or Disk()
        self._damaged: set[Path] = set()
        # no sweep while another writes, where nobody may write, and before there is anything
        with suppress(OSError), locked(self.directory):
            self._sweep()

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        facts: Mapping[str, Any],
        *,
        best: bool = False,
        write: Write | None = None,
    ) -> Path:
        """Write a checkpoint and only then remove what is older than the newest `keep`; the best so far is never removed.

        Raises DiskFull when there is no room. Whatever happens, the checkpoint before stays as it was. `write` fills the
        directory of a group where its tensors lie in several processes.
        """
        if step < 0:
            raise ValueError(f"step is {step}; steps are counted from 0.")
        for group, named in tensors.items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", group):
                raise ValueError(f"{group!r} cannot name a group of tensors; use lower case letters, digits, - and _.")
            check_tensors(group, named)
        content = to_json(facts, indent=1).encode()
        with self._writing(need(tensors) + len(content)):
            part = self._write(step, tensors, content, write)
            path = self._place(part, self.directory / name_of(step))
            if best:
                mark = {"format": FORMAT, "checkpoint": path.name}
                replace_file(self.disk, self.directory / "best.json", seal(mark))
            self._prune(step)
        return path

    def place(self, step: int) -> Path:
        """Where a checkpoint stands while it is written."""
        return self.directory / f"{PART}{name_of(step)}"

    def room(self, needed: int) -> None:
        """Raise DiskFull now, rather than hours later, where so many bytes do not fit."""
        where = self.directory if self.directory.is_dir() else self.directory.parent
        free = self.disk.free(where)
        if free < needed:
            raise DiskFull(where, needed=needed, free=free)

    def newest(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; each newer one that is not is told to `warn`."""
        found = self._found()
        for step in sorted(found, reverse=True):
            whole = self._whole(found[step], warn, "Using the one before.")
            if whole is not None:
                return whole
            if not os.path.lexists(found[step]):  # a writer has removed it since, so there is a newer one
                return self.newest(warn=warn)
        if found:
            warn(f"{self.directory}: none of the {len(found)} checkpoints is whole.")
        return None

    def best(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The checkpoint that was last marked as the best, if it is whole."""
        try:
            name = self._marked()
        except Damaged as error:
            warn(f"{error}. Which checkpoint was the best is not known.")
            return None
        return None if name is None else self._whole(self.directory / name, warn, "The best checkpoint is lost.")

    def _whole(self, path: Path, warn: Callable[[str], None], instead: str) -> Checkpoint | None:
        try:
            return read(path)
        except (Damaged, OSError) as error:
            if os.path.lexists(path):  # a link that leads nowhere too
                self._damaged.add(path)
                warn(f"{error}. {instead}")
            return None

    def _found(self) -> dict[int, Path]:
        """step -> directory, whole or not."""
        if not self.directory.is_dir():
            return {}
        named = ((re.fullmatch(r"step-(\d{8,})", path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in named if match}

    def _marked(self) -> str | None:
        path = self.directory / "best.json"
        return read_sealed(path).get("checkpoint") if path.exists() else None

    @contextmanager
    def _writing(self, needed: int) -> Iterator[None]:
        """Nobody else writes, and there is room; on an error what was half done is swept."""
        with ExitStack() as stack:
            try:
                make_directory(self.disk, self.directory)
                self.disk.sync_directory(self.directory.parent)  # whoever made it may have died before it lasted
                self._hold(stack)
                self._sweep()
                free = self.disk.free(self.directory)
                if free < needed * MARGIN:
                    raise DiskFull(self.directory, needed=int(needed * MARGIN), free=free)
                yield
            except RunLocked:
                raise
            except Exception as error:
                with suppress(OSError):
                    self._sweep()
                if isinstance(error, OSError) and is_full(error) and not isinstance(error, DiskFull):
                    raise DiskFull(self.directory, needed=int(needed * MARGIN), free=self._free()) from error
                raise

    def _hold(self, stack: ExitStack) -> None:
        try:
            stack.enter_context(locked(self.directory))
        except BlockingIOError as error:
            raise RunLocked(
                f"{self.directory}: another process is saving here; give each run its own directory."
            ) from error
        except OSError:  # the file system knows no locks: nothing to hold
            pass

    def _free(self) -> int | None:
        try:
            return self.disk.free(self.directory if self.directory.is_dir() else self.directory.parent)
        except OSError:
            return None

    def _write(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], facts: bytes, write: Write | None) -> Path:
        part = self.place(step)
        self.disk.mkdir(part)
        files = {}
        for group, named in tensors.items():
            if write is None:
                files[f"{group}.safetensors"] = write_file(self.disk, part / f"{group}.safetensors", pieces(named))
                continue
            self.disk.mkdir(part / group)
            write(part / group, named)
            self.disk.sync_directory(part / group)
            files |= {f"{group}/{path.name}": digest(path) for path in sorted((part / group).iterdir())}
        files["facts.json"] = write_file(self.disk, part / "facts.json", [memoryview(facts)])
        manifest = seal({"format": FORMAT, "step": step, "files": files})
        write_file(self.disk, part / "manifest.json", [memoryview(manifest)])
        self.disk.sync_directory(part)
        return part

    def _place(self, part: Path, path: Path) -> Path:
        """Give a finished checkpoint its name; one of the same step steps aside until that has lasted."""
        aside = path.with_name(f"{ASIDE}{path.name}")
        if os.path.lexists(path):
            self.disk.rename(path, aside)
        self.disk.rename(part, path)
        self.disk.sync_directory(self.directory)
        self._damaged.discard(path)
        if os.path.lexists(aside):
            remove_tree(self.disk, aside)
        return path

    def _prune(self, step: int) -> None:
        """Remove the older ones; damaged ones do not count as kept, and nothing goes while the best is not known."""
        try:
            marked = self._marked()
        except Damaged:
            return
        found = {number: path for number, path in self._found().items() if number <= step}
        kept = sorted((number for number in found if found[number] not in self._damaged), reverse=True)[: self.keep]
        for number, path in found.items():
            if number not in kept and path.name != marked:
                gone = path.with_name(f"{GONE}{path.name}")
                self.disk.rename(path, gone)  # in one stroke, so that no half of it is ever taken for a checkpoint
                remove_tree(self.disk, gone)

    def _sweep(self) -> None:
        """Put back what stepped aside in vain, and remove what was half written or half removed."""
        for path in sorted(self.directory.iterdir()):
            back = path.with_name(path.name.removeprefix(ASIDE))
            if path.name.startswith(ASIDE) and not os.path.lexists(back):
                self.disk.rename(path, back)
                self.disk.sync_directory(self.directory)
            elif path.name.startswith((PART, ASIDE, GONE)):
                remove_tree(self.disk, path)

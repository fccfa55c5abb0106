"""Checkpoints that are whole or not there: written aside, synced, renamed, and verified byte for byte before use."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.training.checkpoint.disk import (
    Disk,
    DiskFull,
    hash_with_size,
    is_disk_full_error,
    lock_directory,
    make_directory,
    remove_tree,
    replace_file,
    write_file,
)
from saccade.training.checkpoint.read import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CorruptCheckpoint,
    checkpoint_name,
    read_checkpoint,
    read_with_checksum,
)
from saccade.training.checkpoint.run_lock import RunLocked
from saccade.training.checkpoint.serialize import (
    check_tensors,
    dump_with_checksum,
    safetensors_chunks,
    safetensors_size,
    to_json,
)

BLOCK_BYTES = 4096  # bytes; what a file system rounds files up to
FREE_SPACE_MARGIN = 1.05  # of the room needed, since others write too
GroupWriter = Callable[[Path, Mapping[str, Tensor]], None]
PARTIAL_PREFIX, REPLACED_PREFIX, REMOVED_PREFIX = (
    ".part-",
    ".aside-",
    ".gone-",
)  # being written, making way for one of its step, being removed


def bytes_needed(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """The bytes on disk of a checkpoint of these tensors, but for its facts."""
    blocks = [-(-safetensors_size(named) // BLOCK_BYTES) for named in tensors.values()]
    return BLOCK_BYTES * (
        sum(blocks) + 4
    )  # the manifest, the facts and the directory, and one for the mark of the best


class CheckpointStore:
    """The checkpoints of one run, in `checkpoints/` of its directory: the newest `keep`, and the best where one is marked.

    One process writes at a time; any number may read meanwhile. What a dead writer left half done is swept at the start.
    """

    def __init__(self, directory: Path, *, max_to_keep: int = 2, disk: Disk | None = None):
        if max_to_keep < 1:
            raise ValueError(f"keep is {max_to_keep}; at least 1 checkpoint has to be kept to go on from.")
        self.directory, self.max_to_keep, self.disk = Path(directory) / "checkpoints", max_to_keep, disk or Disk()
        self._corrupt_paths: set[Path] = set()
        # no sweep while another writes, where nobody may write, and before there is anything
        with suppress(OSError), lock_directory(self.directory):
            self._remove_leftovers()

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        facts: Mapping[str, Any],
        *,
        best: bool = False,
        write_group: GroupWriter | None = None,
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
        with self._lock_and_check_space(bytes_needed(tensors) + len(content)):
            part = self._write_files(step, tensors, content, write_group)
            path = self._commit(part, self.directory / checkpoint_name(step))
            if best:
                mark = {"format": CHECKPOINT_FORMAT, "checkpoint": path.name}
                replace_file(self.disk, self.directory / "best.json", dump_with_checksum(mark))
            self._remove_old(step)
        return path

    def temporary_path(self, step: int) -> Path:
        """Where a checkpoint stands while it is written."""
        return self.directory / f"{PARTIAL_PREFIX}{checkpoint_name(step)}"

    def check_free_space(self, bytes_needed: int) -> None:
        """Raise DiskFull now, rather than hours later, where so many bytes do not fit."""
        where = self.directory if self.directory.is_dir() else self.directory.parent
        free = self.disk.free_bytes(where)
        if free < bytes_needed:
            raise DiskFull(where, bytes_needed=bytes_needed, bytes_free=free)

    def read_newest(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; each newer one that is not is told to `warn`."""
        found = self._list_steps()
        for step in sorted(found, reverse=True):
            whole = self._read_or_warn(found[step], warn, "Using the one before.")
            if whole is not None:
                return whole
            if not os.path.lexists(found[step]):  # a writer has removed it since, so there is a newer one
                return self.read_newest(warn=warn)
        if found:
            warn(f"{self.directory}: none of the {len(found)} checkpoints is whole.")
        return None

    def read_best(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The checkpoint that was last marked as the best, if it is whole."""
        try:
            name = self._read_best_name()
        except CorruptCheckpoint as error:
            warn(f"{error}. Which checkpoint was the best is not known.")
            return None
        return None if name is None else self._read_or_warn(self.directory / name, warn, "The best checkpoint is lost.")

    def _read_or_warn(self, path: Path, warn: Callable[[str], None], instead: str) -> Checkpoint | None:
        try:
            return read_checkpoint(path)
        except (CorruptCheckpoint, OSError) as error:
            if os.path.lexists(path):  # a link that leads nowhere too
                self._corrupt_paths.add(path)
                warn(f"{error}. {instead}")
            return None

    def _list_steps(self) -> dict[int, Path]:
        """step -> directory, whole or not."""
        if not self.directory.is_dir():
            return {}
        named = ((re.fullmatch(r"step-(\d{8,})", path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in named if match}

    def _read_best_name(self) -> str | None:
        path = self.directory / "best.json"
        return read_with_checksum(path).get("checkpoint") if path.exists() else None

    @contextmanager
    def _lock_and_check_space(self, bytes_needed: int) -> Iterator[None]:
        """Nobody else writes, and there is room; on an error what was half done is swept."""
        with ExitStack() as stack:
            try:
                make_directory(self.disk, self.directory)
                self.disk.sync_directory(self.directory.parent)  # whoever made it may have died before it lasted
                self._acquire_lock(stack)
                self._remove_leftovers()
                free = self.disk.free_bytes(self.directory)
                if free < bytes_needed * FREE_SPACE_MARGIN:
                    raise DiskFull(self.directory, bytes_needed=int(bytes_needed * FREE_SPACE_MARGIN), bytes_free=free)
                yield
            except RunLocked:
                raise
            except Exception as error:
                with suppress(OSError):
                    self._remove_leftovers()
                if isinstance(error, OSError) and is_disk_full_error(error) and not isinstance(error, DiskFull):
                    raise DiskFull(
                        self.directory,
                        bytes_needed=int(bytes_needed * FREE_SPACE_MARGIN),
                        bytes_free=self._free_bytes(),
                    ) from error
                raise

    def _acquire_lock(self, stack: ExitStack) -> None:
        try:
            stack.enter_context(lock_directory(self.directory))
        except BlockingIOError as error:
            raise RunLocked(
                f"{self.directory}: another process is saving here; give each run its own directory."
            ) from error
        except OSError:  # the file system knows no locks: nothing to hold
            pass

    def _free_bytes(self) -> int | None:
        try:
            return self.disk.free_bytes(self.directory if self.directory.is_dir() else self.directory.parent)
        except OSError:
            return None

    def _write_files(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], facts: bytes, write: GroupWriter | None
    ) -> Path:
        part = self.temporary_path(step)
        self.disk.mkdir(part)
        files = {}
        for group, named in tensors.items():
            if write is None:
                files[f"{group}.safetensors"] = write_file(
                    self.disk, part / f"{group}.safetensors", safetensors_chunks(named)
                )
                continue
            self.disk.mkdir(part / group)
            write(part / group, named)
            self.disk.sync_directory(part / group)
            files |= {f"{group}/{path.name}": hash_with_size(path) for path in sorted((part / group).iterdir())}
        files["facts.json"] = write_file(self.disk, part / "facts.json", [memoryview(facts)])
        manifest = dump_with_checksum({"format": CHECKPOINT_FORMAT, "step": step, "files": files})
        write_file(self.disk, part / "manifest.json", [memoryview(manifest)])
        self.disk.sync_directory(part)
        return part

    def _commit(self, part: Path, path: Path) -> Path:
        """Give a finished checkpoint its name; one of the same step steps aside until that has lasted."""
        aside = path.with_name(f"{REPLACED_PREFIX}{path.name}")
        if os.path.lexists(path):
            self.disk.rename(path, aside)
        self.disk.rename(part, path)
        self.disk.sync_directory(self.directory)
        self._corrupt_paths.discard(path)
        if os.path.lexists(aside):
            remove_tree(self.disk, aside)
        return path

    def _remove_old(self, step: int) -> None:
        """Remove the older ones; damaged ones do not count as kept, and nothing goes while the best is not known."""
        try:
            marked = self._read_best_name()
        except CorruptCheckpoint:
            return
        found = {number: path for number, path in self._list_steps().items() if number <= step}
        kept = sorted((number for number in found if found[number] not in self._corrupt_paths), reverse=True)[
            : self.max_to_keep
        ]
        for number, path in found.items():
            if number not in kept and path.name != marked:
                gone = path.with_name(f"{REMOVED_PREFIX}{path.name}")
                self.disk.rename(path, gone)  # in one stroke, so that no half of it is ever taken for a checkpoint
                remove_tree(self.disk, gone)

    def _remove_leftovers(self) -> None:
        """Put back what stepped aside in vain, and remove what was half written or half removed."""
        for path in sorted(self.directory.iterdir()):
            back = path.with_name(path.name.removeprefix(REPLACED_PREFIX))
            if path.name.startswith(REPLACED_PREFIX) and not os.path.lexists(back):
                self.disk.rename(path, back)
                self.disk.sync_directory(self.directory)
            elif path.name.startswith((PARTIAL_PREFIX, REPLACED_PREFIX, REMOVED_PREFIX)):
                remove_tree(self.disk, path)

"""Atomic checkpoints: written under a temporary name, synced, renamed, and verified by checksum before use."""

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

BLOCK_BYTES = 4096  # file systems round file sizes up to a multiple of this
FREE_SPACE_MARGIN = 1.05  # factor on the space needed, since other processes write too
GroupWriter = Callable[[Path, Mapping[str, Tensor]], None]
# prefixes of checkpoints that are being written, replaced by another of the same step, or removed
PARTIAL_PREFIX, REPLACED_PREFIX, REMOVED_PREFIX = ".part-", ".aside-", ".gone-"


def bytes_needed(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """The size on disk, in bytes, of a checkpoint with these tensors, without the content of its facts."""
    blocks = [-(-safetensors_size(group) // BLOCK_BYTES) for group in tensors.values()]
    return BLOCK_BYTES * (sum(blocks) + 4)  # plus manifest, facts, directory and best.json


class CheckpointStore:
    """The checkpoints of a run, in `checkpoints/` of its directory: the newest `max_to_keep`, and the best one.

    One process writes at a time; any number may read meanwhile. What a killed process left unfinished is cleaned up first.
    """

    def __init__(self, directory: Path, *, max_to_keep: int = 2, disk: Disk | None = None):
        if max_to_keep < 1:
            raise ValueError(f"max_to_keep is {max_to_keep}; at least 1 checkpoint is needed to resume from.")
        self.directory, self.max_to_keep, self.disk = Path(directory) / "checkpoints", max_to_keep, disk or Disk()
        self._corrupt_paths: set[Path] = set()
        # skipped if another process is writing, the directory is read-only, or it does not exist yet
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
        """Write a checkpoint, then remove those older than the newest `max_to_keep`; the best one is never removed.

        Raises DiskFull if there is not enough space. Whatever happens, the previous checkpoint remains intact. `write_group`
        writes the files of a group whose tensors are sharded over several processes.
        """
        if step < 0:
            raise ValueError(f"step is {step}; steps are counted from 0.")
        for group, group_tensors in tensors.items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", group):
                raise ValueError(
                    f"{group!r} is not a valid name for a group of tensors; use lower case letters, digits, - and _."
                )
            check_tensors(group, group_tensors)
        content = to_json(facts, indent=1).encode()
        with self._lock_and_check_space(bytes_needed(tensors) + len(content)):
            partial_path = self._write_files(step, tensors, content, write_group)
            path = self._commit(partial_path, self.directory / checkpoint_name(step))
            if best:
                mark = {"format": CHECKPOINT_FORMAT, "checkpoint": path.name}
                replace_file(self.disk, self.directory / "best.json", dump_with_checksum(mark))
            self._remove_old(step)
        return path

    def temporary_path(self, step: int) -> Path:
        """The path of a checkpoint while it is being written."""
        return self.directory / f"{PARTIAL_PREFIX}{checkpoint_name(step)}"

    def check_free_space(self, bytes_needed: int) -> None:
        """Raise DiskFull if fewer bytes are free, before training rather than hours later."""
        where = self.directory if self.directory.is_dir() else self.directory.parent
        free = self.disk.free_bytes(where)
        if free < bytes_needed:
            raise DiskFull(where, bytes_needed=bytes_needed, bytes_free=free)

    def read_newest(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest valid checkpoint; `warn` is called for each newer one that is corrupt."""
        paths = self._list_steps()
        for step in sorted(paths, reverse=True):
            checkpoint = self._read_or_warn(paths[step], warn, "Using the one before.")
            if checkpoint is not None:
                return checkpoint
            if not os.path.lexists(paths[step]):  # removed by a writer meanwhile, so there is a newer one
                return self.read_newest(warn=warn)
        if paths:
            warn(f"{self.directory}: all {len(paths)} checkpoints are corrupt.")
        return None

    def read_best(self, *, warn: Callable[[str], None]) -> Checkpoint | None:
        """The best checkpoint, if there is one and it is valid."""
        try:
            name = self._read_best_name()
        except CorruptCheckpoint as error:
            warn(f"{error}. The best checkpoint is unknown.")
            return None
        return None if name is None else self._read_or_warn(self.directory / name, warn, "The best checkpoint is lost.")

    def _read_or_warn(self, path: Path, warn: Callable[[str], None], consequence: str) -> Checkpoint | None:
        try:
            return read_checkpoint(path)
        except (CorruptCheckpoint, OSError) as error:
            if os.path.lexists(path):  # also true of a broken symbolic link
                self._corrupt_paths.add(path)
                warn(f"{error}. {consequence}")
            return None

    def _list_steps(self) -> dict[int, Path]:
        """step -> directory, valid or not."""
        if not self.directory.is_dir():
            return {}
        matches = ((re.fullmatch(r"step-(\d{8,})", path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in matches if match}

    def _read_best_name(self) -> str | None:
        path = self.directory / "best.json"
        return read_with_checksum(path).get("checkpoint") if path.exists() else None

    @contextmanager
    def _lock_and_check_space(self, bytes_needed: int) -> Iterator[None]:
        """Hold the lock and check free space; removes unfinished files after an error."""
        with ExitStack() as stack:
            try:
                make_directory(self.disk, self.directory)
                self.disk.sync_directory(self.directory.parent)  # its creator may have died before syncing it
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
        except OSError:  # the file system does not support locks
            pass

    def _free_bytes(self) -> int | None:
        try:
            return self.disk.free_bytes(self.directory if self.directory.is_dir() else self.directory.parent)
        except OSError:
            return None

    def _write_files(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], facts: bytes, write: GroupWriter | None
    ) -> Path:
        partial_path = self.temporary_path(step)
        self.disk.mkdir(partial_path)
        files = {}
        for group, group_tensors in tensors.items():
            if write is None:
                files[f"{group}.safetensors"] = write_file(
                    self.disk, partial_path / f"{group}.safetensors", safetensors_chunks(group_tensors)
                )
                continue
            self.disk.mkdir(partial_path / group)
            write(partial_path / group, group_tensors)
            self.disk.sync_directory(partial_path / group)
            files |= {f"{group}/{path.name}": hash_with_size(path) for path in sorted((partial_path / group).iterdir())}
        files["facts.json"] = write_file(self.disk, partial_path / "facts.json", [memoryview(facts)])
        manifest = dump_with_checksum({"format": CHECKPOINT_FORMAT, "step": step, "files": files})
        write_file(self.disk, partial_path / "manifest.json", [memoryview(manifest)])
        self.disk.sync_directory(partial_path)
        return partial_path

    def _commit(self, partial_path: Path, path: Path) -> Path:
        """Rename a finished checkpoint to its final name; an older one of the same step is kept until that is synced."""
        replaced = path.with_name(f"{REPLACED_PREFIX}{path.name}")
        if os.path.lexists(path):
            self.disk.rename(path, replaced)
        self.disk.rename(partial_path, path)
        self.disk.sync_directory(self.directory)
        self._corrupt_paths.discard(path)
        if os.path.lexists(replaced):
            remove_tree(self.disk, replaced)
        return path

    def _remove_old(self, step: int) -> None:
        """Remove old checkpoints; corrupt ones do not count as kept, and none is removed while the best is unknown."""
        try:
            best_name = self._read_best_name()
        except CorruptCheckpoint:
            return
        paths = {number: path for number, path in self._list_steps().items() if number <= step}
        valid = sorted((number for number, path in paths.items() if path not in self._corrupt_paths), reverse=True)
        for number, path in paths.items():
            if number not in valid[: self.max_to_keep] and path.name != best_name:
                removed = path.with_name(f"{REMOVED_PREFIX}{path.name}")
                self.disk.rename(
                    path, removed
                )  # atomically, so that a half-removed one is never taken for a checkpoint
                remove_tree(self.disk, removed)

    def _remove_leftovers(self) -> None:
        """Restore a replaced checkpoint whose successor is missing; remove what was half written or half removed."""
        for path in sorted(self.directory.iterdir()):
            original = path.with_name(path.name.removeprefix(REPLACED_PREFIX))
            if path.name.startswith(REPLACED_PREFIX) and not os.path.lexists(original):
                self.disk.rename(path, original)
                self.disk.sync_directory(self.directory)
            elif path.name.startswith((PARTIAL_PREFIX, REPLACED_PREFIX, REMOVED_PREFIX)):
                remove_tree(self.disk, path)

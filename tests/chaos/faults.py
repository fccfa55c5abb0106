"""A disk that fails when told to: at the n-th operation it crashes, reports an error, or loses power."""

import errno
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from saccade.training.checkpoint.disk import Disk


class Crash(BaseException):
    """The process dies here: nothing may catch this and tidy up."""


class FaultyDisk(Disk):
    """Counts its operations, and raises `fault` at number `at`; a write that fails has written half.

    With `lasting`, an error comes back at every later operation of its kind: a full disk stays full, a broken one broken.
    Nothing is really synced, since nobody pulls the plug of the machine that runs the test.
    """

    def __init__(self, at: int | None = None, fault: BaseException | None = None, *, lasting: bool = False):
        self.at, self.fault, self.lasting = at, fault, lasting
        self.log: list[str] = []

    def fails(self, operation: str) -> bool:
        self.log.append(operation)
        now = len(self.log) - 1
        if self.at is None or now < self.at:
            return False
        if now == self.at:
            return True
        full = isinstance(self.fault, OSError) and self.fault.errno == errno.ENOSPC
        return self.lasting and (not full or operation in ("create", "write", "mkdir"))

    def act(self, operation: str) -> None:
        if self.fails(operation):
            assert self.fault is not None
            raise self.fault

    def create(self, path: Path) -> FileIO:
        self.act("create")
        return super().create(path)

    def write(self, file: FileIO, piece: memoryview) -> None:
        if self.fails("write"):
            super().write(file, piece[: len(piece) // 2])
            assert self.fault is not None
            raise self.fault
        super().write(file, piece)

    def sync(self, file: FileIO) -> None:
        self.act("sync")

    def sync_directory(self, path: Path) -> None:
        self.act("sync_directory")

    def rename(self, old: Path, new: Path) -> None:
        self.act("rename")
        super().rename(old, new)

    def mkdir(self, path: Path) -> None:
        self.act("mkdir")
        super().mkdir(path)

    def remove(self, path: Path) -> None:
        self.act("remove")
        super().remove(path)


@dataclass
class Entry:
    """A change to a directory that has not been synced yet: a name came, a name went to `bin`, or `old` became `name`."""

    directory: Path
    name: str
    old: Path | None = None
    bin: Path | None = None

    @property
    def path(self) -> Path:
        return self.directory / self.name


class PowerCut(FaultyDisk):
    """A disk that, when the power fails, forgets all that was not synced, as the standard allows it to.

    `syncs` says which kinds of sync really happen, so that a test can show that each is needed.
    """

    def __init__(self, bin: Path, at: int | None = None, *, syncs: tuple[str, ...] = ("file", "directory")):
        super().__init__(at, Crash())
        self.bin, self.syncs = bin, syncs
        self.entries: list[Entry] = []
        self.unsynced: dict[int, Path] = {}  # inode -> where it was made

    def create(self, path: Path) -> FileIO:
        fresh = not path.exists()
        file = super().create(path)
        if fresh:
            self.entries.append(Entry(path.parent, path.name))
        self.unsynced[os.fstat(file.fileno()).st_ino] = path
        return file

    def sync(self, file: FileIO) -> None:
        super().sync(file)
        if "file" in self.syncs:
            self.unsynced.pop(os.fstat(file.fileno()).st_ino)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if "directory" in self.syncs:
            gone = [entry.path for entry in self.entries if entry.directory == path and not entry.path.exists()]
            self.entries = [  # what happened inside a directory that is gone for good no longer matters
                entry
                for entry in self.entries
                if entry.directory != path and not any(entry.directory.is_relative_to(other) for other in gone)
            ]

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self.entries.append(Entry(path.parent, path.name))

    def rename(self, old: Path, new: Path) -> None:
        kept = self._bin(new) if new.exists() else None
        super().rename(old, new)
        self._moved(old, new)
        self.entries.append(Entry(new.parent, new.name, old=old, bin=kept))

    def remove(self, path: Path) -> None:
        kept = self._bin(path)
        super().remove(path)
        self.entries.append(Entry(path.parent, path.name, bin=kept))

    def _bin(self, path: Path) -> Path:
        kept = self.bin / str(len(self.log))
        self.bin.mkdir(exist_ok=True)
        if path.is_dir():
            kept.mkdir()
        else:
            shutil.copy2(path, kept)
        return kept

    def _moved(self, old: Path, new: Path) -> None:
        for entry in self.entries:
            if entry.directory.is_relative_to(old):
                entry.directory = new / entry.directory.relative_to(old)
        for inode, path in self.unsynced.items():
            if path.is_relative_to(old):
                self.unsynced[inode] = new / path.relative_to(old)

    def lose(self, directories: Collection[Path]) -> None:
        """The power is gone and back: unsynced files are torn, unsynced changes of these directories never happened."""
        for path in self.unsynced.values():
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        for entry in reversed([entry for entry in self.entries if entry.directory in directories]):
            if not entry.directory.exists():
                continue
            if entry.old is not None:
                os.rename(entry.path, entry.old)
                self._moved(entry.path, entry.old)
            elif entry.bin is None:
                shutil.rmtree(entry.path) if entry.path.is_dir() else entry.path.unlink()
            if entry.bin is not None:
                shutil.move(entry.bin, entry.path)

"""`saccade data get NAME` of a set: from where its makers document it, or from a local copy, with the same checks."""

import hashlib
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.data.catalog import BYTES_PER_MEGABYTE, DatasetFile, DatasetInfo
from saccade.errors import DataError

if TYPE_CHECKING:
    from saccade.models.io.hub import Download

Fetch = Callable[["Download", Path, Callable[[int, int], None]], None]
MAX_UNZIP_RATIO = 20  # times as large as its zip a file may be


def get_dataset(entry: DatasetInfo, out: Path, mirror: Path | None) -> list[Path]:
    """The files of a set in a directory, those that are there already left as they are; says the licence."""
    print(f"{entry.name}: {entry.description}\nlicence    {entry.license}\nsource     {entry.homepage}")
    out.mkdir(parents=True, exist_ok=True)
    if mirror is not None:
        return [_copy_from_mirror(file, entry, out, mirror) for file in entry.files]
    if not entry.is_downloadable:
        names = ", ".join(file.name for file in entry.files)
        raise DataError(
            f"{entry.name} is not downloaded: its licence ({entry.license}) or its makers leave that to you",
            hint=f"fetch {names} as {entry.homepage} says, and give their directory with --mirror DIR",
        )
    print("note       the address is the one that the source documents; it was not tried when this was written")
    there = [file for file in entry.files if (out / file.name).is_file()]
    for file in there:
        print(f"there      {out / file.name}")
    missing = [file for file in entry.files if file not in there]
    for url in dict.fromkeys(file.url for file in missing):
        _download_files([file for file in missing if file.url == url], out)
    return [out / file.name for file in entry.files]


def _download_files(files: Sequence[DatasetFile], out: Path) -> None:
    """One address: a file, or a zip with several."""
    from saccade.models.io.hub import Download, download

    first = files[0]
    zipped = bool(first.zip_member)
    path = out / (first.url.rpartition("/")[2] if zipped else first.name)
    digest = "" if zipped else first.sha256  # that of a file in a zip is of what comes out of it
    download(Download(first.url, first.max_megabytes * BYTES_PER_MEGABYTE, digest), path, _make_progress_printer(path))
    if zipped:
        try:
            for file in files:
                _unzip_member(path, file, out)
        finally:
            path.unlink()
    for file in files:
        print(f"written    {out / file.name}, {(out / file.name).stat().st_size:,} bytes")


def _unzip_member(path: Path, file: DatasetFile, out: Path) -> None:
    """One file of a zip, by its name inside; nothing else of the zip is written anywhere."""
    try:
        with zipfile.ZipFile(path) as packed:
            info = packed.getinfo(file.zip_member)
            if info.file_size > MAX_UNZIP_RATIO * max(BYTES_PER_MEGABYTE, path.stat().st_size):
                what = f"{file.zip_member} unpacks to {info.file_size:,} bytes, as no real text does"
                raise DataError(what, file=path, hint="unpack it yourself if you trust it, and use --mirror DIR")
            part = out / f".{file.name}.part"
            try:
                with packed.open(info) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target)
                _check_digest(part, file)
                part.replace(out / file.name)
            finally:
                part.unlink(missing_ok=True)
    except (zipfile.BadZipFile, KeyError) as error:
        what = f"is no zip with {file.zip_member} in it ({error})"
        raise DataError(what, file=path, hint="fetch it yourself, and give the directory with --mirror DIR") from None


def _copy_from_mirror(file: DatasetFile, entry: DatasetInfo, out: Path, mirror: Path) -> Path:
    """A file of a local copy, plain or as .gz, from the directory or from one in it that is named like the set."""
    names = (file.name, f"{file.name}.gz", file.name.removesuffix(".gz"))
    places = [folder / name for folder in (mirror / entry.name, mirror) for name in names]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        cure = f"put it there, or into {mirror / entry.name}; it may be packed as {file.name.removesuffix('.gz')}.gz"
        raise DataError(f"has no {file.name}", file=mirror, hint=cure)
    size = found.stat().st_size
    if size > file.max_megabytes * BYTES_PER_MEGABYTE:
        what = f"has {size:,} bytes where at most {file.max_megabytes} MB are expected"
        raise DataError(what, file=found, hint="check that it is the right file")
    if found.name == file.name:
        _check_digest(found, file)
    part = out / f".{found.name}.part"
    shutil.copyfile(found, part)
    part.replace(out / found.name)
    print(f"written    {out / found.name}, {size:,} bytes")
    return out / found.name


def _check_digest(path: Path, file: DatasetFile) -> None:
    """Refuse what is not the published file, where its digest is known."""
    if not file.sha256:
        return
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256:
        what = f"its SHA-256 is {digest}, not {file.sha256}"
        raise DataError(what, file=path, hint="it is not the published file; fetch that")


def _make_progress_printer(path: Path) -> Callable[[int, int], None]:
    """Progress on a terminal, in one line; elsewhere nothing."""

    def told(done: int, all: int) -> None:
        if sys.stderr.isatty():
            share = f" of {all / BYTES_PER_MEGABYTE:.1f}" if all else ""
            print(
                f"\r{path.name}  {done / BYTES_PER_MEGABYTE:.1f}{share} MB ",
                end="\n" if done == all else "",
                file=sys.stderr,
            )

    return told

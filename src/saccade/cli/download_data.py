"""`saccade data get NAME` of a public dataset: download it from its documented source, or copy it from a local mirror."""

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
MAX_UNZIP_RATIO = 20  # maximum compression ratio of a file in a zip archive


def get_dataset(entry: DatasetInfo, out: Path, mirror: Path | None) -> list[Path]:
    """Print the license of a dataset and get its files into a directory; files that exist there are kept."""
    print(f"{entry.name}: {entry.description}\nlicense    {entry.license}\nsource     {entry.homepage}")
    out.mkdir(parents=True, exist_ok=True)
    if mirror is not None:
        return [_copy_from_mirror(file, entry, out, mirror) for file in entry.files]
    if not entry.is_downloadable:
        names = ", ".join(file.name for file in entry.files)
        raise DataError(
            f"{entry.name} cannot be downloaded automatically: its license ({entry.license}) or its authors do not allow it",
            hint=f"get {names} from {entry.homepage} yourself, and give their directory with --mirror DIR",
        )
    print("note       the download address is the one that the source documents; it may have changed")
    existing = [file for file in entry.files if (out / file.name).is_file()]
    for file in existing:
        print(f"exists     {out / file.name}")
    missing = [file for file in entry.files if file not in existing]
    for url in dict.fromkeys(file.url for file in missing):
        _download_files([file for file in missing if file.url == url], out)
    return [out / file.name for file in entry.files]


def _download_files(files: Sequence[DatasetFile], out: Path) -> None:
    """Download one URL: a file, or a zip archive with several."""
    from saccade.models.io.hub import Download, download

    first = files[0]
    is_zip = bool(first.zip_member)
    path = out / (first.url.rpartition("/")[2] if is_zip else first.name)
    digest = "" if is_zip else first.sha256  # digests of files in a zip archive are those of the extracted files
    download(Download(first.url, first.max_megabytes * BYTES_PER_MEGABYTE, digest), path, _make_progress_printer(path))
    if is_zip:
        try:
            for file in files:
                _unzip_member(path, file, out)
        finally:
            path.unlink()
    for file in files:
        print(f"written    {out / file.name}, {(out / file.name).stat().st_size:,} bytes")


def _unzip_member(path: Path, file: DatasetFile, out: Path) -> None:
    """Extract one file of a zip archive by its name; nothing else of the archive is written."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(file.zip_member)
            if info.file_size > MAX_UNZIP_RATIO * max(BYTES_PER_MEGABYTE, path.stat().st_size):
                problem = f"{file.zip_member} unpacks to {info.file_size:,} bytes, too many for a text (a zip bomb?)"
                raise DataError(problem, file=path, hint="unpack it yourself if you trust it, and use --mirror DIR")
            part = out / f".{file.name}.part"
            try:
                with archive.open(info) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target)
                _check_digest(part, file)
                part.replace(out / file.name)
            finally:
                part.unlink(missing_ok=True)
    except (zipfile.BadZipFile, KeyError) as error:
        problem = f"is not a zip archive with {file.zip_member} ({error})"
        hint = "download it yourself, and give its directory with --mirror DIR"
        raise DataError(problem, file=path, hint=hint) from None


def _copy_from_mirror(file: DatasetFile, entry: DatasetInfo, out: Path, mirror: Path) -> Path:
    """Copy a file, plain or as .gz, from the mirror or its subdirectory with the name of the dataset."""
    names = (file.name, f"{file.name}.gz", file.name.removesuffix(".gz"))
    candidates = [folder / name for folder in (mirror / entry.name, mirror) for name in names]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        compressed = f"{file.name.removesuffix('.gz')}.gz"
        hint = f"copy it there, or into {mirror / entry.name}; it may be compressed as {compressed}"
        raise DataError(f"has no {file.name}", file=mirror, hint=hint)
    size = path.stat().st_size
    if size > file.max_megabytes * BYTES_PER_MEGABYTE:
        problem = f"has {size:,} bytes; at most {file.max_megabytes} MB are expected"
        raise DataError(problem, file=path, hint="check that it is the right file")
    if path.name == file.name:
        _check_digest(path, file)
    part = out / f".{path.name}.part"
    shutil.copyfile(path, part)
    part.replace(out / path.name)
    print(f"written    {out / path.name}, {size:,} bytes")
    return out / path.name


def _check_digest(path: Path, file: DatasetFile) -> None:
    """Raise a DataError unless the file has the published SHA-256, if there is one."""
    if not file.sha256:
        return
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256:
        problem = f"its SHA-256 is {digest}, not {file.sha256}"
        raise DataError(problem, file=path, hint="it is not the published file; download it again")


def _make_progress_printer(path: Path) -> Callable[[int, int], None]:
    """A callback that prints the download progress in one line, on a terminal only."""

    def print_progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            size = f"{done / BYTES_PER_MEGABYTE:.1f}" + (f" of {total / BYTES_PER_MEGABYTE:.1f}" if total else "")
            print(f"\r{path.name}  {size} MB ", end="\n" if done == total else "", file=sys.stderr)

    return print_progress

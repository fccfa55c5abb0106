"""Read a text file as numbered lines: plain or gzip, UTF-8 with or without a byte order mark, any line ends, bounded size."""

import gzip
import hashlib
import os
import re
import stat
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from saccade.data.read.refuse_binary import refuse_binary
from saccade.errors import DataError

HEAD_BYTES = 1 << 16  # bytes that are read to detect the format
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 32 << 20
ALWAYS_ALLOWED_BYTES = 16 << 20  # any gzip file may decompress to this size, whatever its ratio
MAX_GZIP_RATIO = 100  # maximum compression ratio of larger ones; that of text is about 4, of DNA about 10
MAX_UNPACKED_BYTES = 1 << 36
GZIP_MAGIC, UTF8_BOM = b"\x1f\x8b", b"\xef\xbb\xbf"

CLOCK_STEP_NANOSECONDS = 20_000_000  # upper bound of the timestamp resolution of most file systems
COARSE_CLOCK_STEP_NANOSECONDS = 2_000_000_000  # of file systems that store whole seconds

NumberedLine = tuple[int, str | DataError]
Value = TypeVar("Value")


@dataclass(frozen=True)
class SourceFile:
    """A regular file and its first bytes, decompressed and without the byte order mark."""

    path: Path
    head: bytes
    is_complete: bool  # the head is the whole file

    @property
    def suffix(self) -> str:
        """The suffix of the name in lowercase, .gz excluded.

        >>> SourceFile(Path("train.EN.gz"), b"", True).suffix
        '.en'
        """
        name = self.path.name.lower()
        return Path(name.removesuffix(".gz")).suffix

    @property
    def newline(self) -> bytes:
        return b"\r" if b"\n" not in self.head and b"\r" in self.head else b"\n"

    def preview(self) -> "SourceFile":
        """A source of the complete lines of the head, which is read without opening the file again."""
        end = self.head.rfind(self.newline) + 1
        return self if self.is_complete or not end else SourceFile(self.path, self.head[:end], True)

    def sample_lines(self) -> list[str]:
        """The complete lines of the head, for format detection; invalid UTF-8 is replaced."""
        text = self.head.decode("utf-8", "replace")
        lines = re.split(r"\r\n|\n", text) if self.newline == b"\n" else text.split("\r")
        if not self.is_complete and len(lines) > 1:
            lines.pop()
        return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


class FileCache(Generic[Value]):
    """A bounded cache of values of files, keyed by path, size and modification time, so that a changed file is a miss."""

    max_entries: int

    def __init__(self, max_entries: int):
        self.max_entries, self.entries = max_entries, OrderedDict[tuple[object, ...], Value]()

    def get(self, path: Path) -> Value | None:
        return self.entries.get(make_file_stamp(path))

    def pop(self, path: Path) -> Value | None:
        return self.entries.pop(make_file_stamp(path), None)

    def put(self, path: Path, value: Value) -> None:
        if not _is_settled(path):
            return
        self.entries[make_file_stamp(path)] = value
        while len(self.entries) > self.max_entries:
            self.entries.popitem(last=False)


def make_file_stamp(path: Path) -> tuple[object, ...]:
    """A key that changes when a file is written to: its device, inode, size and modification times."""
    state = path.stat()
    return (str(path.absolute()), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _is_settled(path: Path) -> bool:
    """Whether another write would change the stamp; it may not, within the timestamp resolution after the last write."""
    state = path.stat()
    latest = max(state.st_mtime_ns, state.st_ctime_ns)
    coarse = state.st_mtime_ns % 1_000_000_000 == 0
    return time.time_ns() - latest > (COARSE_CLOCK_STEP_NANOSECONDS if coarse else CLOCK_STEP_NANOSECONDS)


FIRST_CHUNK_CACHE: FileCache[bytes] = FileCache(8)  # first megabytes of files, for previews without opening them again
HEAD_CACHE: FileCache[SourceFile] = FileCache(64)  # heads of files, for format detection without opening them again
DIGEST_CACHE: FileCache[bytes] = FileCache(1024)  # SHA-256 of files that were read completely
OPEN_READS: FileCache[Iterator[bytes]] = FileCache(
    8
)  # reads that stopped after the head; the next reader continues them


def hash_file(path: Path) -> bytes:
    """SHA-256 of a file, from the cache if the file was read completely before."""
    started = OPEN_READS.pop(check_regular_file(path))
    if started is not None and DIGEST_CACHE.get(path) is None:
        with suppress(DataError):  # a gzip file that cannot be decompressed; its digest is that of the compressed bytes
            deque(started, maxlen=0)
    digest = DIGEST_CACHE.get(path)
    if digest is None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        DIGEST_CACHE.put(path, digest)
    return digest


def open_source(path: str | Path) -> SourceFile:
    """Read the head of a file; raises DataError if the file is missing, unreadable or empty."""
    path = check_regular_file(Path(path))
    cached = HEAD_CACHE.get(path)
    if cached is not None:
        return cached
    head = _read_first_chunk(path)
    if not head[:HEAD_BYTES].decode("utf-8", "replace").strip():
        what = "is empty" if not head else "begins with empty lines only"
        raise DataError(f"the file {what}", file=path, line=1, value="", hint="give a file with at least one record")
    source = SourceFile(path, head[:HEAD_BYTES], len(head) <= HEAD_BYTES)
    HEAD_CACHE.put(path, source)
    return source


def _read_first_chunk(path: Path) -> bytes:
    """The first megabyte of a file, decompressed and without the byte order mark; the whole file if it is smaller."""
    start, chunks = b"", _read_chunks(path)
    for chunk in chunks:
        start += chunk
        if len(start) >= HEAD_BYTES:
            break
    OPEN_READS.put(path, chain([start], chunks))
    start = start.removeprefix(UTF8_BOM)
    FIRST_CHUNK_CACHE.put(path, start)
    return start


def preview_source(source: SourceFile) -> SourceFile:
    """The complete lines of the first megabyte as a source, which is read without opening the file again."""
    if source.is_complete:
        return source
    start = FIRST_CHUNK_CACHE.get(source.path)
    start = _read_first_chunk(source.path) if start is None else start
    end = start.rfind(source.newline) + 1
    return SourceFile(source.path, start[: end or len(start)], True)


def open_text(path: str | Path) -> SourceFile:
    """`open_source` for a file that has to be text; raises DataError for binary files."""
    source = open_source(path)
    refuse_binary(source.path, source.head)
    return source


def check_regular_file(path: Path) -> Path:
    """Return the path of a readable regular file with a Unicode name; raises DataError for anything else."""
    refuse_non_unicode_name(path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path, hint=_suggest_path(path)) from None
    except ValueError:  # a NUL in the name
        raise DataError("not a valid file name", value=str(path), hint="check the spelling") from None
    if stat.S_ISDIR(mode):
        raise DataError("is a directory, but a file is needed", file=path, hint="name the files in it")
    if not stat.S_ISREG(mode):
        raise DataError("is a device or a pipe, not a regular file", file=path, hint="write the data to a file first")
    if not os.access(path, os.R_OK):
        raise DataError(
            "no permission to read the file", file=path, hint=f"change it, for example: chmod u+r {path.name}"
        )
    return path


def refuse_non_unicode_name(path: Path) -> None:
    """Raise DataError for a name that is not Unicode, since reports, configs and JSON files could not contain it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        hint = "rename it, for example to letters and digits only, or give another path to it"
        raise DataError("the name of this file is not Unicode (UTF-8)", file=shown, hint=hint) from None


def _suggest_path(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"check the spelling; there is no directory {path.parent}"
    similar = get_close_matches(path.name, names, n=1)
    if similar:
        return f"did you mean {similar[0]}"
    return f"check the spelling; {path.parent} contains {', '.join(names[:8]) or 'nothing'}"


def find_similar_directory(path: Path) -> Path | None:
    """A directory with a name similar to that of a missing path, in the same parent; None if there is none."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())
    except OSError:
        return None
    similar = get_close_matches(path.name, names, n=1)
    return path.with_name(similar[0]) if similar else None


class HashingReader:
    """A file object that is hashed while it is read."""

    file: BinaryIO
    size: int

    def __init__(self, file: BinaryIO):
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        chunk = self.file.read(size)
        self.hash.update(chunk)
        self.size += len(chunk)
        return chunk


def read_unpacked(source: SourceFile) -> Iterator[bytes]:
    """The decompressed bytes of a source; the file is not opened if the head is complete."""
    return iter([source.head]) if source.is_complete else read_chunks(source.path)


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in chunks of a megabyte; if its head was read just now, the read continues there."""
    started = OPEN_READS.pop(path) if path.exists() else None
    return _read_chunks(path) if started is None else started


def _read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in chunks of a megabyte, decompressed if it is gzip by content, within the size limits."""
    try:
        before = make_file_stamp(path)
        with path.open("rb") as opened:
            is_gzip = opened.peek(2)[:2] == GZIP_MAGIC
            reader = HashingReader(opened)
            if not is_gzip:
                while chunk := reader.read(CHUNK_BYTES):
                    yield chunk
                _cache_digest(path, reader, before)
                return
            size, total = os.fstat(opened.fileno()).st_size, 0
            with gzip.GzipFile(fileobj=reader) as file:  # type: ignore[call-overload]
                while chunk := file.read(CHUNK_BYTES):
                    total += len(chunk)
                    if total > MAX_UNPACKED_BYTES or total > max(ALWAYS_ALLOWED_BYTES, MAX_GZIP_RATIO * size):
                        what = f"decompresses from {size:,} to more than {total:,} bytes, unlike any real text"
                        hint = f"decompress it yourself if you trust it: gunzip {path.name}"
                        raise DataError(what, file=path, value=f"{total / size:.0f} times", hint=hint)
                    yield chunk
            _cache_digest(path, reader, before)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = "download it again; the file is damaged or truncated"
        raise DataError(f"invalid or truncated gzip ({error})", file=path, value=path.name, hint=hint) from None
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}", file=path, hint="check the disk and the permissions"
        ) from None


def _cache_digest(path: Path, reader: HashingReader, before: tuple[object, ...]) -> None:
    """Cache the digest of a file that was read completely and did not change while it was read."""
    if make_file_stamp(path) == before and reader.size == path.stat().st_size:
        DIGEST_CACHE.put(path, reader.hash.digest())


def read_lines(source: SourceFile) -> Iterator[NumberedLine]:
    """Every line with its number, including its newline (except perhaps the last); a line that is not text as a DataError."""
    newline, rest, number = source.newline, b"", 0
    first = True
    for chunk in read_unpacked(source):
        if first:
            chunk, first = chunk.removeprefix(UTF8_BOM), False
        pieces = (rest + chunk).split(newline)
        rest = pieces.pop()
        for piece in pieces:
            number += 1
            yield number, _decode_line(source, number, piece, "\n")
        if len(rest) > MAX_LINE_BYTES:
            raise DataError(
                f"the line is longer than {MAX_LINE_BYTES >> 20} MB",
                file=source.path,
                line=number + 1,
                value=rest[:50].decode("utf-8", "replace"),
                hint="break it into several lines",
            )
    if rest:
        yield number + 1, _decode_line(source, number + 1, rest, "")


def read_line_parts(source: SourceFile) -> Iterator[tuple[int, int, str | DataError, bool]]:
    """Every line of running text, of any length, as (line number, column, text, whether the line ends with this part).

    A line of more than a few megabytes is split into parts, before a space if there is one. The column is that of the first
    character of a part, counted from 1, or 0 for a line in one part.
    """
    newline, rest, number, column = source.newline, b"", 1, 0
    first = True
    for chunk in read_unpacked(source):
        if first:
            chunk, first = chunk.removeprefix(UTF8_BOM), False
        *pieces, rest = (rest + chunk).split(newline)
        for piece in pieces:
            yield number, column, _decode_line(source, number, piece, "\n", column), True
            number, column = number + 1, 0
        if len(rest) > CHUNK_BYTES:
            part, rest = _split_bytes(rest)
            text, column = _decode_line(source, number, part, "", column), column or 1
            yield number, column, text, False
            column += len(text) if isinstance(text, str) else len(part)
    if rest or column:
        yield number, column, _decode_line(source, number, rest, "", column), True


def _split_bytes(raw: bytes) -> tuple[bytes, bytes]:
    """Split bytes in their second half: before the last space, or else between two characters of UTF-8."""
    half = len(raw) // 2
    at = raw.rfind(b" ", half)
    if at < 0:
        at = len(raw) - 1
        while at > half and raw[at] & 0xC0 == 0x80:  # a continuation byte
            at -= 1
    return raw[:at], raw[at:]


def _decode_line(source: SourceFile, number: int, raw: bytes, end: str, character: int = 0) -> str | DataError:
    character = max(0, character - 1)
    if raw.endswith(b"\r") and (end or not character):
        raw = raw[:-1]
    if b"\0" in raw:
        hint = "remove it, or check whether the file is damaged"
        at = raw.index(0)
        return DataError(
            "a NUL character",
            file=source.path,
            line=number,
            column=f"(character {character + at + 1})",
            value=raw[max(0, at - 10) : at + 10],
            hint=hint,
        )
    try:
        return raw.decode("utf-8") + end
    except UnicodeDecodeError as error:
        around = raw[max(0, error.start - 10) : error.start + 10]
        guess = around.decode("cp1252", "replace")
        hint = f"save it as UTF-8; if it is Windows-1252 ({guess!r}): iconv -f WINDOWS-1252 -t UTF-8 {source.path.name}"
        column = f"(byte {character + error.start + 1})"
        return DataError("not UTF-8", file=source.path, line=number, column=column, value=around, hint=hint)


def read_whole_text(source: SourceFile, max_bytes: int = 1 << 28) -> str:
    """A whole file as one string, for formats that cannot be read line by line."""
    parts, size = [], 0
    for chunk in read_unpacked(source):
        size += len(chunk)
        if size > max_bytes:
            hint = "convert it to JSON lines, one object per line, which are read one at a time"
            raise DataError(f"a JSON value of more than {max_bytes >> 20} MB", file=source.path, line=1, hint=hint)
        parts.append(chunk)
    raw = b"".join(parts).removeprefix(UTF8_BOM)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        around, hint = raw[max(0, error.start - 10) : error.start + 10], "save it as UTF-8"
        raise DataError("not UTF-8", file=source.path, line=line, value=around, hint=hint) from None

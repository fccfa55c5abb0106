"""A file as numbered lines of text: plain or gzip, UTF-8 with or without a mark, any line ends, and of bounded size."""

import gzip
import hashlib
import os
import re
import stat
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from saccade.data.read.refuse_binary import refuse_binary
from saccade.errors import DataError

HEAD_BYTES = 1 << 16  # bytes looked at to tell what a file is
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 32 << 20  # bytes of one line that has to be read as a whole
ALWAYS_ALLOWED_BYTES = 16 << 20  # bytes that any gzip file may unpack to
MAX_GZIP_RATIO = 100  # beyond that, how many times larger than the file; text packs about four times, DNA about ten
MAX_UNPACKED_BYTES = 1 << 36  # bytes in all
GZIP_MAGIC, UTF8_BOM = b"\x1f\x8b", b"\xef\xbb\xbf"

CLOCK_STEP_NANOSECONDS = 20_000_000  # nanoseconds, in which the clocks of most file systems go on
COARSE_CLOCK_STEP_NANOSECONDS = 2_000_000_000  # of those that count seconds

NumberedLine = tuple[int, str | DataError]
Value = TypeVar("Value")


@dataclass(frozen=True)
class SourceFile:
    """One ordinary file and how it begins, unpacked and without the byte order mark."""

    path: Path
    head: bytes
    is_complete: bool  # the head is all there is

    @property
    def suffix(self) -> str:
        """The last ending of the name, without .gz.

        >>> SourceFile(Path("train.EN.gz"), b"", True).suffix
        '.en'
        """
        name = self.path.name.lower()
        return Path(name.removesuffix(".gz")).suffix

    @property
    def newline(self) -> bytes:
        return b"\r" if b"\n" not in self.head and b"\r" in self.head else b"\n"

    def preview(self) -> "SourceFile":
        """The whole lines of its beginning as a source of their own, which is read without opening the file again."""
        end = self.head.rfind(self.newline) + 1
        return self if self.is_complete or not end else SourceFile(self.path, self.head[:end], True)

    def sample_lines(self) -> list[str]:
        """The first whole lines, for a look at what they are; what is not UTF-8 is replaced."""
        text = self.head.decode("utf-8", "replace")
        lines = re.split(r"\r\n|\n", text) if self.newline == b"\n" else text.split("\r")
        if not self.is_complete and len(lines) > 1:
            lines.pop()
        return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


class FileCache(Generic[Value]):
    """A bounded cache of facts about files, keyed by path, size and modification time, so that a changed file is a miss."""

    def __init__(self, max_entries: int):
        self.max_entries, self.entries = max_entries, OrderedDict[tuple[object, ...], Value]()

    def get(self, path: Path) -> Value | None:
        return self.entries.get(make_file_stamp(path))

    def put(self, path: Path, value: Value) -> None:
        if not _is_settled(path):
            return
        self.entries[make_file_stamp(path)] = value
        while len(self.entries) > self.max_entries:
            self.entries.popitem(last=False)


def make_file_stamp(path: Path) -> tuple[object, ...]:
    """What changes when a file is written to: its place on the disk, its size, and the times of its last changes."""
    state = path.stat()
    return (str(path.absolute()), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _is_settled(path: Path) -> bool:
    """Whether a further write would change the stamp: clocks of file systems go in steps, so of a file just written, none may."""
    state = path.stat()
    latest = max(state.st_mtime_ns, state.st_ctime_ns)
    coarse = state.st_mtime_ns % 1_000_000_000 == 0
    return time.time_ns() - latest > (COARSE_CLOCK_STEP_NANOSECONDS if coarse else CLOCK_STEP_NANOSECONDS)


HEAD_CACHE: FileCache[SourceFile] = FileCache(64)  # how files begin: whoever asks what they are need not open them
DIGEST_CACHE: FileCache[bytes] = FileCache(1024)  # SHA-256 of files that were read to their end


def hash_file(path: Path) -> bytes:
    """SHA-256 of a file, which is read only where it was not read to its end before."""
    found = DIGEST_CACHE.get(check_regular_file(path))
    if found is None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
        DIGEST_CACHE.put(path, found)
    return found


def open_source(path: str | Path) -> SourceFile:
    """Look at the beginning of a file; what is missing, unreadable or empty is refused here."""
    path = check_regular_file(Path(path))
    known = HEAD_CACHE.get(path)
    if known is not None:
        return known
    head = b""
    for chunk in read_chunks(path):
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    head = head.removeprefix(UTF8_BOM)
    if not head[:HEAD_BYTES].decode("utf-8", "replace").strip():
        what = "is empty" if not head else "begins with nothing but empty lines"
        raise DataError(f"the file {what}", file=path, line=1, value="", hint="give a file with at least one record")
    made = SourceFile(path, head[:HEAD_BYTES], len(head) <= HEAD_BYTES)
    HEAD_CACHE.put(path, made)
    return made


def open_text(path: str | Path) -> SourceFile:
    """The same for a file that has to be text."""
    source = open_source(path)
    refuse_binary(source.path, source.head)
    return source


def check_regular_file(path: Path) -> Path:
    """The path, if it is an ordinary file that may be read, with a name that can be written down."""
    refuse_non_unicode_name(path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path, hint=_suggest_path(path)) from None
    except ValueError:  # a NUL in the name
        raise DataError("is no file name", value=str(path), hint="check the spelling") from None
    if stat.S_ISDIR(mode):
        raise DataError("is a directory where a file is needed", file=path, hint="name the files in it")
    if not stat.S_ISREG(mode):
        raise DataError("is a device or a pipe, no ordinary file", file=path, hint="write the data to a file first")
    if not os.access(path, os.R_OK):
        raise DataError("may not be read", file=path, hint=f"ask for permission, for example chmod u+r {path.name}")
    return path


def refuse_non_unicode_name(path: Path) -> None:
    """Refuse a name that is not Unicode: no report, config or JSON file could name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        hint = "rename it, for example to letters and digits, or give another path to it"
        raise DataError("the name of this file is not Unicode (UTF-8)", file=shown, hint=hint) from None


def _suggest_path(path: Path) -> str:
    try:
        there = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"check the spelling; there is no directory {path.parent}"
    near = get_close_matches(path.name, there, n=1)
    return (
        f"did you mean {near[0]}"
        if near
        else f"check the spelling; {path.parent} has {', '.join(there[:8]) or 'nothing'}"
    )


def find_similar_directory(path: Path) -> Path | None:
    """The directory beside a path that is not there which has nearly its name."""
    try:
        there = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())
    except OSError:
        return None
    near = get_close_matches(path.name, there, n=1)
    return path.with_name(near[0]) if near else None


class HashingReader:
    """A file that is hashed while it is read from its beginning to its end."""

    def __init__(self, file: BinaryIO):
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        found = self.file.read(size)
        self.hash.update(found)
        self.size += len(found)
        return found


def read_unpacked(source: SourceFile) -> Iterator[bytes]:
    """The bytes of a source, unpacked; one that is known as a whole is not opened again."""
    return iter([source.head]) if source.is_complete else read_chunks(source.path)


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file a megabyte at a time, unpacked if it is gzip by content, within the bounds."""
    try:
        before = make_file_stamp(path)
        with path.open("rb") as opened:
            packed = opened.peek(2)[:2] == GZIP_MAGIC
            plain = HashingReader(opened)
            if not packed:
                while chunk := plain.read(CHUNK_BYTES):
                    yield chunk
                _cache_digest(path, plain, before)
                return
            size, total = os.fstat(opened.fileno()).st_size, 0
            with gzip.GzipFile(fileobj=plain) as file:  # type: ignore[call-overload]
                while chunk := file.read(CHUNK_BYTES):
                    total += len(chunk)
                    if total > MAX_UNPACKED_BYTES or total > max(ALWAYS_ALLOWED_BYTES, MAX_GZIP_RATIO * size):
                        what = f"unpacks from {size:,} to more than {total:,} bytes, as no real text does"
                        hint = f"unpack it yourself if you trust it: gunzip {path.name}"
                        raise DataError(what, file=path, value=f"{total / size:.0f} times", hint=hint)
                    yield chunk
            _cache_digest(path, plain, before)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = "fetch it again; the file is damaged or was cut off"
        raise DataError(f"is not whole gzip ({error})", file=path, value=path.name, hint=hint) from None
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}", file=path, hint="check the disk and the rights"
        ) from None


def _cache_digest(path: Path, reader: HashingReader, before: tuple[object, ...]) -> None:
    """Remember the digest of a file that was read to its end and did not change meanwhile."""
    if make_file_stamp(path) == before and reader.size == path.stat().st_size:
        DIGEST_CACHE.put(path, reader.hash.digest())


def read_lines(source: SourceFile) -> Iterator[NumberedLine]:
    """Every line with its number, ended by a newline (the last one perhaps not); a line that is no text as its error."""
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
    """Every line of running text, of any length: its number, a column, text, and whether the line ends with it.

    A line of more than a few megabytes comes in parts, which begin before a space where there is one; the column is that of
    the first character of a part, from 1, and 0 for a line that is whole.
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
    """Bytes in two, the second of them shorter than the first: before a space, or else between two characters."""
    half = len(raw) // 2
    at = raw.rfind(b" ", half)
    if at < 0:
        at = len(raw) - 1
        while at > half and raw[at] & 0xC0 == 0x80:  # in the middle of a character
            at -= 1
    return raw[:at], raw[at:]


def _decode_line(source: SourceFile, number: int, raw: bytes, end: str, character: int = 0) -> str | DataError:
    character = max(0, character - 1)
    if raw.endswith(b"\r") and (end or not character):
        raw = raw[:-1]
    if b"\0" in raw:
        hint = "remove the NUL; perhaps the file is damaged"
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
        hint = f"save it as UTF-8; in Windows-1252 it would read {guess!r}: iconv -f WINDOWS-1252 -t UTF-8 {source.path.name}"
        place = f"(byte {character + error.start + 1})"
        return DataError("not UTF-8", file=source.path, line=number, column=place, value=around, hint=hint)


def read_whole_text(source: SourceFile, max_bytes: int = 1 << 28) -> str:
    """All of a file as one string, for formats that cannot be read by the line."""
    parts, size = [], 0
    for chunk in read_unpacked(source):
        size += len(chunk)
        if size > max_bytes:
            hint = "turn it into JSON lines, one object a line, which are read one by one"
            raise DataError(f"one JSON value of more than {max_bytes >> 20} MB", file=source.path, line=1, hint=hint)
        parts.append(chunk)
    raw = b"".join(parts).removeprefix(UTF8_BOM)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        around, hint = raw[max(0, error.start - 10) : error.start + 10], "save it as UTF-8"
        raise DataError("not UTF-8", file=source.path, line=line, value=around, hint=hint) from None

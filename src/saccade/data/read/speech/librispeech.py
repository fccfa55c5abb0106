"""LibriSpeech's layout: `84/121123/84-121123.trans.txt` has a line for each recording beside it, its name and what is said."""

from collections.abc import Iterator
from pathlib import Path

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.media_files import MEDIA
from saccade.data.read.open_text import SourceFile, read_lines
from saccade.errors import DataError

SUFFIX = ".trans.txt"
# a chapter, a speaker, a subset such as train-clean-100, or all of them
PATTERNS = (f"*{SUFFIX}", f"*/*{SUFFIX}", f"[0-9]*/[0-9]*/*{SUFFIX}", f"*/[0-9]*/[0-9]*/*{SUFFIX}")


def find_transcripts(path: Path) -> list[Path]:
    """The transcript files of a directory; empty if it has another layout."""
    return next((found for pattern in PATTERNS if (found := sorted(path.glob(pattern)))), [])


def matches(source: SourceFile, request: ReadRequest) -> bool:
    return source.path.name.lower().endswith(SUFFIX)


def read_transcripts(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """A record for each recording: its file, what is said, and who says it."""
    for number, line in read_lines(source):
        if isinstance(line, DataError):
            yield line
            continue
        name, _, text = line.strip().partition(" ")
        if name:
            names = (f"{name}{suffix}" for suffix in MEDIA["audio"].suffixes)
            file = next((file for file in names if (source.path.parent / file).is_file()), f"{name}.flac")
            yield Record(number, {"audio": file, "text": text, "speaker": name.split("-")[0]})

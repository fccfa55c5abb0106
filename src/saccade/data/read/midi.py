"""MIDI as words, and piano rolls in JSON: a record is one piece on one line.

A note is its pitch and its length, `60.12`; a chord is several of them; `+12` goes on by so many steps, twelve to a quarter. What
sounds how loud and on what is left out, and so are drums. MIDI files are parsed by symusic, the extra `music`.

>>> notes_of("60.12 64.12 +12 62.6")
[Note(start=0, length=12, pitch=60), Note(start=0, length=12, pitch=64), Note(start=12, length=6, pitch=62)]
>>> as_words(notes_of("60.12 64.12 +12 62.6"))
'60.12 64.12 +12 62.6'
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from saccade.data.read.record import TEXTUAL, Ask, Record
from saccade.data.read.source import Source, contents, whole_text
from saccade.errors import DataError

GRID = 12  # steps of a quarter: sixteenths and triplets both fall on it
LONGEST = 16 * GRID  # of a note
PITCHES = 128
LARGEST = 1 << 24  # bytes of one MIDI file
WORD = re.compile(r"(\d{1,3})\.(\d{1,3})|\+(\d{1,5})")
ROLLS = re.compile(rb'\s*(\{\s*"\w+"\s*:\s*\[|\[)\s*\[\s*\[\s*[-\d\]N]')
NEED = "install it with: pip install 'saccade[music]'"


class Note(NamedTuple):
    """When it begins and how long it lasts, in steps, and its key."""

    start: int
    length: int
    pitch: int


def as_words(notes: Iterable[Note]) -> str:
    """Notes as text; the first begins at once."""
    words, now = [], None
    for note in sorted(set(notes), key=lambda note: (note.start, note.pitch, note.length)):
        if now is not None and note.start > now:
            words.append(f"+{note.start - now}")
        words.append(f"{note.pitch}.{min(max(note.length, 1), LONGEST)}")
        now = note.start
    return " ".join(words)


def notes_of(text: str) -> list[Note]:
    """Text as notes; what is no note, or no key or length that there is, is refused by name."""
    now, found = 0, list[Note]()
    for word in text.split():
        match = WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is neither a note such as 60.12 nor a step such as +12.")
        if match[3]:
            now += int(match[3])
            continue
        pitch, length = int(match[1]), int(match[2])
        if pitch >= PITCHES or not 1 <= length <= LONGEST:
            raise ValueError(f"{word!r} needs a pitch below {PITCHES} and a length from 1 to {LONGEST}.")
        found.append(Note(now, length, pitch))
    if not found:
        raise ValueError("There is no note in it.")
    return found


def to_midi(text: str) -> bytes:
    """The bytes of a MIDI file that plays the text on a piano."""
    import symusic

    score: Any = symusic.Score(GRID)
    track: Any = symusic.Track(program=0, is_drum=False, name="saccade")
    for note in notes_of(text):
        track.notes.append(symusic.Note(note.start, note.length, note.pitch, 80))
    score.tracks.append(track)
    return score.dumps_midi()


def looks(source: Source, ask: Ask) -> bool:
    return source.head.startswith(b"MThd") and len(ask.roles) == 1 and ask.roles[0].kind in TEXTUAL


def midi(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """All tracks but the drums as one piece."""
    try:
        import symusic
    except ImportError:
        raise DataError(
            "this is MIDI, for which symusic is needed", file=source.path, value="MThd", cure=NEED
        ) from None
    role = ask.roles[0].name
    raw = b"".join(contents(source))
    if len(raw) > LARGEST:
        cure = "cut the piece into several files"
        raise DataError(f"a MIDI file of more than {LARGEST >> 20} MB", file=source.path, value=len(raw), cure=cure)
    try:
        score: Any = symusic.Score.from_midi(raw)
    except (RuntimeError, ValueError) as error:
        yield DataError(f"not whole MIDI ({str(error)[:80]})", file=source.path, value="MThd", cure="fetch it again")
        return
    steps = GRID / max(1, score.ticks_per_quarter)
    tracks = [track for track in score.tracks if not track.is_drum]
    found = [
        Note(round(n.time * steps), round((n.time + n.duration) * steps) - round(n.time * steps), n.pitch)
        for track in tracks
        for n in track.notes
    ]
    if not found:
        cure = "leave it out, or skip it with --on-bad-record skip"
        yield DataError("a MIDI file without notes other than drums", file=source.path, value="MThd", cure=cure)
        return
    ask.said.append(f"{source.path.name}: MIDI, {len(found):,} notes; loudness, instruments and drums are left out.")
    yield Record(1, {role: as_words(found)})


def looks_like_rolls(source: Source, ask: Ask) -> bool:
    """Lists of lists of lists of whole numbers: pieces, moments, the keys that sound; perhaps by split."""
    fits = len(ask.roles) == 1 and ask.roles[0].kind in TEXTUAL
    return fits and source.suffix == ".json" and ROLLS.match(source.head) is not None


def rolls(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """Each piece; a moment is a quarter, or what the file's name says (8th, 16th)."""
    role, name = ask.roles[0].name, source.path.name.lower()
    try:
        found = json.loads(whole_text(source))
    except (ValueError, RecursionError) as error:
        cure = "write lists of lists of keys"
        raise DataError(f"not JSON: {error}", file=source.path, line=1, value="", cure=cure) from None
    step = GRID // 4 if "16th" in name else GRID // 2 if "8th" in name else GRID
    pieces = [piece for split in found.values() for piece in split] if isinstance(found, dict) else found
    ask.said.append(f"{source.path.name}: piano rolls in JSON, a record for each piece, {step} steps to a moment.")
    for number, piece in enumerate(pieces, 1):
        try:
            yield Record(number, {role: as_words(_roll(piece, step))})
        except (TypeError, ValueError):
            cure = f"write each moment as a list of keys from 0 to {PITCHES - 1}, and at least one of them"
            yield DataError(
                "no piano roll", file=source.path, column=f"(piece {number})", value=str(piece)[:50], cure=cure
            )


def _roll(piece: Any, step: int) -> list[Note]:
    """The notes of a piece; a key may be written 73.0, and a voice that is silent -1 or NaN."""
    heard = [(i, float(key)) for i, moment in enumerate(piece) for key in moment if key == key and key != -1]
    if not heard or not all(key.is_integer() and 0 <= key < PITCHES for _, key in heard):
        raise ValueError
    return [Note(i * step, step, int(key)) for i, key in heard]

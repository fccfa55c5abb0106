"""MIDI files, and piano rolls in JSON, as text: a record is one piece on one line.

A note is written as its pitch and duration, `60.12`, and a chord as several notes; `+12` advances by that many steps, of which a
quarter note has twelve. Loudness, instruments and drums are left out. MIDI files are parsed by symusic, the extra `music`.

>>> parse_notes("60.12 64.12 +12 62.6")
[Note(start=0, duration=12, pitch=60), Note(start=0, duration=12, pitch=64), Note(start=12, duration=6, pitch=62)]
>>> notes_to_text(parse_notes("60.12 64.12 +12 62.6"))
'60.12 64.12 +12 62.6'
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from saccade.data.read.base import TEXT_KINDS, ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_unpacked, read_whole_text
from saccade.errors import DataError

STEPS_PER_QUARTER = 12  # divisible by sixteenths and by triplets
MAX_NOTE_STEPS = 16 * STEPS_PER_QUARTER
PITCH_COUNT = 128
MAX_FILE_BYTES = 1 << 24
NOTE_OR_STEP = re.compile(r"(\d{1,3})\.(\d{1,3})|\+(\d{1,5})")
PIANO_ROLL_START = re.compile(rb'\s*(\{\s*"\w+"\s*:\s*\[|\[)\s*\[\s*\[\s*[-\d\]N]')
INSTALL_HINT = "install it with: pip install 'saccade[music]'"


class Note(NamedTuple):
    """A note: its start and duration in steps, and its MIDI pitch."""

    start: int
    duration: int
    pitch: int


def notes_to_text(notes: Iterable[Note]) -> str:
    """Write notes as text; the piece begins with its first note."""
    words, now = [], None
    for note in sorted(set(notes), key=lambda note: (note.start, note.pitch, note.duration)):
        if now is not None and note.start > now:
            words.append(f"+{note.start - now}")
        words.append(f"{note.pitch}.{min(max(note.duration, 1), MAX_NOTE_STEPS)}")
        now = note.start
    return " ".join(words)


def parse_notes(text: str) -> list[Note]:
    """Parse text to notes; raises ValueError that names the first word that is not a valid note or step."""
    now, notes = 0, list[Note]()
    for word in text.split():
        match = NOTE_OR_STEP.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is neither a note, such as 60.12, nor a step, such as +12.")
        if match[3]:
            now += int(match[3])
            continue
        pitch, duration = int(match[1]), int(match[2])
        if pitch >= PITCH_COUNT or not 1 <= duration <= MAX_NOTE_STEPS:
            raise ValueError(f"{word!r} needs a pitch below {PITCH_COUNT} and a duration from 1 to {MAX_NOTE_STEPS}.")
        notes.append(Note(now, duration, pitch))
    if not notes:
        raise ValueError("The text has no notes.")
    return notes


def to_midi(text: str) -> bytes:
    """The bytes of a MIDI file that plays the text on a piano."""
    import symusic  # pyright: ignore[reportMissingImports]

    score: Any = symusic.Score(STEPS_PER_QUARTER)
    track: Any = symusic.Track(program=0, is_drum=False, name="saccade")
    for note in parse_notes(text):
        track.notes.append(symusic.Note(note.start, note.duration, note.pitch, 80))
    score.tracks.append(track)
    return score.dumps_midi()


def matches(source: SourceFile, request: ReadRequest) -> bool:
    return source.head.startswith(b"MThd") and len(request.roles) == 1 and request.roles[0].kind in TEXT_KINDS


def read_midi(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """All tracks except drums, as one piece."""
    try:
        import symusic  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError("reading MIDI needs symusic", file=source.path, value="MThd", hint=INSTALL_HINT) from None
    role = request.roles[0].name
    raw = b"".join(read_unpacked(source))
    if len(raw) > MAX_FILE_BYTES:
        hint = "cut the piece into several files"
        raise DataError(
            f"a MIDI file of more than {MAX_FILE_BYTES >> 20} MB", file=source.path, value=len(raw), hint=hint
        )
    try:
        score: Any = symusic.Score.from_midi(raw)
    except (RuntimeError, ValueError) as error:
        problem = f"invalid or truncated MIDI ({str(error)[:80]})"
        yield DataError(problem, file=source.path, value="MThd", hint="download it again")
        return
    steps = STEPS_PER_QUARTER / max(1, score.ticks_per_quarter)
    tracks = [track for track in score.tracks if not track.is_drum]
    notes = [
        Note(round(n.time * steps), round((n.time + n.duration) * steps) - round(n.time * steps), n.pitch)
        for track in tracks
        for n in track.notes
    ]
    if not notes:
        hint = "leave it out, or skip it with --on-bad-record skip"
        yield DataError("a MIDI file without notes other than drums", file=source.path, value="MThd", hint=hint)
        return
    request.notes.append(
        f"{source.path.name}: MIDI, {len(notes):,} notes; loudness, instruments and drums are left out."
    )
    yield Record(1, {role: notes_to_text(notes)})


def matches_piano_rolls(source: SourceFile, request: ReadRequest) -> bool:
    """Whether the file holds piano rolls: nested lists of pieces, time steps and the pitches that sound, perhaps by split."""
    wants_text = len(request.roles) == 1 and request.roles[0].kind in TEXT_KINDS
    return wants_text and source.suffix == ".json" and PIANO_ROLL_START.match(source.head) is not None


def read_piano_rolls(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Each piece; a time step is a quarter note, unless the name of the file says 8th or 16th."""
    role, name = request.roles[0].name, source.path.name.lower()
    try:
        rolls = json.loads(read_whole_text(source))
    except (ValueError, RecursionError) as error:
        hint = "write lists of lists of pitches"
        raise DataError(f"not JSON: {error}", file=source.path, line=1, value="", hint=hint) from None
    step = STEPS_PER_QUARTER // 4 if "16th" in name else STEPS_PER_QUARTER // 2 if "8th" in name else STEPS_PER_QUARTER
    pieces = [piece for split in rolls.values() for piece in split] if isinstance(rolls, dict) else rolls
    request.notes.append(f"{source.path.name}: piano rolls in JSON, a record for each piece, {step} steps per list.")
    for number, piece in enumerate(pieces, 1):
        try:
            yield Record(number, {role: notes_to_text(_parse_piano_roll(piece, step))})
        except (TypeError, ValueError):
            hint = (
                f"write each time step as a list of pitches from 0 to {PITCH_COUNT - 1}, with at least one note in all"
            )
            yield DataError(
                "not a piano roll", file=source.path, column=f"(piece {number})", value=str(piece)[:50], hint=hint
            )


def _parse_piano_roll(piece: Any, step: int) -> list[Note]:
    """The notes of a piece; a pitch may be written as 73.0, and a silent voice as -1 or NaN."""
    sounding = [
        (i, float(pitch)) for i, pitches in enumerate(piece) for pitch in pitches if pitch == pitch and pitch != -1
    ]
    if not sounding or not all(pitch.is_integer() and 0 <= pitch < PITCH_COUNT for _, pitch in sounding):
        raise ValueError
    return [Note(i * step, step, int(pitch)) for i, pitch in sounding]

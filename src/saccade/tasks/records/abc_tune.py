"""Validity check of tunes in ABC notation: a header with a number and a key, and bars whose length matches the meter.

Where a part of a tune begins or ends (a repeat, a double bar, another ending), a bar may be shorter: an upbeat and its
complement. What takes no time (chord names, ornaments, slurs) is skipped.
The standard: https://abcnotation.com/wiki/abc:standard
"""

import re
from fractions import Fraction

FIELD_PATTERN = re.compile(r"([A-Za-z+]):(.*)")
METER_PATTERN = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")
UNTIMED_PATTERN = re.compile(r'"[^"]*"|![^!]*!|\{[^}]*\}|%.*')
NOTE_REGEX = r"(?:[_=^]{0,2}[A-Ga-g][,']*|[zx])"
LENGTH_REGEX = r"\d{0,4}/{0,4}\d{0,4}"
TOKEN_PATTERN = re.compile(
    r"(?P<field>\[[A-Za-z]:[^\]]*\])"
    r"|(?P<bar>:*\|[|\]:]*(?:\[?\d[\d,.-]*)?|::|\[\||\[\d[\d,.-]*)"
    rf"|(?P<chord>\[[^\]|]+\]{LENGTH_REGEX})|(?P<note>{NOTE_REGEX}{LENGTH_REGEX})|(?P<rests>Z\d*)"
    r"|(?P<tuplet>\(\d(?::\d*){0,2})|(?P<broken>>+|<+)|(?P<other>[-\s()\\.~`H-Yuv+&*$;])"
)
TUPLETS = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}  # number of notes -> number of notes whose time they take


def check_abc_tune(text: str) -> str:
    """The first fault of a tune, or "" if it is valid.

    >>> check_abc_tune("X:1\\nM:3/4\\nL:1/4\\nK:G\\nD|GAB|d2B|c3|A2:|")
    ''
    >>> check_abc_tune("X:1\\nM:3/4\\nL:1/4\\nK:G\\nGAB|d2|c3|A3|]")
    'bar 2 has a length of 1/2 instead of 3/4'
    """
    lines = [line for line in text.strip().split("\n") if line.strip() and not line.startswith("%")]
    key_line = next((i for i, line in enumerate(lines) if line.startswith("K:")), None)
    if not lines or not re.match(r"X:\s*\d", lines[0]):
        return "it does not begin with X: and a number"
    if key_line is None:
        return "it has no key (K:)"
    tune = _TuneChecker()
    for number, line in enumerate(lines):
        field = FIELD_PATTERN.match(line)
        if field:
            tune.read_field(field[1], field[2])
        elif number < key_line:
            return f"{line[:20]!r} in the header is not a field"
        else:
            tune.read_line(line)
    return tune.finish()


class _TuneChecker:
    """The state of the check while a tune is read: the length of the current bar, and the first fault."""

    def __init__(self) -> None:
        self.meter: Fraction | None = Fraction(1)
        self.unit_length: Fraction | None = None
        self.fault, self.bar_number, self.bar_time, self.note_count = "", 1, Fraction(0), 0
        self.allows_short_bar = True  # the first bar of a part may be short
        self.last_length, self.next_factor = Fraction(0), Fraction(1)  # of the last note; of the next (broken rhythm)
        self.tuplet_notes_left, self.tuplet_factor = 0, Fraction(1)  # notes left in a tuplet, and the factor of each

    def read_field(self, name: str, value: str) -> None:
        if name == "M":
            self.meter = parse_meter(value)
            self.allows_short_bar = self.allows_short_bar or bool(self.bar_time)
        elif name == "L" and METER_PATTERN.fullmatch(value):
            self.unit_length = parse_meter(value)
        elif name == "P":
            self.allows_short_bar = True

    def read_line(self, text: str) -> None:
        position = 0
        timed = UNTIMED_PATTERN.sub(" ", text)
        for match in TOKEN_PATTERN.finditer(timed):
            if match.start() != position:
                break
            position = match.end()
            kind, token = str(match.lastgroup), match.group()
            if kind == "bar":
                self.close_bar(token != "|")
            elif kind == "field":
                self.read_field(token[1], token[3:-1])
            elif kind in ("note", "chord"):
                self.read_note(token)
            elif kind == "rests":
                self.bar_time += self.meter or 0
            elif kind == "tuplet":
                self.read_tuplet([int(part or 0) for part in token[1:].split(":")])
            elif kind == "broken":
                self.read_broken_rhythm(token)
        if position != len(timed) and not self.fault:
            self.fault = f"{timed[position:][:10]!r} in bar {self.bar_number} is not ABC"

    def read_note(self, token: str) -> None:
        first = re.search(rf"{NOTE_REGEX}({LENGTH_REGEX})", token)
        if first is None:
            self.fault = self.fault or f"{token!r} in bar {self.bar_number} has no note"
            return
        length = parse_note_length(first[1])
        if token.startswith("["):
            length *= parse_note_length(token.rpartition("]")[2])
        default_unit = Fraction(1, 16) if self.meter is not None and self.meter < Fraction(3, 4) else Fraction(1, 8)
        length *= (self.unit_length or default_unit) * (self.tuplet_factor if self.tuplet_notes_left else 1)
        self.tuplet_notes_left = max(0, self.tuplet_notes_left - 1)
        self.bar_time += length * self.next_factor
        self.last_length, self.next_factor = length, Fraction(1)
        self.note_count += 1

    def read_tuplet(self, values: list[int]) -> None:
        count, into, over = (*values, 0, 0)[:3]
        compound = self.meter is not None and self.meter.numerator % 3 == 0
        self.tuplet_notes_left = over or count
        self.tuplet_factor = Fraction(into or TUPLETS.get(count, 3 if compound else 2), max(1, count))

    def read_broken_rhythm(self, token: str) -> None:
        """Broken rhythm: lengthen one of two notes and shorten the other by the same amount."""
        short = Fraction(1, 2 ** len(token))
        last_factor, self.next_factor = (2 - short, short) if token[0] == ">" else (short, 2 - short)
        self.bar_time += self.last_length * (last_factor - 1)

    def close_bar(self, at_section_end: bool) -> None:
        """End the current bar; between two plain bar lines it must be full."""
        if self.bar_time:
            must_be_full = not (at_section_end or self.allows_short_bar)
            is_wrong = self.meter is not None and (
                self.bar_time != self.meter if must_be_full else self.bar_time > self.meter
            )
            if is_wrong and not self.fault:
                self.fault = f"bar {self.bar_number} has a length of {self.bar_time} instead of {self.meter}"
            self.bar_number += 1
            self.allows_short_bar = False
        self.allows_short_bar, self.bar_time = self.allows_short_bar or at_section_end, Fraction(0)

    def finish(self) -> str:
        closed = self.bar_number > 1
        self.close_bar(True)
        if not self.fault and not self.note_count:
            return "it has no notes"
        return self.fault or ("" if closed else "it has no bar lines")


def parse_meter(text: str) -> Fraction | None:
    """The length of a bar; None for a tune without a meter.

    >>> parse_meter("6/8"), parse_meter("C|"), parse_meter("none")
    (Fraction(3, 4), Fraction(1, 1), None)
    """
    if text.strip() in ("C", "C|"):
        return Fraction(1)
    match = METER_PATTERN.fullmatch(text)
    return Fraction(int(match[1]), int(match[2])) if match and int(match[2]) else None


def parse_note_length(text: str) -> Fraction:
    """The length of a note in unit lengths.

    >>> [str(parse_note_length(text)) for text in ("", "3", "/", "//", "3/2", "/4")]
    ['1', '3', '1/2', '1/4', '3/2', '1/4']
    """
    numerator, strokes, denominator = re.fullmatch(r"(\d*)(/*)(\d*)", text).groups()  # type: ignore[union-attr]
    divisor = int(denominator) if denominator else 2 ** len(strokes)
    return Fraction(int(numerator or 1), divisor) if divisor else Fraction(0)

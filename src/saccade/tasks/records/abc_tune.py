"""Tunes in ABC: a head with a number and a key, and bars that are as long as the metre says.

Where a part of a tune begins or ends (a repeat, a double bar, another ending) a bar may be shorter: an upbeat, and what is
missing because of it. What takes no time (chord names, ornaments, slurs) is skipped.
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
TUPLETS = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}  # so many notes in the time of so many


def check_abc_tune(text: str) -> str:
    """What is wrong with a tune, or nothing.

    >>> check_abc_tune("X:1\\nM:3/4\\nL:1/4\\nK:G\\nD|GAB|d2B|c3|A2:|"), check_abc_tune("X:1\\nM:3/4\\nL:1/4\\nK:G\\nGAB|d2|c3|A3|]")
    ('', 'bar 2 is 1/2 long where 3/4 is needed')
    """
    lines = [line for line in text.strip().split("\n") if line.strip() and not line.startswith("%")]
    head = next((i for i, line in enumerate(lines) if line.startswith("K:")), None)
    if not lines or not re.match(r"X:\s*\d", lines[0]):
        return "it does not begin with X: and a number"
    if head is None:
        return "it has no key (K:)"
    tune = _TuneChecker()
    for number, line in enumerate(lines):
        field = FIELD_PATTERN.match(line)
        if field:
            tune.read_field(field[1], field[2])
        elif number < head:
            return f"{line[:20]!r} in the head is no field"
        else:
            tune.read_line(line)
    return tune.finish()


class _TuneChecker:
    """A tune as it is read: the length of the bar at hand, and the first thing that was wrong."""

    def __init__(self) -> None:
        self.meter: Fraction | None = Fraction(1)
        self.unit_length: Fraction | None = None
        self.fault, self.bar_number, self.bar_time, self.note_count = "", 1, Fraction(0), 0
        self.allows_short_bar = True  # a part begins here, so the bar may be short
        self.last_length, self.next_factor = (
            Fraction(0),
            Fraction(1),
        )  # the note before, and by what the next is shortened
        self.tuplet_notes_left, self.tuplet_factor = (
            0,
            Fraction(1),
        )  # notes left of a tuplet, and what each lasts of itself

    def read_field(self, name: str, value: str) -> None:
        if name == "M":
            self.meter = parse_meter(value)
            self.allows_short_bar = self.allows_short_bar or bool(self.bar_time)
        elif name == "L" and METER_PATTERN.fullmatch(value):
            self.unit_length = parse_meter(value)
        elif name == "P":
            self.allows_short_bar = True

    def read_line(self, text: str) -> None:
        place = 0
        plain = UNTIMED_PATTERN.sub(" ", text)
        for match in TOKEN_PATTERN.finditer(plain):
            if match.start() != place:
                break
            place = match.end()
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
        if place != len(plain) and not self.fault:
            self.fault = f"{plain[place:][:10]!r} in bar {self.bar_number} is no ABC"

    def read_note(self, token: str) -> None:
        first = re.search(rf"{NOTE_REGEX}({LENGTH_REGEX})", token)
        if first is None:
            self.fault = self.fault or f"{token!r} in bar {self.bar_number} has no note"
            return
        lasts = parse_note_length(first[1])
        if token.startswith("["):
            lasts *= parse_note_length(token.rpartition("]")[2])
        usual = Fraction(1, 16) if self.meter is not None and self.meter < Fraction(3, 4) else Fraction(1, 8)
        lasts *= (self.unit_length or usual) * (self.tuplet_factor if self.tuplet_notes_left else 1)
        self.tuplet_notes_left = max(0, self.tuplet_notes_left - 1)
        self.bar_time += lasts * self.next_factor
        self.last_length, self.next_factor = lasts, Fraction(1)
        self.note_count += 1

    def read_tuplet(self, values: list[int]) -> None:
        count, into, over = (*values, 0, 0)[:3]
        compound = self.meter is not None and self.meter.numerator % 3 == 0
        self.tuplet_notes_left = over or count
        self.tuplet_factor = Fraction(into or TUPLETS.get(count, 3 if compound else 2), max(1, count))

    def read_broken_rhythm(self, token: str) -> None:
        """A dot on one of two notes, taken from the other."""
        less = Fraction(1, 2 ** len(token))
        before, self.next_factor = (2 - less, less) if token[0] == ">" else (less, 2 - less)
        self.bar_time += self.last_length * (before - 1)

    def close_bar(self, at_section_end: bool) -> None:
        """The bar ends; between two plain bar lines it has to be full."""
        if self.bar_time:
            inner = not (at_section_end or self.allows_short_bar)
            wrong = self.meter is not None and (self.bar_time != self.meter if inner else self.bar_time > self.meter)
            if wrong and not self.fault:
                self.fault = f"bar {self.bar_number} is {self.bar_time} long where {self.meter} is needed"
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
    """The length of a bar; None where the tune has no metre.

    >>> parse_meter("6/8"), parse_meter("C|"), parse_meter("none")
    (Fraction(3, 4), Fraction(1, 1), None)
    """
    if text.strip() in ("C", "C|"):
        return Fraction(1)
    match = METER_PATTERN.fullmatch(text)
    return Fraction(int(match[1]), int(match[2])) if match and int(match[2]) else None


def parse_note_length(text: str) -> Fraction:
    """How many units a note lasts.

    >>> [str(parse_note_length(text)) for text in ("", "3", "/", "//", "3/2", "/4")]
    ['1', '3', '1/2', '1/4', '3/2', '1/4']
    """
    over, strokes, under = re.fullmatch(r"(\d*)(/*)(\d*)", text).groups()  # type: ignore[union-attr]
    below = int(under) if under else 2 ** len(strokes)
    return Fraction(int(over or 1), below) if below else Fraction(0)

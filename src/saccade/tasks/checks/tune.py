"""Tunes in ABC: a head with a number and a key, and bars that are as long as the metre says.

Where a part of a tune begins or ends (a repeat, a double bar, another ending) a bar may be shorter: an upbeat, and what is
missing because of it. What takes no time (chord names, ornaments, slurs) is skipped.
The standard: https://abcnotation.com/wiki/abc:standard
"""

import re
from fractions import Fraction

FIELD = re.compile(r"([A-Za-z+]):(.*)")
METRE = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")
UNTIMED = re.compile(r'"[^"]*"|![^!]*!|\{[^}]*\}|%.*')
NOTE = r"(?:[_=^]{0,2}[A-Ga-g][,']*|[zx])"
LENGTH = r"\d{0,4}/{0,4}\d{0,4}"
TOKEN = re.compile(
    r"(?P<field>\[[A-Za-z]:[^\]]*\])"
    r"|(?P<bar>:*\|[|\]:]*(?:\[?\d[\d,.-]*)?|::|\[\||\[\d[\d,.-]*)"
    rf"|(?P<chord>\[[^\]|]+\]{LENGTH})|(?P<note>{NOTE}{LENGTH})|(?P<rests>Z\d*)"
    r"|(?P<tuplet>\(\d(?::\d*){0,2})|(?P<broken>>+|<+)|(?P<other>[-\s()\\.~`H-Yuv+&*$;])"
)
TUPLETS = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}  # so many notes in the time of so many


def bars(text: str) -> str:
    """What is wrong with a tune, or nothing.

    >>> bars("X:1\\nM:3/4\\nL:1/4\\nK:G\\nD|GAB|d2B|c3|A2:|"), bars("X:1\\nM:3/4\\nL:1/4\\nK:G\\nGAB|d2|c3|A3|]")
    ('', 'bar 2 is 1/2 long where 3/4 is needed')
    """
    lines = [line for line in text.strip().split("\n") if line.strip() and not line.startswith("%")]
    head = next((i for i, line in enumerate(lines) if line.startswith("K:")), None)
    if not lines or not re.match(r"X:\s*\d", lines[0]):
        return "it does not begin with X: and a number"
    if head is None:
        return "it has no key (K:)"
    tune = _Tune()
    for number, line in enumerate(lines):
        field = FIELD.match(line)
        if field:
            tune.field(field[1], field[2])
        elif number < head:
            return f"{line[:20]!r} in the head is no field"
        else:
            tune.line(line)
    return tune.end()


class _Tune:
    """A tune as it is read: the length of the bar at hand, and the first thing that was wrong."""

    def __init__(self) -> None:
        self.metre: Fraction | None = Fraction(1)
        self.unit: Fraction | None = None
        self.fault, self.bar, self.time, self.notes = "", 1, Fraction(0), 0
        self.border = True  # a part begins here, so the bar may be short
        self.last, self.next = Fraction(0), Fraction(1)  # the note before, and by what the next is shortened
        self.many, self.share = 0, Fraction(1)  # notes left of a tuplet, and what each lasts of itself

    def field(self, name: str, value: str) -> None:
        if name == "M":
            self.metre = metre_of(value)
            self.border = self.border or bool(self.time)
        elif name == "L" and METRE.fullmatch(value):
            self.unit = metre_of(value)
        elif name == "P":
            self.border = True

    def line(self, text: str) -> None:
        place = 0
        plain = UNTIMED.sub(" ", text)
        for match in TOKEN.finditer(plain):
            if match.start() != place:
                break
            place = match.end()
            kind, token = str(match.lastgroup), match.group()
            if kind == "bar":
                self.close(token != "|")
            elif kind == "field":
                self.field(token[1], token[3:-1])
            elif kind in ("note", "chord"):
                self.note(token)
            elif kind == "rests":
                self.time += self.metre or 0
            elif kind == "tuplet":
                self.tuplet([int(part or 0) for part in token[1:].split(":")])
            elif kind == "broken":
                self.broken(token)
        if place != len(plain) and not self.fault:
            self.fault = f"{plain[place:][:10]!r} in bar {self.bar} is no ABC"

    def note(self, token: str) -> None:
        first = re.search(rf"{NOTE}({LENGTH})", token)
        if first is None:
            self.fault = self.fault or f"{token!r} in bar {self.bar} has no note"
            return
        lasts = length_of(first[1])
        if token.startswith("["):
            lasts *= length_of(token.rpartition("]")[2])
        usual = Fraction(1, 16) if self.metre is not None and self.metre < Fraction(3, 4) else Fraction(1, 8)
        lasts *= (self.unit or usual) * (self.share if self.many else 1)
        self.many = max(0, self.many - 1)
        self.time += lasts * self.next
        self.last, self.next = lasts, Fraction(1)
        self.notes += 1

    def tuplet(self, parts: list[int]) -> None:
        count, into, over = (*parts, 0, 0)[:3]
        compound = self.metre is not None and self.metre.numerator % 3 == 0
        self.many = over or count
        self.share = Fraction(into or TUPLETS.get(count, 3 if compound else 2), max(1, count))

    def broken(self, token: str) -> None:
        """A dot on one of two notes, taken from the other."""
        less = Fraction(1, 2 ** len(token))
        before, self.next = (2 - less, less) if token[0] == ">" else (less, 2 - less)
        self.time += self.last * (before - 1)

    def close(self, border: bool) -> None:
        """The bar ends; between two plain bar lines it has to be full."""
        if self.time:
            inner = not (border or self.border)
            wrong = self.metre is not None and (self.time != self.metre if inner else self.time > self.metre)
            if wrong and not self.fault:
                self.fault = f"bar {self.bar} is {self.time} long where {self.metre} is needed"
            self.bar += 1
            self.border = False
        self.border, self.time = self.border or border, Fraction(0)

    def end(self) -> str:
        closed = self.bar > 1
        self.close(True)
        if not self.fault and not self.notes:
            return "it has no notes"
        return self.fault or ("" if closed else "it has no bar lines")


def metre_of(text: str) -> Fraction | None:
    """The length of a bar; None where the tune has no metre.

    >>> metre_of("6/8"), metre_of("C|"), metre_of("none")
    (Fraction(3, 4), Fraction(1, 1), None)
    """
    if text.strip() in ("C", "C|"):
        return Fraction(1)
    match = METRE.fullmatch(text)
    return Fraction(int(match[1]), int(match[2])) if match and int(match[2]) else None


def length_of(text: str) -> Fraction:
    """How many units a note lasts.

    >>> [str(length_of(text)) for text in ("", "3", "/", "//", "3/2", "/4")]
    ['1', '3', '1/2', '1/4', '3/2', '1/4']
    """
    over, strokes, under = re.fullmatch(r"(\d*)(/*)(\d*)", text).groups()  # type: ignore[union-attr]
    below = int(under) if under else 2 ** len(strokes)
    return Fraction(int(over or 1), below) if below else Fraction(0)

"""Regular expressions, read: a tree of characters, sequences, choices and repetitions.

>>> read("a[bc]{2}|d?")
Either(parts=(Join(parts=(One(ranges=((97, 97),)), Repeat(part=One(ranges=((98, 99),)), least=2, most=2))), Repeat(part=One(\
ranges=((100, 100),)), least=0, most=1)))

What is read means what it means to Python's `re.fullmatch` with `re.ASCII`: letters, `.`, classes, `\\d \\w \\s \\D \\W \\S`,
escapes, `|`, `* + ? {m} {m,} {,n} {m,n}` and groups. The whole text has to match, so anchors are implied; they, words' borders,
look-around, references, names, flags and possessive repetition are refused by name. `translate` writes it in the dialect of
llguidance, where every class is spelled out in code points, so that nothing depends on what `\\d` or `.` means there.
"""

from dataclasses import dataclass
from typing import NoReturn

from saccade.errors import UsageError

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, in order and apart

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)  # no characters
DEPTH = 100  # groups in groups
TIMES = 1000
OFTEN = 8
MAX_CHARACTERS = 4_000  # of an expression, its repetitions written out
CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
CODES = {"x": 2, "u": 4, "U": 8}  # how many hexadecimal digits follow
REFUSED = {
    "b": "the border of a word",
    "B": "the inside of a word",
    "A": "an anchor",
    "Z": "an anchor",
    "N": "a character's name",
}
GROUPS = {
    "=": "look-ahead",
    "!": "look-ahead",
    "<": "look-behind",
    "P": "a named group",
    "#": "a comment",
    "(": "a condition",
    ">": "an atomic group",
}


@dataclass(frozen=True)
class One:
    """One character out of these."""

    ranges: Ranges


@dataclass(frozen=True)
class Join:
    """One after the other; without parts, the empty text."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Either:
    """Any one of these."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """The same again, so many times; None = without end."""

    part: "Node"
    least: int
    most: int | None


Node = One | Join | Either | Repeat


def read(expression: str) -> Node:
    """The tree of an expression; what is not read is refused with its place."""
    if any(SURROGATES[0] <= ord(letter) <= SURROGATES[1] for letter in expression):
        raise UsageError(f"The expression {expression!r} has half a character (a surrogate), which no text has.")
    node = _Reader(expression).whole()
    if _size(node) > MAX_CHARACTERS:
        raise UsageError(
            f"The expression {expression!r}, its repetitions written out, has more than {MAX_CHARACTERS:,} characters; "
            "repeat less often, or use * in place of a large number."
        )
    return node


def translate(node: Node) -> str:
    """The expression as llguidance reads it.

    >>> translate(read(r"\\d+|é"))
    '(?:(?:[\\\\x{30}-\\\\x{39}]){1,}|[\\\\x{e9}-\\\\x{e9}])'
    """
    if isinstance(node, One):
        return f"[{''.join(f'{_code(low)}-{_code(high)}' for low, high in node.ranges)}]"
    if isinstance(node, Join):
        return "".join(map(translate, node.parts))
    if isinstance(node, Either):
        return f"(?:{'|'.join(map(translate, node.parts))})"
    return f"(?:{translate(node.part)}){{{node.least},{'' if node.most is None else node.most}}}"


def shortest(node: Node) -> str:
    """The shortest text that matches, in bytes of UTF-8.

    >>> shortest(read("(abc|é)[x-z]{2,}"))
    'éxx'
    """
    if isinstance(node, One):
        return chr(node.ranges[0][0])
    if isinstance(node, Join):
        return "".join(map(shortest, node.parts))
    if isinstance(node, Either):
        return min(map(shortest, node.parts), key=lambda text: len(text.encode()))
    return shortest(node.part) * node.least


def farthest(node: Node) -> int:
    """A bound on the bytes that are still missing from a text that matches, wherever a beginning of one breaks off.

    >>> farthest(read("(ab)*c{3}")), farthest(read("[a-z]+"))
    (5, 1)
    """
    if isinstance(node, One):
        return len(chr(node.ranges[-1][1]).encode())
    if isinstance(node, Join):
        rest, most = 0, 0
        for part in reversed(node.parts):
            most = max(most, farthest(part) + rest)
            rest += len(shortest(part).encode())
        return most
    if isinstance(node, Either):
        return max(map(farthest, node.parts))
    return farthest(node.part) + max(0, node.least - 1) * len(shortest(node.part).encode())


def classes(node: Node) -> list[str]:
    """The classes of letters that may be repeated often, as llguidance reads them.

    >>> classes(read("a*[bc]{2}([0-9]+x)?"))
    ['[\\\\x{61}-\\\\x{61}]', '[\\\\x{30}-\\\\x{39}]']
    """
    if isinstance(node, One):
        return []
    if isinstance(node, Repeat):
        often = isinstance(node.part, One) and (node.most is None or node.most >= OFTEN)
        return [translate(node.part)] if often else classes(node.part)
    return list(dict.fromkeys(letters for part in node.parts for letters in classes(part)))


class _Reader:
    def __init__(self, text: str):
        self.text, self.at, self.depth = text, 0, 0

    def whole(self) -> Node:
        node = self.either()
        if self.at < len(self.text):
            self.refuse("a ) closes nothing; escape it, or open it")
        return node

    def either(self) -> Node:
        parts = [self.join()]
        while self.take("|"):
            parts.append(self.join())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def join(self) -> Node:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.repeated(self.single()))
        return parts[0] if len(parts) == 1 else Join(tuple(parts))

    def single(self) -> Node:
        letter = self.next()
        if letter == "(":
            return self.group()
        if letter == "[":
            return self.class_()
        if letter == ".":
            return One(_others(((10, 10),)))
        if letter == "\\":
            return One(self.escape())
        if letter in "^$":
            self.refuse(f"{letter} is an anchor, and the whole text has to match anyway; leave it out, or escape it", 1)
        if letter in "*+?{":
            self.refuse(f"{letter} has nothing to repeat; escape it to mean the letter", 1)
        return One(_letter(letter))

    def group(self) -> Node:
        if self.take("?") and not self.take(":"):
            kind = GROUPS.get(self.text[self.at : self.at + 1], "a flag")
            self.refuse(f"{kind} is not read here; a group is (...) or (?:...)", 2)
        self.depth += 1
        if self.depth > DEPTH:
            self.refuse(f"groups stand in groups more than {DEPTH} deep")
        node = self.either()
        self.depth -= 1
        if not self.take(")"):
            self.refuse("a group is not closed; a ) is missing")
        return node

    def repeated(self, node: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        least, most = bounds
        if max(least, most or 0) > TIMES:
            self.refuse(f"something is repeated {max(least, most or 0)} times; at most {TIMES} is read")
        if most is not None and most < least:
            self.refuse(f"{{{least},{most}}} ends before it begins")
        self.take("?")  # lazy or not, the same texts match
        if self.take("+"):
            self.refuse("possessive repetition is not read here; leave the second + out", 1)
        if self.text[self.at : self.at + 1] in ("*", "+", "?", "{"):
            self.refuse("a repetition is repeated; put the first in a group")
        return Repeat(node, least, most)

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return found
        if not self.take("{"):
            return None
        inside, closed, _ = self.text[self.at :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not (low + high).isascii() or not (low + high).isdigit() or not (comma or low):
            self.refuse("{ begins no {m}, {m,}, {,n} or {m,n}; escape it to mean the letter", 1)
        self.at += len(inside) + 1
        least = int(low or 0)
        return least, int(high) if high else None if comma else least

    def class_(self) -> Node:
        negated = self.take("^")
        found = list(self.span())  # a ] that stands first is the letter
        while not self.take("]"):
            found += self.span()
        ranges = _others(_joined(found)) if negated else _joined(found)
        if not ranges:
            self.refuse("a class allows no character at all")
        return One(ranges)

    def span(self) -> Ranges:
        """A letter, an escape, or a letter-to-letter of a class."""
        low = self.member()
        if self.text[self.at : self.at + 1] != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return low
        self.at += 1
        high = self.member()
        if _width(low) != 1 or _width(high) != 1 or high[0][0] < low[0][0]:
            self.refuse("a span of a class goes from one letter up to another")
        return ((low[0][0], high[0][0]),)

    def member(self) -> Ranges:
        letter = self.next("a class is not closed; a ] is missing")
        return self.escape(inside=True) if letter == "\\" else ((ord(letter), ord(letter)),)

    def escape(self, inside: bool = False) -> Ranges:
        letter = self.next("the expression ends with a backslash; double it to mean the letter")
        if letter.lower() in CLASSES:
            ranges = CLASSES[letter.lower()]
            return ranges if letter.islower() else _others(ranges)
        if letter in CODES:
            digits = self.text[self.at : self.at + CODES[letter]]
            if len(digits) < CODES[letter] or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                self.refuse(f"\\{letter} needs {CODES[letter]} hexadecimal digits")
            self.at += len(digits)
            code = int(digits, 16)
            found = _joined([(code, code)]) if code <= LAST else ()
            return found or self.refuse(f"\\{letter}{digits} is no character")
        if letter == "b" and inside:
            return ((8, 8),)
        if letter in LETTERS:
            return _letter(LETTERS[letter])
        if letter in REFUSED:
            self.refuse(f"\\{letter} is {REFUSED[letter]}, which is not read here", 2)
        if letter.isdigit():
            self.refuse(f"\\{letter} refers back to a group, which is not read here", 2)
        if letter.isascii() and letter.isalpha():
            self.refuse(f"\\{letter} means nothing", 2)
        return _letter(letter)

    def take(self, sign: str) -> bool:
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def next(self, missing: str = "") -> str:
        if self.at >= len(self.text):
            self.refuse(missing)
        self.at += 1
        return self.text[self.at - 1]

    def refuse(self, why: str, back: int = 0) -> NoReturn:
        raise UsageError(f"The expression {self.text!r}, place {self.at - back}: {why}.")


def _size(node: Node) -> int:
    """Characters, repetitions written out."""
    if isinstance(node, One):
        return 1
    if isinstance(node, Repeat):
        return _size(node.part) * max(1, node.least if node.most is None else node.most)
    return sum(map(_size, node.parts))


def _code(point: int) -> str:
    return f"\\x{{{point:x}}}"


def _letter(letter: str) -> Ranges:
    return ((ord(letter), ord(letter)),)


def _width(ranges: Ranges) -> int:
    return sum(high - low + 1 for low, high in ranges)


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    """In order, apart, and without surrogates."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    first, last = SURROGATES
    pieces = [piece for low, high in out for piece in ((low, min(high, first - 1)), (max(low, last + 1), high))]
    return tuple((low, high) for low, high in pieces if low <= high)


def _others(ranges: Ranges) -> Ranges:
    """All characters but these."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), LAST + 1]
    return _joined([(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2) if edges[i] + 1 < edges[i + 1]])

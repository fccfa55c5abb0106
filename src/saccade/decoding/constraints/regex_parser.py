"""Regular expressions, read: a tree of characters, sequences, choices and repetitions.

>>> parse_regex("a[bc]{2}|d?")
Alternation(nodes=(Concatenation(nodes=(CharacterClass(ranges=((97, 97),)), Repeat(node=CharacterClass(ranges=((98, 99),)), \
min_count=2, max_count=2))), Repeat(node=CharacterClass(ranges=((100, 100),)), min_count=0, max_count=1)))

What is read means what it means to Python's `re.fullmatch` with `re.ASCII`: letters, `.`, classes, `\\d \\w \\s \\D \\W \\S`,
escapes, `|`, `* + ? {m} {m,} {,n} {m,n}` and groups. The whole text has to match, so anchors are implied; they, words' borders,
look-around, references, names, flags and possessive repetition are refused by name. `to_llguidance` writes it in the dialect of
llguidance, where every class is spelled out in code points, so that nothing depends on what `\\d` or `.` means there.
"""

from dataclasses import dataclass
from typing import NoReturn

from saccade.errors import UsageError

CodePointRanges = tuple[tuple[int, int], ...]  # of code points, both ends included, in order and apart

MAX_CODE_POINT = 0x10FFFF
SURROGATE_RANGE = (0xD800, 0xDFFF)  # no characters
MAX_GROUP_DEPTH = 100  # groups in groups
MAX_REPETITIONS = 1000
MIN_FREQUENT_REPETITIONS = 8
MAX_CHARACTERS = 4_000  # of an expression, its repetitions written out
CHARACTER_CLASSES: dict[str, CodePointRanges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
CONTROL_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
HEX_ESCAPE_DIGITS = {"x": 2, "u": 4, "U": 8}  # how many hexadecimal digits follow
UNSUPPORTED_ESCAPES = {
    "b": "the border of a word",
    "B": "the inside of a word",
    "A": "an anchor",
    "Z": "an anchor",
    "N": "a character's name",
}
UNSUPPORTED_GROUPS = {
    "=": "look-ahead",
    "!": "look-ahead",
    "<": "look-behind",
    "P": "a named group",
    "#": "a comment",
    "(": "a condition",
    ">": "an atomic group",
}


@dataclass(frozen=True)
class CharacterClass:
    """One character out of these."""

    ranges: CodePointRanges


@dataclass(frozen=True)
class Concatenation:
    """One after the other; without parts, the empty text."""

    nodes: tuple["RegexNode", ...]


@dataclass(frozen=True)
class Alternation:
    """Any one of these."""

    nodes: tuple["RegexNode", ...]


@dataclass(frozen=True)
class Repeat:
    """The same again, so many times; None = without end."""

    node: "RegexNode"
    min_count: int
    max_count: int | None


RegexNode = CharacterClass | Concatenation | Alternation | Repeat


def parse_regex(regex: str) -> RegexNode:
    """The tree of an expression; what is not read is refused with its place."""
    if any(SURROGATE_RANGE[0] <= ord(letter) <= SURROGATE_RANGE[1] for letter in regex):
        raise UsageError(f"The expression {regex!r} has half a character (a surrogate), which no text has.")
    node = _Parser(regex).parse()
    if _expanded_length(node) > MAX_CHARACTERS:
        raise UsageError(
            f"The expression {regex!r}, its repetitions written out, has more than {MAX_CHARACTERS:,} characters; "
            "repeat less often, or use * in place of a large number."
        )
    return node


def to_llguidance(node: RegexNode) -> str:
    """The expression as llguidance reads it.

    >>> to_llguidance(parse_regex(r"\\d+|é"))
    '(?:(?:[\\\\x{30}-\\\\x{39}]){1,}|[\\\\x{e9}-\\\\x{e9}])'
    """
    if isinstance(node, CharacterClass):
        return f"[{''.join(f'{_escape_code_point(low)}-{_escape_code_point(high)}' for low, high in node.ranges)}]"
    if isinstance(node, Concatenation):
        return "".join(map(to_llguidance, node.nodes))
    if isinstance(node, Alternation):
        return f"(?:{'|'.join(map(to_llguidance, node.nodes))})"
    return f"(?:{to_llguidance(node.node)}){{{node.min_count},{'' if node.max_count is None else node.max_count}}}"


def shortest_match(node: RegexNode) -> str:
    """The shortest text that matches, in bytes of UTF-8.

    >>> shortest_match(parse_regex("(abc|é)[x-z]{2,}"))
    'éxx'
    """
    if isinstance(node, CharacterClass):
        return chr(node.ranges[0][0])
    if isinstance(node, Concatenation):
        return "".join(map(shortest_match, node.nodes))
    if isinstance(node, Alternation):
        return min(map(shortest_match, node.nodes), key=lambda text: len(text.encode()))
    return shortest_match(node.node) * node.min_count


def max_bytes_to_end(node: RegexNode) -> int:
    """A bound on the bytes that are still missing from a text that matches, wherever a beginning of one breaks off.

    >>> max_bytes_to_end(parse_regex("(ab)*c{3}")), max_bytes_to_end(parse_regex("[a-z]+"))
    (5, 1)
    """
    if isinstance(node, CharacterClass):
        return len(chr(node.ranges[-1][1]).encode())
    if isinstance(node, Concatenation):
        rest, most = 0, 0
        for part in reversed(node.nodes):
            most = max(most, max_bytes_to_end(part) + rest)
            rest += len(shortest_match(part).encode())
        return most
    if isinstance(node, Alternation):
        return max(map(max_bytes_to_end, node.nodes))
    return max_bytes_to_end(node.node) + max(0, node.min_count - 1) * len(shortest_match(node.node).encode())


def repeated_classes(node: RegexNode) -> list[str]:
    """The classes of letters that may be repeated often, as llguidance reads them.

    >>> repeated_classes(parse_regex("a*[bc]{2}([0-9]+x)?"))
    ['[\\\\x{61}-\\\\x{61}]', '[\\\\x{30}-\\\\x{39}]']
    """
    if isinstance(node, CharacterClass):
        return []
    if isinstance(node, Repeat):
        often = isinstance(node.node, CharacterClass) and (
            node.max_count is None or node.max_count >= MIN_FREQUENT_REPETITIONS
        )
        return [to_llguidance(node.node)] if often else repeated_classes(node.node)
    return list(dict.fromkeys(letters for part in node.nodes for letters in repeated_classes(part)))


class _Parser:
    def __init__(self, text: str):
        self.text, self.position, self.depth = text, 0, 0

    def parse(self) -> RegexNode:
        node = self.parse_alternation()
        if self.position < len(self.text):
            self.fail("a ) closes nothing; escape it, or open it")
        return node

    def parse_alternation(self) -> RegexNode:
        parts = [self.parse_concatenation()]
        while self.accept("|"):
            parts.append(self.parse_concatenation())
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def parse_concatenation(self) -> RegexNode:
        parts = []
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            parts.append(self.parse_repeat(self.parse_atom()))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def parse_atom(self) -> RegexNode:
        letter = self.next_character()
        if letter == "(":
            return self.parse_group()
        if letter == "[":
            return self.parse_class()
        if letter == ".":
            return CharacterClass(_invert_ranges(((10, 10),)))
        if letter == "\\":
            return CharacterClass(self.parse_escape())
        if letter in "^$":
            self.fail(f"{letter} is an anchor, and the whole text has to match anyway; leave it out, or escape it", 1)
        if letter in "*+?{":
            self.fail(f"{letter} has nothing to repeat; escape it to mean the letter", 1)
        return CharacterClass(_single_character(letter))

    def parse_group(self) -> RegexNode:
        if self.accept("?") and not self.accept(":"):
            kind = UNSUPPORTED_GROUPS.get(self.text[self.position : self.position + 1], "a flag")
            self.fail(f"{kind} is not read here; a group is (...) or (?:...)", 2)
        self.depth += 1
        if self.depth > MAX_GROUP_DEPTH:
            self.fail(f"groups stand in groups more than {MAX_GROUP_DEPTH} deep")
        node = self.parse_alternation()
        self.depth -= 1
        if not self.accept(")"):
            self.fail("a group is not closed; a ) is missing")
        return node

    def parse_repeat(self, node: RegexNode) -> RegexNode:
        bounds = self.parse_counts()
        if bounds is None:
            return node
        least, most = bounds
        if max(least, most or 0) > MAX_REPETITIONS:
            self.fail(f"something is repeated {max(least, most or 0)} times; at most {MAX_REPETITIONS} is read")
        if most is not None and most < least:
            self.fail(f"{{{least},{most}}} ends before it begins")
        self.accept("?")  # lazy or not, the same texts match
        if self.accept("+"):
            self.fail("possessive repetition is not read here; leave the second + out", 1)
        if self.text[self.position : self.position + 1] in ("*", "+", "?", "{"):
            self.fail("a repetition is repeated; put the first in a group")
        return Repeat(node, least, most)

    def parse_counts(self) -> tuple[int, int | None] | None:
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(sign):
                return found
        if not self.accept("{"):
            return None
        inside, closed, _ = self.text[self.position :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not (low + high).isascii() or not (low + high).isdigit() or not (comma or low):
            self.fail("{ begins no {m}, {m,}, {,n} or {m,n}; escape it to mean the letter", 1)
        self.position += len(inside) + 1
        least = int(low or 0)
        return least, int(high) if high else None if comma else least

    def parse_class(self) -> RegexNode:
        negated = self.accept("^")
        found = list(self.parse_range())  # a ] that stands first is the letter
        while not self.accept("]"):
            found += self.parse_range()
        ranges = _invert_ranges(_merge_ranges(found)) if negated else _merge_ranges(found)
        if not ranges:
            self.fail("a class allows no character at all")
        return CharacterClass(ranges)

    def parse_range(self) -> CodePointRanges:
        """A letter, an escape, or a letter-to-letter of a class."""
        low = self.parse_class_member()
        if self.text[self.position : self.position + 1] != "-" or self.text[self.position + 1 : self.position + 2] in (
            "]",
            "",
        ):
            return low
        self.position += 1
        high = self.parse_class_member()
        if _count_code_points(low) != 1 or _count_code_points(high) != 1 or high[0][0] < low[0][0]:
            self.fail("a span of a class goes from one letter up to another")
        return ((low[0][0], high[0][0]),)

    def parse_class_member(self) -> CodePointRanges:
        letter = self.next_character("a class is not closed; a ] is missing")
        return self.parse_escape(inside=True) if letter == "\\" else ((ord(letter), ord(letter)),)

    def parse_escape(self, inside: bool = False) -> CodePointRanges:
        letter = self.next_character("the expression ends with a backslash; double it to mean the letter")
        if letter.lower() in CHARACTER_CLASSES:
            ranges = CHARACTER_CLASSES[letter.lower()]
            return ranges if letter.islower() else _invert_ranges(ranges)
        if letter in HEX_ESCAPE_DIGITS:
            digits = self.text[self.position : self.position + HEX_ESCAPE_DIGITS[letter]]
            if len(digits) < HEX_ESCAPE_DIGITS[letter] or any(
                digit not in "0123456789abcdefABCDEF" for digit in digits
            ):
                self.fail(f"\\{letter} needs {HEX_ESCAPE_DIGITS[letter]} hexadecimal digits")
            self.position += len(digits)
            code = int(digits, 16)
            found = _merge_ranges([(code, code)]) if code <= MAX_CODE_POINT else ()
            return found or self.fail(f"\\{letter}{digits} is no character")
        if letter == "b" and inside:
            return ((8, 8),)
        if letter in CONTROL_ESCAPES:
            return _single_character(CONTROL_ESCAPES[letter])
        if letter in UNSUPPORTED_ESCAPES:
            self.fail(f"\\{letter} is {UNSUPPORTED_ESCAPES[letter]}, which is not read here", 2)
        if letter.isdigit():
            self.fail(f"\\{letter} refers back to a group, which is not read here", 2)
        if letter.isascii() and letter.isalpha():
            self.fail(f"\\{letter} means nothing", 2)
        return _single_character(letter)

    def accept(self, symbol: str) -> bool:
        found = self.text.startswith(symbol, self.position)
        self.position += len(symbol) if found else 0
        return found

    def next_character(self, message: str = "") -> str:
        if self.position >= len(self.text):
            self.fail(message)
        self.position += 1
        return self.text[self.position - 1]

    def fail(self, reason: str, back: int = 0) -> NoReturn:
        raise UsageError(f"The expression {self.text!r}, place {self.position - back}: {reason}.")


def _expanded_length(node: RegexNode) -> int:
    """Characters, repetitions written out."""
    if isinstance(node, CharacterClass):
        return 1
    if isinstance(node, Repeat):
        return _expanded_length(node.node) * max(1, node.min_count if node.max_count is None else node.max_count)
    return sum(map(_expanded_length, node.nodes))


def _escape_code_point(code_point: int) -> str:
    return f"\\x{{{code_point:x}}}"


def _single_character(character: str) -> CodePointRanges:
    return ((ord(character), ord(character)),)


def _count_code_points(ranges: CodePointRanges) -> int:
    return sum(high - low + 1 for low, high in ranges)


def _merge_ranges(ranges: list[tuple[int, int]]) -> CodePointRanges:
    """In order, apart, and without surrogates."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    first, last = SURROGATE_RANGE
    pieces = [piece for low, high in out for piece in ((low, min(high, first - 1)), (max(low, last + 1), high))]
    return tuple((low, high) for low, high in pieces if low <= high)


def _invert_ranges(ranges: CodePointRanges) -> CodePointRanges:
    """All characters but these."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), MAX_CODE_POINT + 1]
    return _merge_ranges(
        [(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2) if edges[i] + 1 < edges[i + 1]]
    )

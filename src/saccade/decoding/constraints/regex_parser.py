"""Parser of regular expressions for constrained decoding: a syntax tree of characters, sequences, choices and repetitions.

>>> parse_regex("a[bc]{2}|d?")
Alternation(nodes=(Concatenation(nodes=(CharacterClass(ranges=((97, 97),)), Repeat(node=CharacterClass(ranges=((98, 99),)), \
min_count=2, max_count=2))), Repeat(node=CharacterClass(ranges=((100, 100),)), min_count=0, max_count=1)))

The semantics are those of Python's `re.fullmatch` with `re.ASCII`. Supported are characters, `.`, classes, `\\d \\w \\s
\\D \\W \\S`, escapes, `|`, `* + ? {m} {m,} {,n} {m,n}` and groups. The whole text has to match, so anchors are implied;
anchors, word boundaries, look-around, backreferences, named groups, flags and possessive quantifiers raise an error.
`to_llguidance` writes the expression in the dialect of llguidance with all classes as code points, so that nothing
depends on what `\\d` or `.` means there.
"""

from dataclasses import dataclass
from typing import NoReturn

from saccade.errors import UsageError

CodePointRanges = tuple[tuple[int, int], ...]  # inclusive ranges of code points, sorted and disjoint

MAX_CODE_POINT = 0x10FFFF
SURROGATE_RANGE = (0xD800, 0xDFFF)  # not characters
MAX_GROUP_DEPTH = 100  # nesting depth of groups
MAX_REPETITIONS = 1000
MIN_FREQUENT_REPETITIONS = 8
MAX_CHARACTERS = 4_000  # characters of an expression with its repetitions expanded
CHARACTER_CLASSES: dict[str, CodePointRanges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
CONTROL_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
HEX_ESCAPE_DIGITS = {"x": 2, "u": 4, "U": 8}  # escape -> number of hexadecimal digits
UNSUPPORTED_ESCAPES = {
    "b": "a word boundary",
    "B": "a word boundary",
    "A": "an anchor",
    "Z": "an anchor",
    "N": "a character name",
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
    """One character out of a set."""

    ranges: CodePointRanges


@dataclass(frozen=True)
class Concatenation:
    """A sequence of nodes; without any, the empty text."""

    nodes: tuple["RegexNode", ...]


@dataclass(frozen=True)
class Alternation:
    """One of several nodes."""

    nodes: tuple["RegexNode", ...]


@dataclass(frozen=True)
class Repeat:
    """A node repeated from `min_count` to `max_count` times; None for no maximum."""

    node: "RegexNode"
    min_count: int
    max_count: int | None


RegexNode = CharacterClass | Concatenation | Alternation | Repeat


def parse_regex(regex: str) -> RegexNode:
    """Parse an expression; unsupported syntax raises an error with its position."""
    if any(SURROGATE_RANGE[0] <= ord(letter) <= SURROGATE_RANGE[1] for letter in regex):
        raise UsageError(f"The expression {regex!r} contains a surrogate, which is not a character.")
    node = _Parser(regex).parse()
    if _expanded_length(node) > MAX_CHARACTERS:
        raise UsageError(
            f"The expression {regex!r} has more than {MAX_CHARACTERS:,} characters with its repetitions expanded; use smaller "
            "counts, or * in place of a large number."
        )
    return node


def to_llguidance(node: RegexNode) -> str:
    """Write an expression in the regex dialect of llguidance.

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
    """The shortest match of an expression, in UTF-8 bytes.

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
    """An upper bound on the bytes that complete any prefix of a match.

    >>> max_bytes_to_end(parse_regex("(ab)*c{3}")), max_bytes_to_end(parse_regex("[a-z]+"))
    (5, 1)
    """
    if isinstance(node, CharacterClass):
        return len(chr(node.ranges[-1][1]).encode())
    if isinstance(node, Concatenation):
        following, longest = 0, 0
        for part in reversed(node.nodes):
            longest = max(longest, max_bytes_to_end(part) + following)
            following += len(shortest_match(part).encode())
        return longest
    if isinstance(node, Alternation):
        return max(map(max_bytes_to_end, node.nodes))
    return max_bytes_to_end(node.node) + max(0, node.min_count - 1) * len(shortest_match(node.node).encode())


def repeated_classes(node: RegexNode) -> list[str]:
    """The character classes that may be repeated many times, in the dialect of llguidance.

    >>> repeated_classes(parse_regex("a*[bc]{2}([0-9]+x)?"))
    ['[\\\\x{61}-\\\\x{61}]', '[\\\\x{30}-\\\\x{39}]']
    """
    if isinstance(node, CharacterClass):
        return []
    if isinstance(node, Repeat):
        is_frequent = isinstance(node.node, CharacterClass) and (
            node.max_count is None or node.max_count >= MIN_FREQUENT_REPETITIONS
        )
        return [to_llguidance(node.node)] if is_frequent else repeated_classes(node.node)
    return list(dict.fromkeys(characters for part in node.nodes for characters in repeated_classes(part)))


class _Parser:
    def __init__(self, text: str):
        self.text, self.position, self.depth = text, 0, 0

    def parse(self) -> RegexNode:
        node = self.parse_alternation()
        if self.position < len(self.text):
            self.fail("unbalanced ); escape it, or add a (")
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
            self.fail(f"{letter} is an anchor, and the whole text has to match anyway; remove it, or escape it", 1)
        if letter in "*+?{":
            self.fail(f"{letter} has nothing to repeat; escape it to match the character", 1)
        return CharacterClass(_single_character(letter))

    def parse_group(self) -> RegexNode:
        if self.accept("?") and not self.accept(":"):
            kind = UNSUPPORTED_GROUPS.get(self.text[self.position : self.position + 1], "a flag")
            self.fail(f"{kind} is not supported; a group is (...) or (?:...)", 2)
        self.depth += 1
        if self.depth > MAX_GROUP_DEPTH:
            self.fail(f"groups are nested more than {MAX_GROUP_DEPTH} levels deep")
        node = self.parse_alternation()
        self.depth -= 1
        if not self.accept(")"):
            self.fail("missing ), unterminated group")
        return node

    def parse_repeat(self, node: RegexNode) -> RegexNode:
        bounds = self.parse_counts()
        if bounds is None:
            return node
        min_count, max_count = bounds
        if max(min_count, max_count or 0) > MAX_REPETITIONS:
            self.fail(
                f"a count of {max(min_count, max_count or 0)} is above the maximum of {MAX_REPETITIONS} repetitions"
            )
        if max_count is not None and max_count < min_count:
            self.fail(f"the minimum of {{{min_count},{max_count}}} is above its maximum")
        self.accept("?")  # a lazy quantifier matches the same texts
        if self.accept("+"):
            self.fail("possessive quantifiers are not supported; remove the second +", 1)
        if self.text[self.position : self.position + 1] in ("*", "+", "?", "{"):
            self.fail("multiple repeat; put the first repetition in a group")
        return Repeat(node, min_count, max_count)

    def parse_counts(self) -> tuple[int, int | None] | None:
        for symbol, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(symbol):
                return counts
        if not self.accept("{"):
            return None
        inside, closed, _ = self.text[self.position :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not (low + high).isascii() or not (low + high).isdigit() or not (comma or low):
            self.fail("{ does not begin {m}, {m,}, {,n} or {m,n}; escape it to match the character", 1)
        self.position += len(inside) + 1
        min_count = int(low or 0)
        return min_count, int(high) if high else None if comma else min_count

    def parse_class(self) -> RegexNode:
        is_negated = self.accept("^")
        members = list(self.parse_range())  # a ] in first position is a literal
        while not self.accept("]"):
            members += self.parse_range()
        ranges = _invert_ranges(_merge_ranges(members)) if is_negated else _merge_ranges(members)
        if not ranges:
            self.fail("the character class is empty")
        return CharacterClass(ranges)

    def parse_range(self) -> CodePointRanges:
        """A character, an escape, or a range of a character class."""
        low = self.parse_class_member()
        if self.text[self.position : self.position + 1] != "-" or self.text[self.position + 1 : self.position + 2] in (
            "]",
            "",
        ):
            return low
        self.position += 1
        high = self.parse_class_member()
        if _count_code_points(low) != 1 or _count_code_points(high) != 1 or high[0][0] < low[0][0]:
            self.fail("bad character range; its ends must be single characters in ascending order")
        return ((low[0][0], high[0][0]),)

    def parse_class_member(self) -> CodePointRanges:
        letter = self.next_character("missing ], unterminated character class")
        return self.parse_escape(inside=True) if letter == "\\" else ((ord(letter), ord(letter)),)

    def parse_escape(self, inside: bool = False) -> CodePointRanges:
        letter = self.next_character("the expression ends with a backslash; double it to match the character")
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
            ranges = _merge_ranges([(code, code)]) if code <= MAX_CODE_POINT else ()
            return ranges or self.fail(f"\\{letter}{digits} is not a character")
        if letter == "b" and inside:
            return ((8, 8),)
        if letter in CONTROL_ESCAPES:
            return _single_character(CONTROL_ESCAPES[letter])
        if letter in UNSUPPORTED_ESCAPES:
            self.fail(f"\\{letter} is {UNSUPPORTED_ESCAPES[letter]}, which is not supported", 2)
        if letter.isdigit():
            self.fail(f"\\{letter} is a backreference, which is not supported", 2)
        if letter.isascii() and letter.isalpha():
            self.fail(f"bad escape \\{letter}", 2)
        return _single_character(letter)

    def accept(self, symbol: str) -> bool:
        matches = self.text.startswith(symbol, self.position)
        self.position += len(symbol) if matches else 0
        return matches

    def next_character(self, message: str = "") -> str:
        if self.position >= len(self.text):
            self.fail(message)
        self.position += 1
        return self.text[self.position - 1]

    def fail(self, reason: str, back: int = 0) -> NoReturn:
        raise UsageError(f"The expression {self.text!r}, position {self.position - back}: {reason}.")


def _expanded_length(node: RegexNode) -> int:
    """The number of characters of an expression with its repetitions expanded."""
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
    """Sort and merge ranges, and remove surrogates."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    first, last = SURROGATE_RANGE
    ranges = [part for low, high in out for part in ((low, min(high, first - 1)), (max(low, last + 1), high))]
    return tuple((low, high) for low, high in ranges if low <= high)


def _invert_ranges(ranges: CodePointRanges) -> CodePointRanges:
    """All characters outside the ranges."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), MAX_CODE_POINT + 1]
    return _merge_ranges(
        [(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2) if edges[i] + 1 < edges[i + 1]]
    )

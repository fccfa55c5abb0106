"""Regular expressions from strangers: refused where their cost can explode, which they are trusted never to need."""

import re
from dataclasses import dataclass

from saccade.errors import ModelError

MAX_REGEX_CHARACTERS = 2_000  # characters of a regular expression; GPT-4's has about 150
MAX_GROUP_DEPTH = 20  # of groups in groups
MAX_REPEATS_IN_ROW = (
    3  # unbounded repeats one after the other, each of which may take letters from the next; published ones have two
)
MAX_REPEAT_COUNT = 10_000


def check_regex(regex: str, where: str) -> None:
    """Refuse a regular expression whose cost can explode: repeats within repeats, and huge counts.

    >>> check_regex(r"'s|'t| ?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+", "a.json")
    >>> check_regex("(a+)+$", "a.json")
    Traceback (most recent call last):
    saccade.errors.ModelError: a.json: the pattern '(a+)+$' repeats a repetition, which can take for ever; such files are ...
    """
    if len(regex) > MAX_REGEX_CHARACTERS:
        raise ModelError(
            f"{where} has a pattern of {len(regex):,} characters; at most {MAX_REGEX_CHARACTERS:,} are read."
        )
    wrong = _find_backreference(regex) or _find_huge_count(_simplify(regex)) or _find_nested_repeat(_simplify(regex))
    if wrong:
        raise ModelError(f"{where}: the pattern {regex[:60]!r} {wrong}; such files are not read.")


def _simplify(regex: str) -> str:
    """The skeleton: escapes and classes count as a letter, and groups lose what says their kind."""
    bare = re.sub(r"\\[pP]\{[^}]*\}|\\.", "x", regex, flags=re.DOTALL)
    bare = re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", "x", bare)
    return re.sub(r"\(\?(?:<?[=!]|[a-zA-Z-]*:|P?<\w+>|'\w+'|[>~])", "(", bare)


def _find_backreference(regex: str) -> str | None:
    """Whether it asks for what a group found before, or for a group again."""
    plain = re.sub(r"\\[^1-9kg]", "x", regex, flags=re.DOTALL)
    return "refers to its own groups, which can take for ever" if re.search(r"\\[1-9kg]|\(\?[R(]", plain) else None


def _find_huge_count(skeleton: str) -> str | None:
    """Whether its counts, one within the other, may be huge."""
    counts = 1
    for most in re.findall(r"\{(?:\d*,)?(\d+)\}", skeleton):
        counts *= max(1, int(most[:9]))
    return f"counts up to {counts:,}" if counts > MAX_REPEAT_COUNT else None


@dataclass
class _Group:
    """What was seen of an open group: may it match in several ways, and how many unbounded repeats stand in a row?"""

    is_ambiguous: bool = False
    repeats: int = 0  # in this alternative
    max_repeats: int = 0  # in those before


def _find_nested_repeat(skeleton: str) -> str | None:
    """Whether a repeat applies to a group that can match the same letters in several ways, or too many stand in a row."""
    groups, closed, repeated = [_Group()], None, ""
    for word in re.findall(r"\{\d*,?\d*\}|.", skeleton, flags=re.DOTALL):
        top = groups[-1]
        if word[0] in "*+?" or (word[0] == "{" and len(word) > 1):
            if repeated and (word == "?" or (word == "+" and repeated in "*+?")):  # greedy or not: the same count
                continue
            if repeated or (closed is not None and closed.is_ambiguous and word != "?"):
                return "repeats a repetition, which can take for ever"
            top.is_ambiguous |= not re.fullmatch(r"\{\d+\}", word)
            top.repeats += word in "*+" or word.endswith(",}")
            repeated = word
            continue
        repeated = ""
        closed = groups.pop() if word == ")" and len(groups) > 1 else None
        if word == "(":
            groups.append(_Group())
        elif word == "|":
            top.is_ambiguous, top.max_repeats, top.repeats = True, max(top.max_repeats, top.repeats), 0
        elif closed is not None:
            groups[-1].is_ambiguous |= closed.is_ambiguous
            groups[-1].repeats += max(closed.repeats, closed.max_repeats)
        if len(groups) > MAX_GROUP_DEPTH:
            return f"has groups more than {MAX_GROUP_DEPTH} deep"
        if groups[-1].repeats > MAX_REPEATS_IN_ROW:
            return f"has more than {MAX_REPEATS_IN_ROW} repeats in a row, which can take for ever"
    return (
        f"has more than {MAX_REPEATS_IN_ROW} repeats in a row, which can take for ever"
        if groups[0].repeats > MAX_REPEATS_IN_ROW
        else None
    )

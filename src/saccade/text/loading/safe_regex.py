"""Checks untrusted regular expressions: those that can take exponential time (ReDoS) are rejected."""

import re
from dataclasses import dataclass

from saccade.errors import ModelError

MAX_REGEX_CHARACTERS = 2_000  # GPT-4's regular expression has about 150
MAX_GROUP_DEPTH = 20  # of nested groups
MAX_REPEATS_IN_ROW = 3  # consecutive unbounded repeats, which may match the same characters; published ones have two
MAX_REPEAT_COUNT = 10_000
_TOO_MANY_REPEATS = f"has more than {MAX_REPEATS_IN_ROW} consecutive repeats, which can take exponential time"


def check_regex(regex: str, where: str) -> None:
    """Raise ModelError for a regular expression that can take exponential time: nested repeats, and huge counts.

    >>> check_regex(r"'s|'t| ?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+", "a.json")
    >>> check_regex("(a+)+$", "a.json")
    Traceback (most recent call last):
    saccade.errors.ModelError: a.json: the pattern '(a+)+$' has nested repeats, which can take exponential time; such files ...
    """
    if len(regex) > MAX_REGEX_CHARACTERS:
        raise ModelError(
            f"{where} has a pattern of {len(regex):,} characters; at most {MAX_REGEX_CHARACTERS:,} are supported."
        )
    problem = _find_backreference(regex) or _find_huge_count(_simplify(regex)) or _find_nested_repeat(_simplify(regex))
    if problem:
        raise ModelError(f"{where}: the pattern {regex[:60]!r} {problem}; such files are not loaded.")


def _simplify(regex: str) -> str:
    """The skeleton of a regular expression: escapes and classes become a letter, groups lose their flags."""
    skeleton = re.sub(r"\\[pP]\{[^}]*\}|\\.", "x", regex, flags=re.DOTALL)
    skeleton = re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", "x", skeleton)
    return re.sub(r"\(\?(?:<?[=!]|[a-zA-Z-]*:|P?<\w+>|'\w+'|[>~])", "(", skeleton)


def _find_backreference(regex: str) -> str | None:
    """A description of the problem if the expression has backreferences or recursion."""
    plain = re.sub(r"\\[^1-9kg]", "x", regex, flags=re.DOTALL)
    return "has backreferences, which can take exponential time" if re.search(r"\\[1-9kg]|\(\?[R(]", plain) else None


def _find_huge_count(skeleton: str) -> str | None:
    """A description of the problem if the product of all counts is huge."""
    product = 1
    for maximum in re.findall(r"\{(?:\d*,)?(\d+)\}", skeleton):
        product *= max(1, int(maximum[:9]))
    return f"has counts up to {product:,}" if product > MAX_REPEAT_COUNT else None


@dataclass
class _Group:
    """An open group: whether it can match in several ways, and its number of consecutive unbounded repeats."""

    is_ambiguous: bool = False
    repeats: int = 0  # in the current alternative
    max_repeats: int = 0  # in previous alternatives


def _find_nested_repeat(skeleton: str) -> str | None:
    """A description of the problem if a repeat applies to an ambiguous group, or too many repeats are consecutive."""
    groups, closed, repeated = [_Group()], None, ""
    for token in re.findall(r"\{\d*,?\d*\}|.", skeleton, flags=re.DOTALL):
        group = groups[-1]
        if token[0] in "*+?" or (token[0] == "{" and len(token) > 1):
            if repeated and (
                token == "?" or (token == "+" and repeated in "*+?")
            ):  # lazy or possessive: the same count
                continue
            if repeated or (closed is not None and closed.is_ambiguous and token != "?"):
                return "has nested repeats, which can take exponential time"
            group.is_ambiguous |= not re.fullmatch(r"\{\d+\}", token)
            group.repeats += token in "*+" or token.endswith(",}")
            repeated = token
            continue
        repeated = ""
        closed = groups.pop() if token == ")" and len(groups) > 1 else None
        if token == "(":
            groups.append(_Group())
        elif token == "|":
            group.is_ambiguous, group.max_repeats, group.repeats = True, max(group.max_repeats, group.repeats), 0
        elif closed is not None:
            groups[-1].is_ambiguous |= closed.is_ambiguous
            groups[-1].repeats += max(closed.repeats, closed.max_repeats)
        if len(groups) > MAX_GROUP_DEPTH:
            return f"has groups nested more than {MAX_GROUP_DEPTH} deep"
        if groups[-1].repeats > MAX_REPEATS_IN_ROW:
            return _TOO_MANY_REPEATS
    return _TOO_MANY_REPEATS if groups[0].repeats > MAX_REPEATS_IN_ROW else None

"""Regular expressions from strangers: refused where their cost can explode, which they are trusted never to need."""

import re
from dataclasses import dataclass

from saccade.errors import ModelError

PATTERN = 2_000  # characters of a regular expression; GPT-4's has about 150
DEPTH = 20  # of groups in groups
RUN = 3  # unbounded repeats one after the other, each of which may take letters from the next; published ones have two
COUNT = 10_000


def check_pattern(pattern: str, where: str) -> None:
    """Refuse a regular expression whose cost can explode: repeats within repeats, and huge counts.

    >>> check_pattern(r"'s|'t| ?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+", "a.json")
    >>> check_pattern("(a+)+$", "a.json")
    Traceback (most recent call last):
    saccade.errors.ModelError: a.json: the pattern '(a+)+$' repeats a repetition, which can take for ever; such files are ...
    """
    if len(pattern) > PATTERN:
        raise ModelError(f"{where} has a pattern of {len(pattern):,} characters; at most {PATTERN:,} are read.")
    wrong = _recalls(pattern) or _counts(_bare(pattern)) or _explodes(_bare(pattern))
    if wrong:
        raise ModelError(f"{where}: the pattern {pattern[:60]!r} {wrong}; such files are not read.")


def _bare(pattern: str) -> str:
    """The skeleton: escapes and classes count as a letter, and groups lose what says their kind."""
    bare = re.sub(r"\\[pP]\{[^}]*\}|\\.", "x", pattern, flags=re.DOTALL)
    bare = re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", "x", bare)
    return re.sub(r"\(\?(?:<?[=!]|[a-zA-Z-]*:|P?<\w+>|'\w+'|[>~])", "(", bare)


def _recalls(pattern: str) -> str | None:
    """Whether it asks for what a group found before, or for a group again."""
    plain = re.sub(r"\\[^1-9kg]", "x", pattern, flags=re.DOTALL)
    return "refers to its own groups, which can take for ever" if re.search(r"\\[1-9kg]|\(\?[R(]", plain) else None


def _counts(bare: str) -> str | None:
    """Whether its counts, one within the other, may be huge."""
    counts = 1
    for most in re.findall(r"\{(?:\d*,)?(\d+)\}", bare):
        counts *= max(1, int(most[:9]))
    return f"counts up to {counts:,}" if counts > COUNT else None


@dataclass
class _Group:
    """What was seen of an open group: may it match in several ways, and how many unbounded repeats stand in a row?"""

    varies: bool = False
    run: int = 0  # in this alternative
    longest: int = 0  # in those before


def _explodes(bare: str) -> str | None:
    """Whether a repeat applies to a group that can match the same letters in several ways, or too many stand in a row."""
    groups, closed, repeated = [_Group()], None, ""
    for word in re.findall(r"\{\d*,?\d*\}|.", bare, flags=re.DOTALL):
        top = groups[-1]
        if word[0] in "*+?" or (word[0] == "{" and len(word) > 1):
            if repeated and (word == "?" or (word == "+" and repeated in "*+?")):  # greedy or not: the same count
                continue
            if repeated or (closed is not None and closed.varies and word != "?"):
                return "repeats a repetition, which can take for ever"
            top.varies |= not re.fullmatch(r"\{\d+\}", word)
            top.run += word in "*+" or word.endswith(",}")
            repeated = word
            continue
        repeated = ""
        closed = groups.pop() if word == ")" and len(groups) > 1 else None
        if word == "(":
            groups.append(_Group())
        elif word == "|":
            top.varies, top.longest, top.run = True, max(top.longest, top.run), 0
        elif closed is not None:
            groups[-1].varies |= closed.varies
            groups[-1].run += max(closed.run, closed.longest)
        if len(groups) > DEPTH:
            return f"has groups more than {DEPTH} deep"
        if groups[-1].run > RUN:
            return f"has more than {RUN} repeats in a row, which can take for ever"
    return f"has more than {RUN} repeats in a row, which can take for ever" if groups[0].run > RUN else None

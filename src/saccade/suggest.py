"""Did-you-mean suggestions: the nearest known name, for error messages about an unknown or misspelt name.

This module imports nothing from the rest of saccade, so that every package can use it.
"""

from collections.abc import Sequence
from difflib import get_close_matches


def suggest(name: str, choices: Sequence[str]) -> str:
    """The second half of an error message: the nearest known name, if there is one, and all known names.

    >>> suggest("bigbrid", ["dot", "bigbird"])
    "did you mean 'bigbird'? Known are dot, bigbird."
    """
    near = get_close_matches(name, choices, n=1)
    return (f"did you mean {near[0]!r}? Known" if near else "known") + f" are {', '.join(choices)}."

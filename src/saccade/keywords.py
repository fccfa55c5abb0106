"""Checks of the keywords of public functions: an unknown keyword is answered with the right one, as a wrong flag is.

This module imports nothing from the rest of saccade but its errors and suggestions, so that every package can use it.
"""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

from saccade.errors import KeywordError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def check_keywords(function: AnyFunction) -> AnyFunction:
    """Decorator: an unknown keyword raises a KeywordError, also a TypeError, that names the nearest keyword.

    >>> @check_keywords
    ... def embed(texts, *, batch_size=8): ...
    >>> embed([], batchsize=4)
    Traceback (most recent call last):
        ...
    saccade.errors.KeywordError: embed() has no keyword 'batchsize'; did you mean 'batch_size'? Known are texts, batch_size.
    """
    return check_keywords_with(lambda keyword: "")(function)


def check_keywords_with(describe: Callable[[str], str]) -> Callable[[AnyFunction], AnyFunction]:
    """The same decorator for a function whose unknown keywords may be described: `describe` returns a hint, or ""."""

    def decorate(function: AnyFunction) -> AnyFunction:
        parameters = signature(function).parameters.values()
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        known = [one.name for one in parameters if one.kind in kinds and one.name != "self"]
        name = getattr(function, "__name__", "the function")

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            for keyword in keywords:
                if keyword not in known and (hint := describe(keyword)):
                    raise KeywordError(f"{name}() has no keyword {keyword!r}{hint}")
            raise_for_unknown_keywords(name, keywords, known)
            return function(*args, **keywords)

        return checked  # type: ignore[return-value]

    return decorate


def raise_for_unknown_keywords(
    function: str, keywords: Collection[str], known: Collection[str], synonyms: Mapping[str, str] | None = None
) -> None:
    """Raise a KeywordError for the first keyword that a function does not have; `synonyms` are names in other libraries."""
    for keyword in keywords:
        if keyword in known:
            continue
        if synonyms and keyword in synonyms:
            raise KeywordError(f"{function}() has no keyword {keyword!r}; use {synonyms[keyword]!r}.")
        near = get_close_matches(keyword, known, n=1)
        hint = f"did you mean {near[0]!r}? Known are" if near else "known are"
        raise KeywordError(f"{function}() has no keyword {keyword!r}; {hint} {', '.join(known)}.")

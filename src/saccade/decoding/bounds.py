"""Within which bounds a text is written: where it ends, and what may stand in it.

Bounds(stop=2, limit=64)
Bounds(stop=tokenizer.end, limit=64, rules=[NoRepeat(3)])
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.decoding.rules import Ruling, Sofar, check_rules
from saccade.errors import UsageError

Until = Callable[[Sofar], Sequence[bool]]  # which rows end with the token that they have just written


@dataclass(frozen=True)
class Bounds:
    """At most `limit` tokens, none after a `stop` token, each as the `rules` allow.

    `until` can end rows for reasons of its own, such as a stop string.
    """

    stop: int | Collection[int] | None
    limit: int
    rules: Sequence[Ruling] = ()
    until: Until | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"At least one token has to be asked for; got limit={self.limit}.")

    def stops(self, vocab: int) -> frozenset[int]:
        """The stop tokens; one that a model of so many tokens could never write is an error, and so is such a rule."""
        found = [] if self.stop is None else [self.stop] if isinstance(self.stop, int) else list(self.stop)
        beyond = [token for token in found if not 0 <= token < vocab]
        if beyond:
            raise UsageError(
                f"The stop token {beyond[0]} is unknown: the model writes tokens from 0 to {vocab - 1}; "
                "take the end of its own tokenizer, or None."
            )
        check_rules(self.rules, vocab, self.limit)
        return frozenset(found)

    def over(self, sofar: Sofar) -> list[bool]:
        """Which rows end with what stands there, stop tokens and the limit aside."""
        return [False] * len(sofar) if self.until is None else [bool(ends) for ends in self.until(sofar)]


def among(tokens: Tensor, found: frozenset[int]) -> Tensor:
    """Which of the tokens are among those found, (B,)."""
    return torch.isin(tokens, torch.tensor(sorted(found), dtype=torch.long, device=tokens.device))

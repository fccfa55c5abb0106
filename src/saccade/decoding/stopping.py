"""Within which bounds a text is written: where it ends, and what may stand in it.

StoppingCriteria(stop_ids=2, max_new_tokens=64)
StoppingCriteria(stop_ids=tokenizer.eos_id, max_new_tokens=64, processors=[NoRepeatNgram(3)])
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory, check_processors
from saccade.errors import UsageError

StopCondition = Callable[[TokenHistory], Sequence[bool]]  # which rows end with the token that they have just written


@dataclass(frozen=True)
class StoppingCriteria:
    """At most `max_new_tokens` tokens, none after one of the `stop_ids`, each as the `processors` allow.

    `stop_condition` can end rows for reasons of its own, such as a stop string.
    """

    stop_ids: int | Collection[int] | None
    max_new_tokens: int
    processors: Sequence[LogitsProcessor] = ()
    stop_condition: StopCondition | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"At least one token has to be asked for; got max_new_tokens={self.max_new_tokens}.")

    def resolve_stop_ids(self, vocab: int) -> frozenset[int]:
        """The stop tokens; one that a model of so many tokens could never write is an error, and so is such a rule."""
        found = (
            [] if self.stop_ids is None else [self.stop_ids] if isinstance(self.stop_ids, int) else list(self.stop_ids)
        )
        beyond = [token for token in found if not 0 <= token < vocab]
        if beyond:
            raise UsageError(
                f"The stop token {beyond[0]} is unknown: the model writes tokens from 0 to {vocab - 1}; "
                "take the end of its own tokenizer, or None."
            )
        check_processors(self.processors, vocab, self.max_new_tokens)
        return frozenset(found)

    def finished_rows(self, history: TokenHistory) -> list[bool]:
        """Which rows end with what stands there, stop tokens and the limit aside."""
        return (
            [False] * len(history)
            if self.stop_condition is None
            else [bool(ends) for ends in self.stop_condition(history)]
        )


def is_in(tokens: Tensor, ids: frozenset[int]) -> Tensor:
    """Which of the tokens are among those found, (B,)."""
    return torch.isin(tokens, torch.tensor(sorted(ids), dtype=torch.long, device=tokens.device))

"""Stopping criteria of decoding: stop tokens, the limit of new tokens, and logits processors.

StoppingCriteria(stop_ids=2, max_new_tokens=64)
StoppingCriteria(stop_ids=tokenizer.eos_id, max_new_tokens=64, processors=[NoRepeatNgram(3)])
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory, check_processors
from saccade.errors import UsageError

StopCondition = Callable[[TokenHistory], Sequence[bool]]  # which rows end after their newest token


@dataclass(frozen=True)
class StoppingCriteria:
    """Limits of one generation: rows end at one of the `stop_ids`, after `max_new_tokens` tokens, or by `stop_condition`.

    `processors` are the logits processors that are applied to every step. `stop_condition` ends rows for other reasons,
    such as stop strings.
    """

    stop_ids: int | Collection[int] | None
    max_new_tokens: int
    processors: Sequence[LogitsProcessor] = ()
    stop_condition: StopCondition | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be at least 1; got {self.max_new_tokens}.")

    def resolve_stop_ids(self, vocab: int) -> frozenset[int]:
        """The stop tokens as a set; checks them and the logits processors against the vocabulary size."""
        ids = (
            [] if self.stop_ids is None else [self.stop_ids] if isinstance(self.stop_ids, int) else list(self.stop_ids)
        )
        beyond = [token for token in ids if not 0 <= token < vocab]
        if beyond:
            raise UsageError(
                f"The stop token {beyond[0]} is unknown: the model has tokens from 0 to {vocab - 1}; "
                "use the eos_id of its own tokenizer, or None."
            )
        check_processors(self.processors, vocab, self.max_new_tokens)
        return frozenset(ids)

    def finished_rows(self, history: TokenHistory) -> list[bool]:
        """Which rows end by the stop condition."""
        return (
            [False] * len(history)
            if self.stop_condition is None
            else [bool(ends) for ends in self.stop_condition(history)]
        )


def is_in(tokens: Tensor, ids: frozenset[int]) -> Tensor:
    """Which of the tokens are among the ids, (B,)."""
    return torch.isin(tokens, torch.tensor(sorted(ids), dtype=torch.long, device=tokens.device))

"""How the next token is chosen from its scores: the best, or drawn from the likely ones."""

from dataclasses import dataclass

import torch
from torch import Tensor


def greedy(scores: Tensor) -> Tensor:
    """The best token of each row."""
    return scores.argmax(-1)


@dataclass
class Draw:
    """Draw from softmax(scores / temperature), after leaving out all but the `top_k` best, and all but the fewest that
    together have the share `top_p` (Holtzman et al. 2020, arXiv 1904.09751). The same seed draws the same.

    >>> scores = torch.tensor([[0.0, 5.0, 4.0]])
    >>> {int(Draw(seed=n, top_k=1)(scores)) for n in range(20)}, {int(Draw(seed=n, top_p=0.7)(scores)) for n in range(20)}
    ({1}, {1})
    """

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"A temperature is above 0, top_k 0 or more and top_p above 0 and at most 1; got {self.temperature}, "
                f"{self.top_k} and {self.top_p}. For the best token each time use `greedy`."
            )
        self._chance = torch.Generator().manual_seed(self.seed)

    def __call__(self, scores: Tensor) -> Tensor:
        ranked, tokens = (scores.float() / self.temperature).cpu().sort(dim=-1, descending=True)
        shares = ranked.softmax(-1)
        if self.top_k:
            shares[:, self.top_k :] = 0.0
        before = shares.cumsum(-1) - shares  # the share of all better ones
        shares = torch.where(before < self.top_p * shares.sum(-1, keepdim=True), shares, 0.0)
        drawn = torch.multinomial(shares, 1, generator=self._chance)
        return tokens.gather(-1, drawn)[:, 0].to(scores.device)

"""What can be set of a pretraining."""

from dataclasses import dataclass

from saccade.errors import UsageError

TEXTS = ("running", "packed", "alone")


@dataclass(frozen=True)
class Config:
    objective: str = "masked"  # any of OBJECTIVES
    length: int = 128  # the most tokens of a row
    pieces: str = "bpe"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    texts: str = "running"  # what lines are: one running text, or texts of their own, packed into rows or alone in one
    share: float = 0.0  # of the tokens or patches that is hidden; 0: as published
    span: float = 3.0  # the mean length of what is taken out in one piece
    whole_words: bool = False  # hide all tokens of a word, or none
    weight: float = 50.0  # of the discriminator's loss beside the generator's, where words are replaced
    shrink: int = 3  # how many times narrower that generator is, as published for the base model

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise UsageError(f"task.share is {self.share}; a share from 0 to below 1 is needed, such as 0.15.")
        if not self.span >= 1:
            raise UsageError(f"task.span is {self.span}; a mean length of 1 token or more is needed.")
        if self.length < 8:
            raise UsageError(f"task.length is {self.length}; a row needs 8 tokens at least.")
        if not (0 < self.weight < float("inf") and self.shrink >= 1):
            said = f"task.weight is {self.weight} and task.shrink is {self.shrink}"
            raise UsageError(f"{said}; a weight above 0 and a number from 1 up are needed, such as 50 and 3.")
        if self.texts not in TEXTS:
            raise UsageError(f"task.texts is {self.texts!r}; known are {', '.join(TEXTS)}.")

"""The next token of a running text, as the task `language` has it (Radford et al. 2018)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.data import Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.language import Language
from saccade.tasks.pretrain.config import Config


class Causal(Language):
    name = "causal"
    said = "the next word of a running text (GPT)"
    Config = Config

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.texts != "running" or self.config.whole_words:
            raise UsageError(
                "causal reads one running text, token by token; leave out task.texts and task.whole_words."
            )

    @property
    def writes_records(self) -> str:  # type: ignore[override]
        return ""

    @property
    def context(self) -> int:
        return 0

    @property
    def recall(self) -> int:
        return 0

    def begins(self, ids: np.ndarray, model: Model) -> None:
        """A text is no row of records here."""

    def fit(self, examples: Sequence[Example]) -> None:
        """There is nothing to know of the data: records and their checks are an affair of `language`."""

    def teach(self, model: Model, examples: Sequence[Example]) -> None:
        """Nor is there anything to give."""

"""The flags that say how a model computes: as it is, or in its fast form."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from saccade.models.model import Model


@dataclass(frozen=True)
class Engine:
    """How a model computes."""

    engine: Literal["plain", "auto", "int8", "float16", "float32"] = "plain"
    """The model as it is, or its fast form: auto chooses a precision, the others force one."""
    verbose: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say on standard error what was chosen, and what speculation was worth."""

    def ready(self, model: "Model") -> "Model":
        """The model in the form that is asked for, in evaluation."""
        model.eval()
        if self.engine == "plain":
            self.say("engine plain: the model as it is")
            return model
        from saccade.engine import fast

        made = fast(model, self.engine)
        self.say(f"engine {made.choice}")
        return made

    def say(self, line: str) -> None:
        if self.verbose:
            print(line, file=sys.stderr)

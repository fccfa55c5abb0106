"""The flags that say how a model computes: as it is, or in its fast form."""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from saccade.cli.recipe import Wrong

if TYPE_CHECKING:
    from saccade.models.model import Model


@dataclass(frozen=True)
class Engine:
    """How a model computes."""

    engine: Literal["auto", "int8", "float16", "float32", "plain"] = "auto"
    """The model in its fast form, of a precision that is chosen by what it costs, or of this one; or the model as it is."""
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu"
    """Where it computes; auto: the best there is. Elsewhere than on the CPU it is the model as it is, compiled."""
    verbose: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say on standard error what was chosen, and what speculation was worth."""

    def ready(self, model: "Model") -> "Model":
        """The model in the form that is asked for, in evaluation."""
        model.eval()
        if self.device != "cpu":
            from saccade.training.world import alone

            try:
                model.to(alone(self.device).device)
            except ValueError as error:
                raise Wrong(str(error)) from None
        if self.engine == "plain":
            self.say("engine plain: the model as it is")
            return model
        from saccade.engine import fast, native

        began = time.perf_counter()
        compiled = "compiled operators" if native.ready() else native.why()
        built = time.perf_counter() - began
        made = fast(model, self.engine)
        whole = time.perf_counter() - began
        self.say(f"engine {made.choice}; {compiled}; ready after {whole:.1f} s, {built:.1f} of them for the operators")
        return made

    def say(self, line: str) -> None:
        if self.verbose:
            print(line, file=sys.stderr)

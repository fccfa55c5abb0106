"""Command-line flags for the inference engine: the plain PyTorch model or the optimized one."""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.models.model import Model


@dataclass(frozen=True)
class EngineFlags:
    """Engine and device of inference."""

    engine: Literal["auto", "int8", "bfloat16", "float16", "float32", "off"] = "auto"
    """Optimized inference: auto takes the fastest precision with little loss of quality; off runs plain PyTorch."""
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu"
    """Device of inference; auto: the best available. Devices other than the CPU run the compiled PyTorch model."""
    verbose: tyro.conf.FlagCreatePairsOff[bool] = False
    """Log the chosen precision, and the acceptance rate of speculative decoding, to standard error."""

    def prepare(self, model: "Model") -> "Model":
        """The model on the chosen device and engine, in evaluation mode."""
        model.eval()
        if self.device != "cpu":
            from saccade.training.distributed import single_process_world

            try:
                model.to(single_process_world(self.device).device)
            except ValueError as error:
                raise UsageError(str(error)) from None
        if self.engine == "off":
            self.log("engine off: the plain PyTorch model")
            return model
        from saccade.engine import fast
        from saccade.engine.kernels import library
        from saccade.engine.native import ops

        start = time.perf_counter()
        operators = "compiled operators" if ops.is_available() else ops.unavailable_reason()
        library.is_available()  # compiles the kernels of encoders
        compile_time = time.perf_counter() - start
        optimized = fast(model, self.engine)
        total = time.perf_counter() - start
        self.log(
            f"engine {optimized.precision_choice}; {operators}; ready in {total:.1f} s ({compile_time:.1f} s to compile)"
        )
        for note in optimized.encoder_notes:
            self.log(f"encoder {note}")
        return optimized

    def log(self, line: str) -> None:
        if self.verbose:
            print(line, file=sys.stderr)

"""Choice of the precision for inference (int8, bfloat16, float16, float32) from measured quality losses of real models."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from saccade.engine.kernels import library
from saccade.engine.kernels.compile_encoder import encoder_unsupported_reason
from saccade.engine.native import ops
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.parts.stack import Stack

PRECISIONS = ("int8", "bfloat16", "float16", "float32")  # from the fastest to the most precise
AUTO, COMPILED = "auto", "compiled"
MIN_QUANTIZED_WIDTH = 128  # narrower models gain no speed from quantized weights
MAX_PERPLEXITY_INCREASE = 0.01  # largest relative increase in perplexity that a precision may cause
MAX_CHANGED_FRACTION = 0.001  # largest fraction of an encoder's predictions that a precision may change


@dataclass(frozen=True)
class QuantizedDecoderResult:
    """A measured quality loss of a decoder, by `saccade.engine.quantization_quality` on texts of the model's domain."""

    model: str
    family: str
    precision: str
    agreement: float  # fraction of equal greedy tokens
    perplexity_increase: float  # relative increase


DECODER_RESULTS = (
    QuantizedDecoderResult("stories260K, on 24 stories from its training domain", "llama", "int8", 0.974, 0.0039),
    QuantizedDecoderResult("stories260K, on 24 stories from its training domain", "llama", "float16", 0.9992, 0.0),
    QuantizedDecoderResult(
        "the distilled English-Portuguese model, on 150 sentences of Tatoeba", "marian_ssru", "int8", 0.993, 0.0021
    ),
    QuantizedDecoderResult(
        "the distilled English-Portuguese model, on 150 sentences of Tatoeba", "marian_ssru", "float16", 1.0, 0.0
    ),
)


@dataclass(frozen=True)
class QuantizedEncoderResult:
    """A measured quality loss of an encoder: `saccade predict --engine` compared with `--engine off`."""

    model: str
    precision: str
    agreement: float  # fraction of equal predictions: labels of texts, or tags of words


ENCODER_RESULTS = (
    QuantizedEncoderResult("MiniLM trained on SST-2, on 872 sentences", "int8", 0.9989),
    QuantizedEncoderResult("MiniLM trained on SST-2, on 872 sentences", "float16", 1.0),
    QuantizedEncoderResult("MiniLM trained on WNUT-17, on the 9,354 words of 600 texts", "int8", 0.9994),
    QuantizedEncoderResult("MiniLM trained on WNUT-17, on the 9,354 words of 600 texts", "float16", 1.0),
)
# the same, where the layers run as one encoder program
ENCODER_PROGRAM_RESULTS = (
    QuantizedEncoderResult("MiniLM trained on SST-2, on 2,693 sentences", "int8", 0.9970),
    QuantizedEncoderResult("MiniLM trained on SST-2, on 2,693 sentences", "bfloat16", 0.9996),
)


@dataclass(frozen=True)
class PrecisionChoice:
    """A precision and the reason for choosing it.

    >>> print(PrecisionChoice("int8", "requested"))
    int8: requested
    """

    precision: str
    reason: str

    def __str__(self) -> str:
        return f"{self.precision}: {self.reason}"


def choose_precision(model: Model, precision: str = AUTO) -> PrecisionChoice:
    """Choose the precision in which `fast` runs a model; any value but "auto" is used as given."""
    if precision not in (AUTO, *PRECISIONS):
        raise UsageError(f"Unknown precision {precision!r}; known are {', '.join((AUTO, *PRECISIONS))}.")
    device = next((p.device.type for p in model.parameters()), "cpu")
    if device != "cpu":
        return PrecisionChoice(COMPILED, f"on {device} the model is compiled, at its own precision")
    if precision == "bfloat16" and not library.is_available():
        raise UsageError(f"bfloat16 needs the compiled kernels ({library.unavailable_reason()}); choose float32.")
    if precision != AUTO:
        return PrecisionChoice(precision, "requested")
    width = model.width
    if width < MIN_QUANTIZED_WIDTH:
        return PrecisionChoice("float32", f"a model of width {width} is too narrow to gain speed from quantization")
    # int8 was measured with the native operators
    candidates = PRECISIONS if ops.is_available() else PRECISIONS[1:]
    if model.capabilities.is_autoregressive:
        return _choose_for_decoder(candidates)
    if all(not encoder_unsupported_reason(stack, "float32") for stack in _stacks(model)):
        # bfloat16 is no faster than float32 where the processor has no instruction for it
        candidates = ("int8", "bfloat16") if library.has_native_bfloat16() else ("int8",)
        return _choose_for_encoder(candidates, ENCODER_PROGRAM_RESULTS)
    if not _fits_float16(model):
        return PrecisionChoice("float32", "some of its weights are beyond the range of float16")
    return _choose_for_encoder(candidates, ENCODER_RESULTS)


def _stacks(model: Model) -> list[Stack]:
    return [part for part in model.body.modules() if isinstance(part, Stack)]


def _choose_for_decoder(precisions: Sequence[str]) -> PrecisionChoice:
    """The fastest precision whose increase in perplexity was small in every measurement."""
    for precision in precisions:
        results = [result for result in DECODER_RESULTS if result.precision == precision]
        worst = max(results, key=lambda result: result.perplexity_increase, default=None)
        if worst is not None and worst.perplexity_increase < MAX_PERPLEXITY_INCREASE:
            return PrecisionChoice(
                precision, f"perplexity rose by at most {worst.perplexity_increase:.2%}, measured with {worst.model}"
            )
    return PrecisionChoice(
        "float32", f"every other precision raised perplexity by {MAX_PERPLEXITY_INCREASE:.0%} or more"
    )


def _fits_float16(model: Model) -> bool:
    """Whether all weights are within the range of float16."""
    limit = torch.finfo(torch.float16).max
    return all(float(p.detach().abs().amax()) <= limit for p in model.parameters() if p.numel())


def _choose_for_encoder(precisions: Sequence[str], measured: Sequence[QuantizedEncoderResult]) -> PrecisionChoice:
    """The fastest precision that changed very few predictions in every measurement."""
    for precision in precisions:
        results = [result for result in measured if result.precision == precision]
        worst = min(results, key=lambda result: result.agreement, default=None)
        if worst is not None and 1 - worst.agreement < MAX_CHANGED_FRACTION:
            changed = f"at most {1 - worst.agreement:.2%} of an encoder's predictions changed"
            return PrecisionChoice(precision, f"{changed}, measured with {worst.model}")
    return PrecisionChoice(
        "float32",
        f"every faster precision of this processor changed {MAX_CHANGED_FRACTION:.1%} of an encoder's predictions or more",
    )

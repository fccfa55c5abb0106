"""Which precision a model is made fast in, and why: by a table of what real models lost, not by a guess when it is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from saccade.engine.native import ops
from saccade.errors import UsageError
from saccade.models.model import Model

PRECISIONS = ("int8", "float16", "float32")  # from the quickest to the finest
AUTO, COMPILED = "auto", "compiled"
MIN_QUANTIZED_WIDTH = 128  # the width below which products are too small for their weights to be a burden
MAX_PERPLEXITY_INCREASE = 0.01  # how much larger a perplexity may become
MAX_CHANGED_FRACTION = 0.001  # of a reader's answers, the share that may come out otherwise


@dataclass(frozen=True)
class QuantizedDecoderResult:
    """One line of evidence, by `saccade.engine.quantization_quality` on texts of the model's own kind."""

    model: str
    family: str
    precision: str
    agreement: float  # share of greedy tokens
    perplexity_increase: float  # of the perplexity, as a share of it


DECODER_RESULTS = (
    QuantizedDecoderResult("stories260K, on 24 stories of its own", "llama", "int8", 0.974, 0.0039),
    QuantizedDecoderResult("stories260K, on 24 stories of its own", "llama", "float16", 0.9992, 0.0),
    QuantizedDecoderResult(
        "the English-Portuguese student, on 150 sentences of Tatoeba", "marian_ssru", "int8", 0.993, 0.0021
    ),
    QuantizedDecoderResult(
        "the English-Portuguese student, on 150 sentences of Tatoeba", "marian_ssru", "float16", 1.0, 0.0
    ),
)


@dataclass(frozen=True)
class QuantizedEncoderResult:
    """One line of evidence about a reader, by `saccade predict --engine` beside `--engine off`."""

    model: str
    precision: str
    agreement: float  # share of answers: labels of texts, or tags of words


ENCODER_RESULTS = (
    QuantizedEncoderResult("MiniLM that has learnt SST-2, on 872 sentences", "int8", 0.9989),
    QuantizedEncoderResult("MiniLM that has learnt SST-2, on 872 sentences", "float16", 1.0),
    QuantizedEncoderResult("MiniLM that has learnt WNUT-17, on the 9,354 words of 600 texts", "int8", 0.9994),
    QuantizedEncoderResult("MiniLM that has learnt WNUT-17, on the 9,354 words of 600 texts", "float16", 1.0),
)


@dataclass(frozen=True)
class PrecisionChoice:
    """A precision, and the reason for it in words.

    >>> print(PrecisionChoice("int8", "asked for"))
    int8: asked for
    """

    precision: str
    reason: str

    def __str__(self) -> str:
        return f"{self.precision}: {self.reason}"


def choose_precision(model: Model, precision: str = AUTO) -> PrecisionChoice:
    """What `fast` makes of a model; anything but "auto" is taken as it is asked for."""
    if precision not in (AUTO, *PRECISIONS):
        raise UsageError(f"Unknown precision {precision!r}; known are {', '.join((AUTO, *PRECISIONS))}.")
    device = next((p.device.type for p in model.parameters()), "cpu")
    if device != "cpu":
        return PrecisionChoice(COMPILED, f"on {device} it is the plain model, compiled")
    if precision != AUTO:
        return PrecisionChoice(precision, "asked for")
    width = model.width
    if width < MIN_QUANTIZED_WIDTH:
        return PrecisionChoice("float32", f"a width of {width} is too narrow to gain from fewer bits")
    # int8 was measured with our own operators
    able = PRECISIONS if ops.is_available() else PRECISIONS[1:]
    if model.capabilities.is_autoregressive:
        return _choose_for_decoder(able)
    if not _fits_float16(model):
        return PrecisionChoice("float32", "some of its weights are larger than float16 has numbers for")
    return _choose_for_encoder(able)


def _choose_for_decoder(precisions: Sequence[str]) -> PrecisionChoice:
    """The quickest that has cost little perplexity wherever it was measured."""
    for quickest in precisions:
        lines = [line for line in DECODER_RESULTS if line.precision == quickest]
        worst = max(lines, key=lambda line: line.perplexity_increase, default=None)
        if worst is not None and worst.perplexity_increase < MAX_PERPLEXITY_INCREASE:
            return PrecisionChoice(
                quickest, f"it has cost {worst.perplexity_increase:.2%} of perplexity at most, in {worst.model}"
            )
    return PrecisionChoice(
        "float32", f"every other precision has cost {MAX_PERPLEXITY_INCREASE:.0%} of perplexity or more"
    )


def _fits_float16(model: Model) -> bool:
    """Whether float16 has a number for every weight."""
    most = torch.finfo(torch.float16).max
    return all(float(p.detach().abs().amax()) <= most for p in model.parameters() if p.numel())


def _choose_for_encoder(precisions: Sequence[str]) -> PrecisionChoice:
    """The quickest that has changed hardly an answer wherever it was measured."""
    for quickest in precisions:
        lines = [line for line in ENCODER_RESULTS if line.precision == quickest]
        worst = min(lines, key=lambda line: line.agreement, default=None)
        if worst is not None and 1 - worst.agreement < MAX_CHANGED_FRACTION:
            changed = f"it has changed {1 - worst.agreement:.2%} of a reader's answers at most"
            return PrecisionChoice(quickest, f"{changed}, in {worst.model}")
    return PrecisionChoice(
        "float32", f"every other precision has changed {MAX_CHANGED_FRACTION:.1%} of a reader's answers or more"
    )

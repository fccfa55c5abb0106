"""The settings of pretraining."""

from dataclasses import dataclass

from saccade.errors import UsageError

PACKINGS = ("stream", "packed", "none")


@dataclass(frozen=True)
class Config:
    objective: str = "masked_lm"
    """Pretraining objective: causal_lm, masked_lm, span_corruption, bart_denoising, replaced_token_detection, masked_image."""
    max_tokens: int = 128
    """Maximum number of tokens per training row."""
    tokenizer: str = "bpe"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes."""
    packing: str = "stream"
    """Sequence packing: stream (all lines as one text, cut into rows), packed (several texts per row) or none (one per row)."""
    mask_ratio: float = 0.0
    """Mask ratio: fraction of the tokens or patches that are masked; 0 takes the published value of the objective."""
    mean_span_length: float = 3.0
    """Mean length of a masked span in tokens (span_corruption, bart_denoising)."""
    whole_word_masking: bool = False
    """Whole-word masking: mask all tokens of a word or none of them."""
    discriminator_weight: float = 50.0
    """Weight of the discriminator loss relative to the generator loss (replaced token detection)."""
    generator_divisor: int = 3
    """Generator size for replaced token detection: this many times narrower than the discriminator."""

    def __post_init__(self) -> None:
        if not 0 <= self.mask_ratio < 1:
            raise UsageError(f"task.mask_ratio is {self.mask_ratio}; a fraction in [0, 1) is needed, such as 0.15.")
        if not self.mean_span_length >= 1:
            raise UsageError(f"task.mean_span_length is {self.mean_span_length}; it must be at least 1 token.")
        if self.max_tokens < 8:
            raise UsageError(f"task.max_tokens is {self.max_tokens}; a row needs at least 8 tokens.")
        if not 0 < self.discriminator_weight < float("inf"):
            raise UsageError(
                f"task.discriminator_weight is {self.discriminator_weight}; it must be above 0 and finite."
            )
        if self.generator_divisor < 1:
            raise UsageError(f"task.generator_divisor is {self.generator_divisor}; it must be at least 1.")
        if self.packing not in PACKINGS:
            raise UsageError(f"task.packing is {self.packing!r}; known are {', '.join(PACKINGS)}.")

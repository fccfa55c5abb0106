"""Replaced token detection: a small generator fills masked positions, and a discriminator detects which tokens were replaced.

Both are trained jointly (ELECTRA: Clark et al. 2020, arXiv 2003.10555). A fraction of the tokens, 15 % by default, is masked,
all of them with the mask token; BERT's 80/10/10 rule is not used, since the discriminator never sees a mask. The generator
learns to predict the masked tokens, as BERT does. Tokens sampled from its logits take their place, without a gradient through
the sampling, and the discriminator learns for every token whether it was replaced; a sampled token that equals the original
counts as original. The two share their embeddings.

The discriminator is the model. The generator exists only during training: checkpoints contain it, the saved model does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from saccade import metrics
from saccade.data import Batch, Example, Text
from saccade.metrics import Score
from saccade.metrics.score import ratio
from saccade.models.capabilities import Modality
from saccade.models.families.electra import FAMILY, Config, Electra, lm_head, share_embeddings
from saccade.models.init import init_normal
from saccade.models.model import Model
from saccade.parts.heads import LMHead
from saccade.parts.position import Rotary
from saccade.tasks.base import Defaults, Item
from saccade.tasks.interface.predictions import MeasuredPrediction
from saccade.tasks.losses import max_rows_per_chunk
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.objective import Objective
from saccade.tasks.pretrain.packed_rows import collate_rows, make_rows, ordinary_ids, require_mask_id

ANSWER_KEYS = (  # the sums over one row from which the scores are computed
    "generator_nats",  # cross-entropy of the generator, summed over the masked tokens
    "generator_correct",
    "masked",
    "discriminator_loss",  # binary cross-entropy, summed over the tokens
    "correct",
    "tokens",
    "replaced",
    "true_positives",
    "predicted_positives",
)


class Generator(Model):
    """The small masked language model; it shares the embeddings and their norm with the discriminator."""

    def __init__(self, config: Config, discriminator: Electra, divisor: int):
        heads = max(1, config.heads // divisor)
        multiple = 2 if isinstance(discriminator.stack.position, Rotary) else 1  # RoPE rotates pairs of columns
        head_width = max(multiple, config.width // (divisor * heads) // multiple * multiple)
        small = replace(config, width=heads * head_width, heads=heads, ffn_width=max(1, config.ffn_width // divisor))
        body = Electra(small)
        head = lm_head(small, body)
        super().__init__(FAMILY, small, body, head, "lm")
        init_normal(self, small)
        share_embeddings(discriminator, body)
        head.score.weight = body.words.vectors.weight


@dataclass(frozen=True)
class GeneratorRound:
    """The outcome of one pass: the predictions of the generator, the tokens it replaced, and the discriminator's logits."""

    keep: Tensor  # (B, L) False at padding
    masked: Tensor  # (B, L) True at the masked positions
    row_indices: Tensor  # (N,) the row of each position that the generator filled
    nats: Tensor  # (N,) its cross-entropy at each of them
    correct: Tensor  # (N,) whether its most likely token is the original
    is_replaced: Tensor  # (B, L) True where the token differs from the original
    logits: Tensor  # (B, L) of the discriminator; above zero means replaced

    @property
    def token_losses(self) -> Tensor:
        """Binary cross-entropy of the discriminator for each token, (B, L); 0 at padding."""
        gold = self.is_replaced.to(self.logits.dtype)
        return F.binary_cross_entropy_with_logits(self.logits, gold, reduction="none").masked_fill(~self.keep, 0.0)


class ReplacedTokenDetection(Objective):
    name = "replaced_token_detection"
    description = "replaced token detection (ELECTRA): which tokens a small generator has replaced"
    family = "electra"
    needs = Needs(Modality.TEXT, head="replaced_token_detection")
    token_template = "bos_eos"
    default_sizes: ClassVar[Mapping[str, Any]] = {
        "embedding_width": 128,
        "width": 128,
        "layers": 4,
        "heads": 4,
        "ffn_width": 512,
    }

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        """A lower learning rate than for other objectives, since both losses update the shared embeddings."""
        chosen = super().defaults(examples, pretrained)
        return replace(chosen, train={**chosen.train, "lr": 5e-4})

    def attach_training_modules(self, model: Model) -> None:
        assert isinstance(model.body, Electra), "no other family has a head for replaced token detection"
        model.generator = Generator(model.config, model.body, self.config.generator_divisor)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return make_rows(examples, model, self.config)

    def batch(self, items: Sequence[Item]) -> Batch:
        return collate_rows(items)

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """For each row: the generator's mean over masked tokens, times the tokens, plus the weighted sum of the discriminator.

        The sum over rows therefore does not depend on how rows are batched, and for rows of equal length the loss per token is
        the published one: the mean over the masked tokens, plus `discriminator_weight` times the mean over all tokens.
        """
        if not hasattr(model, "generator"):
            raise ValueError("This model has no generator to train with; call attach_training_modules(model) first.")
        assert isinstance(batch.source, Text)
        round_ = sample_replacements(model, batch, self.mask_ratio, corruption.random_noise(batch.source, 2))
        tokens, masked = round_.keep.sum(1), round_.masked.sum(1)
        generator_loss = (round_.nats * (tokens / masked)[round_.row_indices]).sum()
        return generator_loss + self.config.discriminator_weight * round_.token_losses.sum()

    def answer(self, model: Model, batch: Batch) -> list[dict[str, float]]:
        """The sums of each row, under ANSWER_KEYS."""
        assert isinstance(batch.source, Text)
        noise = corruption.seeded_noise(batch.source, batch.items, 2)
        round_ = sample_replacements(model, batch, self.mask_ratio, noise)
        rows, keep, replaced = round_.row_indices.cpu(), round_.keep, round_.is_replaced
        predicted = (round_.logits > 0) & keep
        at_masked = (round_.nats, round_.correct, torch.ones_like(round_.nats))
        at_tokens = (
            round_.token_losses,
            (replaced == predicted) & keep,
            keep,
            replaced,
            replaced & predicted,
            predicted,
        )
        columns = [torch.zeros(len(batch.items)).index_add_(0, rows, x.float().cpu()) for x in at_masked]
        columns += [x.float().sum(1).cpu() for x in at_tokens]
        return [dict(zip(ANSWER_KEYS, row, strict=True)) for row in torch.stack(columns, dim=1).tolist()]

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        """The generator's perplexity is the first score: the better it gets, the lower the discriminator's scores may fall."""
        sums = {name: np.array([answer[name] for answer in answers]) for name in ANSWER_KEYS}
        scores = [
            _ratio_score("discriminator_loss", sums["discriminator_loss"], sums["tokens"], better="lower"),
            _ratio_score("recall", sums["true_positives"], sums["replaced"]),
            _ratio_score("precision", sums["true_positives"], sums["predicted_positives"]),
            _ratio_score("accuracy", sums["correct"], sums["tokens"]),
            _ratio_score("majority", sums["tokens"] - sums["replaced"], sums["tokens"]),
        ]
        if not sums["masked"].any():  # without a generator
            return scores
        perplexity = metrics.perplexity(sums["generator_nats"].tolist(), sums["masked"].tolist())
        return [perplexity, *scores, _ratio_score("generator_accuracy", sums["generator_correct"], sums["masked"])]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> MeasuredPrediction:
        hits, replaced, tokens = (int(answer[name]) for name in ("true_positives", "replaced", "tokens"))
        false_positives = int(answer["predicted_positives"]) - hits
        summary = f"{hits} of {replaced} replaced tokens detected, {false_positives} false positives, {tokens} tokens"
        return MeasuredPrediction(summary, answer)


def _ratio_score(
    name: str, part: np.ndarray, total: np.ndarray, *, better: Literal["higher", "lower"] = "higher"
) -> Score:
    return metrics.measure(name, ratio, np.stack([part, total], axis=1), better=better)


def sample_replacements(model: Model, batch: Batch, mask_ratio: float, noise: Tensor) -> GeneratorRound:
    """Mask a batch, fill the masked positions by the generator and run the discriminator, with uniform noise (2, B, L).

    A saved model has no generator; its masked positions are filled with random tokens.
    """
    text, units = batch.source, batch.gold
    assert isinstance(text, Text)
    assert units is not None
    assert model.head is not None
    masked = corruption.choose_masked(units, mask_ratio, noise[0])
    gold, sampling_noise = text.tokens[masked], noise[1][masked]
    rows = masked.nonzero()[:, 0]
    generator = getattr(model, "generator", None)
    if generator is None:
        ids = ordinary_ids(model).to(gold.device)
        sampled = ids[(sampling_noise * len(ids)).long().clamp(max=len(ids) - 1)]
        rows, nats, correct = rows[:0], sampling_noise[:0], sampling_noise[:0]
    else:
        with_masks = replace(text, tokens=text.tokens.masked_fill(masked, require_mask_id(model)))
        x = generator.body(replace(batch, source=with_masks))[masked]
        nats, correct, sampled = run_generator(generator.head, x, gold, sampling_noise)
    filled = replace(text, tokens=text.tokens.masked_scatter(masked, sampled))
    logits = model.head(model.body(replace(batch, source=filled)), text.keep)
    return GeneratorRound(text.keep_mask, masked, rows, nats, correct, filled.tokens != text.tokens, logits)


def run_generator(head: LMHead, x: Tensor, gold: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For hidden states (N, W): cross-entropy of the gold tokens (N,), whether the argmax is right, and a sampled token each.

    A large vocabulary is scored in chunks with gradient checkpointing, so that its logits never exist all at once.
    """

    def run_chunk(x: Tensor, gold: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = head(x)
        nats = F.cross_entropy(logits, gold, reduction="none")
        return nats, logits.argmax(-1) == gold, sample_tokens(logits.detach(), noise)

    size = max_rows_per_chunk(head)
    chunks = list(zip(x.split(size), gold.split(size), noise.split(size), strict=True))
    if len(chunks) == 1:
        return run_chunk(*chunks[0])
    results = [checkpoint(run_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return tuple(torch.cat(column) for column in zip(*results, strict=True))  # type: ignore[return-value]


def sample_tokens(logits: Tensor, noise: Tensor) -> Tensor:
    """Sample one token for each row of logits (N, V) from their softmax, by uniform noise (N,) and the inverse of the CDF.

    >>> sample_tokens(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]]), torch.tensor([0.4, 0.6, 0.4])).tolist()
    [0, 1, 1]
    """
    cdf = logits.float().softmax(-1).cumsum(-1)
    return torch.searchsorted(cdf, noise.float().unsqueeze(-1), right=True).squeeze(-1).clamp(max=logits.size(-1) - 1)

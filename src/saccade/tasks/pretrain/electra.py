"""Words that were replaced: a small generator fills gaps, and a discriminator tells which words are not the original ones.

Both learn at once (ELECTRA: Clark et al. 2020, arXiv 2003.10555). A share of the words, 15 % where nobody says, is hidden, all of
them behind the mask; BERT's 80/10/10 is not used, since no mask ever reaches the discriminator. The generator learns which words
stood there, as BERT does. Words drawn from its scores take their places, without a gradient, and the discriminator learns for
every token whether it was replaced; a drawn word that is the original by luck counts as original. What the two read with is
shared.

The discriminator is the model. The generator stands beside it while it learns: checkpoints have it, the saved model does not.
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
from saccade.tasks.losses import max_rows_per_chunk
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.objective import Objective
from saccade.tasks.pretrain.packed_rows import collate_rows, make_rows, ordinary_ids, require_mask_id

ANSWER_KEYS = ("nats", "right", "gaps", "cost", "agreed", "tokens", "replaced", "found", "doubted")  # over each row


class Generator(Model):
    """The small masked language model; its vectors of words, segments and positions, and their norm, are the discriminator's."""

    def __init__(self, config: Config, discriminator: Electra, divisor: int):
        heads = max(1, config.heads // divisor)
        pairs = 2 if isinstance(discriminator.stack.position, Rotary) else 1  # columns that turn together
        each = max(pairs, config.width // (divisor * heads) // pairs * pairs)
        small = replace(config, width=heads * each, heads=heads, ffn_width=max(1, config.ffn_width // divisor))
        body = Electra(small)
        head = lm_head(small, body)
        super().__init__(FAMILY, small, body, head, "lm")
        init_normal(self, small)
        share_embeddings(discriminator, body)
        head.score.weight = body.words.vectors.weight


@dataclass(frozen=True)
class GeneratorRound:
    """One round of the game: what was hidden and guessed, and what is doubted of the text that came of it."""

    keep: Tensor  # (B, L) real tokens
    masked: Tensor  # (B, L)
    row_indices: Tensor  # (N,) of the gaps that the generator filled
    nats: Tensor  # (N,) what each costs it
    correct: Tensor  # (N,) whether its likeliest word is the right one
    is_replaced: Tensor  # (B, L) where another word stands now
    logits: Tensor  # (B, L) above zero: thought to be replaced

    @property
    def token_losses(self) -> Tensor:
        """What each real token costs the discriminator, (B, L)."""
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
        """Slower than others: both losses pull at the vectors of the words."""
        chosen = super().defaults(examples, pretrained)
        return replace(chosen, train={**chosen.train, "lr": 5e-4})

    def attach_training_modules(self, model: Model) -> None:
        assert isinstance(model.body, Electra), "no other family has a head for replaced words"
        model.generator = Generator(model.config, model.body, self.config.generator_divisor)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return make_rows(examples, model, self.config)

    def batch(self, items: Sequence[Item]) -> Batch:
        return collate_rows(items)

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """For each row the generator's mean over its gaps, times its tokens; and `weight` times the discriminator's sum.

        So the sum over rows does not depend on how rows come together in batches, and of rows of one length the loss of a token
        is the published one: the mean over gaps, and `weight` times the mean over tokens.
        """
        if not hasattr(model, "generator"):
            raise ValueError("This model has no generator beside it to learn with; `equip` puts one there.")
        assert isinstance(batch.source, Text)
        found = sample_replacements(model, batch, self.mask_ratio, corruption.random_noise(batch.source, 2))
        tokens, gaps = found.keep.sum(1), found.masked.sum(1)
        return (
            found.nats * (tokens / gaps)[found.row_indices]
        ).sum() + self.config.discriminator_weight * found.token_losses.sum()

    def answer(self, model: Model, batch: Batch) -> list[dict[str, float]]:
        """What each row adds to the sums that scores are made of."""
        assert isinstance(batch.source, Text)
        found = sample_replacements(
            model, batch, self.mask_ratio, corruption.seeded_noise(batch.source, batch.items, 2)
        )
        replaced, doubted = found.is_replaced, (found.logits > 0) & found.keep
        of_gaps = (found.nats, found.correct, torch.ones_like(found.nats))
        of_tokens = (found.token_losses, (replaced == doubted) & found.keep, found.keep)
        of_tokens += (replaced, replaced & doubted, doubted)
        columns = [
            torch.zeros(len(batch.items)).index_add_(0, found.row_indices.cpu(), x.float().cpu()) for x in of_gaps
        ]
        columns += [x.float().sum(1).cpu() for x in of_tokens]
        return [dict(zip(ANSWER_KEYS, row, strict=True)) for row in torch.stack(columns, dim=1).tolist()]

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        """First how surprised the generator is: what the discriminator is asked grows harder with it, so its scores may fall."""
        of = {name: np.array([answer[name] for answer in answers]) for name in ANSWER_KEYS}
        scores = [
            _ratio_score("discriminator_loss", of["cost"], of["tokens"], better="lower"),
            _ratio_score("recall", of["found"], of["replaced"]),
            _ratio_score("precision", of["found"], of["doubted"]),
            _ratio_score("accuracy", of["agreed"], of["tokens"]),
            _ratio_score("majority", of["tokens"] - of["replaced"], of["tokens"]),
        ]
        if not of["gaps"].any():  # there was no generator
            return scores
        surprise = metrics.perplexity(of["nats"].tolist(), of["gaps"].tolist())
        return [surprise, *scores, _ratio_score("generator_accuracy", of["right"], of["gaps"])]

    def to_line(self, record: dict[str, Any]) -> str:
        found, replaced, tokens = (int(record[name]) for name in ("found", "replaced", "tokens"))
        wrong = int(record["doubted"]) - found
        return f"{found} of {replaced} replaced tokens found among {tokens}, and {wrong} doubted that were not replaced"


def _ratio_score(
    name: str, part: np.ndarray, whole: np.ndarray, *, better: Literal["higher", "lower"] = "higher"
) -> Score:
    return metrics.measure(name, ratio, np.stack([part, whole], axis=1), better=better)


def sample_replacements(model: Model, batch: Batch, mask_ratio: float, noise: Tensor) -> GeneratorRound:
    """One round with (2, B, L) numbers of chance. Without a generator, as in a model that was saved, any word fills a gap."""
    text, words = batch.source, batch.gold
    assert isinstance(text, Text)
    assert words is not None
    assert model.head is not None
    hidden = corruption.choose_masked(words, mask_ratio, noise[0])
    gold, luck = text.tokens[hidden], noise[1][hidden]
    at = hidden.nonzero()[:, 0]
    generator = getattr(model, "generator", None)
    if generator is None:
        plain = ordinary_ids(model).to(gold.device)
        drawn = plain[(luck * len(plain)).long().clamp(max=len(plain) - 1)]
        at, nats, right = at[:0], luck[:0], luck[:0]
    else:
        gaps = replace(text, tokens=text.tokens.masked_fill(hidden, require_mask_id(model)))
        nats, right, drawn = run_generator(
            generator.head, generator.body(replace(batch, source=gaps))[hidden], gold, luck
        )
    filled = replace(text, tokens=text.tokens.masked_scatter(hidden, drawn))
    doubts = model.head(model.body(replace(batch, source=filled)), text.keep)
    return GeneratorRound(text.keep_mask, hidden, at, nats, right, filled.tokens != text.tokens, doubts)


def run_generator(head: LMHead, x: Tensor, gold: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of (N, W) vectors: what the (N,) words cost in nats, whether the likeliest is right, and a word drawn by (N,) luck."""

    def piece(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = head(a)
        return F.cross_entropy(scores, b, reduction="none"), scores.argmax(-1) == b, sample_tokens(scores.detach(), c)

    size = max_rows_per_chunk(head)
    pieces = list(zip(x.split(size), gold.split(size), noise.split(size), strict=True))
    if len(pieces) == 1:
        return piece(*pieces[0])
    made = [checkpoint(piece, *some, use_reentrant=False, preserve_rng_state=False) for some in pieces]
    return tuple(torch.cat(column) for column in zip(*made, strict=True))  # type: ignore[return-value]


def sample_tokens(scores: Tensor, noise: Tensor) -> Tensor:
    """A word of each row of (N, V) scores, each as likely as softmax says, where (N,) luck is anything from 0 to 1.

    >>> sample_tokens(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]]), torch.tensor([0.4, 0.6, 0.4])).tolist()
    [0, 1, 1]
    """
    below = scores.float().softmax(-1).cumsum(-1)
    return torch.searchsorted(below, noise.float().unsqueeze(-1), right=True).squeeze(-1).clamp(max=scores.size(-1) - 1)

"""What words cost: the cross-entropy over a vocabulary, whose scores are by far the largest tensor in training.

The definition makes all scores and lets autograd go back over them several times. The fast path makes a few rows of scores at a
time and, while they are at hand, what is to be changed for them: so they are made once and never exist together. Where products
are to be short (autocast), those of the fast path are; chances and sums are not.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from saccade.data import Batch, Text
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.models.model import Model
from saccade.parts.heads import LMHead

MAX_LOGITS_PER_CHUNK = 2**24  # scores of the vocabulary that exist at one time: 64 MB of float32
MAX_LOGITS_IN_CACHE = 2**21  # the same on the fast path of a processor, where they can stay in its cache
MIN_ROWS_PER_CHUNK = (
    256  # but no fewer rows than this at a time, since the whole table of words is gone through for each time
)


def lm_loss(head: LMHead | Any, x: Tensor, gold: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The summed cross-entropy of (N, W) vectors against (N,) words."""
    if torch.is_grad_enabled() and is_linear_head(head) and has_full_precision(x):
        where = x.device.type
        kind = torch.get_autocast_dtype(where) if torch.is_autocast_enabled(where) else x.dtype
        x = head.between(x)
        with torch.autocast(where, enabled=False):
            return ChunkedCrossEntropy.apply(x, head.score.weight, head.output_bias, gold, label_smoothing, kind)
    return lm_loss_reference(head, x, gold, label_smoothing)


def is_linear_head(head: Any) -> bool:
    """Whether a head's scores are a product with the words' vectors and what is added, and nothing else."""
    return type(head) in (LMHead, BiasedLMHead) and type(head.score) is nn.Linear


def has_full_precision(x: Tensor) -> bool:
    """Whether sums may be taken in the numbers of x; the definition takes those of shorter ones in longer ones."""
    return x.dtype in (torch.float32, torch.float64)


def lm_loss_reference(head: LMHead | Any, x: Tensor, gold: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The same by its definition, a piece of the vocabulary's scores at a time, each made again in the backward pass."""

    def piece(a: Tensor, b: Tensor) -> Tensor:
        return F.cross_entropy(head(a), b, reduction="sum", label_smoothing=label_smoothing)

    rows = max_rows_per_chunk(head)
    if len(x) <= rows:
        return piece(x, gold)
    parts = [
        checkpoint(piece, a, b, use_reentrant=False, preserve_rng_state=False)
        for a, b in zip(x.split(rows), gold.split(rows), strict=True)
    ]
    return torch.stack(parts).sum()


class ChunkedCrossEntropy(torch.autograd.Function):
    """The loss, and its gradient while the scores are there.

    Of a softmax p over V words of which a share s is smoothed, the gradient by the scores is p - s/V, less 1 - s at the gold.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        output_bias: Tensor | None,
        gold: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        loss, factor = weight.new_zeros(()), weight.to(dtype)  # of the products
        # the mean of a vector's scores over all words is its score by the words' mean
        centre, offset = weight.mean(0), 0.0 if output_bias is None else output_bias.mean()
        by_x, by_weight = torch.empty_like(x), torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        by_added = torch.zeros_like(output_bias) if output_bias is not None and ctx.needs_input_grad[2] else None
        most = MAX_LOGITS_PER_CHUNK // len(weight)
        rows = max(
            1,
            min(most, max(MIN_ROWS_PER_CHUNK, MAX_LOGITS_IN_CACHE // len(weight))) if x.device.type == "cpu" else most,
        )
        for some, own, out in zip(x.split(rows), gold.split(rows), by_x.split(rows), strict=True):
            some = some.to(dtype)
            scores = F.linear(some, factor, None if output_bias is None else output_bias.to(dtype))  # (N, V)
            move = scores.softmax(-1, dtype=loss.dtype)  # a chance near 1 needs long numbers
            best, surest = scores.amax(-1).to(loss.dtype), move.amax(-1)  # the likeliest has a chance
            below = best - scores.gather(1, own[:, None])[:, 0]
            if label_smoothing:
                below = below.lerp(best - (some.to(loss.dtype) @ centre + offset), label_smoothing)
                move -= label_smoothing / len(weight)
            loss += (below - surest.log()).sum()
            move[torch.arange(len(own), device=own.device), own] -= 1 - label_smoothing
            turned = move.to(dtype)
            out.copy_(turned @ factor)
            if by_weight is not None:
                _add_product(by_weight, turned.T, some)
            if by_added is not None:
                by_added += move.sum(0)
            del scores, move, turned  # before the next are made
        ctx.save_for_backward(by_x, by_weight, by_added)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Any:  # type: ignore[override]
        return *(None if by is None else grad_output * by for by in ctx.saved_tensors), None, None, None


def _add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b, which may be of shorter numbers."""
    if to.dtype == a.dtype:
        to.addmm_(a, b)
    else:
        to += a @ b


def token_nll(head: LMHead | Any, x: Tensor, gold: Tensor) -> Tensor:
    """What each of (N,) words costs in nats after its vector, (N,); the same, word by word, and not to learn from."""
    rows = max_rows_per_chunk(head)
    pairs = zip(x.split(rows), gold.split(rows), strict=True)
    return torch.cat([F.cross_entropy(head(a), b, reduction="none") for a, b in pairs])


def max_rows_per_chunk(head: LMHead | Any) -> int:
    """Of how many vectors the scores of all words may exist together."""
    return max(1, MAX_LOGITS_PER_CHUNK // head.score.out_features)


def seq2seq_loss(model: Model, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """The summed loss of a writer on the targets of a batch: the vocabulary is scored at real tokens only."""
    target = batch.target
    assert target is not None, "a batch to learn from has targets"
    body = model.autoregressive_body
    state, first = body.start(batch)
    length = first.tokens.size(1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    keep = None
    if first.keep is not None or target.keep is not None:
        keep = torch.cat([first.keep_mask, target.keep_mask[:, :-1]], dim=1)
    x = body.hidden_states(Text(tokens, keep), state)[
        :, length - 1 :
    ]  # what follows a target stands at the token before it
    if target.keep is None:
        return lm_loss(body.head, x.flatten(0, 1), target.tokens.flatten(), label_smoothing)
    return lm_loss(body.head, x[target.keep], target.tokens[target.keep], label_smoothing)
